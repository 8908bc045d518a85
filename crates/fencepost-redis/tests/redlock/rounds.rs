//! The token is proposed with the lock: what that round leaves on the nodes, and what becomes of a token that was too small.

use std::time::Duration;

use fencepost_core::{Clock, block_on};
use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::wait_until;

use super::load::commands;
use super::nodes::{AT_ONCE, Nodes, give, key, lock, locks, ms, now, pass, proxied, state, take};

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
fn node_that_answers_late_and_knows_a_greater_token_is_filled_in_at_once() {
    let nodes = Nodes::start(5);
    let proxies = nodes.proxies();
    let locks = locks(&proxied(&proxies, AT_ONCE));
    give(take(&lock(&locks, "a", TTL)));
    proxies[0].set(Mode::Delay(ms(1)));
    let ahead = Clock::system().wall_micros() + 60_000_000;
    // On a busy machine it may answer too soon or too late.
    let is_filled_in = (0..50).any(|number| {
        let name = format!("a{number}");
        nodes.servers[0].command(&["HSET", &key(&name, "s"), "t", &ahead.to_string(), "th", "another"]);
        let lease = take(&lock(&locks, &name, TTL));
        let is_late = lease.token().get() < ahead && lease.slack() == Some(2);
        let is_filled_in = is_late && nodes.holding([0], &lease) == [0];
        give(lease);
        is_filled_in
    });
    assert!(is_filled_in, "before any renewal");
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

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn token_is_greater_also_where_the_record_of_the_last_has_expired() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks("quarantine=off&test_floor=off");
    let token = |name: &str| {
        let lease = take(&lock(&locks, name, TTL));
        let token = lease.token().get();
        wait_until("all nodes have it", || nodes.holding(0..3, &lease).len() == 3);
        give(lease);
        token
    };
    let of_all = |words: &[&str]| -> Vec<_> {
        nodes.servers.iter().map(|server| server.command(words).integer()).collect()
    };
    assert_eq!([token("a"), token("a")], [1, 2]);
    // After a week.
    assert!(of_all(&["TTL", &key("a", "s")]).iter().all(|left| (600_000..=604_800).contains(left)));
    of_all(&["DEL", &key("a", "s")]);
    assert_eq!(token("a"), 3);
    // One that is ahead of the clock stays; what has expired is not as great.
    let ahead = Clock::system().wall_micros() + 3_600_000_000;
    of_all(&["HSET", &key("b", "s"), "t", &ahead.to_string(), "th", "another"]);
    of_all(&["EXPIRE", &key("b", "s"), "600"]);
    assert_eq!(token("b"), ahead + 1);
    assert_eq!(of_all(&["TTL", &key("b", "s")]), [-1; 3]);
    assert_eq!(token("a"), 4);
    of_all(&["DEL", &key("a", "s")]);
    assert_eq!(token("a"), 5);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lock_that_has_run_out_goes_to_who_waits_and_not_to_a_newcomer() {
    let nodes = Nodes::start(3);
    let (ours, theirs, late) = (nodes.locks(AT_ONCE), nodes.locks(AT_ONCE), nodes.locks(AT_ONCE));
    give(take(&lock(&late, "b", TTL)));
    let held = take(&lock(&ours, "a", TTL));
    let waiting = std::thread::spawn(move || take(&lock(&theirs, "a", TTL)));
    wait_until("it waits", || state(&ours, "a").waiters.len() == 1);
    for server in &nodes.servers {
        server.command(&["DEL", &key("a", "l")]);
    }
    assert!(block_on(lock(&late, "a", TTL).try_acquire()).unwrap().is_none());
    give(waiting.join().unwrap());
    drop(held);
}

/// Whoever asked a free node again and again would have it most of the time, and its holder, who needs it in the place of the
/// silent one, would not get it back.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn free_node_is_left_alone_where_the_silent_one_may_have_the_same_lease() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks(AT_ONCE);
    give(take(&lock(&locks, "a", TTL)));
    let record = format!("1|{:032x}|7|held|1|0|{:032x}|{{}}", 1, 1);
    nodes.servers[0].command(&["SET", &key("a", "l"), &record, "PX", "30000"]);
    nodes.servers[1].stop();
    let others = nodes.locks(AT_ONCE);
    let waiting = std::thread::spawn(move || take(&lock(&others, "a", TTL)));
    wait_until("it waits", || !state(&locks, "a").waiters.is_empty());
    pass(ms(1_500));
    let before = commands(&nodes, 2);
    pass(ms(3_000));
    let asked = commands(&nodes, 2) - before;
    // Its signs of life, one or two in two seconds.
    assert!(asked <= 5, "{asked}");
    nodes.servers[1].go_on();
    let released = now();
    nodes.servers[0].command(&["DEL", &key("a", "l")]);
    give(waiting.join().unwrap());
    assert!(now().since(released) < ms(5_000), "it is told with its signs of life");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn nodes_that_have_refused_an_attempt_are_not_asked_to_end_it() {
    let nodes = Nodes::start(5);
    let (ours, theirs) = (nodes.locks(AT_ONCE), nodes.locks(AT_ONCE));
    give(take(&lock(&theirs, "b", TTL)));
    let lease = take(&lock(&ours, "a", TTL));
    let before: u64 = (0..5).map(|node| commands(&nodes, node)).sum();
    for _ in 0..10 {
        assert!(block_on(lock(&theirs, "a", TTL).try_acquire()).unwrap().is_none());
    }
    pass(ms(100));
    let asked = (0..5).map(|node| commands(&nodes, node)).sum::<u64>() - before;
    // A majority decides; what the other two have not answered yet is ended.
    assert!(asked <= 10 * 7 + 5, "{asked}");
    give(lease);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn waiter_of_the_same_process_is_handed_the_lock_in_one_round_trip() {
    let nodes = Nodes::start(3);
    let proxies = nodes.proxies();
    let locks = locks(&proxied(&proxies, AT_ONCE));
    give(take(&lock(&locks, "a", TTL)));
    let delay = ms(50);
    for proxy in &proxies {
        proxy.set(Mode::Delay(delay));
    }
    let hand_over = || {
        let held = take(&lock(&locks, "a", TTL));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| (take(&lock(&locks, "a", TTL)), now()));
            wait_until("it waits", || state(&locks, "a").waiters.len() == 1);
            let released = now();
            give(held);
            let (next, taken) = waiting.join().unwrap();
            give(next);
            taken.since(released)
        })
    };
    // The fewest: a busy machine makes some of them slower. By way of the nodes it is two round trips.
    let fewest = (0..5).map(|_| hand_over()).min().unwrap();
    assert!(fewest < delay * 3, "{fewest:?}");
}
