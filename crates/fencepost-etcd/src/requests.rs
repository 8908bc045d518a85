//! Parts of transactions, and what comes back of them.

use crate::generated::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::generated::range_request::{SortOrder, SortTarget};
use crate::generated::request_op::Request;
use crate::generated::response_op::Response;
use crate::generated::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp, ResponseHeader, TxnRequest,
    TxnResponse,
};
use crate::keys;

pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(crate) const RANGE: &str = "/etcdserverpb.KV/Range";

/// Whether a key was made by that revision; by 0, whether it is not there.
pub(crate) fn created(key: &str, revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Create.into(),
        key: key.into(),
        target_union: Some(TargetUnion::CreateRevision(revision)),
        range_end: Vec::new(),
    }
}

/// Whether a key was last changed by that revision; by 0, whether it is not there.
pub(crate) fn modified(key: &str, revision: i64) -> Compare {
    Compare {
        target: CompareTarget::Mod.into(),
        target_union: Some(TargetUnion::ModRevision(revision)),
        ..created(key, 0)
    }
}

/// Whether a key has not been changed since that revision.
pub(crate) fn unchanged_since(key: &str, revision: i64) -> Compare {
    Compare { result: CompareResult::Less.into(), ..modified(key, revision + 1) }
}

/// Whether no key that begins with `prefix` was made after that revision.
pub(crate) fn none_newer(prefix: &str, revision: i64) -> Compare {
    let target_union = Some(TargetUnion::CreateRevision(revision + 1));
    Compare { result: CompareResult::Less.into(), target_union, ..is_empty(prefix) }
}

/// Whether a key is tied to that lease.
pub(crate) fn tied(key: &str, lease: i64) -> Compare {
    Compare {
        target: CompareTarget::Lease.into(),
        target_union: Some(TargetUnion::Lease(lease)),
        ..created(key, 0)
    }
}

/// Whether no key begins with `prefix`.
pub(crate) fn is_empty(prefix: &str) -> Compare {
    Compare { range_end: keys::end_of(prefix), ..created(prefix, 0) }
}

pub(crate) fn put(key: &str, value: Vec<u8>, lease: i64) -> RequestOp {
    op(Request::RequestPut(PutRequest { key: key.into(), value, lease, ignore_lease: false }))
}

/// Changes what a key says, and not what it is tied to.
pub(crate) fn rewrite(key: &str, value: Vec<u8>) -> RequestOp {
    op(Request::RequestPut(PutRequest { key: key.into(), value, lease: 0, ignore_lease: true }))
}

pub(crate) fn delete(key: &str) -> RequestOp {
    op(Request::RequestDeleteRange(DeleteRangeRequest { key: key.into() }))
}

pub(crate) fn get(key: &str) -> RequestOp {
    op(Request::RequestRange(one(key)))
}

pub(crate) fn range(request: RangeRequest) -> RequestOp {
    op(Request::RequestRange(request))
}

pub(crate) fn inner(request: TxnRequest) -> RequestOp {
    op(Request::RequestTxn(request))
}

fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

/// One key.
pub(crate) fn one(key: &str) -> RangeRequest {
    RangeRequest { key: key.into(), ..RangeRequest::default() }
}

/// All keys that begin with `prefix`, in the order in which they were made.
pub(crate) fn all(prefix: &str) -> RangeRequest {
    RangeRequest {
        key: prefix.into(),
        range_end: keys::end_of(prefix),
        sort_order: SortOrder::Ascend.into(),
        sort_target: SortTarget::Create.into(),
        ..RangeRequest::default()
    }
}

/// The newest two keys that begin with `prefix`, none of them made after `most` where that is not 0: without what they say.
pub(crate) fn newest_two(prefix: &str, most: i64) -> RangeRequest {
    RangeRequest {
        sort_order: SortOrder::Descend.into(),
        limit: 2,
        keys_only: true,
        max_create_revision: most,
        ..all(prefix)
    }
}

/// What a transaction has given.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) succeeded: bool,
    pub(crate) header: ResponseHeader,
    parts: Vec<Option<Response>>,
}

impl From<TxnResponse> for Done {
    fn from(response: TxnResponse) -> Self {
        let parts = response.responses.into_iter().map(|part| part.response).collect();
        Self { succeeded: response.succeeded, header: response.header.unwrap_or_default(), parts }
    }
}

impl Done {
    /// What was found by the part with this number.
    pub(crate) fn found(&self, part: usize) -> &[KeyValue] {
        match self.parts.get(part) {
            Some(Some(Response::ResponseRange(range))) => &range.kvs,
            _ => &[],
        }
    }
}
