//! Renewals that come due together, and share what they ask.

use std::time::Duration;

use fencepost_core::{Backend, Claim, Clock, ErrorKind, Renewal, Result, Wait, until};
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::{EtcdServer, EtcdSetup};
use futures_util::future::join_all;

use super::stage::{backend, block_on, lock, request, sleep};

const TTL: Duration = Duration::from_secs(20);

/// So many that are held by one process, and which nothing renews by itself.
fn claims(url: &str, count: usize) -> Vec<Box<dyn Claim>> {
    let client = backend(url);
    let requests: Vec<_> = (0..count).map(|n| request(&format!("lock{n}"), TTL, Wait::No)).collect();
    let all = block_on(join_all(requests.iter().map(|request| client.acquire(request))));
    all.into_iter().map(Result::unwrap).collect()
}

fn renew(claims: &mut [Box<dyn Claim>]) -> Vec<Result<Renewal>> {
    block_on(join_all(claims.iter_mut().map(|claim| claim.renew())))
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn renewals_that_come_due_together_share_two_requests() {
    const COUNT: usize = 100;
    let server = EtcdServer::start();
    let mut claims = claims(&server.url(), COUNT);
    let figure = |of, method| server.figure(&format!("grpc_server_{of}_total{{grpc_method=\"{method}\""));
    let before = [figure("started", "LeaseKeepAlive"), figure("started", "Txn")];
    let sent = Clock::system().now();
    for renewal in renew(&mut claims) {
        let renewal = renewal.unwrap();
        assert!(renewal.counted_from >= sent && renewal.ttl == Some(TTL), "{renewal:?}");
    }
    assert!(figure("msg_received", "LeaseKeepAlive") >= 100.0, "each lease was kept alive");
    for (method, before) in ["LeaseKeepAlive", "Txn"].into_iter().zip(before) {
        let calls = figure("started", method) - before;
        assert!((1.0..=10.0).contains(&calls), "{calls} calls of {method}");
    }
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn each_of_those_that_are_renewed_together_hears_of_its_own_loss_and_of_no_other() {
    let server = EtcdServer::start();
    let mut claims = claims(&server.url(), 12);
    let place = |lock: usize| server.keys(&format!("/fencepost/lock{lock}/q/")).remove(0);
    let lease = |lock: usize| place(lock).rsplit_once("x-").unwrap().1.trim_start_matches('0').to_owned();
    server.control(&["lease", "revoke", &lease(3)]);
    server.control(&["del", &place(5)]);
    // The same name and the same lease, and another grant.
    let (replaced, replacing) = (place(7), lease(7));
    server.control(&["del", &replaced]);
    server.control(&["put", "--lease", &replacing, &replaced, "x"]);
    for (number, renewal) in renew(&mut claims).into_iter().enumerate() {
        let kind = renewal.err().map(|error| error.kind());
        assert_eq!(kind, [3, 5, 7].contains(&number).then_some(ErrorKind::Lost), "of {number}");
    }
}

/// A server that takes few parts in a transaction, and one that lets a user see a part of the locks, refuse for all what one has asked for.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn those_that_are_refused_together_are_renewed_one_by_one() {
    let server = EtcdSetup::default().arguments(&["--max-txn-ops", "8"]).start();
    for renewal in renew(&mut claims(&server.url(), 20)) {
        renewal.unwrap();
    }
}

/// A former leader goes on saying yes: what it has given counts for nothing once another term has begun.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn keep_alive_of_the_term_before_is_asked_for_again() {
    let mut server = EtcdServer::start();
    let way = Proxy::start(server.address());
    let mut claims = claims(&format!("etcd://{}", way.address()), 2);
    let answered =
        |server: &EtcdServer| server.figure("grpc_server_msg_sent_total{grpc_method=\"LeaseKeepAlive\"");
    let before = answered(&server);
    way.set(Mode::ReplyHole);
    let (renewals, began) = std::thread::scope(|scope| {
        let renewing = scope.spawn(|| renew(&mut claims));
        while answered(&server) < before + 2.0 {
            sleep(Duration::from_millis(1));
        }
        // The answer arrives, and the question after the term does not.
        way.set(Mode::RequestHole);
        while way.held_requests() == 0 {
            sleep(Duration::from_millis(1));
        }
        server.kill();
        let began = Clock::system().now();
        server.restart();
        way.set(Mode::Pass);
        (renewing.join().unwrap(), began)
    });
    for renewal in renewals {
        let renewal = renewal.unwrap();
        assert!(renewal.counted_from >= began, "{renewal:?} counts from before {began:?}");
    }
}

/// A follower passes keep-alives on one by one, and its leader may be far away.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn renewals_that_took_too_long_together_go_in_smaller_company() {
    let server = EtcdServer::start();
    let way = Proxy::start(server.address());
    let mut claims = claims(&format!("etcd://{}", way.address()), 20);
    let calls = || server.figure("grpc_server_started_total{grpc_method=\"LeaseKeepAlive\"");
    way.set(Mode::Blackhole);
    let clock = Clock::system();
    let renewing = join_all(claims.iter_mut().map(|claim| claim.renew()));
    let outcome = block_on(until(&clock, Some(clock.now().after(TTL / 16)), renewing));
    assert!(outcome.is_none(), "nothing is answered");
    way.set(Mode::Cut);
    way.set(Mode::Pass);
    sleep(Duration::from_millis(100));
    let before = calls();
    for renewal in renew(&mut claims) {
        renewal.unwrap();
    }
    assert!(calls() - before >= 2.0, "all at once again");
}

/// The longer the grace, the shorter is a try of the core; within the shortest one a connection that has died must be noticed.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn connection_to_the_only_member_that_dies_unnoticed_costs_no_lease_whatever_its_grace() {
    let server = EtcdServer::start();
    let old_way = Proxy::start(server.address());
    let door = Proxy::start(old_way.address());
    let url = format!("etcd://{}", door.address());
    let ttl = Duration::from_secs(4);
    let keep =
        |grace: Duration| block_on(lock(&url, &format!("{grace:?}"), ttl).grace(grace).acquire()).unwrap();
    let leases = [ttl / 2, ttl / 4, ttl / 8].map(keep);
    // Whoever connects anew gets through.
    door.redirect(server.address());
    old_way.set(Mode::Blackhole);
    sleep(ttl * 2);
    let kept = leases.map(|lease| lease.check().is_ok());
    assert_eq!(kept, [true; 3], "those with a long grace first");
}
