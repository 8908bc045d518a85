//! Members that behave oddly: that welcome us and no more, take no login, or grant other times.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fencepost_core::{ErrorKind, block_on};
use fencepost_testkit::servers::{ZooKeeperServer, ZooKeeperSetup};

use crate::between::Between;
use crate::stage::{eventually, locks, now, sleep};

const TTL: Duration = Duration::from_secs(10);

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn member_that_welcomes_and_closes_is_tried_again_with_pauses() {
    let server = ZooKeeperServer::start();
    let (is_odd, welcomes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (odd, counted) = (Arc::clone(&is_odd), Arc::clone(&welcomes));
    let member = Between::start(server.address(), move |answer| {
        counted.fetch_add(usize::from(answer.operation.is_none()), Ordering::Relaxed);
        !odd.load(Ordering::Relaxed)
    });
    let lease = block_on(locks(&member.url()).lock("orders").unwrap().ttl(TTL).acquire()).unwrap();
    is_odd.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(2));
    let tried = welcomes.load(Ordering::Relaxed);
    assert!(tried > 2 && tried < 50, "it was tried {tried} times in two seconds");
    is_odd.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(1));
    assert!(welcomes.load(Ordering::Relaxed) - tried <= 3, "one that serves is kept");
    lease.check().expect("the session lives");
    block_on(lease.release()).unwrap();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn login_that_is_refused_is_denied_at_once() {
    // One that takes no such login, and one that takes nobody without.
    let refusing = [
        (&["DigestAuthenticationProvider.enabled=false"][..], "ann:secret@"),
        (&["enforce.auth.enabled=true", "enforce.auth.schemes=digest"][..], ""),
    ];
    for (settings, login) in refusing {
        let server = ZooKeeperSetup::default().settings(settings).start();
        let url = format!("zookeeper://{login}{}", server.address());
        let began = now();
        let error = block_on(locks(&url).lock("orders").unwrap().ttl(TTL).acquire()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{settings:?}: {error}");
        assert!(now().since(began) < TTL / 3, "{settings:?}: it was tried for {:?}", now().since(began));
    }
}

/// What a member grants on top counts there, and is not what the next leader knows of the session.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn member_that_grants_more_than_the_session_had_moves_no_deadline() {
    let server = ZooKeeperServer::start();
    let (is_cut, has_granted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (cut, granted) = (Arc::clone(&is_cut), Arc::clone(&has_granted));
    let member = Between::start(server.address(), move |answer| {
        if answer.operation.is_none() && cut.swap(false, Ordering::Relaxed) {
            answer.frame[4..8].copy_from_slice(&60_000_i32.to_be_bytes());
            granted.store(true, Ordering::Relaxed);
        }
        !cut.load(Ordering::Relaxed)
    });
    let ttl = Duration::from_secs(2);
    let lease = block_on(locks(&member.url()).lock("orders").unwrap().ttl(ttl).acquire()).unwrap();
    is_cut.store(true, Ordering::Relaxed);
    eventually("another connection is welcomed", || has_granted.load(Ordering::Relaxed));
    for _ in 0..20 {
        let left = lease.deadline().moment().unwrap().since(now());
        assert!(left <= ttl, "{left:?} are left of {ttl:?}");
        sleep(ttl / 10);
    }
    lease.check().expect("the session lives");
    block_on(lease.release()).unwrap();
}
