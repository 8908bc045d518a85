//! Connections that are cut at random instants, also between the two phases of an acquisition.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fencepost_core::{Clock, Locks};
use fencepost_testkit::history::{Hold, assert_clean};
use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::wait_until;

use super::nodes::{AT_ONCE, LIMIT, Nodes, lock, locks, ms, now, pass, proxied, within};

const CLIENTS: usize = 4;
const GRANTS: usize = 500;

/// Acquires and releases until so many grants were counted; an attempt that a cut has ended is one that failed.
fn work(locks: &Locks, grants: &AtomicUsize) -> (Vec<Hold>, usize) {
    let lock = lock(locks, "a", ms(1_000)).wait(ms(2_000));
    let (mut holds, mut failed) = (Vec::new(), 0);
    while grants.load(Ordering::Relaxed) < GRANTS {
        let asked = now();
        let Ok(lease) = within(LIMIT, "an acquisition", lock.acquire()) else {
            failed += 1;
            continue;
        };
        let granted = now();
        grants.fetch_add(1, Ordering::Relaxed);
        let ended = now().min(lease.deadline().moment().expect("it runs out")).max(granted);
        holds.push(Hold { asked, granted, ended, token: lease.token(), holder: lease.holder() });
        // Where it fails too many nodes were cut off, and the ttl bounds it.
        drop(within(LIMIT, "a release", lease.release()));
    }
    (holds, failed)
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn cuts_at_random_instants_make_no_second_holder_and_no_second_token() {
    let nodes = Nodes::start(5);
    let proxies = nodes.proxies();
    let clients: Vec<Locks> = (0..CLIENTS).map(|_| locks(&proxied(&proxies, AT_ONCE))).collect();
    let (grants, is_over, clock) = (AtomicUsize::new(0), AtomicBool::new(false), Clock::system());
    let (all, failed, cuts) = std::thread::scope(|scope| {
        let cutting = scope.spawn(|| {
            let mut cuts = 0;
            while !is_over.load(Ordering::Relaxed) {
                pass(clock.jitter(ms(40)));
                let proxy = &proxies[usize::try_from(clock.random() % 5).expect("it is small")];
                proxy.set(Mode::Cut);
                pass(clock.jitter(ms(4)));
                proxy.set(Mode::Pass);
                cuts += 1;
            }
            cuts
        });
        let working: Vec<_> = clients.iter().map(|locks| scope.spawn(|| work(locks, &grants))).collect();
        let worked: Vec<_> = working.into_iter().map(|thread| thread.join().unwrap()).collect();
        is_over.store(true, Ordering::Relaxed);
        let failed: usize = worked.iter().map(|(_, failed)| failed).sum();
        let all: Vec<Hold> = worked.into_iter().flat_map(|(holds, _)| holds).collect();
        (all, failed, cutting.join().unwrap())
    });
    println!("{} holds, {failed} failed, {cuts} cuts", all.len());
    assert!(cuts > 30, "{cuts}");
    assert_clean(&all);
    pass(ms(1_000));
    wait_until("nobody has the lock", || (0..5).all(|node| nodes.record(node, "a").is_none()));
}
