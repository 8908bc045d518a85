//! What every test here stands on: clients as other processes would be, and what a server may be left with.
//!
//! Bounds on the slow side are counted in [`SLACK`], which hides nothing: what they guard against takes longer.

use std::net::Ipv4Addr;
use std::thread::JoinHandle;
use std::time::Duration;

use fencepost_core::{
    Clock, Error, ErrorKind, FencingToken, Lease, Lock, LockState, Locks, Moment, Result, until,
};
use fencepost_postgres::PostgresBackend;
use fencepost_testkit::block_on;
use fencepost_testkit::proxy::Proxy;
use fencepost_testkit::servers::{PostgresClient, PostgresServer, wait_until};

/// The length of lease that most tests ask for.
pub(crate) const TTL: Duration = Duration::from_secs(1);

/// A lease that ends long after the test.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// How late anything may be on a busy machine.
pub(crate) const SLACK: Duration = Duration::from_secs(2);

/// How soon a holder hears of what the server tells it, and how soon the server notices a client that is gone.
pub(crate) const SOON: Duration = Duration::from_secs(1);

/// Longer than any wait of a test that goes well.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// The options of a client that grants at once, whatever the server has forgotten.
pub(crate) const CARELESS: &str = "quarantine=off";

/// The class of the keys of locks, as the SQL has it. Another one would let old and new programs in together.
pub(crate) const LOCK: &str = "1717923427";

/// The class of the doors in front of them.
pub(crate) const DOOR: &str = "1717923428";

pub(crate) fn clock() -> Clock {
    Clock::system()
}

pub(crate) fn now() -> Moment {
    clock().now()
}

/// Lets time pass in which something must not happen, or which is measured.
pub(crate) fn pass(time: Duration) {
    block_on(clock().sleep(time));
}

/// The locks of `url`, as another process would have them.
pub(crate) fn locks(url: &str) -> Locks {
    let url = url.parse().expect("a test writes a URL");
    Locks::new(PostgresBackend::from_url(&url, clock()).expect("the URL names a server"))
}

/// The locks of a server.
pub(crate) fn at(server: &PostgresServer, options: &str) -> Locks {
    locks(&format!("{}?{options}", server.url()))
}

/// The locks of a server as a role without a password sees them.
pub(crate) fn as_role(server: &PostgresServer, role: &str, options: &str) -> Locks {
    locks(&format!("{}?{options}", server.url_of(role, "postgres")))
}

/// The locks of the server behind a proxy.
pub(crate) fn through(proxy: &Proxy, options: &str) -> Locks {
    locks(&format!("postgres://postgres@{}/postgres?{options}", proxy.address()))
}

/// A proxy through which everything passes to a server.
pub(crate) fn proxy_to(server: &PostgresServer) -> Proxy {
    Proxy::start((Ipv4Addr::LOCALHOST, server.port()).into())
}

pub(crate) fn lock(locks: &Locks, name: &str) -> Lock {
    locks.lock(name).expect("a test names a lock").ttl(TTL)
}

/// Takes a lock that must be given at once.
pub(crate) fn take(lock: &Lock) -> Lease {
    let lease = block_on(lock.try_acquire()).expect("the lock can be asked for");
    lease.unwrap_or_else(|| panic!("{} was not given", lock.name()))
}

pub(crate) fn release(lease: Lease) {
    block_on(lease.release()).expect("a lease that is held can be given back");
}

/// Takes a lock and gives it back; its token.
pub(crate) fn draw(locks: &Locks) -> u64 {
    let lease = take(&lock(locks, "a"));
    let token = lease.token().get();
    release(lease);
    token
}

pub(crate) fn lift(locks: &Locks, to: u64) {
    let to = FencingToken::try_from(to).expect("it is a token");
    block_on(locks.lift("a", to)).expect("a lock can be lifted");
}

/// Why a lock is not given without a wait.
pub(crate) fn refusal(lock: &Lock) -> Error {
    let outcome = block_on(lock.clone().wait(Duration::ZERO).acquire());
    outcome.err().unwrap_or_else(|| panic!("{} was given", lock.name()))
}

/// An acquisition on a thread of its own.
pub(crate) struct Asking(JoinHandle<(Result<Lease>, Moment)>);

/// Asks for a lock in the background.
pub(crate) fn ask(lock: &Lock) -> Asking {
    let lock = lock.clone();
    Asking(std::thread::spawn(move || {
        let outcome = block_on(until(&clock(), Some(now().after(LIMIT)), lock.acquire()));
        (outcome.unwrap_or_else(|| panic!("{} was not given within {LIMIT:?}", lock.name())), now())
    }))
}

impl Asking {
    /// The lease, and when it came.
    pub(crate) fn lease(self) -> (Lease, Moment) {
        let (outcome, at) = self.0.join().expect("asking does not panic");
        (outcome.expect("the lock is given in the end"), at)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_finished()
    }
}

/// Waits until a lease is lost; why, and when.
pub(crate) fn loss(lease: &Lease) -> (Error, Moment) {
    let lost = block_on(until(&clock(), Some(now().after(LIMIT)), lease.lost()));
    (lost.unwrap_or_else(|| panic!("{} was not lost within {LIMIT:?}", lease.lock())), now())
}

/// The moment up to which a lease is believed in.
pub(crate) fn deadline(lease: &Lease) -> Moment {
    lease.deadline().moment().expect("a lease on Postgres runs out")
}

/// A lock as the server knows it.
pub(crate) fn look(locks: &Locks, name: &str) -> LockState {
    block_on(locks.inspect(name)).expect("a lock can be looked at")
}

/// A lease is held, and everybody knows.
pub(crate) fn assert_held(lease: &Lease, locks: &Locks) {
    lease.check().expect("the lease is held");
    let state = look(locks, lease.lock().as_str());
    assert_eq!(state.token, Some(lease.token()), "the server knows the holder");
}

/// An error is of a kind, and says so.
pub(crate) fn assert_kind(error: &Error, kind: ErrorKind) {
    assert_eq!(error.kind(), kind, "{error}");
}

/// A session of the superuser that stays open.
pub(crate) fn session(server: &PostgresServer) -> PostgresClient {
    server.client().expect("the server answers")
}

/// What SQL that is in order gives in a session.
pub(crate) fn told(session: &mut PostgresClient, sql: &str) -> String {
    session.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

pub(crate) fn number(server: &PostgresServer, sql: &str) -> i64 {
    server.query(sql).parse().unwrap_or_else(|_| panic!("{sql} is no number"))
}

/// How many of our advisory locks are held, or waited for.
pub(crate) fn entries(server: &PostgresServer, is_granted: bool) -> i64 {
    number(
        server,
        &format!(
            "select count(*) from pg_locks where locktype = 'advisory' and granted = {is_granted}
                and classid in ({LOCK}, {DOOR})"
        ),
    )
}

/// The process of the session that holds the only lock that is held, if one is.
pub(crate) fn pid_if_held(server: &PostgresServer) -> Option<u32> {
    let sql =
        format!("select pid from pg_locks where locktype = 'advisory' and classid = {LOCK} and granted");
    server.query(&sql).parse().ok()
}

/// The process of the session that holds the only lock that is held.
pub(crate) fn holding_pid(server: &PostgresServer) -> u32 {
    pid_if_held(server).expect("a lock is held")
}

/// How many sessions of ours there are.
pub(crate) fn sessions(server: &PostgresServer) -> i64 {
    number(server, "select count(*) from pg_stat_activity where application_name = 'fencepost'")
}

/// The token in the row of the lock `a`.
pub(crate) fn token_in_row(server: &PostgresServer) -> u64 {
    server.query("select token from fencepost.lock where name = 'a'").parse().expect("a token is a number")
}

/// Waits until so many sessions wait for a lock.
pub(crate) fn wait_for_waiters(server: &PostgresServer, count: i64) {
    wait_until("the waiters are in the queue", || entries(server, false) == count);
}

/// Nobody holds or waits on a server that nobody uses any more.
pub(crate) fn assert_nothing_is_left(server: &PostgresServer) {
    let settled = block_on(until(&clock(), Some(now().after(LIMIT)), clock().settled()));
    assert!(settled.is_some(), "what was given up is cleaned up");
    wait_until("no lock is left on the server", || entries(server, true) + entries(server, false) == 0);
}
