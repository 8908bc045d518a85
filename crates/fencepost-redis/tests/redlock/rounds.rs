//! The token is proposed with the lock: what that round leaves on the nodes, and what becomes of a token that was too small.

use std::time::Duration;

use fencepost_core::Clock;
use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::wait_until;

use super::minority::with_slack;
use super::nodes::{AT_ONCE, Nodes, give, key, lock, locks, ms, now, proxied, state, take};

const TTL: Duration = Duration::from_secs(30);

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn token_that_the_clock_gives_too_small_is_followed_by_a_greater_one() {
    let nodes = Nodes::start(5);
    let locks = nodes.locks(AT_ONCE);
    give(take(&lock(&locks, "a", TTL)));
    // As a client leaves it whose clock is ahead.
    let ahead = Clock::system().wall_micros() + 60_000_000;
    for server in &nodes.servers {
        server.command(&["HSET", &key("a", "s"), "t", &ahead.to_string(), "th", "another"]);
    }
    let mut last = ahead;
    for _ in 0..3 {
        let lease = take(&lock(&locks, "a", TTL));
        assert_eq!(lease.token().get(), last + 1);
        wait_until("all nodes have it", || nodes.holding(0..5, &lease).len() == 5);
        last = lease.token().get();
        give(lease);
    }
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn node_that_knows_the_very_token_does_not_take_it() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks("quarantine=off&test_floor=off");
    // Without a clock the first token that is proposed is always 1.
    let tokens: Vec<u64> = (0..3)
        .map(|_| {
            let lease = take(&lock(&locks, "a", TTL));
            let token = lease.token().get();
            give(lease);
            token
        })
        .collect();
    assert_eq!(tokens, [1, 2, 3]);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn node_that_has_the_token_of_an_earlier_round_is_freed_as_well() {
    let nodes = Nodes::start(5);
    let locks = nodes.locks(AT_ONCE);
    let lease = take(&lock(&locks, "a", TTL));
    wait_until("all nodes have it", || nodes.holding(0..5, &lease).len() == 5);
    let record = nodes.record(4, "a").expect("it is held there");
    let earlier = record.replacen(&lease.token().to_string(), &(lease.token().get() - 1).to_string(), 1);
    assert_ne!(earlier, record);
    nodes.servers[4].command(&["SET", &key("a", "l"), &earlier, "KEEPTTL"]);
    let released = now();
    give(lease);
    wait_until("nothing is left", || (0..5).all(|node| nodes.left_over(node).is_empty()));
    assert!(now().since(released) < ms(2_000), "long before the ttl");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn node_that_answers_late_and_knows_a_greater_token_is_filled_in_at_once() {
    let nodes = Nodes::start(5);
    let proxies = nodes.proxies();
    let locks = locks(&proxied(&proxies, AT_ONCE));
    give(take(&lock(&locks, "a", TTL)));
    let ahead = Clock::system().wall_micros() + 60_000_000;
    nodes.servers[0].command(&["HSET", &key("a", "s"), "t", &ahead.to_string(), "th", "another"]);
    proxies[0].set(Mode::Delay(ms(1)));
    let lease = with_slack(&lock(&locks, "a", TTL), 2);
    assert!(lease.token().get() < ahead);
    assert_eq!(nodes.holding(0..5, &lease), [0, 1, 2, 3, 4], "before any renewal");
    give(lease);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn votes_that_others_have_split_are_not_taken_for_a_lease() {
    let nodes = Nodes::start(5);
    let locks = nodes.locks(AT_ONCE);
    give(take(&lock(&locks, "a", TTL)));
    // Two attempts of clients that were killed in the middle; each has its token on two nodes.
    for (node, attempt) in [(0, 1), (1, 1), (2, 2), (3, 2)] {
        let record = format!("1|{attempt:032x}|{attempt}|held|1|0|{attempt:032x}|{{}}");
        nodes.servers[node].command(&["SET", &key("a", "l"), &record, "PX", "30000"]);
    }
    let others = nodes.locks(AT_ONCE);
    let waiting = std::thread::spawn(move || take(&lock(&others, "a", TTL)));
    wait_until("it waits", || !state(&locks, "a").waiters.is_empty());
    // Nobody tells it: they end by themselves.
    for node in 0..2 {
        nodes.servers[node].command(&["DEL", &key("a", "l")]);
    }
    let freed = now();
    let lease = waiting.join().unwrap();
    assert!(now().since(freed) < ms(1_000), "{:?}: it looks again by itself", now().since(freed));
    give(lease);
}
