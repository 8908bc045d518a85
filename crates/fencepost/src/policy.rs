//! Locks by the configuration file, found and read as the command does.
//!
//! Invariant: a program and `fencepost run` put a lock in the same place, and both refuse a rule that is too weak.

use std::path::Path;
use std::sync::{Arc, Mutex};

use fencepost_core::{BackendUrl, Clock, Error, ErrorKind, Lock, LockName, Locks, Result};
use fencepost_policy::{Choice, ConfigError, Misplaced, Placement, Surroundings};

use crate::{connect_url, fence};

/// The locks of a configuration. Backends are connected when the first lock on them is acquired, and shared from then on.
///
/// # Examples
/// ```
/// # let directory = std::env::temp_dir().join(format!("fencepost-policy-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory).unwrap();
/// # let path = directory.join("fencepost.toml");
/// # let url = format!("file:{}/locks", directory.display());
/// # std::fs::write(&path, format!(
/// #     "[backends.here]\nurl = {url:?}\n[[locks]]\nmatch = \"ledger/**\"\nbackend = \"here\"\n"
/// # )).unwrap();
/// # fencepost::block_on(async {
/// let policy = fencepost::Policy::open(&path)?; // or `load()`, which finds the file
/// let lease = policy.lock("ledger/2026-11")?.acquire().await?;
/// println!("writing with token {}", lease.token());
/// lease.release().await?;
///
/// assert!(policy.lock("leger/2026-11").is_err(), "no rule matches, and it is no lock on this host then");
/// # Ok::<(), fencepost::Error>(())
/// # }).unwrap();
/// # std::fs::remove_dir_all(&directory).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Policy {
    found: Option<fencepost_policy::Policy>,
    variable: Option<BackendUrl>,
    connected: Arc<Mutex<Vec<(BackendUrl, Locks)>>>,
}

impl Policy {
    /// Finds the configuration as the command does: the file that `FENCEPOST_CONFIG` names, `./fencepost.toml`, the user's,
    /// the system's. Where there is none, locks are at `FENCEPOST_BACKEND`, or else in a directory of this host.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when a file that is there cannot be read or is wrong, or `FENCEPOST_BACKEND` is no URL.
    pub fn load() -> Result<Self> {
        Self::of(fencepost_policy::Policy::find(None))
    }

    /// Reads the configuration at `path`.
    ///
    /// # Errors
    /// Those of [`load`](Self::load), and a file that is not there.
    pub fn open(path: &Path) -> Result<Self> {
        Self::of(fencepost_policy::Policy::find(Some(path)))
    }

    /// The lock `name` as its rule wants it: its backend, ttl, wait, grace, fences, history and what it requires.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when it is no name, no rule matches it, or its rule is wrong or weaker than its own
    /// answers demand; [`ErrorKind::Unsupported`] when this build has no such backend or fence.
    pub fn lock(&self, name: &str) -> Result<Lock> {
        let (mut lock, choice) = self.placed(name)?;
        let Some(choice) = choice else { return Ok(lock) };
        if choice.rule.history > 0 {
            lock = lock.history(choice.rule.history);
        }
        for url in &choice.fences {
            lock = lock.fence(fence(url)?);
        }
        Ok(lock)
    }

    /// The lock `name`, to be held beside others who only read. It is where its rule wants it, with the rule's times; no fence of the
    /// rule is sealed and no history kept, since a reader changes nothing.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    pub fn shared_lock(&self, name: &str) -> Result<Lock> {
        Ok(self.placed(name)?.0.shared())
    }

    /// The locks of the backend where the rule of `name` wants it: to look at that lock, or to read what its holders have left.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    pub fn locks_of(&self, name: &str) -> Result<Locks> {
        let placement = self.placement(&name.parse()?)?;
        self.locks(&placement.url)
    }

    fn placement(&self, name: &LockName) -> Result<Placement> {
        let surroundings = Surroundings::of_process();
        let placement = Placement::of(self.found.as_ref(), &surroundings, name, None, self.variable.as_ref());
        placement.map_err(|error| misplaced(error, name))
    }

    /// The lock where its rule wants it, with what goes for readers and writers, and the rule.
    fn placed(&self, name: &str) -> Result<(Lock, Option<Choice>)> {
        let placement = self.placement(&name.parse()?)?;
        let mut lock = self.locks(&placement.url)?.lock(name)?;
        let Some(choice) = placement.choice else { return Ok((lock, None)) };
        if let Some(ttl) = choice.ttl {
            lock = lock.ttl(ttl);
        }
        if let Some(wait) = choice.wait {
            lock = lock.wait(wait);
        }
        if let Some(grace) = choice.grace {
            lock = lock.grace(grace);
        }
        if choice.rule.require_durable {
            lock = lock.require_durable();
        }
        Ok((lock, Some(choice)))
    }

    /// What was read; `None` where there is no configuration.
    pub fn config(&self) -> Option<&fencepost_policy::Policy> {
        self.found.as_ref()
    }

    fn of(found: Result<Option<fencepost_policy::Policy>, ConfigError>) -> Result<Self> {
        let found = found.map_err(wrong)?;
        let variable = Placement::variable(&Surroundings::of_process())?;
        Ok(Self { found, variable, connected: Arc::default() })
    }

    /// The locks at `url`, by one connection for all of them.
    fn locks(&self, url: &BackendUrl) -> Result<Locks> {
        let mut connected = self.connected.lock().expect("nobody panics while holding it");
        if let Some((_, locks)) = connected.iter().find(|(other, _)| other == url) {
            return Ok(locks.clone());
        }
        let locks = connect_url(url, &Clock::system())?;
        connected.push((url.clone(), locks.clone()));
        Ok(locks)
    }
}

fn misplaced(error: Misplaced, lock: &LockName) -> Error {
    match error {
        Misplaced::Config(error) => wrong(error).on(lock),
        other => {
            let nearest = match &other {
                Misplaced::Unmatched { nearest } if !nearest.is_empty() => nearest.join(", "),
                _ => "none".to_owned(),
            };
            Error::new(ErrorKind::InvalidArgument, "place the lock", other.to_string())
                .on(lock)
                .hint(format!("the nearest rules are {nearest}"))
        }
    }
}

fn wrong(error: ConfigError) -> Error {
    Error::new(ErrorKind::InvalidArgument, "use the configuration", "it is wrong").caused_by(error)
}
