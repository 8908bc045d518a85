//! Locks that several share: readers that are killed, stopped or ended, and writers that wait for them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use fencepost_core::{ErrorKind, LossReason, Status};
use fencepost_testkit::block_on;
use fencepost_testkit::servers::{PostgresServer, wait_until};

use crate::process::Client;
use crate::stage::{
    CARELESS, LIMIT, LONG, SLACK, SOON, TTL, ask, assert_kind, assert_nothing_is_left, at, lock, look, loss,
    now, number, pass, refusal, release, take, wait_for_waiters,
};

const READERS: u32 = 8;

fn url(server: &PostgresServer, options: &str) -> String {
    format!("{}?{options}", server.url())
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn killed_reader_frees_the_lock_for_a_writer_at_once() {
    let server = PostgresServer::start();
    let bob = at(&server, CARELESS);
    let mut reader = Client::start_reader(&url(&server, CARELESS), LONG);
    reader.await_hold();
    let other = take(&lock(&bob, "a").ttl(LONG).shared());
    assert_eq!(look(&bob, "a").readers.len(), 2);
    let writing = ask(&lock(&at(&server, CARELESS), "a").ttl(LONG));
    wait_for_waiters(&server, 1);
    reader.kill();
    wait_until("it is not shown any more", || look(&bob, "a").readers.len() == 1);
    assert_eq!(number(&server, "select count(*) from fencepost.reader"), 2, "although its row is there");
    assert!(!writing.is_over(), "one still reads");
    let mut last = Client::start_reader(&url(&server, CARELESS), LONG);
    release(other);
    let (lease, _) = writing.lease();
    release(lease);
    last.await_hold();
    let writing = ask(&lock(&at(&server, CARELESS), "a").ttl(LONG));
    wait_for_waiters(&server, 1);
    last.kill();
    let killed = now();
    let (lease, granted) = writing.lease();
    println!("granted after {:?}", granted.since(killed));
    assert!(granted.since(killed) < SOON, "{:?}", granted.since(killed));
    let left = "select count(*) from fencepost.reader r where not exists (select from pg_stat_activity a where a.pid = r.pid)";
    release(lease);
    // Whoever writes there next sweeps, and nobody else pays for it.
    drop(look(&at(&server, CARELESS), "a"));
    assert_ne!(number(&server, left), 0);
    release(take(&lock(&at(&server, CARELESS), "a").shared()));
    assert_eq!(number(&server, left), 0);
    assert_nothing_is_left(&server);
}

/// Each reads for several times as long as one statement waits, and somebody always does.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn readers_that_come_and_go_keep_no_writer_waiting() {
    let server = PostgresServer::start();
    let (is_over, reads) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for number in 0..READERS {
            let (server, is_over, reads) = (&server, &is_over, &reads);
            scope.spawn(move || {
                let locks = at(server, CARELESS);
                pass(TTL / 5 * number / READERS);
                while !is_over.load(Ordering::Relaxed) {
                    let lease = block_on(lock(&locks, "a").shared().acquire()).expect("a reader is served");
                    pass(TTL / 5);
                    reads.fetch_add(1, Ordering::Relaxed);
                    release(lease);
                }
            });
        }
        wait_until("they read", || reads.load(Ordering::Relaxed) > READERS);
        let longest = (0..5).map(|_| {
            let asked = now();
            let writing = ask(&lock(&at(&server, CARELESS), "a"));
            wait_until("it is served", || writing.is_over() || now().since(asked) > LIMIT / 2);
            let took = now().since(asked);
            is_over.store(took > SLACK, Ordering::Relaxed);
            release(writing.lease().0);
            took
        });
        let longest = longest.max().expect("it has written");
        is_over.store(true, Ordering::Relaxed);
        println!("it waited for {longest:?} at most");
        assert!(longest < SLACK, "{longest:?}");
    });
    assert!(reads.into_inner() > READERS * 3, "they went on reading");
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn reader_stays_behind_a_writer_that_has_waited_for_long() {
    let server = PostgresServer::start();
    let (ann, bob) = (at(&server, CARELESS), at(&server, CARELESS));
    let reading = take(&lock(&ann, "a").shared());
    let writing = ask(&lock(&at(&server, CARELESS), "a"));
    wait_for_waiters(&server, 1);
    let end = now().after(TTL);
    let mut tries = 0;
    while now() < end {
        assert_kind(&refusal(&lock(&bob, "a").shared()), ErrorKind::Contended);
        tries += 1;
    }
    assert!(tries > 2 && !writing.is_over());
    let late = ask(&lock(&bob, "a").shared());
    pass(TTL / 4);
    assert!(!late.is_over());
    release(reading);
    let (written, _) = writing.lease();
    pass(TTL / 4);
    assert!(!late.is_over());
    let token = written.token();
    release(written);
    let (late, _) = late.lease();
    assert!(late.token() > token);
    release(late);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn waiting_writer_stands_in_nobodys_way_who_revokes_or_lifts() {
    let server = PostgresServer::start();
    let (ann, bob) = (at(&server, CARELESS), at(&server, CARELESS));
    let [one, other] = [(); 2].map(|()| take(&lock(&ann, "a").ttl(LONG).shared()));
    let writings = [(); 3].map(|()| ask(&lock(&at(&server, CARELESS), "a").ttl(LONG)));
    wait_for_waiters(&server, 3);
    pass(TTL);
    let to = other.token().get() + 1_000_000_000_000;
    block_on(bob.lift("a", to.try_into().expect("a token"))).expect("it can be lifted");
    block_on(bob.revoke("a", one.token(), "so it is")).expect("a reader can be revoked");
    let (error, _) = loss(&one);
    assert_eq!(error.loss_reason(), Some(LossReason::Revoked), "{error}");
    other.check().expect("it reads on");
    assert!(writings.iter().all(|writing| !writing.is_over()));
    assert_eq!(look(&bob, "a").readers.len(), 1);
    release(other);
    drop(one);
    let mut last = to - 1;
    let threads = writings.map(|writing| {
        std::thread::spawn(move || {
            let (lease, _) = writing.lease();
            let token = lease.token().get();
            release(lease);
            token
        })
    });
    for token in threads.map(|thread| thread.join().expect("it is given in the end")) {
        assert!(token >= to, "{token} is less than it was lifted to");
        last = last.max(token);
    }
    assert!(last > to);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn reader_whose_session_is_ended_hears_of_it() {
    let server = PostgresServer::start();
    let (ann, bob) = (at(&server, CARELESS), at(&server, CARELESS));
    let reading = take(&lock(&ann, "a").ttl(LONG).shared());
    let other = take(&lock(&bob, "a").ttl(LONG).shared());
    let token = reading.token();
    let pid = number(&server, &format!("select pid from fencepost.reader where token = {token}"));
    let listening = std::thread::spawn(|| (loss(&reading), reading));
    server.terminate(pid.try_into().expect("a process"));
    let ended = now();
    let ((error, heard), reading) = listening.join().expect("listening does not panic");
    assert_eq!(error.loss_reason(), Some(LossReason::SessionEnded), "{error}");
    assert!(heard.since(ended) < SOON, "{:?}", heard.since(ended));
    assert_kind(&block_on(reading.release()).expect_err("it was lost"), ErrorKind::Lost);
    other.check().expect("the other one reads on");
    release(other);
    assert_eq!(look(&bob, "a").status, Status::Free);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn stopped_reader_keeps_the_lock_or_loses_it_as_the_url_says() {
    let server = PostgresServer::start();
    let ttl = Duration::from_secs(2);
    for (options, loses) in
        [("on_pause=hold&quarantine=off", false), ("on_pause=expire&quarantine=off", true)]
    {
        let reader = Client::start_reader(&url(&server, options), ttl);
        reader.await_hold();
        reader.stop();
        let stopped = now();
        let bob = at(&server, options);
        if loses {
            let (next, granted) = ask(&lock(&bob, "a").ttl(ttl)).lease();
            let after = granted.since(stopped);
            assert!(after > ttl / 3 && after < ttl + SLACK, "{after:?}");
            release(next);
        } else {
            let [shown] = &look(&bob, "a").readers[..] else { panic!("one reads") };
            assert_eq!(shown.remaining, None, "it does not run out");
            pass(ttl * 2);
            assert_kind(&refusal(&lock(&bob, "a")), ErrorKind::Contended);
        }
        drop(reader);
        assert_nothing_is_left(&server);
    }
}
