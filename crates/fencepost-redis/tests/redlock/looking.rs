//! Revoking, lifting, giving back, listing and looking while a minority is down.

use std::time::Duration;

use fencepost_core::{ErrorKind, LossReason, NamePrefix, Revoked, Status};
use fencepost_testkit::servers::{Reply, wait_until};
use futures_util::StreamExt;

use super::nodes::{AT_ONCE, LIMIT, Nodes, give, lock, ms, now, state, take, within};

const TTL: Duration = Duration::from_secs(2);

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn everything_else_works_with_a_minority_down_too() {
    let mut nodes = Nodes::start(5);
    let (ours, theirs) = (nodes.locks(AT_ONCE), nodes.locks(AT_ONCE));
    let lease = take(&lock(&ours, "a/one", TTL));
    nodes.servers[0].kill();
    nodes.servers[4].stop();
    let other = take(&lock(&ours, "a/two", TTL));
    let seen = within(LIMIT, "a list", theirs.list("a/")).expect("three answer");
    assert_eq!(seen.iter().map(|state| state.name.as_str()).collect::<Vec<_>>(), ["a/one", "a/two"]);
    assert!(seen.iter().all(|state| state.status == Status::Held && state.slack == Some(0)));
    assert_eq!(state(&theirs, "a/one").holder, Some(lease.holder()));

    let reason = "it is needed elsewhere";
    let stranger = (lease.token().get() + 1).try_into().unwrap();
    let missed = within(LIMIT, "a revocation", theirs.revoke("a/one", stranger, reason)).unwrap();
    assert_eq!(missed, Revoked::NotCurrent);
    lease.check().expect("a wrong token takes nothing away");
    let began = now();
    let done = within(LIMIT, "a revocation", theirs.revoke("a/one", lease.token(), reason)).unwrap();
    assert_eq!(done, Revoked::Done);
    let loss = within(TTL, "the news of the loss", lease.lost());
    println!("the holder hears of a revocation after {:?}", now().since(began));
    assert_eq!(loss.loss_reason(), Some(LossReason::Revoked), "{loss}");
    assert!(loss.to_string().contains(reason), "{loss}");
    let next = take(&lock(&theirs, "a/one", TTL));
    assert!(next.token() > lease.token());

    let to = (next.token().get() + 5_000_000_000_000).try_into().unwrap();
    within(LIMIT, "lifting", theirs.lift("a/one", to)).expect("three answer");
    give(next);
    let lifted = take(&lock(&ours, "a/one", TTL));
    assert!(lifted.token() >= to);

    let handover = other.handover().expect("it can be handed over").clone();
    within(LIMIT, "giving back", theirs.backend().give_back(&handover)).expect("three answer");
    assert_eq!(state(&ours, "a/two").status, Status::Free);
    let again = within(LIMIT, "giving back", theirs.backend().give_back(&handover)).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Lost, "{again}");
    assert_eq!(within(LIMIT, "the news of the loss", other.lost()).kind(), ErrorKind::Lost);
    // The lifted token is known to three nodes, and a majority of all five knows it from them.
    nodes.servers[0].restart_empty();
    nodes.servers[4].go_on();
    give(lifted);
    drop(lease.release());
    nodes.servers[1].stop();
    let later = take(&lock(&ours, "a/one", TTL));
    assert!(later.token() > to);
    nodes.servers[1].go_on();
    give(later);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn revocation_whose_message_is_lost_is_heard_of_at_the_next_renewal() {
    let nodes = Nodes::start(5);
    let (ours, theirs) = (nodes.locks(AT_ONCE), nodes.locks(AT_ONCE));
    let lease = take(&lock(&ours, "a", TTL));
    for server in &nodes.servers {
        // Whoever does not listen is told nothing.
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    }
    let done = within(LIMIT, "a revocation", theirs.revoke("a", lease.token(), "by hand")).unwrap();
    assert_eq!(done, Revoked::Done);
    let loss = within(TTL, "the news of the loss", lease.lost());
    assert_eq!(loss.loss_reason(), Some(LossReason::Revoked), "{loss}");
    assert!(loss.to_string().contains("by hand"), "{loss}");
    wait_until("the lock is free", || state(&theirs, "a").status == Status::Free);
    assert!((0..5).all(|node| nodes.record(node, "a").is_none() || nodes.left(node, "a") < ms(1)));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lift_lowers_no_token_and_counts_where_an_emptied_node_gets_its_floor() {
    let nodes = Nodes::start(5);
    let locks = nodes.locks(AT_ONCE);
    let lease = take(&lock(&locks, "a", TTL));
    let high = lease.token().get() + 5_000_000_000_000;
    give(lease);
    for to in [high, 2] {
        within(LIMIT, "lifting", locks.lift("a", to.try_into().unwrap())).expect("all answer");
        let lifted = nodes.servers.iter().filter(|server| match server.command(&["GET", "fencepost:max"]) {
            Reply::Text(greatest) => greatest.parse::<u64>().expect("it is a token") >= high - 1,
            _ => false,
        });
        assert!(lifted.count() >= 3, "a majority has to know it as a token that was given");
    }
    let lease = take(&lock(&locks, "a", TTL));
    assert!(lease.token().get() >= high, "{}", lease.token());
    give(lease);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn watcher_is_told_of_a_change_also_where_a_minority_is_down() {
    let nodes = Nodes::start(5);
    let locks = nodes.locks(AT_ONCE);
    give(take(&lock(&locks, "a", TTL)));
    nodes.servers[0].stop();
    let prefix = NamePrefix::new("");
    let signals = within(LIMIT, "watching", nodes.locks(AT_ONCE).backend().signals(&prefix)).unwrap();
    let mut signals = signals.expect("the nodes tell who watches");
    let lease = take(&lock(&locks, "a", TTL));
    within(LIMIT, "a signal of the grant", signals.next()).expect("it goes on");
    nodes.servers[0].go_on();
    give(lease);
}
