#![doc = include_str!("../README.md")]

mod install;
#[cfg(feature = "policy")]
mod policy;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use fencepost_core::*;
pub use install::{Installation, install_fence, uninstall_fence};

#[cfg(feature = "policy")]
pub use policy::Policy;

/// Locks in etcd.
#[cfg(feature = "etcd")]
pub use fencepost_etcd as etcd;
/// What a configuration is made of: its rules, and the messages about it.
#[cfg(feature = "policy")]
pub use fencepost_policy as config;

/// Locks in a directory of this host.
#[cfg(feature = "file")]
pub use fencepost_file as file;

/// Locks and fences on one Redis, and locks on several independent ones by Redlock.
#[cfg(feature = "redis")]
pub use fencepost_redis as redis;

/// Locks and fences in a Postgres database.
#[cfg(feature = "postgres")]
pub use fencepost_postgres as postgres;

/// Locks on a ZooKeeper ensemble.
#[cfg(feature = "zookeeper")]
pub use fencepost_zookeeper as zookeeper;

/// Fences in a SQLite database.
#[cfg(feature = "sqlite")]
pub use fencepost_sqlite as sqlite;

/// The check of a stamp in front of an HTTP service.
#[cfg(feature = "http")]
pub use fencepost_http as http;

/// Fences in object stores.
#[cfg(feature = "objectstore")]
pub use fencepost_objectstore as objectstore;

/// Counters and histograms of what locks do, for the crate prometheus-client.
#[cfg(feature = "metrics")]
pub use fencepost_metrics as metrics;

/// Spans of locks and leases, for the crate tracing, and their export to a collector.
#[cfg(feature = "tracing")]
pub use fencepost_tracing as tracing;

/// The locks behind a URL. Connects when the first lock is acquired.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] when the URL or an option is wrong; [`ErrorKind::Unsupported`] when this build has no
/// such backend.
pub fn connect(url: &str) -> Result<Locks> {
    connect_url(&url.parse()?, &Clock::system())
}

/// The same, with a URL that was read already and a clock of one's own.
///
/// # Errors
/// Those of [`connect`].
pub fn connect_url(url: &BackendUrl, clock: &Clock) -> Result<Locks> {
    match url.kind() {
        "memory" => {
            url.accept_options(&[])?;
            Ok(Locks::new(MemoryBackend::new(clock.clone())))
        }
        #[cfg(feature = "file")]
        "file" => Ok(Locks::new(file::FileBackend::from_url(url, clock.clone())?)),
        #[cfg(feature = "redis")]
        "redis" => Ok(Locks::new(redis::RedisBackend::from_url(url, clock.clone())?)),
        #[cfg(feature = "redis")]
        "redlock" => Ok(Locks::new(redis::redlock::RedlockBackend::from_url(url, clock.clone())?)),
        #[cfg(feature = "postgres")]
        "postgres" => Ok(Locks::new(postgres::PostgresBackend::from_url(url, clock.clone())?)),
        #[cfg(feature = "etcd")]
        "etcd" => Ok(Locks::new(etcd::EtcdBackend::from_url(url, clock.clone())?)),
        #[cfg(feature = "zookeeper")]
        "zookeeper" => Ok(Locks::new(zookeeper::ZooKeeperBackend::from_url(url, clock.clone())?)),
        _ => Err(missing(url, "backend")),
    }
}

/// The directory behind a URL, whether or not it exists yet; `None` where locks are not kept in one.
pub fn directory(url: &BackendUrl) -> Option<PathBuf> {
    match url.kind() {
        #[cfg(feature = "file")]
        "file" => Some(file::FileBackend::from_url(url, Clock::system()).ok()?.directory()),
        _ => None,
    }
}

/// What each backend of this build promises.
pub fn profiles() -> Vec<Profile> {
    vec![
        #[cfg(feature = "file")]
        file::PROFILE,
        #[cfg(feature = "redis")]
        redis::PROFILE,
        #[cfg(feature = "redis")]
        redis::redlock::PROFILE,
        #[cfg(feature = "postgres")]
        postgres::PROFILE,
        #[cfg(feature = "etcd")]
        etcd::PROFILE,
        #[cfg(feature = "zookeeper")]
        zookeeper::PROFILE,
        memory::PROFILE,
    ]
}

/// The fence behind a URL. Connects when the first stamp is sealed.
///
/// # Errors
/// Those of [`connect`].
pub fn fence(url: &BackendUrl) -> Result<Arc<dyn Fence>> {
    match url.kind() {
        #[cfg(feature = "file")]
        "file" => Ok(Arc::new(file::FileFence::from_url(url)?)),
        #[cfg(feature = "redis")]
        "redis" | "redlock" => Ok(Arc::new(redis::RedisFence::from_url(url, Clock::system())?)),
        #[cfg(feature = "postgres")]
        "postgres" => Ok(Arc::new(postgres::PostgresFence::from_url(url, Clock::system())?)),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Arc::new(sqlite::SqliteFence::from_url(url)?)),
        #[cfg(feature = "objectstore")]
        "s3" | "gs" | "az" => Ok(Arc::new(objectstore::ObjectStoreFence::from_url(url)?)),
        _ => Err(missing(url, "fence")),
    }
}

/// Makes a copy of `path` the current result of the stamp's lock, in the directory that a URL names as a fence, or a file the
/// current result of its name, in a bucket. Gives the name that leads to it, or the URL of the object.
///
/// # Cancel safety
/// A dropped call has published the result or not.
///
/// # Errors
/// [`ErrorKind::Stale`] when the stamp is not the sealed one; [`ErrorKind::Unsupported`] for every other kind of fence.
pub async fn publish(url: &BackendUrl, stamp: &Stamp, path: &Path) -> Result<PathBuf> {
    match url.kind() {
        #[cfg(feature = "file")]
        "file" => file::FileFence::from_url(url)?.publish(stamp, path).await,
        #[cfg(feature = "objectstore")]
        "s3" | "gs" | "az" => {
            let fence = objectstore::ObjectStoreFence::from_url(url)?;
            fence.publish_file(stamp, path).await.map(PathBuf::from)
        }
        _ => {
            // A build without such fences publishes nothing.
            let _ = (stamp, path);
            let what = format!("{url} is no directory and no bucket, and results are published in one");
            Err(Error::new(ErrorKind::Unsupported, "publish the result", what)
                .hint("name a directory, such as file:/srv/exports"))
        }
    }
}

fn missing(url: &BackendUrl, what: &str) -> Error {
    let scheme = url.scheme();
    let context = match (what, url.kind()) {
        ("fence", "etcd" | "zookeeper" | "memory") => format!("{scheme}: keeps locks and is no fence"),
        ("backend", "sqlite" | "s3" | "gs" | "az") => format!("{scheme}: is a fence and keeps no locks"),
        _ => format!("this build of fencepost has no {what} for {scheme}:"),
    };
    let hint = match (what, url.kind()) {
        ("fence", "s3" | "gs" | "az") => "build it with the feature `objectstore`".to_owned(),
        ("fence", _) if FENCES.is_empty() => "this build has no fences at all".to_owned(),
        ("fence", _) => format!("this build has fences for {}", listed(FENCES.iter().copied())),
        _ => {
            format!("this build keeps locks in {}", listed(profiles().iter().map(|profile| profile.backend)))
        }
    };
    Error::new(ErrorKind::Unsupported, "connect", context).hint(hint)
}

/// Schemes of URLs as a list in a sentence.
fn listed<'a>(kinds: impl IntoIterator<Item = &'a str>) -> String {
    let kinds: Vec<String> = kinds.into_iter().map(|kind| format!("{kind}:")).collect();
    match kinds.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => kinds.concat(),
    }
}

/// The kinds of fences of this build.
const FENCES: &[&str] = &[
    #[cfg(feature = "file")]
    "file",
    #[cfg(feature = "redis")]
    "redis",
    #[cfg(feature = "postgres")]
    "postgres",
    #[cfg(feature = "sqlite")]
    "sqlite",
    #[cfg(feature = "objectstore")]
    "s3",
    #[cfg(feature = "objectstore")]
    "gs",
    #[cfg(feature = "objectstore")]
    "az",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_about_a_fence_names_the_fences_of_the_build() {
        let error = fence(&"zookeeper://h".parse().unwrap()).unwrap_err();
        let hint = error.advice().unwrap();
        for kind in FENCES {
            assert!(hint.contains(&format!("{kind}:")), "{hint}");
            let made = fence(&format!("{kind}://a/b").parse().unwrap());
            assert!(!made.is_err_and(|error| error.kind() == ErrorKind::Unsupported), "{kind}");
        }
        for kind in ["memory:", "etcd:", "redlock:"] {
            assert!(!hint.contains(kind), "{hint}");
        }
        let backends = connect("sqlite:/a").unwrap_err();
        assert!(backends.advice().unwrap().contains("memory:"), "{backends:?}");
    }
}
