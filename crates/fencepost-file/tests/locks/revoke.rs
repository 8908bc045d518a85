//! Leases that are taken away: heard of at once, by the holder that is meant and by no later one.

use std::path::Path;
use std::time::Duration;

use fencepost_core::{Clock, ErrorKind, FencingToken, Lease, LossReason, Revoked, block_on};
use rustix::process::{Pid, Signal, kill_process};

use super::child::{Process, say, wait_for_the_end};
use super::{LIMIT, files, locks, pass, until};

fn acquire(directory: &Path) -> Lease {
    block_on(locks(directory).lock("orders").unwrap().wait(LIMIT).acquire()).unwrap()
}

fn revoke(directory: &Path, token: FencingToken) -> Revoked {
    block_on(locks(directory).revoke("orders", token, "the night shift needs it")).unwrap()
}

#[test]
fn holder_hears_of_its_revocation_sooner_than_it_looks() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::system();
    let heard_after = |_| {
        let lease = acquire(directory.path());
        let revoked_at = clock.now();
        assert_eq!(revoke(directory.path(), lease.token()), Revoked::Done);
        let error = block_on(lease.lost());
        let late = clock.now().since(revoked_at);
        assert_eq!(error.loss_reason(), Some(LossReason::Revoked));
        assert!(error.to_string().contains("night shift"), "{error}");
        block_on(lease.release()).unwrap_err();
        late
    };
    // It looks once in a second.
    let soonest = (0..5).map(heard_after).min().unwrap();
    assert!(soonest < Duration::from_millis(500), "{soonest:?}");
}

#[test]
fn newer_holder_is_never_hit_by_a_revocation_of_the_one_before() {
    let directory = tempfile::tempdir().unwrap();
    let (sender, tokens) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let path = directory.path();
        scope.spawn(move || {
            let clock = Clock::system();
            for token in tokens {
                block_on(clock.sleep(clock.jitter(Duration::from_micros(600))));
                revoke(path, token);
            }
        });
        let clock = Clock::system();
        let mut hit = 0;
        for round in 0..400_u32 {
            let lease = acquire(path);
            let is_meant = round % 8 == 0;
            if is_meant {
                assert_eq!(revoke(path, lease.token()), Revoked::Done, "it is held");
                hit += 1;
                block_on(lease.lost());
            }
            // The revocation of this token comes when it has been given back, or just then.
            sender.send(lease.token()).unwrap();
            block_on(clock.sleep(clock.jitter(Duration::from_micros(300))));
            match lease.check().map_err(|error| error.loss_reason()) {
                Ok(()) => assert!(!is_meant),
                // It was in time for this one.
                Err(reason) => assert_eq!(reason, Some(LossReason::Revoked)),
            }
            let token = lease.token();
            drop(block_on(lease.release()));
            let next = acquire(path);
            assert!(next.token() > token);
            // Whatever is under way is meant for the one before.
            block_on(clock.sleep(Duration::from_millis(1)));
            next.check().expect("a newer holder was hit");
            block_on(next.release()).expect("a newer holder was hit");
        }
        assert_eq!(hit, 50);
        drop(sender);
    });
}

#[test]
fn revocation_that_is_left_harms_nobody_and_is_cleaned_up() {
    let directory = tempfile::tempdir().unwrap();
    let lease = acquire(directory.path());
    assert_eq!(revoke(directory.path(), lease.token()), Revoked::Done);
    let left = std::fs::read(directory.path().join("orders.revoke")).unwrap();
    block_on(lease.release()).unwrap_err();
    let next = acquire(directory.path());
    assert_eq!(files(directory.path(), ".revoke"), Vec::<String>::new());

    // One that nobody has cleaned up, and things that are none.
    for text in [&left[..], b"", b"{", b"\0\n\n{}\n", &[b'['; 5000]] {
        let staged = directory.path().join("staged");
        std::fs::write(&staged, text).unwrap();
        std::fs::rename(&staged, directory.path().join("orders.revoke")).unwrap();
        block_on(Clock::system().sleep(Duration::from_millis(20)));
        next.check().expect("it was meant for another");
    }
    assert_eq!(revoke(directory.path(), next.token()), Revoked::Done, "it takes the place of what is there");
    block_on(next.lost());
}

pub(super) fn hold_until_lost(directory: &Path) {
    let lease = acquire(directory);
    say(&lease.token().to_string());
    let error = block_on(lease.lost());
    say(&format!("{error}"));
    wait_for_the_end();
}

#[test]
fn stopped_holder_keeps_the_lock_and_hears_of_it_when_it_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let holder = Process::start("hold until lost", directory.path());
    let token: u64 = holder.says().parse().unwrap();
    let pid = Pid::from_raw(holder.pid()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    assert_eq!(revoke(directory.path(), token.try_into().unwrap()), Revoked::Done);
    let waiter = locks(directory.path()).lock("orders").unwrap().wait(Duration::from_millis(200));
    assert_eq!(block_on(waiter.acquire()).unwrap_err().kind(), ErrorKind::Contended);
    kill_process(pid, Signal::CONT).unwrap();
    let said = holder.says();
    assert!(said.contains("the night shift needs it"), "{said}");
    // It has heard of it, and holds the lock for as long as it lives.
    assert_eq!(block_on(waiter.acquire()).unwrap_err().kind(), ErrorKind::Contended);
    holder.kill();
    let next = acquire(directory.path());
    assert!(next.token().get() > token);
    next.check().unwrap();
}

/// How many watches of files this process has.
fn watches() -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = descriptors.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    links.filter(|link| link.as_os_str() == "anon_inode:inotify").count()
}

#[test]
fn short_lease_has_the_kernel_watch_nothing() {
    let watched_in = |hold: &dyn Fn(usize)| {
        let directory = tempfile::tempdir().unwrap();
        let before = watches();
        let lease = acquire(directory.path());
        hold(before);
        block_on(lease.release()).unwrap();
        watches() > before
    };
    // This process may be held up for longer than what is short.
    assert!((0..10).any(|_| !watched_in(&|_| pass(Duration::from_millis(10)))));
    assert!(watched_in(&|before| until("a lease that stays is watched for", || watches() > before)));
}
