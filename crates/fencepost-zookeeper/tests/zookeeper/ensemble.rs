//! An ensemble of three that loses members: killed, stopped, and cut off from their leader while their clients reach them.

use std::net::SocketAddr;
use std::time::Duration;

use fencepost_core::{Lease, Lock, Moment, block_on};
use fencepost_testkit::servers::{ZooKeeperClient, ZooKeeperEnsemble, ZooKeeperSetup, ZooKeeperStay};

use crate::stage::{History, eventually, locks, now, sleep};

const TTL: Duration = Duration::from_secs(2);

fn url(address: SocketAddr) -> String {
    format!("zookeeper://{address}")
}

/// An ensemble whose members notice within a second that another one is silent.
fn quick() -> ZooKeeperEnsemble {
    ZooKeeperSetup::default().settings(&["syncLimit=5"]).start_ensemble()
}

fn until_it_follows(ensemble: &ZooKeeperEnsemble, member: usize) {
    let follows =
        || ensemble.member(member).ask("srvr").is_ok_and(|answer| answer.contains("Mode: follower"));
    eventually("it follows again", follows);
}

/// The holder's client stays with a follower that is cut off. For as long as the follower does not notice (five seconds), it serves
/// reads and answers pings.
struct CutOff {
    ensemble: ZooKeeperEnsemble,
    follower: usize,
}

impl CutOff {
    fn new() -> Self {
        let ensemble = ZooKeeperEnsemble::start();
        let [follower, _] = ensemble.followers();
        Self { ensemble, follower }
    }

    /// Where the holder is connected.
    fn address(&self) -> SocketAddr {
        self.ensemble.member(self.follower).address()
    }

    /// When another client, of the leader, has the lock.
    fn next_holder_from(&self) -> Moment {
        let leader = self.ensemble.member(self.ensemble.leader()).address();
        let lock = locks(&url(leader)).lock("orders").unwrap().ttl(TTL);
        let lease = block_on(lock.acquire()).unwrap();
        let from = now();
        drop(block_on(lease.release()));
        from
    }
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn holder_on_a_follower_that_is_cut_off_stops_before_the_next_one_begins() {
    assert_stops_in_time(|lock| lock);
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn reader_on_a_follower_that_is_cut_off_stops_before_a_writer_begins() {
    assert_stops_in_time(Lock::shared);
}

#[track_caller]
fn assert_stops_in_time(wanted: fn(Lock) -> Lock) {
    let scene = CutOff::new();
    for _ in 0..2 {
        let lock = wanted(locks(&url(scene.address())).lock("orders").unwrap().ttl(TTL));
        let lease = block_on(lock.acquire()).unwrap();
        sleep(TTL);
        lease.check().expect("a healthy holder keeps its lease");
        let cut_at = now();
        scene.ensemble.cut_off(scene.follower);
        let believed_to = std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let mut to = now();
                while lease.check().is_ok() {
                    to = now();
                    sleep(Duration::from_millis(1));
                }
                to
            });
            let next_from = scene.next_holder_from();
            let believed_to = holder.join().unwrap();
            assert!(believed_to < next_from, "two at once for {:?}", believed_to.since(next_from));
            believed_to
        });
        assert!(believed_to.since(cut_at) < TTL, "it was believed in for longer than its ttl");
        scene.ensemble.rejoin(scene.follower);
        drop(lease);
        until_it_follows(&scene.ensemble, scene.follower);
    }
}

/// What a client does that counts its session as alive while the server it is connected to answers, and its node as its own while it
/// can be read there.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn client_that_believes_in_pings_overlaps_with_the_next_holder_for_seconds() {
    let scene = CutOff::new();
    let limit = Duration::from_secs(1);
    let mut holder = ZooKeeperClient::connect(scene.address(), TTL, limit).unwrap();
    holder.create("/fencepost", b"", ZooKeeperStay::Persistent).unwrap();
    holder.create("/fencepost/orders", b"", ZooKeeperStay::Persistent).unwrap();
    let stem = format!("/fencepost/orders/{}-x-", "0".repeat(32));
    let node = holder.create(&stem, b"", ZooKeeperStay::SessionInOrder).unwrap();
    scene.ensemble.cut_off(scene.follower);
    let (believed_to, next_from) = std::thread::scope(|scope| {
        let holder = scope.spawn(move || {
            let mut to = now();
            while holder.ping().is_ok() && holder.node(&node).is_ok_and(|node| node.is_some()) {
                to = now();
                sleep(TTL / 20);
            }
            to
        });
        let next_from = scene.next_holder_from();
        (holder.join().unwrap(), next_from)
    });
    let overlap = believed_to.since(next_from);
    println!("two at once for {overlap:?}");
    assert!(overlap > Duration::from_secs(1), "two at once for {overlap:?} only: the cut shows nothing");
}

/// The lease is renewed by what is left of the ensemble: its deadline moves on by more than what was under way.
#[track_caller]
fn assert_is_renewed(lease: &Lease) {
    let deadline = |lease: &Lease| lease.deadline().moment().unwrap();
    let before = deadline(lease).after(Duration::from_secs(2));
    eventually("it is renewed, or lost", || deadline(lease) >= before || lease.check().is_err());
    lease.check().expect("a majority can be reached");
}

/// The ttl leaves time for an election, in which no member serves anybody.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn holder_that_reaches_another_member_keeps_its_lock() {
    let mut ensemble = quick();
    let ttl = Duration::from_secs(30);
    let lease = block_on(locks(&ensemble.url()).lock("orders").unwrap().ttl(ttl).acquire()).unwrap();
    let [cut, stopped] = ensemble.followers();
    ensemble.cut_off(cut);
    assert_is_renewed(&lease);
    ensemble.rejoin(cut);
    until_it_follows(&ensemble, cut);
    // A leader that stands still is only replaced when its followers have noticed and agreed, which takes longer.
    ensemble.member(stopped).stop();
    assert_is_renewed(&lease);
    ensemble.member(stopped).go_on();
    until_it_follows(&ensemble, stopped);
    let leader = ensemble.leader();
    ensemble.member_mut(leader).kill();
    assert_is_renewed(&lease);
    block_on(lease.release()).expect("it was never lost");
}

/// Everything at once: members are killed, stopped and cut off, while clients take turns.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn members_that_fail_let_no_two_hold_at_once_and_tokens_grow() {
    let mut ensemble = quick();
    let (url, history) = (ensemble.url(), History::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| history.take_turns(&url, TTL / 2, TTL / 4));
        }
        for round in 0..3 {
            let leader = ensemble.leader();
            let member = if round % 2 == 0 { leader } else { (leader + 1) % 3 };
            match round % 3 {
                0 => {
                    ensemble.member(member).stop();
                    sleep(TTL * 3 / 2);
                    ensemble.member(member).go_on();
                }
                1 => {
                    ensemble.cut_off(member);
                    sleep(TTL * 3 / 2);
                    ensemble.rejoin(member);
                }
                _ => ensemble.restart(member),
            }
            let before = history.len();
            eventually("somebody holds again", || history.len() > before + 1);
        }
        history.end();
    });
    let holds = history.assert_clean();
    println!("{holds} holds");
}
