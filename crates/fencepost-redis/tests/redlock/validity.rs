//! What is announced at the grant is there: slow nodes cost the holder a part of its term, and nobody else the lock.

use std::time::Duration;

use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::wait_until;

use super::nodes::{AT_ONCE, LIMIT, Nodes, give, lock, locks, ms, now, proxied, within};

const TTL: Duration = Duration::from_secs(2);

/// How long at least three of five nodes keep the lock.
fn kept_by_a_majority(nodes: &Nodes, name: &str) -> Duration {
    let mut left: Vec<Duration> = (0..5).map(|node| nodes.left(node, name)).collect();
    left.sort();
    left[2]
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn grant_announces_no_more_than_a_majority_keeps() {
    let nodes = Nodes::start(5);
    let proxies = nodes.proxies();
    let slow = |delays: [u64; 5]| {
        for (proxy, delay) in proxies.iter().zip(delays) {
            proxy.set(if delay == 0 { Mode::Pass } else { Mode::Delay(ms(delay)) });
        }
    };
    let locks = locks(&proxied(&proxies, AT_ONCE));
    let mut granted = 0;
    for delays in
        [[0; 5], [0, 0, 0, 40, 40], [0, 0, 20, 30, 40], [30; 5], [0, 0, 45, 70, 70], [10, 45, 45, 45, 90]]
    {
        slow(delays);
        let began = now();
        let outcome = within(LIMIT, "an acquisition", lock(&locks, "a", TTL).wait(ms(3_000)).acquire());
        let lease = match outcome {
            Ok(lease) => lease,
            Err(error) => {
                println!("{delays:?}: {error}");
                continue;
            }
        };
        granted += 1;
        let remaining = lease.remaining().expect("it runs out");
        let kept = kept_by_a_majority(&nodes, "a");
        let took = now().since(began);
        println!("{delays:?}: {remaining:?} announced, {kept:?} kept, after {took:?}");
        assert!(kept + ms(1) >= lease.remaining().expect("it runs out"), "{delays:?}");
        slow([0; 5]);
        give(lease);
    }
    assert!(granted >= 5, "{granted}");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn answers_that_come_too_late_are_no_grant() {
    let nodes = Nodes::start(5);
    let proxies = nodes.proxies();
    let locks = locks(&proxied(&proxies, AT_ONCE));
    give(within(LIMIT, "an acquisition", lock(&locks, "a", TTL).acquire()).unwrap());
    for proxy in &proxies[..2] {
        proxy.set(Mode::ReplyHole);
    }
    let lease = within(LIMIT, "an acquisition", lock(&locks, "a", TTL).acquire()).expect("three answer");
    assert!(kept_by_a_majority(&nodes, "a") + ms(1) >= lease.remaining().expect("it runs out"));
    assert!(nodes.left(0, "a") > ms(0), "what has not answered has done it all the same");
    proxies[2].set(Mode::ReplyHole);
    let began = now();
    let refused = within(LIMIT, "an acquisition", lock(&locks, "b", TTL).try_acquire());
    assert!(refused.is_err(), "two of five answers are no majority, although all nodes have granted it");
    assert!(now().since(began) < TTL, "{:?}", now().since(began));
    wait_until("what answers is freed", || (3..5).all(|node| nodes.record(node, "b").is_none()));
    assert!(now().since(began) < TTL, "{:?}", now().since(began));
    for proxy in &proxies {
        proxy.set(Mode::Pass);
    }
    give(lease);
    wait_until("the others are freed as well", || {
        (0..5).all(|node| nodes.record(node, "b").is_none() && nodes.record(node, "a").is_none())
    });
}
