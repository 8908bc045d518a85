//! Several of one process who want one lock: one hands it to the next who stands right behind, and to nobody else.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use fencepost_core::{
    AcquireRequest, Backend, Claim, Clock, HolderId, Locks, Mode, Revoked, Wait, block_on, until,
};
use fencepost_testkit::servers::{ZooKeeperClient, ZooKeeperServer, ZooKeeperStay};
use fencepost_zookeeper::ZooKeeperBackend;
use futures_util::future::join_all;

use crate::stage::{History, Hold, backend, eventually, locks, request, sleep};

const TTL: Duration = Duration::from_secs(10);

/// How long it is looked whether somebody is granted what is not free.
const A_WHILE: Duration = Duration::from_millis(300);

type Granted = Receiver<fencepost_core::Result<Box<dyn Claim>>>;

/// A server with a lock that `one` has had before, so that it knows the record, and a client to look at it.
fn prepared() -> (ZooKeeperServer, ZooKeeperBackend, ZooKeeperClient) {
    let server = ZooKeeperServer::start();
    let one = backend(&server.url());
    for _ in 0..2 {
        block_on(held(&one).release()).unwrap();
    }
    let client = server.client();
    (server, one, client)
}

fn held(one: &ZooKeeperBackend) -> Box<dyn Claim> {
    block_on(one.acquire(&request("orders", TTL, Wait::No))).unwrap()
}

/// One more waiter, who stands in the queue when this returns.
fn waiter(one: &ZooKeeperBackend, client: &mut ZooKeeperClient) -> Granted {
    waiter_by(one, request("orders", TTL, Wait::Forever), client)
}

fn waiter_by(one: &ZooKeeperBackend, asked: AcquireRequest, client: &mut ZooKeeperClient) -> Granted {
    let before = queue(client).len();
    let (sender, granted) = channel();
    let one = one.clone();
    Clock::system().serve(async move { drop(sender.send(one.acquire(&asked).await)) });
    eventually("it stands in the queue", || queue(client).len() > before);
    // It has heard of its place, and waits.
    sleep(Duration::from_millis(50));
    granted
}

/// The places, the first one first.
fn queue(client: &mut ZooKeeperClient) -> Vec<String> {
    let mut places = client.children("/fencepost/orders").unwrap();
    places.sort_by_key(|place| place.rsplit('-').next().map(str::to_owned));
    places
}

fn foreign_place(client: &mut ZooKeeperClient) -> String {
    let stem = format!("/fencepost/orders/{}-x-", HolderId::from_bytes([7; 16]));
    client.create(&stem, b"", ZooKeeperStay::SessionInOrder).unwrap()
}

#[track_caller]
fn assert_granted(granted: &Granted) -> Box<dyn Claim> {
    granted.recv_timeout(TTL / 2).expect("nobody is before it").unwrap()
}

#[track_caller]
fn assert_waits(granted: &Granted) {
    assert!(granted.recv_timeout(A_WHILE).is_err(), "it has passed by somebody");
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn hand_over_within_a_process_costs_a_delete_a_look_at_the_next_place_and_a_new_one() {
    const WAITERS: u64 = 16;
    const TIMES: u64 = 40;
    let (server, one, _) = prepared();
    let take_turns = async |times: u64| {
        join_all((0..WAITERS).map(async |_| {
            for _ in 0..times {
                let claim = one.acquire(&request("orders", TTL, Wait::Forever)).await.unwrap();
                claim.release().await.unwrap();
            }
        }))
        .await
    };
    block_on(take_turns(3));
    let before = (server.counted("zk_packets_sent"), server.counted("zk_packets_received"));
    block_on(take_turns(TIMES));
    let sent = server.counted("zk_packets_sent") - before.0;
    let received = server.counted("zk_packets_received") - before.1;
    // Some heartbeats beside, and the first and the last ones, who come to a queue that is empty or leave one.
    let most = WAITERS * TIMES * 13 / 4;
    assert!(
        sent < most && received < most,
        "{received} requests and {sent} answers for {} holds",
        WAITERS * TIMES
    );
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn waiters_of_one_process_are_granted_the_lock_in_their_order() {
    let (_server, one, mut client) = prepared();
    let mut holder = held(&one);
    let waiters: Vec<Granted> = (0..5).map(|_| waiter(&one, &mut client)).collect();
    for next in &waiters {
        assert_waits(next);
        let token = holder.grant().token;
        block_on(holder.release()).unwrap();
        holder = assert_granted(next);
        assert!(holder.grant().token > token);
    }
}

/// Somebody of another process who came in between is not passed by.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn place_of_another_process_in_between_comes_first() {
    let (_server, one, mut client) = prepared();
    let holder = held(&one);
    let foreign = foreign_place(&mut client);
    let (next, last) = (waiter(&one, &mut client), waiter(&one, &mut client));
    block_on(holder.release()).unwrap();
    assert_waits(&next);
    client.delete(&foreign).unwrap();
    let holder = assert_granted(&next);
    assert_waits(&last);
    block_on(holder.release()).unwrap();
    drop(assert_granted(&last));
}

/// The one right before it is not the only one in its way.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn writer_behind_readers_of_its_process_waits_for_all_of_them() {
    let (_server, one, mut client) = prepared();
    let reader = || AcquireRequest { mode: Mode::Shared, ..request("orders", TTL, Wait::No) };
    let [first, last] = [reader(), reader()].map(|asked| block_on(one.acquire(&asked)).unwrap());
    let writer = waiter(&one, &mut client);
    block_on(last.release()).unwrap();
    assert_waits(&writer);
    block_on(first.release()).unwrap();
    drop(assert_granted(&writer));
}

/// By whoever has looked after the queue by hand: somebody else is the next one then.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn waiter_whose_place_was_deleted_is_not_handed_the_lock() {
    let (_server, one, mut client) = prepared();
    let holder = held(&one);
    let next = waiter(&one, &mut client);
    let deleted = queue(&mut client)[1].clone();
    let behind = waiter(&one, &mut client);
    let foreign = foreign_place(&mut client);
    client.delete(&format!("/fencepost/orders/{deleted}")).unwrap();
    block_on(holder.release()).unwrap();
    let behind = assert_granted(&behind);
    assert_waits(&next);
    block_on(behind.release()).unwrap();
    assert_waits(&next);
    client.delete(&foreign).unwrap();
    drop(assert_granted(&next));
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn waiter_behind_one_that_gave_up_waits_for_whoever_is_further_ahead() {
    let (_server, one, mut client) = prepared();
    let holder = held(&one);
    let most = Clock::system().now().after(Duration::from_millis(1_500));
    let impatient = waiter_by(&one, request("orders", TTL, Wait::Until(most)), &mut client);
    let next = waiter(&one, &mut client);
    impatient.recv_timeout(TTL).unwrap().expect_err("it was held all the time");
    assert_waits(&next);
    block_on(holder.release()).unwrap();
    drop(assert_granted(&next));
}

/// Its holder has not let go of it yet.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn waiter_behind_a_lease_that_is_revoked_is_granted_the_lock() {
    let (server, one, mut client) = prepared();
    // Before the grant is written down and watched, and afterwards.
    for age in [Duration::ZERO, Duration::from_millis(400)] {
        let holder = held(&one);
        let next = waiter(&one, &mut client);
        sleep(age);
        let other = backend(&server.url());
        let name = "orders".parse().unwrap();
        let revoked = block_on(other.revoke(&name, holder.grant().token, "a test")).unwrap();
        assert_eq!(revoked, Revoked::Done);
        let next = assert_granted(&next);
        drop(holder);
        block_on(next.release()).unwrap();
    }
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn lock_that_is_to_rest_is_not_handed_over_at_once() {
    let (_server, one, mut client) = prepared();
    let at_least = Duration::from_secs(2);
    let asked = AcquireRequest { at_least: Some(at_least), ..request("orders", TTL, Wait::No) };
    let began = Clock::system().now();
    let holder = block_on(one.acquire(&asked)).unwrap();
    let next = waiter(&one, &mut client);
    block_on(holder.release()).unwrap();
    drop(assert_granted(&next));
    assert!(Clock::system().now().since(began) >= at_least);
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn lift_while_somebody_waits_counts_for_who_is_handed_the_lock() {
    let (server, one, mut client) = prepared();
    let holder = held(&one);
    let next = waiter(&one, &mut client);
    let to = holder.grant().token.get() + 3_600_000_000;
    block_on(locks(&server.url()).lift("orders", to.try_into().unwrap())).unwrap();
    block_on(holder.release()).unwrap();
    assert!(assert_granted(&next).grant().token.get() >= to);
}

/// The lease that was before it is still kept by its holder.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn waiter_whose_session_has_ended_takes_another_place() {
    let (server, one, mut client) = prepared();
    let ttl = Duration::from_secs(1);
    let holder = block_on(one.acquire(&request("orders", ttl, Wait::No))).unwrap();
    let next = waiter_by(&one, request("orders", ttl, Wait::Forever), &mut client);
    server.stop();
    sleep(ttl * 2);
    server.go_on();
    let next = next.recv_timeout(Duration::from_secs(20)).expect("it waits behind nothing").unwrap();
    assert!(next.grant().token > holder.grant().token);
}

/// Among two processes with six tasks each: whoever is handed the lock may have gone at that moment, and whoever hands it over, too.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn tasks_that_give_up_and_drop_at_any_moment_hand_the_lock_on_to_one_at_a_time() {
    const TASKS: usize = 6;
    let (server, one, mut client) = prepared();
    let processes = [Locks::new(one), locks(&server.url())];
    let history = History::default();
    let clock = Clock::system();
    let soon = |most: u64| clock.now().after(clock.jitter(Duration::from_micros(most)));
    let take_turns = async |locks: &Locks| {
        let lock = locks.lock("orders").unwrap().ttl(TTL).wait(TTL * 2);
        while !history.is_over() {
            let patience = clock.random().is_multiple_of(2).then(|| soon(20_000));
            let Some(lease) = until(&clock, patience, Box::pin(lock.acquire())).await else { continue };
            // Nobody holds it for long, so that one whom nobody has told would run out of time.
            let lease = lease.expect("everybody gets a turn");
            let (token, from) = (lease.token().get(), clock.now());
            clock.sleep_until(soon(1_000)).await;
            lease.check().unwrap();
            history.note(Hold { token, from, to: clock.now() });
            match clock.random() % 4 {
                0 => drop(lease),
                1 => drop(until(&clock, Some(soon(1_500)), Box::pin(lease.release())).await),
                _ => lease.release().await.unwrap(),
            }
        }
    };
    std::thread::scope(|scope| {
        for locks in &processes {
            for _ in 0..TASKS {
                scope.spawn(|| block_on(take_turns(locks)));
            }
        }
        sleep(Duration::from_secs(4));
        history.end();
    });
    assert!(history.assert_clean() > 50);
    eventually("nothing is left", || queue(&mut client).is_empty());
}
