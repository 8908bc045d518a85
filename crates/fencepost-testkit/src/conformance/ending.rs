//! How a hold ends: by a drop in whatever place, with the work that it was for, or with the last descriptor.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use fencepost_core::{ErrorKind, Lock, Wait};
use futures_channel::oneshot;
use futures_util::future::{FutureExt, join};

use super::stage::{Stage, take};

/// Acquires a lock that somebody has dropped a moment ago.
async fn is_free_soon(stage: &Stage<'_>) {
    let lease = stage.within(stage.slack(), "freeing the lock", stage.other("orders").acquire()).await;
    lease.expect("it was given back").release().await.expect("a lease that is held can be released");
}

pub(super) async fn lease_dropped_inside_a_runtime_frees_the_lock(stage: &Stage<'_>) {
    drop(take(&stage.lock("orders").ttl(stage.long_ttl())).await);
    is_free_soon(stage).await;
}

pub(super) fn lease_dropped_outside_any_runtime_frees_the_lock(stage: &Stage<'_>) {
    let lock = stage.lock("orders").ttl(stage.long_ttl());
    let lease = stage.block_on(take(&lock));
    std::thread::spawn(move || drop(lease)).join().expect("a lease can be dropped anywhere");
    stage.block_on(is_free_soon(stage));
}

pub(super) async fn run_gives_what_the_work_gave_and_frees_the_lock(stage: &Stage<'_>) {
    let lock = stage.lock("orders").ttl(stage.long_ttl());
    let token = lock.run(async |lease| {
        lease.check().expect("the work runs under the lock");
        let refused = stage.other("orders").try_acquire().await.expect("a held lock can be asked for");
        assert!(refused.is_none(), "there is a second holder while the work runs");
        lease.token()
    });
    let token = token.await.expect("the work was done");
    let next = stage.take("orders").await;
    assert!(next.token() > token);
    next.release().await.expect("a lease that is held can be released");
}

pub(super) async fn run_can_be_spawned(stage: &Stage<'_>) {
    let lock = stage.lock("orders");
    let (sender, token) = oneshot::channel();
    stage.clock().spawn(async move {
        let ran = lock.run(async |lease| lease.token()).await;
        drop(sender.send(ran));
    });
    let token = stage.within(stage.slack(), "the spawned work", token).await;
    token.expect("the work ran to its end").expect("the lock was free");
    is_free_soon(stage).await;
}

pub(super) async fn panic_in_the_work_frees_the_lock(stage: &Stage<'_>) {
    let lock = stage.lock("orders").ttl(stage.long_ttl());
    let run = lock.run(async |_| std::panic::resume_unwind(Box::new("the work fails on purpose")));
    let outcome: Result<fencepost_core::Result<()>, _> = AssertUnwindSafe(run).catch_unwind().await;
    assert!(outcome.is_err(), "the panic goes on to whoever runs the work");
    is_free_soon(stage).await;
}

/// The work is dropped where it stands, so that it does nothing after the loss.
pub(super) async fn run_ends_its_work_when_the_lease_is_lost(stage: &Stage<'_>) {
    let lock = stage.lock("orders");
    let (started, token) = oneshot::channel();
    let dropped = std::sync::atomic::AtomicBool::new(false);
    let work = async |lease: &fencepost_core::Lease| {
        let _set_on_drop = SetOnDrop(&dropped);
        started.send(lease.token()).expect("somebody waits for it");
        std::future::pending::<()>().await;
    };
    let revoke = async {
        let token = token.await.expect("the work has started");
        stage.client().revoke("orders", token, "the case says so").await.expect("a lease can be revoked");
    };
    let limit = stage.ttl() + stage.slack();
    let (outcome, ()) = stage.within(limit, "ending the work", join(lock.run(work), revoke)).await;
    assert_eq!(outcome.expect_err("the lease was lost").kind(), ErrorKind::Lost);
    assert!(dropped.into_inner(), "the work goes on after the loss");
    is_free_soon(stage).await;
}

struct SetOnDrop<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// What a guardian or a child process keeps open after the holder is gone.
pub(super) async fn descriptor_that_stays_open_keeps_the_lock_taken(stage: &Stage<'_>) {
    let lease = stage.take("orders").await;
    let kept = lease.descriptors().to_vec();
    assert!(!kept.is_empty(), "a lock that lasts as the process hangs on a descriptor");
    drop(lease);
    let waiting = stage.other("orders").wait(Duration::from_millis(300));
    let refused = stage.within(stage.slack(), "a wait with a limit", waiting.acquire()).await;
    let refused = refused.expect_err("the lock was freed while its descriptor was open");
    assert_eq!(refused.kind(), ErrorKind::Contended);
    drop(kept);
    is_free_soon(stage).await;
}

/// Compiles only while the futures of users can cross threads.
pub(super) async fn futures_of_users_can_cross_threads(stage: &Stage<'_>) {
    fn can_cross<T: Send>(future: T) -> T {
        future
    }
    let lock = stage.lock("orders");
    let lease = can_cross(lock.acquire()).await.expect("it is free");
    can_cross(lease.release()).await.expect("a lease that is held can be released");
    let set = [lock.clone()];
    let leases = can_cross(Lock::acquire_all(&set, Wait::No)).await.expect("it is free");
    let errors = can_cross(fencepost_core::release_all(leases)).await;
    assert!(errors.is_empty(), "a set that is held can be released: {errors:?}");
    can_cross(lock.run(async |lease| lease.check())).await.expect("it is free").expect("it is held");
}
