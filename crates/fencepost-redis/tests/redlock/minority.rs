//! Some of the nodes are down, in each of the ways in which a node can be.

use std::time::Duration;

use fencepost_core::{Clock, ErrorKind, Lease, Lock, Locks, Status};
use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::wait_until;

use super::nodes::{
    AT_ONCE, LIMIT, Nodes, give, key, lock, locks, ms, now, pass, percentile, proxied, state, take, within,
};

const TTL: Duration = Duration::from_secs(1);

/// How long acquisitions of a free lock take, and their releases.
fn rounds(locks: &Locks, count: usize) -> (Vec<Duration>, Vec<Duration>) {
    let lock = lock(locks, "busy", TTL);
    let one = |_| {
        let began = now();
        let lease = take(&lock);
        let granted = now();
        give(lease);
        (granted.since(began), now().since(granted))
    };
    (0..count).map(one).unzip()
}

/// Takes a lock with as much slack as there can be. A busy machine may answer too late to be counted, now and then.
pub(crate) fn with_slack(lock: &Lock, slack: usize) -> Lease {
    for _ in 0..20 {
        let lease = take(lock);
        if lease.slack() == Some(slack) {
            return lease;
        }
        give(lease);
    }
    panic!("no lease has a slack of {slack}")
}

fn says(what: &str, durations: &[Duration]) {
    let [half, most] = [50, 99].map(|percent| percentile(durations, percent));
    println!("{what}: p50 {half:?}, p99 {most:?}");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn minority_that_is_down_costs_little_and_comes_back() {
    let mut nodes = Nodes::start(5);
    let locks = nodes.locks(AT_ONCE);
    let (acquired, released) = rounds(&locks, 100);
    says("acquire, all up", &acquired);
    says("release, all up", &released);
    let lease = with_slack(&lock(&locks, "kept", TTL), 2);
    nodes.servers[3].kill();
    nodes.servers[4].stop();
    // While a broken connection is noticed and given up, too.
    let began = now();
    let mut acquired = Vec::new();
    let mut released = Vec::new();
    while now().since(began) < TTL * 5 {
        let (some, others) = rounds(&locks, 10);
        acquired.extend(some);
        released.extend(others);
        lease.check().expect("it is renewed on the other three");
    }
    says("acquire, a minority down", &acquired);
    says("release, a minority down", &released);
    // Two exchanges, each of which waits at most for the patience with a silent node.
    assert!(percentile(&acquired, 99) < ms(100), "far below the ttl");
    assert!(percentile(&acquired, 50) < ms(25), "nobody waits for a node that is known to be down");
    assert_eq!(state(&locks, "kept").slack, Some(0));
    let late = take(&lock(&locks, "late", TTL));
    assert_eq!(late.slack(), Some(0), "three have acknowledged it");
    nodes.servers[3].restart_empty();
    nodes.servers[4].go_on();
    for lease in [&lease, &late] {
        wait_until("the missing nodes are filled in", || nodes.holding(0..5, lease).len() == 5);
        assert_eq!(state(&locks, lease.lock().as_str()).slack, Some(2));
        lease.check().expect("it was held all the time");
    }
    give(lease);
    give(late);
    wait_until("nothing is left", || (0..5).all(|node| nodes.left_over(node).is_empty()));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn node_without_a_name_and_one_behind_a_black_hole_are_done_without() {
    let nodes = Nodes::start(4);
    let proxies = nodes.proxies();
    proxies[3].set(Mode::Blackhole);
    let hosts: Vec<String> = (0..4).map(|node| format!("127.0.0.1:{}", proxies[node].port())).collect();
    let url = format!("redlock://{},no-such-node.invalid:7?{AT_ONCE}", hosts.join(","));
    let locks = locks(&url);
    let lease = take(&lock(&locks, "kept", TTL));
    assert_eq!(lease.slack(), Some(0));
    let began = now();
    let mut acquired = Vec::new();
    while now().since(began) < TTL * 3 {
        acquired.extend(rounds(&locks, 10).0);
        lease.check().expect("it is renewed on the other three");
    }
    says("acquire, one without a name and one behind a black hole", &acquired);
    assert!(percentile(&acquired, 99) < ms(200), "far below the ttl");
    proxies[3].set(Mode::Pass);
    wait_until("the node is filled in", || nodes.holding(0..4, &lease).len() == 4);
    assert_eq!(state(&locks, "kept").slack, Some(1));
    give(lease);
    wait_until("nothing is left", || (0..4).all(|node| nodes.left_over(node).is_empty()));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn release_frees_the_nodes_that_answer_at_once_and_the_others_when_they_come_back() {
    let nodes = Nodes::start(5);
    let locks = nodes.locks("quarantine=off&max_ttl=30s");
    let lease = take(&lock(&locks, "a", ms(30_000)));
    nodes.servers[4].stop();
    let began = now();
    give(lease);
    assert!(now().since(began) < ms(300), "a silent node holds up no release");
    assert!((0..4).all(|node| nodes.left_over(node).is_empty()));
    nodes.servers[4].go_on();
    wait_until("the last node is free, long before the ttl", || nodes.left_over(4).is_empty());
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn majority_that_is_down_fails_soon_and_says_who_and_why() {
    let mut nodes = Nodes::start(5);
    let proxies = nodes.proxies();
    let locks = locks(&proxied(&proxies, AT_ONCE));
    give(take(&lock(&locks, "a", TTL)));
    nodes.servers[1].kill();
    nodes.servers[2].stop();
    proxies[3].set(Mode::Blackhole);
    for round in 0..3 {
        let began = now();
        let error = within(LIMIT, "the error", lock(&locks, "a", TTL).try_acquire()).unwrap_err();
        let took = now().since(began);
        println!("{took:?}: {error}");
        assert!(took < ms(5_000), "{took:?}");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = error.to_string();
        for proxy in &proxies {
            assert!(text.contains(&format!("127.0.0.1:{}", proxy.port())), "{text}");
        }
        assert!(round == 0 || text.contains("closed the connection") || text.contains("eset"), "{text}");
    }
    let waiting = lock(&locks, "a", TTL).wait(ms(1_200));
    let began = now();
    let error = within(LIMIT, "the error", waiting.acquire()).unwrap_err();
    let took = now().since(began);
    println!("{took:?}: {error}");
    assert!(took < ms(2_000), "{took:?}");
    assert!(error.to_string().contains(&format!("127.0.0.1:{}", proxies[2].port())), "{error}");
    pass(TTL);
    assert!([0, 4].into_iter().all(|node| nodes.left_over(node).is_empty()));
    nodes.servers[1].restart_empty();
    nodes.servers[2].go_on();
    proxies[3].set(Mode::Pass);
    let lease = take(&lock(&locks, "a", TTL).wait(LIMIT));
    wait_until("all nodes are back", || nodes.holding(0..5, &lease).len() == 5);
    give(lease);
    assert_eq!(state(&locks, "a").status, Status::Free);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn waiter_outlasts_a_short_outage_of_a_majority() {
    let nodes = Nodes::start(5);
    let locks = nodes.locks(AT_ONCE);
    let held = take(&lock(&locks, "a", ms(8_000)));
    let others = nodes.locks(AT_ONCE);
    let waiting = std::thread::spawn(move || {
        let lease = within(LIMIT, "the wait", lock(&others, "a", TTL).acquire());
        lease.map(|lease| lease.token())
    });
    wait_until("it waits", || state(&locks, "a").waiters.len() == 1);
    for node in 0..3 {
        nodes.servers[node].stop();
    }
    // A turn of the two others is what makes the waiter ask.
    let release = std::thread::spawn(move || within(LIMIT, "a release", held.release()));
    pass(ms(1_000));
    for node in 0..3 {
        nodes.servers[node].go_on();
    }
    release.join().unwrap().expect("a majority has freed it in the end");
    waiting.join().unwrap().expect("an outage of a second does not end a wait");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn node_that_knows_a_greater_token_is_freed_and_filled_in_like_the_others() {
    let nodes = Nodes::start(5);
    let proxies = nodes.proxies();
    let locks = locks(&proxied(&proxies, AT_ONCE));
    give(take(&lock(&locks, "a", LIMIT)));
    // The token of an attempt that wrote it here and nowhere else; too late to be read before the next token is chosen.
    let ahead = Clock::system().wall_micros() + 60_000_000;
    proxies[0].set(Mode::Delay(ms(2)));
    nodes.servers[0].command(&["HSET", &key("a", "s"), "t", &ahead.to_string()]);
    let lease = take(&lock(&locks, "a", ms(30_000)));
    assert!(lease.token().get() < ahead);
    wait_until("it was asked for both", || nodes.record(0, "a").is_some());
    proxies[0].set(Mode::Pass);
    let released = now();
    give(lease);
    wait_until("nothing is left", || (0..5).all(|node| nodes.left_over(node).is_empty()));
    assert!(now().since(released) < ms(2_000), "long before the ttl");
    proxies[0].set(Mode::Delay(ms(2)));
    let lease = take(&lock(&locks, "a", TTL));
    assert!(lease.token().get() < ahead);
    wait_until("it is filled in", || nodes.holding(0..5, &lease).len() == 5);
    assert_eq!(state(&locks, "a").slack, Some(2));
    let counter = nodes.servers[0].command(&["HGET", &key("a", "s"), "t"]);
    assert_eq!(counter.text(), ahead.to_string(), "no counter falls");
    give(lease);
}
