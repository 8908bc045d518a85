//! Several servers, a client of all of them, and what the servers themselves say.
//!
//! Invariant: what a test asserts about a node was asked on a connection of the test's own, past the code under test.

use std::future::Future;
use std::time::Duration;

use fencepost_core::{Clock, Lease, Lock, LockState, Locks, Moment, until};
use fencepost_redis::redlock::RedlockBackend;
use fencepost_testkit::block_on;
use fencepost_testkit::proxy::Proxy;
use fencepost_testkit::servers::{RedisServer, RedisSetup, Reply, wait_until};

/// Longer than anything takes that is not wrong.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Grants at once, as a server that was just started does not.
pub(crate) const AT_ONCE: &str = "quarantine=off";

/// The nodes of one test.
pub(crate) struct Nodes {
    pub(crate) servers: Vec<RedisServer>,
}

impl Nodes {
    pub(crate) fn start(count: usize) -> Self {
        Self { servers: RedisServer::start_several(count) }
    }

    /// Nodes that keep their data over a restart.
    pub(crate) fn durable(count: usize) -> Self {
        let durable = || RedisSetup::default().arguments(&["--appendonly", "yes", "--appendfsync", "always"]);
        Self { servers: (0..count).map(|_| durable().start()).collect() }
    }

    pub(crate) fn with_clocks(count: usize) -> Self {
        Self { servers: (0..count).map(|_| RedisSetup::default().own_clock().start()).collect() }
    }

    /// A proxy before each node.
    pub(crate) fn proxies(&self) -> Vec<Proxy> {
        self.servers.iter().map(|server| Proxy::start(address(server.port()))).collect()
    }

    pub(crate) fn url(&self, options: &str) -> String {
        url_of(&self.ports(), options)
    }

    pub(crate) fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(RedisServer::port).collect()
    }

    /// A client of its own, as another process would be.
    pub(crate) fn locks(&self, options: &str) -> Locks {
        locks(&self.url(options))
    }

    /// The lock's record on a node.
    pub(crate) fn record(&self, node: usize, name: &str) -> Option<String> {
        match self.servers[node].command(&["GET", &key(name, "l")]) {
            Reply::Text(record) => Some(record),
            _ => None,
        }
    }

    /// On which of `nodes` the lock is this lease's.
    pub(crate) fn holding(&self, nodes: impl IntoIterator<Item = usize>, lease: &Lease) -> Vec<usize> {
        let beginning = format!("1|{}|{}|held|", lease.holder(), lease.token());
        let name = lease.lock().as_str();
        let holds = |node: &usize| self.record(*node, name).is_some_and(|it| it.starts_with(&beginning));
        nodes.into_iter().filter(holds).collect()
    }

    /// How long a node keeps the lock.
    pub(crate) fn left(&self, node: usize, name: &str) -> Duration {
        let left = self.servers[node].command(&["PTTL", &key(name, "l")]).integer();
        Duration::from_millis(u64::try_from(left).unwrap_or(0))
    }

    pub(crate) fn keys(&self, node: usize) -> Vec<String> {
        let reply = self.servers[node].command(&["KEYS", "*"]);
        let mut keys: Vec<String> = reply.array().iter().map(|key| key.text().to_owned()).collect();
        keys.sort();
        keys
    }

    /// What nobody may leave on a node: records of locks, queues, and what else goes with a wait.
    pub(crate) fn left_over(&self, node: usize) -> Vec<String> {
        let mut keys = self.keys(node);
        keys.retain(|key| !KEPT.contains(&&**key) && !key.ends_with("}:s"));
        keys
    }

    pub(crate) fn number(&self, node: usize, key: &str) -> u64 {
        match self.servers[node].command(&["GET", key]) {
            Reply::Text(number) => number.parse().expect("it is a number"),
            _ => 0,
        }
    }

    /// Whether a node has sat out its quarantine and has its floor.
    pub(crate) fn is_ready(&self, node: usize) -> bool {
        let Reply::Text(record) = self.servers[node].command(&["GET", "fencepost:inc"]) else { return false };
        let run_id = self.servers[node].info("server", "run_id").expect("a server has one");
        let ready_at: u64 =
            record.split('|').nth(1).and_then(|at| at.parse().ok()).expect("a record says when");
        let now = self.servers[node].command(&["TIME"]).array()[0].text().parse::<u64>().expect("seconds");
        record.starts_with(&run_id) && !record.ends_with("|unseeded") && ready_at <= now * 1_000
    }

    /// Waits until all nodes grant, while somebody asks them.
    pub(crate) fn make_ready(&self, locks: &Locks) {
        let lock = lock(locks, "make-ready", ms(500));
        wait_until("all nodes are ready", || {
            if let Ok(Some(lease)) = block_on(lock.try_acquire()) {
                // What is left of it runs out.
                drop(block_on(lease.release()));
            }
            (0..self.servers.len()).all(|node| self.is_ready(node))
        });
    }
}

/// The keys that a node keeps, as the README names them; beside the token records.
const KEPT: [&str; 5] =
    ["fencepost:inc", "fencepost:cfg", "fencepost:max", "fencepost:floor", "fencepost:idle"];

pub(crate) fn key(name: &str, what: &str) -> String {
    format!("fencepost:{{{name}}}:{what}")
}

pub(crate) fn address(port: u16) -> std::net::SocketAddr {
    ([127, 0, 0, 1], port).into()
}

pub(crate) fn url_of(ports: &[u16], options: &str) -> String {
    let nodes: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("redlock://{}?{options}", nodes.join(","))
}

pub(crate) fn proxied(proxies: &[Proxy], options: &str) -> String {
    url_of(&proxies.iter().map(Proxy::port).collect::<Vec<_>>(), options)
}

pub(crate) fn locks(url: &str) -> Locks {
    let url = url.parse().expect("it is a URL");
    Locks::new(RedlockBackend::from_url(&url, Clock::system()).expect("the URL names nodes"))
}

pub(crate) fn lock(locks: &Locks, name: &str, ttl: Duration) -> Lock {
    locks.lock(name).expect("the names of the tests are valid").ttl(ttl).label("a test")
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn now() -> Moment {
    Clock::system().now()
}

pub(crate) fn pass(duration: Duration) {
    block_on(Clock::system().sleep(duration));
}

/// Awaits what must not take longer than the limit.
pub(crate) fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    let clock = Clock::system();
    let output = block_on(until(&clock, Some(clock.now().after(limit)), future));
    output.unwrap_or_else(|| panic!("{what} took more than {limit:?}"))
}

/// Takes a lock, and says how long that took.
pub(crate) fn take(lock: &Lock) -> Lease {
    within(LIMIT, "an acquisition", lock.acquire()).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn give(lease: Lease) {
    within(LIMIT, "a release", lease.release()).unwrap_or_else(|error| panic!("{error}"));
}

pub(crate) fn state(locks: &Locks, name: &str) -> LockState {
    within(LIMIT, "an inspection", locks.inspect(name)).unwrap_or_else(|error| panic!("{error}"))
}

/// The value below which so many of a hundred lie.
pub(crate) fn percentile(durations: &[Duration], percent: usize) -> Duration {
    let mut sorted = durations.to_vec();
    sorted.sort();
    sorted[(sorted.len() - 1) * percent / 100]
}
