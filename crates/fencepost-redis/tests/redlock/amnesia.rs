//! Nodes that come back without what they knew.

use std::time::Duration;

use fencepost_core::{ErrorKind, Event, FencingToken};
use fencepost_testkit::Listener;
use fencepost_testkit::proxy::Proxy;
use fencepost_testkit::servers::{RedisServer, wait_until};

use super::nodes::{LIMIT, Nodes, address, give, lock, locks, ms, now, pass, proxied, state, take, within};

const TTL: Duration = Duration::from_millis(800);
const SHORT: &str = "max_ttl=1s";

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn fresh_nodes_grant_by_themselves_after_the_longest_ttl() {
    let nodes = Nodes::start(5);
    let locks = nodes.locks(SHORT);
    let heard = Listener::new();
    let observed = lock(&locks, "a", TTL).observer(heard.observer());
    let early = within(LIMIT, "the refusal", observed.try_acquire()).expect("all answer");
    assert_eq!(heard.count(|event| matches!(event, Event::Quarantined)), 1, "{heard:?}");
    assert!(early.is_none(), "they may have been restarted");
    let began = now();
    let lease = take(&lock(&locks, "a", TTL));
    let took = now().since(began);
    println!("first installation: granted after {took:?}");
    assert!(took > ms(800) && took < ms(4_000), "{took:?}");
    give(lease);
    nodes.make_ready(&locks);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn node_restarted_empty_stays_out_until_it_has_its_floor() {
    let mut nodes = Nodes::start(5);
    let (ours, theirs) = (nodes.locks(SHORT), nodes.locks(SHORT));
    nodes.make_ready(&ours);
    let kept = take(&lock(&ours, "kept", TTL));
    let mut last: Option<FencingToken> = None;
    let (mut out, mut restarted) = (0, None);
    for round in 0..200 {
        if round == 20 {
            nodes.servers[2].restart_empty();
            restarted = Some(now());
        }
        let lease = take(&lock(if round % 2 == 0 { &ours } else { &theirs }, "a", TTL));
        assert!(Some(lease.token()) > last, "tokens grow");
        last = Some(lease.token());
        let is_on = !nodes.holding([2], &lease).is_empty();
        if let Some(at) = restarted.filter(|at| now().since(*at) < ms(1_000)) {
            assert!(!is_on, "it grants nothing {:?} after its restart", now().since(at));
            out += 1;
        }
        give(lease);
        pass(ms(10));
    }
    assert!(out > 10, "{out}");
    kept.check().expect("a node that forgets does not end a lease");
    let known = last.unwrap().get();
    wait_until("the node is ready", || {
        give(take(&lock(&ours, "a", TTL)));
        nodes.is_ready(2)
    });
    assert!(nodes.number(2, "fencepost:floor") > 0);
    let lease = take(&lock(&theirs, "a", TTL));
    assert!(lease.token().get() > known);
    wait_until("it grants again", || nodes.holding(0..5, &kept).len() == 5);
    give(kept);
    give(lease);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn floor_is_not_below_the_greatest_token_of_the_others() {
    let mut nodes = Nodes::start(3);
    // Without the floor from the wall clock, so that only the counters speak.
    let locks = nodes.locks("max_ttl=1s&test_floor=off");
    nodes.make_ready(&locks);
    within(LIMIT, "lifting", locks.lift("a", 5_000_u64.try_into().unwrap())).unwrap();
    let token = {
        let lease = take(&lock(&locks, "a", TTL));
        let token = lease.token();
        give(lease);
        token
    };
    assert!(token.get() >= 5_000 && token.get() < 6_000, "{token}");
    nodes.servers[0].restart_empty();
    nodes.make_ready(&locks);
    assert!(nodes.number(0, "fencepost:floor") >= token.get());
    // The two that knew it go, one after the other.
    for node in 1..3 {
        nodes.servers[node].restart_empty();
        nodes.make_ready(&locks);
        let lease = take(&lock(&locks, "a", TTL));
        assert!(lease.token() > token, "{} after {token}", lease.token());
        give(lease);
    }
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn majority_restarted_empty_goes_on_after_its_quarantine_with_greater_tokens() {
    let mut nodes = Nodes::start(5);
    let locks = nodes.locks(SHORT);
    nodes.make_ready(&locks);
    let lease = take(&lock(&locks, "a", TTL));
    let token = lease.token();
    for node in 0..3 {
        nodes.servers[node].restart_empty();
    }
    let began = now();
    let lost = within(TTL * 2, "the loss", lease.lost());
    assert_eq!(lost.kind(), ErrorKind::Lost);
    let next = take(&lock(&nodes.locks(SHORT), "a", TTL));
    let took = now().since(began);
    println!("a majority restarted empty: granted again after {took:?}");
    assert!(took > ms(800) && took < ms(5_000), "{took:?}");
    assert!(next.token() > token);
    give(next);
    nodes.make_ready(&locks);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn data_removed_behind_an_open_connection_is_noticed() {
    let nodes = Nodes::start(5);
    let locks = nodes.locks(SHORT);
    nodes.make_ready(&locks);
    let lease = take(&lock(&locks, "a", TTL));
    assert_eq!(nodes.holding(0..5, &lease).len(), 5);
    nodes.servers[1].command(&["FLUSHALL"]);
    let began = now();
    while now().since(began) < ms(900) {
        let other = take(&lock(&locks, "b", TTL));
        assert!(nodes.holding([1], &other).is_empty(), "{:?} after it was emptied", now().since(began));
        give(other);
    }
    lease.check().expect("one node does not end a lease");
    wait_until("it is filled in again", || {
        give(take(&lock(&locks, "b", TTL)));
        nodes.holding(0..5, &lease).len() == 5
    });
    assert!(nodes.number(1, "fencepost:floor") >= lease.token().get());
    assert_eq!(state(&locks, "a").slack, Some(2));
    give(lease);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn empty_server_in_the_place_of_a_node_grants_nothing_at_first() {
    let nodes = Nodes::start(3);
    let spare = RedisServer::start();
    let proxies: Vec<Proxy> = nodes.proxies();
    let locks = locks(&proxied(&proxies, SHORT));
    nodes.make_ready(&locks);
    // It runs for longer than any lease, and so does not look restarted.
    wait_until("the spare one has run for long", || {
        spare.info("server", "uptime_in_seconds").unwrap().parse::<u64>().unwrap() >= 3
    });
    let lease = take(&lock(&locks, "a", TTL));
    proxies[0].set(fencepost_testkit::proxy::Mode::Cut);
    proxies[0].redirect(address(spare.port()));
    proxies[0].set(fencepost_testkit::proxy::Mode::Pass);
    let began = now();
    let inc = || match spare.command(&["GET", "fencepost:inc"]) {
        fencepost_testkit::servers::Reply::Text(record) => record,
        _ => String::new(),
    };
    wait_until("it was met", || {
        give(take(&lock(&locks, "b", TTL)));
        !inc().is_empty()
    });
    // It may stand in for a node that had granted what is still held.
    while now().since(began) < ms(900) {
        give(take(&lock(&locks, "b", TTL)));
        assert!(inc().ends_with("|unseeded"), "{:?}: {}", now().since(began), inc());
        assert!(spare.command(&["KEYS", "*:l"]).array().is_empty(), "{:?}", now().since(began));
    }
    lease.check().expect("the two others keep it");
    wait_until("it has its floor", || {
        give(take(&lock(&locks, "b", TTL)));
        !inc().ends_with("|unseeded")
    });
    wait_until("it is filled in", || !spare.command(&["KEYS", "*:l"]).array().is_empty());
    give(lease);
}
