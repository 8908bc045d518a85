//! Nodes whose clocks are set forward past the ttl of a lease that is held.

use std::time::Duration;

use fencepost_core::ErrorKind;
use fencepost_testkit::servers::wait_until;

use super::minority::with_slack;
use super::nodes::{AT_ONCE, LIMIT, Nodes, give, lock, ms, now, take, within};

const TTL: Duration = Duration::from_secs(2);

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lease_with_slack_outlasts_a_clock_that_is_set_forward() {
    let mut nodes = Nodes::with_clocks(5);
    let (ours, theirs) = (nodes.locks(AT_ONCE), nodes.locks(AT_ONCE));
    let lease = with_slack(&lock(&ours, "a", TTL), 2);
    for node in 0..2 {
        nodes.servers[node].step_clock_forward(TTL * 2);
        let began = now();
        while now().since(began) < ms(700) {
            let other = within(LIMIT, "the refusal", lock(&theirs, "a", TTL).try_acquire()).unwrap();
            assert!(other.is_none(), "two at once");
            lease.check().expect("the other nodes keep it");
        }
        wait_until("the node is filled in again", || nodes.holding(0..5, &lease).len() == 5);
    }
    give(lease);
    give(take(&lock(&theirs, "a", TTL)));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lease_is_lost_when_the_clocks_of_a_majority_are_set_forward() {
    let mut nodes = Nodes::with_clocks(5);
    let (ours, theirs) = (nodes.locks(AT_ONCE), nodes.locks(AT_ONCE));
    let lease = take(&lock(&ours, "a", TTL));
    for node in 0..3 {
        nodes.servers[node].step_clock_forward(TTL * 2);
    }
    let began = now();
    let next = take(&lock(&theirs, "a", TTL));
    println!("another holder {:?} after the clocks of a majority were set", now().since(began));
    assert!(next.token() > lease.token());
    let lost = within(TTL, "the loss", lease.lost());
    println!("the holder heard of it after {:?}", now().since(began));
    assert_eq!(lost.kind(), ErrorKind::Lost);
    give(next);
}
