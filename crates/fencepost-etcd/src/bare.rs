//! The fewest requests that a lock in etcd could cost, over the same connections: what measurements compare with. Not a lock.

use std::collections::VecDeque;

use fencepost_core::{BackendUrl, Clock, Result};
use futures_util::future::{OptionFuture, join};

use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::generated::TxnRequest;
use crate::members::Failed;
use crate::requests::{created, delete, put};
use crate::server::{FOR_A_WHILE, Server};
use crate::session;
use crate::watch::{Heard, Watch};

/// A client without any care.
#[derive(Debug)]
pub struct Bare {
    server: Server,
    lease: i64,
}

impl Bare {
    /// A client with one lease, which it does not keep alive.
    ///
    /// # Errors
    /// When etcd cannot be reached.
    pub async fn connect(url: &BackendUrl, clock: Clock) -> Result<Self> {
        let server = Server::new(clock, Endpoint::of(url)?);
        let granted = session::grant(&server, 3_600, FOR_A_WHILE).await.map_err(Failed::error)?;
        Ok(Self { server, lease: granted.id })
    }

    /// Makes a key that is not there, and removes it again.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn pair(&self, key: &str) -> Result<()> {
        let entering = TxnRequest {
            compare: vec![created(key, 0)],
            success: vec![put(key, Vec::new(), self.lease)],
            failure: Vec::new(),
        };
        self.run(&entering).await?;
        self.run(&TxnRequest { success: vec![delete(key)], ..TxnRequest::default() }).await
    }

    /// The same with a lease of its own, which is granted before and revoked afterwards.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn pair_with_a_lease(&self, key: &str) -> Result<()> {
        let granted = session::grant(&self.server, 60, FOR_A_WHILE).await.map_err(Failed::error)?;
        let entering = TxnRequest {
            compare: vec![created(key, 0)],
            success: vec![put(key, Vec::new(), granted.id)],
            failure: Vec::new(),
        };
        self.run(&entering).await?;
        session::end(&self.server, granted.id, FOR_A_WHILE).await
    }

    /// Passes a lock round among `waiters`, `times` times: one removes its key and joins the end of the queue in one step, and a
    /// watch tells the next.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn pass_round(&self, waiters: usize, times: usize) -> Result<()> {
        let key = |number: usize| format!("/bare/{:09}", number % (waiters + 1));
        let put = |number: usize| put(&key(number), Vec::new(), self.lease);
        let mut watches = VecDeque::new();
        for number in 0..waiters {
            self.run(&TxnRequest { success: vec![put(number)], ..TxnRequest::default() }).await?;
            watches.push_back(self.watch(&key(number)).await?);
        }
        for number in 0..times {
            let success = vec![delete(&key(number)), put(number + waiters)];
            let passing = TxnRequest { success, ..TxnRequest::default() };
            let told = watches.pop_front().map(until_deleted);
            let (passed, ()) =
                join(self.run(&passing), async { OptionFuture::from(told).await.unwrap_or_default() }).await;
            passed?;
            // It has begun long before it is needed.
            watches.push_back(self.watch(&key(number + waiters)).await?);
        }
        for number in times..times + waiters {
            self.run(&TxnRequest { success: vec![delete(&key(number))], ..TxnRequest::default() }).await?;
        }
        Ok(())
    }

    async fn watch(&self, key: &str) -> Result<Watch> {
        self.server.members().watch(key.as_bytes(), 0).await.map_err(Failure::error)
    }

    async fn run(&self, request: &TxnRequest) -> Result<()> {
        self.server.txn(request, FOR_A_WHILE).await.map(drop).map_err(Failed::error)
    }
}

async fn until_deleted(mut watch: Watch) {
    while watch.next().await == Some(Heard::Begun) {}
}
