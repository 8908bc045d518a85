//! The objects of the locks: reading them, and changing them by conditional puts alone.
//!
//! Invariants: a put names the very object that was read before it, or that there is none; nothing is sent before the store was
//! seen to honour that, and nothing is ever deleted. What was not answered is decided by reading again.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use fencepost_core::{Clock, Error, ErrorKind, LockName, Moment, Result, until};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion};

use crate::envelope::{Envelope, LONGEST, nonce};
use crate::failure::Failure;
use crate::place::Place;

/// How long one request may take, beside what its bytes need.
const REQUEST_MOST: Duration = Duration::from_secs(5);

/// How many bytes a second pass at least.
const SLOWEST: u64 = 1 << 18;

/// How long one call goes on after requests that failed or came second.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many marks are read at once.
const READ_AT_ONCE: usize = 8;

/// One store, seen through one prefix.
pub(crate) struct Store {
    shown: String,
    /// What distinguishes the store from others.
    identity: String,
    prefix: Path,
    place: Option<Place>,
    client: OnceLock<Arc<dyn ObjectStore>>,
}

/// What a change comes to.
pub(crate) enum Step<T> {
    /// Nothing is to be put any more.
    Done(T),
    /// This is put in the place of what was read.
    Put(Envelope, T),
}

/// An object that was read, and what a condition on it says.
pub(crate) struct Found {
    pub(crate) body: Vec<u8>,
    pub(crate) version: UpdateVersion,
}

impl Store {
    /// The store that a URL names.
    pub(crate) fn of(place: Place) -> Self {
        let prefix = place.prefix().clone();
        let shown = format!("{}/{prefix}", place.bucket()).trim_end_matches('/').to_owned();
        Self { shown, identity: place.identity(), prefix, place: Some(place), client: OnceLock::new() }
    }

    /// The store behind a client.
    pub(crate) fn over(client: Arc<dyn ObjectStore>, prefix: &str, shown: &str) -> Result<Self> {
        let wrong = |error| {
            let what = format!("{prefix:?} is no prefix of keys");
            Error::new(ErrorKind::InvalidArgument, USE, what).caused_by(error)
        };
        let prefix = Path::parse(prefix).map_err(wrong)?;
        Ok(Self {
            shown: shown.to_owned(),
            identity: nonce(),
            prefix,
            place: None,
            client: OnceLock::from(client),
        })
    }

    /// Where the object of a lock is, by the lock's canonical name.
    fn object(&self, key: &str) -> Path {
        self.at(&[&format!("{key}{ENDING}")])
    }

    /// A key below the prefix.
    pub(crate) fn at(&self, parts: &[&str]) -> Path {
        let parts = self.prefix.as_ref().split('/').chain([FOLDER]).chain(parts.iter().copied());
        let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
        Path::parse(parts.join("/")).expect("a prefix that is one, and names without slashes, make a key")
    }

    /// A key as other programs write it.
    pub(crate) fn url(&self, at: &Path) -> String {
        match &self.place {
            Some(place) => format!("{}/{at}", place.bucket()),
            None => at.to_string(),
        }
    }

    /// What is known of a lock.
    pub(crate) async fn envelope(&self, lock: &LockName) -> Result<Option<Envelope>> {
        let mut attempts = Attempts::new(self);
        loop {
            match self.look(&lock.canonical()).await {
                Ok(found) => return Ok(found.map(|(envelope, _)| envelope)),
                Err(failure) => attempts.next(failure).await?,
            }
        }
    }

    /// What is known of every lock, in the order of the keys.
    pub(crate) async fn envelopes(&self) -> Result<Vec<Envelope>> {
        let mut attempts = Attempts::new(self);
        let keys = loop {
            match self.keys().await {
                Ok(keys) => break keys,
                Err(failure) => attempts.next(failure).await?,
            }
        };
        let envelopes = stream::iter(keys).map(|key| async move {
            let mut attempts = Attempts::new(self);
            loop {
                match self.look(&key).await {
                    Ok(found) => return Ok(found.map(|(envelope, _)| envelope)),
                    Err(failure) => attempts.next(failure).await?,
                }
            }
        });
        let envelopes: Vec<Option<Envelope>> = envelopes.buffered(READ_AT_ONCE).try_collect().await?;
        Ok(envelopes.into_iter().flatten().collect())
    }

    async fn keys(&self) -> Result<Vec<String>, Failure> {
        let folder = self.at(&[]);
        let listed = self.bounded(0, self.client()?.list_with_delimiter(Some(&folder))).await?;
        let names = listed.objects.iter().filter_map(|object| object.location.filename());
        Ok(names.filter_map(|name| name.strip_suffix(ENDING)).map(ToOwned::to_owned).collect())
    }

    /// Changes the object of a lock as `decide` says of what is there. It is asked anew for each try.
    ///
    /// # Errors
    /// What `decide` says; `Indeterminate` when a put may have been done and the object could not be read again.
    pub(crate) async fn change<T: Send>(
        &self,
        lock: &LockName,
        decide: impl Fn(Option<&Envelope>) -> Result<Step<T>> + Send + Sync,
    ) -> Result<T> {
        self.probed().await?;
        let key = lock.canonical();
        let mut attempts = Attempts::new(self);
        // What was put without an answer, and what was then to be told.
        let mut unanswered: Vec<(String, T)> = Vec::new();
        loop {
            let found = match self.look(&key).await {
                Ok(found) => found,
                Err(failure) => {
                    attempts.next(failure).await.map_err(|error| open(error, !unanswered.is_empty()))?;
                    continue;
                }
            };
            let (envelope, version) = found.unzip();
            let ours =
                |(nonce, _): &(String, T)| envelope.as_ref().is_some_and(|found| found.nonce == *nonce);
            if let Some(index) = unanswered.iter().position(ours) {
                return Ok(unanswered.swap_remove(index).1);
            }
            let (next, told) = match decide(envelope.as_ref())? {
                Step::Done(told) => return Ok(told),
                Step::Put(next, told) => (next, told),
            };
            let body = next.text().into_bytes();
            let failure = match self.put(&self.object(&key), body, condition(version)).await {
                Ok(()) => return Ok(told),
                Err(failure) => failure,
            };
            if let Failure::Passing(_) = failure {
                unanswered.push((next.nonce, told));
            }
            attempts.next(failure).await.map_err(|error| open(error, !unanswered.is_empty()))?;
        }
    }

    async fn look(&self, key: &str) -> Result<Option<(Envelope, UpdateVersion)>, Failure> {
        let Some(found) = self.read(&self.object(key), LONGEST).await? else { return Ok(None) };
        let envelope = Envelope::read(&found.body, key).map_err(|error| {
            let what =
                format!("{} is damaged or somebody else's, and stays as it is", self.url(&self.object(key)));
            Failure::Final(Error::new(ErrorKind::Unexpected, "read the fence's mark", what).caused_by(error))
        })?;
        Ok(Some((envelope, found.version)))
    }

    /// Reads an object that has at most `most` bytes.
    pub(crate) async fn read(&self, at: &Path, most: u64) -> Result<Option<Found>, Failure> {
        let result = match self.bounded(0, self.client()?.get(at)).await {
            Ok(result) => result,
            Err(Failure::Absent) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let size = result.meta.size;
        if size > most {
            let what = format!("{} has {size} bytes, and {most} are the most", self.url(at));
            return Err(Failure::Final(Error::new(ErrorKind::Unexpected, "read the object", what)));
        }
        let version =
            UpdateVersion { e_tag: result.meta.e_tag.clone(), version: result.meta.version.clone() };
        let body = self.bounded(size, result.bytes()).await?.to_vec();
        Ok(Some(Found { body, version }))
    }

    /// Whether there is an object.
    pub(crate) async fn is_there(&self, at: &Path) -> Result<bool, Failure> {
        match self.bounded(0, self.client()?.head(at)).await {
            Ok(_) => Ok(true),
            Err(Failure::Absent) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Puts an object under a condition.
    pub(crate) async fn put(&self, at: &Path, body: Vec<u8>, condition: PutMode) -> Result<(), Failure> {
        let size = body.len() as u64;
        let put = self.client()?.put_opts(at, PutPayload::from(body), condition.into());
        self.bounded(size, put).await.map(drop)
    }

    async fn bounded<T>(
        &self,
        bytes: u64,
        request: impl Future<Output = object_store::Result<T>> + Send,
    ) -> Result<T, Failure> {
        let clock = Clock::system();
        let most = REQUEST_MOST + Duration::from_secs(bytes / SLOWEST);
        let answer = until(&clock, Some(clock.now().after(most)), request).await;
        answer.map_or_else(|| Err(Failure::Passing(self.silent(most))), |answer| answer.map_err(Failure::of))
    }

    fn silent(&self, waited: Duration) -> Error {
        let what = format!("{self} has not answered within {} s", waited.as_secs());
        Error::new(ErrorKind::Unavailable, USE, what)
    }

    fn client(&self) -> Result<&Arc<dyn ObjectStore>, Failure> {
        if let (None, Some(place)) = (self.client.get(), &self.place) {
            let client = place.client().map_err(Failure::Final)?;
            drop(self.client.set(client));
        }
        Ok(self.client.get().expect("it was given, or made just now"))
    }

    /// Makes sure once a process that the store honours conditions.
    ///
    /// # Errors
    /// `Unsupported` when it does not.
    pub(crate) async fn probed(&self) -> Result<()> {
        static PROBED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
        let seen = || PROBED.lock().unwrap_or_else(PoisonError::into_inner);
        if seen().contains(&self.identity) {
            return Ok(());
        }
        self.probe().await?;
        seen().insert(self.identity.clone());
        Ok(())
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({self})")
    }
}

/// That the object is the one which was read, or that there is none.
pub(crate) fn condition(version: Option<UpdateVersion>) -> PutMode {
    version.map_or(PutMode::Create, PutMode::Update)
}

/// Goes on after failures, with pauses that grow and are never the same, until the patience is over.
pub(crate) struct Attempts {
    clock: Clock,
    end: Moment,
    pause: Duration,
    shown: String,
}

impl Attempts {
    pub(crate) fn new(store: &Store) -> Self {
        let clock = Clock::system();
        let end = clock.now().after(PATIENCE);
        Self { clock, end, pause: Duration::from_millis(10), shown: store.to_string() }
    }

    /// Waits for the next try.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Errors
    /// The failure, where another try would not help or the patience is over.
    pub(crate) async fn next(&mut self, failure: Failure) -> Result<()> {
        let error = match failure {
            Failure::Final(error) => return Err(error),
            Failure::Passing(error) => error,
            Failure::Refused | Failure::Absent => {
                let what = format!("others write to {} all the time", self.shown);
                Error::new(ErrorKind::Unavailable, USE, what)
            }
        };
        if self.clock.now() >= self.end {
            return Err(error);
        }
        self.clock.sleep(self.clock.jitter(self.pause)).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

/// An error after a put that may have been done.
fn open(error: Error, is_open: bool) -> Error {
    if !is_open || error.kind() != ErrorKind::Unavailable {
        return error;
    }
    let what = "a put was not answered, and may have been done";
    Error::new(ErrorKind::Indeterminate, USE, what).caused_by(error).hint("the same again is safe")
}

/// Longer than a store takes for a put.
const LONGEST_PAUSE: Duration = Duration::from_millis(300);

/// What all keys of fencepost have after the prefix.
const FOLDER: &str = "fencepost";

/// What the keys of the locks' objects end with.
const ENDING: &str = ".mark";

const USE: &str = "use the object store";
