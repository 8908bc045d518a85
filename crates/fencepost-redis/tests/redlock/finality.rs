//! What is over is over: requests that arrive late, on a connection that was given up, do nothing any more.
//!
//! Two proxies stand before a node, one behind the other. The outer one is turned to the node itself once the inner one holds
//! something back, so that a new connection overtakes what waits there.

use std::time::Duration;

use fencepost_core::Locks;
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::wait_until;

use super::nodes::{
    AT_ONCE, LIMIT, Nodes, address, give, key, lock, locks, ms, now, state, take, url_of, within,
};

const TTL: Duration = Duration::from_secs(20);

/// The way to one node, on which what was sent can be overtaken.
struct Way {
    outer: Proxy,
    inner: Proxy,
    node: u16,
}

impl Way {
    fn to(node: u16) -> Self {
        let inner = Proxy::start(address(node));
        Self { outer: Proxy::start(inner.address()), inner, node }
    }

    /// Holds back what is sent from now on, on the connections that there are.
    fn hold_up(&self) {
        self.inner.set(Mode::RequestHole);
        self.outer.redirect(address(self.node));
    }

    /// Waits until something is held back.
    fn wait_for_something(&self) {
        wait_until("a request is on its way", || self.inner.held_requests() > 0);
    }

    /// Delivers what was held back, and waits until that has happened.
    fn deliver(&self) {
        assert!(self.inner.held_requests() > 0, "something is late");
        let before = self.inner.passed_requests();
        self.inner.set(Mode::Pass);
        wait_until("it has arrived", || {
            self.inner.held_requests() == 0 && self.inner.passed_requests() > before
        });
        // The server has read it when it has ended the connection, whose end comes behind it.
        wait_until("it was read", || self.inner.connections() == 0);
    }
}

/// Five nodes, the first two on ways of their own, and a client by these ways.
fn surroundings() -> (Nodes, [Way; 2], Locks) {
    let nodes = Nodes::start(5);
    let mut ports = nodes.ports();
    let ways = [0, 1].map(|node| Way::to(ports[node]));
    for (node, way) in ways.iter().enumerate() {
        ports[node] = way.outer.port();
    }
    let locks = locks(&url_of(&ports, AT_ONCE));
    give(take(&lock(&locks, "first", TTL)));
    (nodes, ways, locks)
}

/// Waits until the client has given up the connection that was held up, and has another one.
fn wait_for_another(way: &Way, locks: &Locks) {
    wait_until("another connection is made", || {
        // Something must be asked, or the silence is not noticed.
        drop(within(LIMIT, "an inspection", locks.inspect("anything")));
        way.outer.connections() >= 2
    });
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn late_lock_of_an_attempt_that_was_given_up_gets_nothing() {
    let (nodes, ways, late) = surroundings();
    let held = take(&lock(&nodes.locks(AT_ONCE), "a", TTL));
    ways.iter().for_each(Way::hold_up);
    let refused = within(LIMIT, "the refusal", lock(&late, "a", TTL).wait(ms(100)).acquire());
    assert!(refused.is_err());
    ways.iter().for_each(Way::wait_for_something);
    for way in &ways {
        wait_for_another(way, &late);
    }
    let tombstone = |node: usize| nodes.left_over(node).iter().any(|key| key.contains("}:x:"));
    wait_until("it was cancelled on the other connection", || (0..2).all(tombstone));
    give(held);
    // A late withdrawal comes behind it, and would free what it has taken; but not take back its token.
    let tokens = || [0, 1].map(|node| nodes.servers[node].command(&["HGETALL", &key("a", "s")]));
    let before = tokens();
    ways.iter().for_each(Way::deliver);
    assert_eq!(tokens(), before, "the late request has written no token");
    for node in 0..2 {
        assert_eq!(nodes.record(node, "a"), None, "the late request has taken nothing");
        assert!(!nodes.keys(node).iter().any(|key| key.ends_with(":q")), "and waits for nothing");
    }
    give(take(&lock(&late, "a", TTL)));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn late_proposal_of_an_attempt_that_was_given_up_writes_no_token() {
    let (nodes, ways, late) = surroundings();
    // Both phases of a grant are late on two nodes: the lock, and behind it the proposal.
    ways.iter().for_each(Way::hold_up);
    let lease = take(&lock(&late, "a", TTL));
    let (token, record) = (lease.token(), format!("1|{}|", lease.holder()));
    ways.iter().for_each(Way::wait_for_something);
    for way in &ways {
        wait_for_another(way, &late);
    }
    give(lease);
    let next = take(&lock(&nodes.locks(AT_ONCE), "a", TTL));
    assert_eq!(nodes.holding(0..5, &next).len(), 5);
    ways.iter().for_each(Way::deliver);
    assert_eq!(nodes.holding(0..5, &next).len(), 5, "the late proposal has hit nobody");
    assert!(next.token() > token);
    give(next);
    for node in 0..2 {
        let left = nodes.record(node, "a");
        assert!(left.is_none_or(|left| !left.starts_with(&record)), "the late lock has taken nothing");
    }
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn late_release_does_not_free_the_lock_of_the_next_holder() {
    let (nodes, ways, late) = surroundings();
    let lease = take(&lock(&late, "a", TTL));
    assert_eq!(nodes.holding(0..5, &lease).len(), 5);
    ways.iter().for_each(Way::hold_up);
    give(lease);
    ways.iter().for_each(Way::wait_for_something);
    // The release is made once more, on another connection.
    wait_until("the nodes are free", || (0..2).all(|node| nodes.record(node, "a").is_none()));
    let next = take(&lock(&nodes.locks(AT_ONCE), "a", TTL));
    assert_eq!(nodes.holding(0..5, &next).len(), 5);
    ways.iter().for_each(Way::deliver);
    assert_eq!(nodes.holding(0..5, &next).len(), 5, "the late release has hit nobody");
    give(next);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn late_withdrawal_of_one_attempt_does_not_free_a_later_one_of_the_same_waiter() {
    let (nodes, ways, late) = surroundings();
    let others = nodes.locks(AT_ONCE);
    let held = take(&lock(&others, "a", TTL));
    let (waiter, locks) = (lock(&late, "a", TTL), late.clone());
    let waiting = std::thread::spawn(move || take(&waiter));
    wait_until("it waits", || state(&others, "a").waiters.len() == 1);
    ways.iter().for_each(Way::hold_up);
    // A lock that is somebody else's again and again makes the waiter ask and withdraw, which is held up.
    let began = now();
    for server in &nodes.servers[2..] {
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    }
    ways.iter().for_each(Way::wait_for_something);
    for way in &ways {
        wait_for_another(way, &locks);
    }
    give(held);
    let lease = waiting.join().unwrap();
    println!("the waiter was served after {:?}", now().since(began));
    wait_until("it has all nodes", || nodes.holding(0..5, &lease).len() == 5);
    ways.iter().for_each(Way::deliver);
    assert_eq!(nodes.holding(0..5, &lease).len(), 5, "what was late has hit nobody");
    let released = now();
    give(lease);
    wait_until("all nodes are free", || (0..5).all(|node| nodes.record(node, "a").is_none()));
    assert!(now().since(released) < ms(1_000), "long before the ttl: {:?}", now().since(released));
}
