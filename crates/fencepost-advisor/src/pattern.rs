//! The locks that there are to choose from: what each costs to run, and what it promises.
//!
//! Promises are profiles. Those of a build are handed in; a pattern that the build lacks, and a rule, of
//! which only the URL of its backend is known, are judged by the promises that stand here.

use fencepost_core::{BackendUrl, Expiry, Loss, Profile, Scope, Timing, Tokens, Waiting, memory};

use crate::answers::Answers;

/// A kind of lock that can be advised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pattern {
    /// A directory of one host.
    File,
    /// One Redis.
    Redis,
    /// A majority of independent Redis servers.
    Redlock,
    /// A Postgres database.
    Postgres,
    /// An etcd cluster.
    Etcd,
    /// A `ZooKeeper` ensemble.
    Zookeeper,
}

/// What a lock costs to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// How many servers there are to run that would not be there without it.
    pub servers: u8,
    /// These servers in words.
    pub services: &'static str,
    /// The connections that holders and waiters keep.
    pub connections: &'static str,
    /// What an acquisition waits for.
    pub round_trips: &'static str,
}

impl Pattern {
    /// All of them, from the weakest lock for many hosts to the strongest, after the one for one host.
    pub const ALL: [Self; 6] =
        [Self::File, Self::Redis, Self::Redlock, Self::Postgres, Self::Etcd, Self::Zookeeper];

    /// Its name, which is the kind of its backend.
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Redis => "redis",
            Self::Redlock => "redlock",
            Self::Postgres => "postgres",
            Self::Etcd => "etcd",
            Self::Zookeeper => "zookeeper",
        }
    }

    /// What it costs where the answers hold. Only a Postgres that is there already costs nothing.
    pub fn cost(self, answers: &Answers) -> Cost {
        match self {
            Self::File => NOTHING,
            Self::Redis => ONE_REDIS,
            Self::Redlock => REDIS_SERVERS,
            Self::Postgres if answers.postgres == Some(true) => POSTGRES_THERE,
            Self::Postgres => Cost { servers: 1, services: "a Postgres server", ..POSTGRES_THERE },
            Self::Etcd => CLUSTER,
            Self::Zookeeper => ENSEMBLE,
        }
    }

    /// What it promises: what `profiles` say, or else what is assumed of a build that has it.
    pub fn profile(self, profiles: &[Profile]) -> Profile {
        let built = profiles.iter().find(|profile| profile.backend == self.name());
        built.copied().unwrap_or_else(|| self.assumed())
    }

    /// What is assumed of it where no profile of a build is at hand.
    pub const fn assumed(self) -> Profile {
        match self {
            Self::File => Profile::weakest("file")
                .expiry(Expiry::WithProcess)
                .scope(Scope::Host)
                .timing(Timing::Untimed)
                .outlives_sessions(),
            Self::Redis => {
                Profile::weakest("redis").scope(Scope::Server).outlives_sessions().quarantine(true)
            }
            Self::Redlock => Profile::weakest("redlock")
                .scope(Scope::Cluster)
                .timing(Timing::WallClocks)
                .outlives_sessions()
                .quarantine(true),
            Self::Postgres => Profile::weakest("postgres")
                .expiry(Expiry::WithSession)
                .tokens(Tokens::Durable)
                .scope(Scope::Server)
                .timing(Timing::Monotonic)
                .quarantine(true),
            Self::Etcd => cluster("etcd").expiry(Expiry::AfterTtl),
            Self::Zookeeper => cluster("zookeeper").expiry(Expiry::AfterTtl),
        }
    }
}

/// What the backend at `url` promises: what is assumed of its kind, and less where its options say so. `None` for a kind
/// that is not known. An option that no such backend has is its own to refuse.
pub fn promised(url: &BackendUrl) -> Option<Profile> {
    let pattern = Pattern::ALL.into_iter().find(|pattern| pattern.name() == url.kind());
    let profile =
        pattern.map(Pattern::assumed).or_else(|| (url.kind() == "memory").then_some(memory::PROFILE))?;
    let is = |option: &str, value: &str| url.option(option) == Some(value);
    let profile = if is("quarantine", "off") { profile.quarantine(false) } else { profile };
    // The lease of a stopped holder then ends by the wall clock of the server.
    let expires = pattern == Some(Pattern::Postgres) && is("on_pause", "expire");
    Some(if expires { profile.expiry(Expiry::AfterTtl).timing(Timing::WallClock) } else { profile })
}

const fn cluster(kind: &'static str) -> Profile {
    Profile::weakest(kind)
        .tokens(Tokens::Durable)
        .waiting(Waiting::Queued)
        .loss(Loss::Pushed)
        .scope(Scope::Cluster)
        .timing(Timing::Monotonic)
        .outlives_sessions()
}

const NOTHING: Cost = Cost {
    servers: 0,
    services: "none",
    connections: "none",
    round_trips: "none; a few writes to a local disk",
};

const ONE_REDIS: Cost = Cost {
    servers: 1,
    services: "one Redis server",
    connections: "one for each process",
    round_trips: "one to acquire",
};

const REDIS_SERVERS: Cost = Cost {
    servers: 3,
    services: "three Redis servers at least that share nothing",
    connections: "one to each server for each process",
    round_trips: "two to acquire, each to all servers at once",
};

const POSTGRES_THERE: Cost = Cost {
    servers: 0,
    services: "none that is not there already",
    connections: "one for each holder and each waiter, of the server's max_connections",
    round_trips: "one to acquire, which the server writes to its disk",
};

const CLUSTER: Cost = Cost {
    servers: 3,
    services: "an etcd cluster of three servers at least, with disks that sync fast",
    connections: "one for each process",
    round_trips: "a few to acquire, each agreed on by a majority",
};

const ENSEMBLE: Cost = Cost {
    servers: 3,
    services: "a ZooKeeper ensemble of three servers at least, with disks that sync fast",
    connections: "one session for each process",
    round_trips: "a few to acquire, each agreed on by a majority",
};
