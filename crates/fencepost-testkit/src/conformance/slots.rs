//! Locks that several hold, each in a slot with a token of its own.

use std::collections::BTreeSet;

use fencepost_core::{ErrorKind, Lock};
use futures_util::future::join;

use super::stage::{Stage, take};

const SLOTS: usize = 3;

pub(super) async fn as_many_hold_a_slot_as_there_are(stage: &Stage<'_>) {
    let mut leases = Vec::new();
    for _ in 0..SLOTS {
        leases.push(take(&slot(stage)).await);
    }
    let refused = slot(stage).try_acquire().await.expect("slots that are held can be asked for");
    assert!(refused.is_none(), "there is one holder more than there are slots");
    let names: BTreeSet<String> = leases.iter().map(|lease| lease.lock().to_string()).collect();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["orders#0", "orders#1", "orders#2"]);

    let gone = leases.pop().expect("there are three");
    let (name, token) = (gone.lock().clone(), gone.token());
    gone.release().await.expect("a lease that is held can be released");
    let next = take(&slot(stage)).await;
    assert_eq!(*next.lock(), name, "the slot that came free");
    assert!(next.token() > token, "token {} of the slot came after {token}", next.token());
    for lease in leases.into_iter().chain([next]) {
        lease.release().await.expect("a lease that is held can be released");
    }
}

pub(super) async fn waiter_gets_whichever_slot_comes_free(stage: &Stage<'_>) {
    let mut leases = Vec::new();
    for _ in 0..SLOTS {
        leases.push(take(&slot(stage)).await);
    }
    let freed = leases.remove(1);
    let free = async {
        stage.sleep(stage.ttl() / 20).await;
        freed.release().await.expect("a lease that is held can be released");
    };
    let wait = slot(stage);
    let waited = join(wait.acquire(), free);
    let (next, ()) = stage.within(stage.ttl() / 20 + stage.slack(), "the waiter", waited).await;
    let next = next.expect("a slot is free");
    next.check().expect("it is held");
    leases.push(next);
    for lease in leases {
        lease.release().await.expect("a lease that is held can be released");
    }
    let listed = stage.until_free("orders#").await;
    assert!(listed.is_empty(), "the waiter left its other places behind: {listed:?}");
}

pub(super) async fn slots_are_refused_where_they_are_not_promised(stage: &Stage<'_>) {
    let refused = slot(stage).try_acquire().await;
    assert_eq!(refused.expect_err("the profile does not promise it").kind(), ErrorKind::Unsupported);
}

fn slot(stage: &Stage<'_>) -> Lock {
    stage.other("orders").ttl(stage.long_ttl()).slots(SLOTS)
}
