//! What every test here stands on: clients as other processes would be, fakes of the protocol, and what a server may be left with.
//!
//! Bounds on the slow side are counted in [`SLACK`], which hides nothing: what they guard against takes longer.

use std::fmt;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use fencepost_core::{
    Clock, Error, ErrorKind, Event, Lease, Lock, LockName, LockState, Locks, Moment, Observer, Result, until,
};
use fencepost_redis::RedisBackend;
use fencepost_testkit::block_on;
use fencepost_testkit::proxy::Proxy;
use fencepost_testkit::servers::{RedisClient, RedisServer, RedisSetup, Reply, wait_until};

/// The length of lease that most tests ask for, and their `max_ttl`.
pub(crate) const TTL: Duration = Duration::from_millis(800);

/// How late anything may be on a busy machine.
pub(crate) const SLACK: Duration = Duration::from_secs(2);

/// Longer than any wait of a test that goes well.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// The options of a client that is quarantined for [`TTL`].
pub(crate) const CAREFUL: &str = "max_ttl=800ms";

/// The options of a client that is not.
pub(crate) const CARELESS: &str = "quarantine=off";

/// The ACQUIRE of the product, to be sent by hand.
pub(crate) const ACQUIRE: &str = concat!(
    include_str!("../../lua/keys.lua"),
    "\n",
    include_str!("../../lua/record.lua"),
    "\n",
    include_str!("../../lua/take.lua"),
    "\n",
    include_str!("../../lua/claim_alone.lua"),
    "\n",
    include_str!("../../lua/readers.lua"),
    "\n",
    include_str!("../../lua/hand_over.lua"),
    "\n",
    include_str!("../../lua/enter.lua"),
    "\n",
    include_str!("../../lua/acquire.lua")
);

/// The RENEW of the product.
pub(crate) const RENEW: &str = concat!(
    include_str!("../../lua/keys.lua"),
    "\n",
    include_str!("../../lua/readers.lua"),
    "\n",
    include_str!("../../lua/renew.lua")
);

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
    Locks::new(RedisBackend::from_url(&url, clock()).expect("the URL names a server"))
}

/// The locks of the server at `port`.
pub(crate) fn at(port: u16, options: &str) -> Locks {
    locks(&format!("redis://127.0.0.1:{port}?{options}"))
}

/// A proxy through which everything passes to a server.
pub(crate) fn proxy_to(server: &RedisServer) -> Proxy {
    Proxy::start((Ipv4Addr::LOCALHOST, server.port()).into())
}

/// A server that looks as if it had been up for an hour, so that one without a record grants at once.
pub(crate) fn old_server(setup: RedisSetup) -> RedisServer {
    let mut server = setup.own_clock().start();
    server.step_clock_forward(Duration::from_hours(1));
    wait_until("the server looks old", || uptime(&server) >= 3_600);
    server
}

fn uptime(server: &RedisServer) -> u64 {
    server.info("server", "uptime_in_seconds").and_then(|text| text.parse().ok()).unwrap_or_default()
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
    /// What came of it, and when.
    pub(crate) fn outcome(self) -> (Result<Lease>, Moment) {
        self.0.join().expect("asking does not panic")
    }

    /// The lease, and when it came.
    pub(crate) fn lease(self) -> (Lease, Moment) {
        let (outcome, at) = self.outcome();
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

/// Waits until so many wait for a lock, as the server sees it.
pub(crate) fn wait_for_waiters(server: &RedisServer, name: &str, count: i64) {
    wait_until("the waiters are in the queue", || {
        server.command(&["ZCARD", &key(name, "q")]).integer() == count
    });
}

/// A key of a lock.
pub(crate) fn key(name: &str, what: &str) -> String {
    let name: LockName = name.parse().expect("a test names a lock");
    format!("fencepost:{{{}}}:{what}", name.canonical())
}

/// All keys of a server.
pub(crate) fn keys(server: &RedisServer) -> Vec<String> {
    server.command(&["KEYS", "*"]).array().iter().map(|key| key.text().to_owned()).collect()
}

/// Every key ends by itself, except for those that the README names.
pub(crate) fn assert_all_ends(server: &RedisServer) {
    for key in keys(server) {
        let left = server.command(&["PTTL", &key]).integer();
        let stays = ["fencepost:inc", "fencepost:cfg"].contains(&key.as_str());
        let may_stay = stays || (key.ends_with(":s") && is_ahead(server, &key));
        // -2: it has ended meanwhile.
        assert!(if left == -1 { may_stay } else { !stays }, "{key} has {left} ms left");
    }
}

/// Whether the last token is ahead of the clock.
fn is_ahead(server: &RedisServer, key: &str) -> bool {
    let token = server.command(&["GET", key]);
    token != Reply::Nil
        && token.text().parse::<i64>().expect("a token is a number") > server_time(server) * 1_000
}

/// No holder, no waiter, and nothing that never ends is on a server that nobody uses any more.
pub(crate) fn assert_nothing_is_left(server: &RedisServer) {
    let settled = block_on(until(&clock(), Some(now().after(LIMIT)), clock().settled()));
    assert!(settled.is_some(), "what was given up is cleaned up");
    let live: Vec<String> = keys(server).into_iter().filter(|key| is_of_somebody(key)).collect();
    assert!(live.is_empty(), "left behind: {live:?}");
    assert_all_ends(server);
}

fn is_of_somebody(key: &str) -> bool {
    [":l", ":q", ":w", ":r", ":d"].iter().any(|what| key.ends_with(what))
}

/// How often a server has carried out a command.
pub(crate) fn calls(server: &RedisServer, command: &str) -> u64 {
    let found = server.info("commandstats", &format!("cmdstat_{command}"));
    let calls = found.as_deref().and_then(|found| found.split(['=', ',']).nth(1)).map(str::parse);
    calls.map_or(0, |calls| calls.expect("a server counts"))
}

/// How many scripts a server has run.
pub(crate) fn scripts(server: &RedisServer) -> u64 {
    calls(server, "evalsha") + calls(server, "eval")
}

/// The server's time in milliseconds.
pub(crate) fn server_time(server: &RedisServer) -> i64 {
    let time = server.command(&["TIME"]);
    let number = |index: usize| time.array()[index].text().parse::<i64>().expect("a time is a number");
    number(0) * 1_000 + number(1) / 1_000
}

/// Everything that was observed.
#[derive(Debug, Default)]
pub(crate) struct Diary(Mutex<Vec<String>>);

impl Observer for Diary {
    fn observe(&self, _: &LockName, event: &Event) {
        let line = match event {
            Event::Noticed { what } => format!("noticed: {what}"),
            Event::RenewFailed { error } => format!("failed: {error}"),
            Event::Lost { error } => format!("lost: {error}"),
            _ => return,
        };
        self.0.lock().expect("nobody panics here").push(line);
    }
}

impl Diary {
    /// Whom a lock tells.
    pub(crate) fn listener(self: &Arc<Self>) -> Arc<dyn Observer> {
        Arc::<Self>::clone(self)
    }

    /// How many lines begin so.
    pub(crate) fn count(&self, beginning: &str) -> usize {
        self.0.lock().expect("nobody panics here").iter().filter(|line| line.starts_with(beginning)).count()
    }
}

impl fmt::Display for Diary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.lock().expect("nobody panics here").join("; "))
    }
}

/// Says like a Sentinel where the server is, and what it says can be changed between two connections.
pub(crate) struct Signpost {
    address: SocketAddr,
    port: Arc<AtomicU16>,
}

impl Signpost {
    /// Shows the way to `port`. Its thread ends with the test's process.
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the system has a port left");
        let address = listener.local_addr().expect("a listener has an address");
        let port = Arc::new(AtomicU16::new(port));
        let shown = Arc::clone(&port);
        std::thread::spawn(move || {
            for mut asking in listener.incoming().flatten() {
                let port = shown.load(Ordering::Acquire).to_string();
                let reply = format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len());
                // Whoever has gone asks again.
                let _ = asking.read(&mut [0; 256]).and_then(|_| asking.write_all(reply.as_bytes()));
            }
        });
        Self { address, port }
    }

    pub(crate) fn turn_to(&self, port: u16) {
        self.port.store(port, Ordering::Release);
    }

    pub(crate) fn locks(&self, options: &str) -> Locks {
        locks(&format!("redis+sentinel://{}/primary?{options}", self.address))
    }
}

/// A waiter that was written into the queue by hand: it listens and does nothing, as a stopped process does.
pub(crate) struct StoppedWaiter {
    pub(crate) holder: String,
    pub(crate) place: String,
    process: String,
    name: String,
    connection: RedisClient,
}

impl StoppedWaiter {
    /// Joins the queue of a lock that it wants alone.
    pub(crate) fn joining(server: &RedisServer, name: &str) -> Self {
        Self::in_queue(server, name, "alone")
    }

    /// Joins the queue of a lock that it wants to share.
    pub(crate) fn sharing(server: &RedisServer, name: &str) -> Self {
        Self::in_queue(server, name, "shared")
    }

    fn in_queue(server: &RedisServer, name: &str, mode: &str) -> Self {
        let [holder, process] = [clock().random(), clock().random()].map(|random| format!("{random:032x}"));
        let mut connection = server.client().expect("the server answers");
        connection.command(&["SUBSCRIBE", &format!("fencepost:p:{process}")]).expect("it can be listened to");
        let place = server.command(&["INCR", &key(name, "n")]).integer().to_string();
        let entry = format!("{}|1|{mode}|{process}|{{}}", server_time(server) + 6_000);
        server.command(&["ZADD", &key(name, "q"), &place, &holder]);
        server.command(&["HSET", &key(name, "w"), &holder, &entry]);
        for what in ["q", "w", "n"] {
            server.command(&["PEXPIRE", &key(name, what), "12000"]);
        }
        Self { holder, place, process, name: name.to_owned(), connection }
    }

    /// What it is told next.
    pub(crate) fn told(&mut self) -> String {
        let message = self.connection.receive().expect("a message comes");
        message.array()[2].text().to_owned()
    }

    /// Asks for the lock, with the place that it had.
    pub(crate) fn claim(&self, server: &RedisServer) -> Reply {
        let incarnation = server.command(&["GET", "fencepost:inc"]);
        server.command(&[
            "EVAL",
            ACQUIRE,
            "2",
            "fencepost:inc",
            &key(&self.name, "l"),
            incarnation.text(),
            "0",
            &self.holder,
            "800",
            &format!("{}|{{}}", self.process),
            "6000",
            &self.place,
        ])
    }
}

/// The moment up to which a lease is believed in.
pub(crate) fn deadline(lease: &Lease) -> Moment {
    lease.deadline().moment().expect("a lease on Redis runs out")
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
