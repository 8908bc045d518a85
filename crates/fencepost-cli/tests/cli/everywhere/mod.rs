//! What `run` does alike wherever a lock lives: once for a slot, shared, in slots, and what `history` shows of it.
//!
//! Each case runs on every backend, against a real server, and asks the profile what is promised there: what is not has to be refused.

/// A test of each case for each backend.
macro_rules! on_every_backend {
    ($($case:ident),+ $(,)?) => {
        on_every_backend!(@ file, any, $($case),+);
        on_every_backend!(@ redis, redis_server, $($case),+);
        on_every_backend!(@ postgres, postgres_server, $($case),+);
        on_every_backend!(@ etcd, etcd_server, $($case),+);
        on_every_backend!(@ zookeeper, zookeeper_server, $($case),+);
    };
    (@ file, any, $($case:ident),+) => {
        mod file {
            $(#[test] fn $case() { super::$case(&crate::everywhere::Place::file()); })+
        }
    };
    (@ $kind:ident, $server:ident, $($case:ident),+) => {
        mod $kind {
            $(
                #[test]
                #[cfg_attr(not($server), ignore = "its server is not installed")]
                fn $case() { super::$case(&crate::everywhere::Place::$kind()); }
            )+
        }
    };
}

mod history;
mod once_per;
mod sharing;
mod slots;

use std::any::Any;

use fencepost::Profile;
use fencepost_testkit::servers::{EtcdServer, PostgresServer, RedisServer, ZooKeeperServer};

use crate::support::{Home, Running, json};

/// A home whose locks are in one place, and what is promised there.
struct Place {
    home: Home,
    url: String,
    profile: Profile,
    _server: Option<Box<dyn Any>>,
}

impl Place {
    fn file() -> Self {
        let directory = Home::new();
        let url = format!("file:{}", directory.path("locks").display());
        Self { home: Home::on(&url), profile: profile("file"), url, _server: Some(Box::new(directory)) }
    }

    fn redis() -> Self {
        let server = RedisServer::start();
        Self::at("redis", format!("{}?quarantine=off", server.url()), server)
    }

    fn postgres() -> Self {
        let server = PostgresServer::start();
        Self::at("postgres", server.url(), server)
    }

    fn etcd() -> Self {
        let server = EtcdServer::start();
        Self::at("etcd", server.url(), server)
    }

    fn zookeeper() -> Self {
        let server = ZooKeeperServer::start();
        Self::at("zookeeper", server.url(), server)
    }

    fn at(kind: &str, url: String, server: impl Any) -> Self {
        Self { home: Home::on(&url), profile: profile(kind), url, _server: Some(Box::new(server)) }
    }

    /// Whether this is promised; where it is not, `args` have to be refused.
    #[track_caller]
    fn offers(&self, what: impl Fn(&Profile) -> bool, args: &[&str]) -> bool {
        if what(&self.profile) {
            // What is said of a new directory has been said then.
            self.home.run(["run", "demo", "--", "true"]).exits(0);
            return true;
        }
        let command = ["demo", "--", "touch", "ran"];
        let refused = self.home.run(["run"].iter().chain(args).chain(&command)).exits(64);
        assert!(
            refused.stderr.contains(self.profile.backend) && !self.home.path("ran").exists(),
            "{refused:?}"
        );
        false
    }

    /// A holder of `demo` whose command writes to the file `name` when it begins, and ends when the file `name.stop` is there.
    fn start_holder(&self, name: &str, args: &[&str]) -> Running {
        let script = format!(
            "echo $FENCEPOST_TOKEN $FENCEPOST_LOCK $FENCEPOST_SLOT >{name}; while [ ! -e {name}.stop ]; do sleep 0.02; done"
        );
        let run =
            self.home.start(["run"].iter().chain(args).copied().chain(["demo", "--", "sh", "-c", &script]));
        self.home.await_line(name);
        run
    }

    /// Lets the command of such a holder end.
    #[track_caller]
    fn end(&self, name: &str, holder: Running) {
        self.home.write(&format!("{name}.stop"), "");
        holder.ends().exits(0);
    }

    /// A configuration whose one rule puts all locks here, and says more.
    fn configure(&self, more: &str) {
        let backend = format!("[backends.x]\nurl = {:?}\n", self.url);
        let rule = format!("[[locks]]\nmatch = \"**\"\nbackend = \"x\"\n{more}\n");
        self.home.write("fencepost.toml", &(backend + &rule));
    }

    fn status(&self, lock: &str) -> serde_json::Value {
        json(&self.home.run(["status", "--json", lock]))
    }
}

fn profile(kind: &str) -> Profile {
    fencepost::profiles().into_iter().find(|profile| profile.backend == kind).unwrap()
}

/// What processes have written on the way in and on the way out, as `+WHO` and `-WHO`: the most that were in at once.
#[track_caller]
fn most_at_once(log: &str, counts: impl Fn(&str) -> bool) -> usize {
    let (mut inside, mut most) = (Vec::new(), 0);
    for line in log.lines().filter(|line| counts(&line[1..])) {
        let who = &line[1..];
        if line.starts_with('+') {
            inside.push(who);
        } else {
            let at = inside.iter().position(|other| *other == who);
            inside.remove(at.unwrap_or_else(|| panic!("{who} comes out and was not in:\n{log}")));
        }
        most = most.max(inside.len());
    }
    most
}
