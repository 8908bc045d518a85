//! The servers of a lock: started by the lab from what is installed, or the user's own, which the lab leaves alone.
//!
//! Invariant: what cannot be done to them is said in words, and nothing here panics for a server that does not start.

mod etcd;
mod postgres;
mod redis;
mod redlock;
mod surroundings;
mod zookeeper;

use std::fmt::Debug;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use fencepost::BackendUrl;

use crate::fault::Loss;
use crate::pattern::Kind;
use surroundings::expect_installed;

pub(crate) use surroundings::expect_postgres;

/// What was done to servers, or why it could not be.
pub(crate) type Done = Result<(), String>;

/// The servers of one kind of lock.
pub(crate) trait LockServers: Debug + Send {
    /// Where they listen.
    fn addresses(&self) -> Vec<SocketAddr>;

    /// The URL of the lock where they are reached at other addresses.
    fn url(&self, addresses: &[SocketAddr]) -> String;

    /// Makes a copy of what they know now, which is to take their place later.
    fn copy(&mut self) -> Done {
        Err("the lab makes no copy of these servers".to_owned())
    }

    /// Sets their wall clocks forward.
    fn step_clock(&mut self, _: Duration) -> Done {
        Err("the lab sets no clock of these servers".to_owned())
    }

    /// Sets their wall clocks back again.
    fn step_clock_back(&mut self, _: Duration) -> Done {
        Ok(())
    }

    /// Kills them, and starts them so much later with what they have kept.
    fn restart(&mut self, _: Duration) -> Done {
        Err("the lab does not restart these servers".to_owned())
    }

    /// Has them lose what they know of the lock. Where they listen may change.
    fn lose(&mut self, _: Loss) -> Done {
        Err("the lab takes no data from these servers".to_owned())
    }
}

/// Starts the servers of a kind of lock.
///
/// # Errors
/// What is missing, and the package that has it; or what a server said that does not start.
pub(crate) fn start(kind: Kind, folder: &Path) -> Result<Box<dyn LockServers>, String> {
    if kind == Kind::Postgres {
        expect_postgres(folder)?;
    } else if let Some((program, package)) = kind.facts().program {
        expect_installed(program, package)?;
        expect_installed("setpriv", "util-linux")?;
    }
    let started: Result<Box<dyn LockServers>, String> = match kind {
        Kind::None => Ok(Box::new(Nothing)),
        Kind::File => Ok(Box::new(Folder(format!("file:{}", folder.join("locks").display())))),
        Kind::Redis => redis::OneRedis::start().map(boxed),
        Kind::Redlock => redlock::FiveRedis::start().map(boxed),
        Kind::Postgres => postgres::OnePostgres::start().map(boxed),
        Kind::Etcd => etcd::OneEtcd::start().map(boxed),
        Kind::Zookeeper => zookeeper::OneZooKeeper::start().map(boxed),
    };
    started.map_err(|why| last_lines(&why))
}

fn boxed(servers: impl LockServers + 'static) -> Box<dyn LockServers> {
    Box::new(servers)
}

/// What a server that does not start has said may be long: its first line, which names it, and the last few.
pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let Some((first, rest)) = lines.split_first() else { return String::new() };
    let last = rest.iter().rev().take(LAST_LINES).rev().copied();
    [*first].into_iter().chain(last).collect::<Vec<_>>().join("\n")
}

/// Waits while servers are down.
fn pass(time: Duration) {
    fencepost::block_on(fencepost::Clock::system().sleep(time));
}

/// No lock.
#[derive(Debug)]
struct Nothing;

impl LockServers for Nothing {
    fn addresses(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    fn url(&self, _: &[SocketAddr]) -> String {
        String::new()
    }
}

/// A directory.
#[derive(Debug)]
struct Folder(String);

impl LockServers for Folder {
    fn addresses(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    fn url(&self, _: &[SocketAddr]) -> String {
        self.0.clone()
    }
}

/// The user's own servers. Links to them can fail, and they themselves are left alone.
#[derive(Debug)]
pub(crate) struct Own {
    url: BackendUrl,
    addresses: Vec<SocketAddr>,
}

impl Own {
    pub(crate) fn new(url: BackendUrl) -> Self {
        // A link under TLS would show the wrong name, and sentinels name the server themselves.
        let is_plain = matches!(url.scheme(), "redis" | "redlock" | "postgres" | "postgresql");
        let addresses = if is_plain { addresses_in(&url).unwrap_or_default() } else { Vec::new() };
        Self { url, addresses }
    }
}

impl LockServers for Own {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    fn url(&self, addresses: &[SocketAddr]) -> String {
        if addresses.is_empty() {
            return self.url.expose().to_owned();
        }
        let text = self.url.expose();
        let (before, hosts, after) = authority(text);
        let user = hosts.rfind('@').map_or("", |at| &hosts[..=at]);
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("{before}{user}{}{after}", hosts.join(","))
    }
}

/// Each of the hosts that a URL names, where all of them are found.
fn addresses_in(url: &BackendUrl) -> Option<Vec<SocketAddr>> {
    let (_, hosts, _) = authority(url.expose());
    let hosts = hosts.rsplit('@').next().unwrap_or_default();
    let port = if url.kind() == "postgres" { 5432 } else { 6379 };
    let address = |host: &str| {
        let named = if host.contains(':') { host.to_owned() } else { format!("{host}:{port}") };
        named.to_socket_addrs().ok()?.next()
    };
    hosts.split(',').map(address).collect()
}

/// A URL in three parts, of which the second has users and hosts.
fn authority(text: &str) -> (&str, &str, &str) {
    let start = text.find("//").map_or(text.len(), |at| at + 2);
    let length = text[start..].find(['/', '?']).unwrap_or(text.len() - start);
    (&text[..start], &text[start..start + length], &text[start + length..])
}

/// The lab's own Postgres has no TLS, whatever the environment asks for.
pub(crate) const PLAIN: &str = "sslmode=disable";
const LAST_LINES: usize = 5;
/// How long a server that may have lost data grants nothing; as short as the longest lease allows.
const QUARANTINE: &str = "max_ttl=1s";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_take_the_place_of_the_hosts_of_a_url_and_nothing_else() {
        let own = Own::new("redis://ann:secret@127.0.0.1:7001/3?max_ttl=2s".parse().unwrap());
        assert_eq!(own.addresses(), ["127.0.0.1:7001".parse().unwrap()]);
        let link = "127.0.0.1:9".parse().unwrap();
        assert_eq!(own.url(&[link]), "redis://ann:secret@127.0.0.1:9/3?max_ttl=2s");
        let five = Own::new("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1".parse().unwrap());
        assert_eq!(five.addresses().last(), Some(&"127.0.0.1:6379".parse().unwrap()));
    }

    #[test]
    fn server_that_does_not_start_is_quoted_with_its_last_words() {
        let said = format!("redis-server does not start; it said:\n{}wrong port", "noise\n".repeat(99));
        let shown = last_lines(&said);
        assert!(shown.starts_with("redis-server does not start") && shown.ends_with("wrong port"));
        assert_eq!(shown.lines().count(), 6);
    }

    #[test]
    fn server_that_speaks_tls_or_has_no_host_gets_no_links() {
        for url in ["rediss://127.0.0.1", "postgres://", "file:/srv/locks"] {
            let own = Own::new(url.parse().unwrap());
            assert_eq!((own.addresses(), own.url(&[])), (Vec::new(), url.to_owned()));
        }
    }
}
