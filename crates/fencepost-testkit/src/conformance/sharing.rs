//! Locks that several hold together to read, and one alone to write.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use fencepost_core::{ErrorKind, HolderId, Lock, Mode, Revoked, Status, Wait};
use futures_util::future::{BoxFuture, join};

use super::stage::{Stage, take};

const READERS: usize = 6;
const WRITERS: usize = 3;
const TURNS: usize = 4;

pub(super) async fn readers_hold_it_together_and_all_are_seen(stage: &Stage<'_>) {
    let one = take(&stage.lock("orders").ttl(stage.long_ttl()).shared()).await;
    let other = take(&stage.other("orders").ttl(stage.long_ttl()).shared()).await;
    (one.check().and(other.check())).expect("both are held");

    let seen = stage.state("orders").await;
    let readers: Vec<HolderId> = seen.readers.iter().map(|reader| reader.holder).collect();
    assert_eq!(readers, [one.holder(), other.holder()], "the readers in the order of their tokens");
    assert_eq!(seen.readers[1].token, other.token(), "a reader is seen with its token");
    assert_eq!(
        seen.readers[1].label.as_deref(),
        Some(super::stage::LABEL),
        "a reader is seen with its label"
    );
    assert_eq!((seen.status, seen.holder), (Status::Held, Some(one.holder())), "it is held: {seen:?}");
    let listed = stage.locks().list("").await.expect("locks can be listed");
    assert_eq!((listed.len(), listed[0].readers.len()), (1, 2), "it is listed once, with both: {listed:?}");

    one.release().await.expect("a lease that is held can be released");
    let seen = stage.state("orders").await;
    assert_eq!((seen.status, seen.readers.len()), (Status::Held, 1), "one is left: {seen:?}");
    other.release().await.expect("a lease that is held can be released");
    assert_eq!(stage.state("orders").await.status, Status::Free, "nobody holds it any more");
}

pub(super) async fn writer_waits_for_the_last_reader_and_readers_for_the_writer(stage: &Stage<'_>) {
    let readers = [take(&reader(stage)).await, take(&reader(stage)).await];
    for reader in readers {
        assert!(is_refused(&writer(stage)).await, "a writer came in beside a reader");
        reader.release().await.expect("a lease that is held can be released");
    }
    let alone = take(&writer(stage)).await;
    assert!(stage.state("orders").await.readers.is_empty(), "a writer is no reader");
    assert!(is_refused(&reader(stage)).await, "a reader came in beside a writer");
    assert!(is_refused(&writer(stage)).await, "a writer came in beside a writer");
    alone.release().await.expect("a lease that is held can be released");
    let last = take(&reader(stage)).await;
    last.release().await.expect("a lease that is held can be released");
}

pub(super) async fn reader_goes_behind_a_writer_that_waits(stage: &Stage<'_>) {
    let first = take(&reader(stage)).await;
    // Tokens may come with the places in the queue, so their order alone does not say who had it first.
    let writer_had_it = AtomicBool::new(false);
    let waits = async {
        let lease = writer(stage).acquire().await.expect("the writer is served");
        writer_had_it.store(true, Ordering::SeqCst);
        let second = lease.token();
        lease.release().await.expect("a lease that is held can be released");
        second
    };
    let others = async {
        stage.until_state("orders", "the writer waits", |seen| seen.waiters.len() == 1).await;
        assert!(is_refused(&reader(stage)).await, "a reader passed by a writer that waits");
        let late = async {
            let lease = reader(stage).acquire().await.expect("the reader is served");
            assert!(writer_had_it.load(Ordering::SeqCst), "a reader that waits passed by a writer");
            lease
        };
        let free = async {
            stage.until_state("orders", "the reader waits too", |seen| seen.waiters.len() == 2).await;
            first.release().await.expect("a lease that is held can be released");
        };
        let (late, ()) = join(late, free).await;
        let third = late.token();
        late.release().await.expect("a lease that is held can be released");
        third
    };
    let (second, third) = join(waits, others).await;
    assert!(third > second, "the reader came in before the writer: {third}, {second}");
}

pub(super) async fn tokens_of_readers_grow_and_that_of_the_next_writer_is_greater(stage: &Stage<'_>) {
    let before = take(&writer(stage)).await;
    let mut last = before.token();
    before.release().await.expect("a lease that is held can be released");
    let mut leases = Vec::new();
    for _ in 0..5 {
        let lease = take(&reader(stage)).await;
        assert!(lease.token() > last, "token {} came after {last}", lease.token());
        last = lease.token();
        leases.push(lease);
    }
    for lease in leases {
        lease.release().await.expect("a lease that is held can be released");
    }
    let after = take(&writer(stage)).await;
    assert!(after.token() > last, "token {} of a writer came after {last}", after.token());
    after.release().await.expect("a lease that is held can be released");
}

pub(super) async fn dropped_writer_lets_the_readers_behind_it_in(stage: &Stage<'_>) {
    let first = take(&reader(stage)).await;
    let gives_up = async {
        let short = writer(stage).wait(stage.slack() / 4);
        let refused = short.acquire().await.expect_err("a writer came in beside a reader");
        assert_eq!(refused.kind(), ErrorKind::Contended);
    };
    let comes_in = async {
        stage.until_state("orders", "the writer waits", |seen| seen.waiters.len() == 1).await;
        reader(stage).acquire().await.expect("the reader is served")
    };
    let ((), second) = stage.within(stage.slack() * 2, "the reader", join(gives_up, comes_in)).await;
    first.check().expect("the first reader is there still");
    second.release().await.expect("a lease that is held can be released");
    first.release().await.expect("a lease that is held can be released");
}

pub(super) async fn reader_that_is_revoked_leaves_the_others_alone(stage: &Stage<'_>) {
    let (one, other) = (take(&reader(stage)).await, take(&reader(stage)).await);
    let revoked = stage.locks().revoke("orders", one.token(), "a test").await;
    assert_eq!(revoked.expect("a reader can be revoked"), Revoked::Done);
    // A lock that ends with its process is held until that process has let go of it.
    let one = if stage.profile().frees_when_revoked() {
        Some(one)
    } else {
        stage.within(stage.slack(), "hearing of the revocation", one.lost()).await;
        drop(one.release().await);
        None
    };
    let seen = stage.state("orders").await;
    let readers: Vec<HolderId> = seen.readers.iter().map(|reader| reader.holder).collect();
    assert_eq!(readers, [other.holder()], "the other one holds it still");
    assert!(is_refused(&writer(stage)).await, "a writer came in beside a reader");
    other.check().expect("the other one holds it still");
    other.release().await.expect("a lease that is held can be released");
    if let Some(one) = one {
        drop(one.release().await);
    }
    take(&writer(stage)).await.release().await.expect("a lease that is held can be released");
}

pub(super) async fn reader_that_is_gone_frees_the_lock_for_a_writer(stage: &Stage<'_>) {
    let mut request = stage.request("orders", Wait::No);
    request.mode = Mode::Shared;
    // Nobody renews it.
    let claim = stage.locks().backend().acquire(&request).await.expect("a free lock can be shared");
    let lasting = take(&reader(stage)).await;
    stage.sleep(stage.ttl() / 2).await;
    assert!(is_refused(&writer(stage)).await, "a writer came in beside readers");
    lasting.release().await.expect("a lease that is held can be released");
    let next = stage.within(stage.ttl() + stage.slack(), "the writer", writer(stage).acquire()).await;
    next.expect("the reader is gone").release().await.expect("a lease that is held can be released");
    drop(claim);
}

pub(super) fn readers_and_writers_of_many_tasks_do_not_overlap(stage: &Stage<'_>) {
    // How many read; less than zero while one writes.
    let inside = AtomicI64::new(0);
    let (inside, most) = (&inside, &AtomicI64::new(0));
    let reads = |_| -> BoxFuture<'_, ()> {
        Box::pin(async move {
            for _ in 0..TURNS {
                let lease = reader(stage).acquire().await.expect("a reader is served");
                let readers = inside.fetch_add(1, Ordering::SeqCst) + 1;
                assert!(readers > 0, "a reader and a writer overlap");
                most.fetch_max(readers, Ordering::SeqCst);
                stage.sleep(Duration::from_millis(2)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                lease.release().await.expect("a lease that is held can be released");
            }
        })
    };
    let writes = |_| -> BoxFuture<'_, ()> {
        Box::pin(async move {
            for _ in 0..TURNS {
                let lease = writer(stage).acquire().await.expect("a writer is served");
                let before = inside.fetch_sub(1000, Ordering::SeqCst);
                assert_eq!(before, 0, "a writer and somebody else overlap");
                stage.sleep(Duration::from_millis(2)).await;
                inside.fetch_add(1000, Ordering::SeqCst);
                lease.release().await.expect("a lease that is held can be released");
            }
        })
    };
    stage.run_all((0..READERS).map(reads).chain((0..WRITERS).map(writes)).collect());
    assert!(most.load(Ordering::SeqCst) > 1, "no two readers ever shared it");
    stage.block_on(async { assert_eq!(stage.state("orders").await.status, Status::Free) });
}

pub(super) async fn sharing_is_refused_where_it_is_not_promised(stage: &Stage<'_>) {
    let refused = stage.lock("orders").shared().try_acquire().await;
    assert_eq!(refused.expect_err("the profile does not promise it").kind(), ErrorKind::Unsupported);
    assert_eq!(stage.state("orders").await.status, Status::Free, "what was refused left a holder");
}

fn reader(stage: &Stage<'_>) -> Lock {
    stage.other("orders").ttl(stage.long_ttl()).shared()
}

fn writer(stage: &Stage<'_>) -> Lock {
    stage.other("orders").ttl(stage.long_ttl())
}

async fn is_refused(lock: &Lock) -> bool {
    lock.try_acquire().await.expect("a lock that is held can be asked for").is_none()
}
