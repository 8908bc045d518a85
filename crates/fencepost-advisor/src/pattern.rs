//! The locks that there are to choose from: what each costs to run, and what it promises.
//!
//! Promises are profiles. Those of a build are handed in; a pattern that the build lacks, and a rule, of
//! which only the URL of its backend is known, are judged by the promises that stand here.

use fencepost_core::{
    BackendUrl, Connections, Expiry, Loss, Profile, Scope, Timing, Tokens, Waiting, memory,
};

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
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// How many servers there are to run that would not be there without it.
    pub servers: u8,
    /// These servers in words.
    pub services: &'static str,
    /// The connections that holders and waiters keep.
    pub connections: String,
    /// What an acquisition and a release wait for.
    pub round_trips: String,
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

    /// How many servers there are to run where the answers hold, and which. Only a Postgres that is there already costs
    /// nothing.
    pub fn servers(self, answers: &Answers) -> (u8, &'static str) {
        match self {
            Self::File => (0, "none"),
            Self::Redis => (1, "one Redis server"),
            Self::Redlock => (3, "three Redis servers at least that share nothing"),
            Self::Postgres if answers.postgres == Some(true) => (0, "none that is not there already"),
            Self::Postgres => (1, "a Postgres server"),
            Self::Etcd => (3, "an etcd cluster of three servers at least, with disks that sync fast"),
            Self::Zookeeper => {
                (3, "a ZooKeeper ensemble of three servers at least, with disks that sync fast")
            }
        }
    }

    /// What it costs where the answers hold: what its profile has counted, and what is to be remarked on that.
    pub fn cost(self, answers: &Answers, profile: &Profile) -> Cost {
        let (servers, services) = self.servers(answers);
        let (connections, trips) = match profile.cost.or(self.assumed().cost) {
            Some(cost) => (cost.connections.describe(), trips(&cost)),
            None => (NOT_COUNTED, NOT_COUNTED.to_owned()),
        };
        let with = |text: &str, remark: &str| match remark {
            "" => text.to_owned(),
            _ => format!("{text}; {remark}"),
        };
        let (of_connections, of_trips) = self.remarks();
        Cost {
            servers,
            services,
            connections: with(connections, of_connections),
            round_trips: with(&trips, of_trips),
        }
    }

    /// What the numbers do not say of its connections and its round trips.
    const fn remarks(self) -> (&'static str, &'static str) {
        match self {
            Self::File => ("", "a few writes to a local disk"),
            Self::Redis => ("", ""),
            Self::Redlock => ("", "each goes to all servers at once"),
            Self::Postgres => {
                ("they count towards the server's max_connections", "the server writes a grant to its disk")
            }
            Self::Etcd | Self::Zookeeper => ("", "each is agreed on by a majority"),
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
                .outlives_sessions()
                .costs(0, 0, Connections::None),
            Self::Redis => Profile::weakest("redis")
                .scope(Scope::Server)
                .outlives_sessions()
                .quarantine(true)
                .costs(1, 1, Connections::OnePerProcess),
            Self::Redlock => Profile::weakest("redlock")
                .scope(Scope::Cluster)
                .timing(Timing::WallClocks)
                .outlives_sessions()
                .quarantine(true)
                .costs(1, 1, Connections::OnePerNode),
            Self::Postgres => Profile::weakest("postgres")
                .expiry(Expiry::WithSession)
                .tokens(Tokens::Durable)
                .scope(Scope::Server)
                .timing(Timing::Monotonic)
                .quarantine(true)
                .costs(1, 1, Connections::OnePerLock),
            Self::Etcd => cluster("etcd").expiry(Expiry::AfterTtl).costs(2, 1, Connections::OnePerProcess),
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

fn trips(cost: &fencepost_core::Cost) -> String {
    match cost.acquire_trips {
        0 => "none".to_owned(),
        trips => format!("{trips} to acquire, {} to give back", cost.release_trips),
    }
}

/// What is said of the cost of a backend whose profile has none.
pub const NOT_COUNTED: &str = "nobody has counted them";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_what_the_profile_has_counted() {
        let answers = Answers::default();
        let counted = Pattern::Etcd.assumed().costs(4, 2, Connections::OnePerProcess);
        let cost = Pattern::Etcd.cost(&answers, &counted);
        assert_eq!(cost.connections, Connections::OnePerProcess.describe());
        assert_eq!(cost.round_trips, "4 to acquire, 2 to give back; each is agreed on by a majority");
        for pattern in Pattern::ALL {
            let profile = pattern.assumed();
            let cost = pattern.cost(&answers, &profile);
            let connections = profile.cost.map(|cost| cost.connections.describe());
            assert!(connections.is_none_or(|text| cost.connections.starts_with(text)), "{cost:?}");
        }
    }
}
