//! Results of a job behind the fence: immutable objects, and a pointer that only the sealed stamp moves.
//!
//! Invariant: the pointer is in the object of the mark, so one conditional put checks the mark and moves the pointer. A data object is
//! put once, under a key that nobody else has, and is complete before a pointer leads to it.

use std::path::Path as FilePath;
use std::sync::Arc;

use fencepost_core::{Error, ErrorKind, Fence, LockName, Mark, Result, Stamp};
use object_store::PutMode;
use object_store::path::Path;
use tokio::task::spawn_blocking;

use crate::envelope::{Envelope, nonce};
use crate::failure::Failure;
use crate::fence::ObjectStoreFence;
use crate::runtime::run;
use crate::store::{Attempts, Step, Store};

impl ObjectStoreFence {
    /// Makes `bytes` the current result `name` (1 to 100 of `[A-Za-z0-9._-]`) of the stamp's lock, and gives its URL. The stamp has to be
    /// the sealed one, so that an older result never takes the place of a newer one. Under the same stamp a second result takes
    /// the place of the first.
    ///
    /// # Cancel safety
    /// A dropped call has published the result or not; what it has put may be left without a pointer.
    ///
    /// # Errors
    /// `Stale` when the stamp is not the sealed one; `Indeterminate` when the pointer may have been moved.
    ///
    /// # Examples
    /// ```
    /// use fencepost_core::{Locks, Result};
    /// use fencepost_objectstore::ObjectStoreFence;
    ///
    /// async fn export(locks: &Locks, fence: std::sync::Arc<ObjectStoreFence>) -> Result<()> {
    ///     let lease = locks.lock("totals")?.fence(fence.clone()).acquire().await?;
    ///     lease.heed(fence.publish(&lease.stamp(), "totals.csv", b"a,1\n".to_vec()).await)?;
    ///     lease.release().await
    /// }
    /// ```
    pub async fn publish(&self, stamp: &Stamp, name: &str, bytes: Vec<u8>) -> Result<String> {
        let published = self.try_publish(stamp, name, bytes).await;
        published.map_err(|error| error.during(PUBLISH).on(&stamp.lock))
    }

    /// The same with the content of a file, under the name of the file.
    ///
    /// # Cancel safety
    /// That of [`publish`](Self::publish).
    ///
    /// # Errors
    /// Those of [`publish`](Self::publish); `InvalidArgument` when there is no such file.
    pub async fn publish_file(&self, stamp: &Stamp, path: impl AsRef<FilePath>) -> Result<String> {
        let path = path.as_ref();
        let wrong = |what: String| Error::new(ErrorKind::InvalidArgument, PUBLISH, what).on(&stamp.lock);
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| wrong(format!("{} has no name in text", path.display())))?;
        let file = path.to_owned();
        let read = run(async move { Ok(spawn_blocking(move || std::fs::read(file)).await) }).await?;
        let read = read.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        let bytes =
            read.map_err(|error| wrong(format!("{} cannot be read", path.display())).caused_by(error))?;
        self.publish(stamp, name, bytes).await
    }

    async fn try_publish(&self, stamp: &Stamp, name: &str, bytes: Vec<u8>) -> Result<String> {
        let name = result_name(name)?;
        // Nothing is put for a stamp that is stale already.
        self.check(stamp).await?;
        let part = format!("{}-{}", stamp.token, nonce());
        let at = self.0.data(&stamp.lock, &part);
        let (store, data) = (Arc::clone(&self.0), at.clone());
        run(async move {
            store.probed().await?;
            store.put_once(&data, bytes).await
        })
        .await?;
        let stamp = stamp.clone();
        let lock = stamp.lock.clone();
        self.change(&lock, move |present| point(present, &stamp, &name, &part)).await?;
        Ok(self.0.url(&at))
    }

    /// The URL of the current result `name` of a lock.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Errors
    /// `Unavailable` when the store does not answer.
    pub async fn locate(&self, lock: &LockName, name: &str) -> Result<Option<String>> {
        Ok(self.current(lock, name).await?.map(|at| self.0.url(&at)))
    }

    /// The current result `name` of a lock, whole.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Errors
    /// `Unexpected` when the object to which the pointer leads is gone.
    pub async fn read_current(&self, lock: &LockName, name: &str) -> Result<Option<Vec<u8>>> {
        let Some(at) = self.current(lock, name).await? else { return Ok(None) };
        let store = Arc::clone(&self.0);
        let bytes = run(async move { store.read_data(&at).await });
        bytes.await.map(Some).map_err(|error| error.on(lock))
    }

    async fn current(&self, lock: &LockName, name: &str) -> Result<Option<Path>> {
        let name = result_name(name)?;
        let envelope = self.envelope(lock).await.map_err(|error| error.on(lock))?;
        let part = envelope.and_then(|envelope| envelope.results.get(&name).cloned());
        Ok(part.map(|part| self.0.data(lock, &part)))
    }
}

/// Moves the pointer, where the stamp is the sealed one. A pointer that leads there already was moved by a put without an answer,
/// whatever was sealed since.
fn point(present: Option<&Envelope>, stamp: &Stamp, name: &str, part: &str) -> Result<Step<()>> {
    if present.and_then(|present| present.results.get(name)).is_some_and(|current| current == part) {
        return Ok(Step::Done(()));
    }
    let mark = present.and_then(|present| present.mark.clone());
    Mark::checked(mark.as_ref(), stamp)?;
    let mut next = Envelope::following(present, &stamp.lock, mark);
    next.results.insert(name.to_owned(), part.to_owned());
    if next.results.len() > MOST_RESULTS {
        let what = format!("the lock has {MOST_RESULTS} results already");
        return Err(Error::new(ErrorKind::InvalidArgument, PUBLISH, what));
    }
    Ok(Step::Put(next, ()))
}

impl Store {
    /// Where a data object of a lock is.
    fn data(&self, lock: &LockName, part: &str) -> Path {
        self.at(&["data", &lock.canonical(), part])
    }

    /// Puts an object under a key that nobody else has: that it exists says that an earlier try was done.
    async fn put_once(&self, at: &Path, bytes: Vec<u8>) -> Result<()> {
        let mut attempts = Attempts::new(self);
        loop {
            match self.try_put_once(at, bytes.clone()).await {
                Ok(()) => return Ok(()),
                Err(failure) => attempts.next(failure).await?,
            }
        }
    }

    async fn try_put_once(&self, at: &Path, bytes: Vec<u8>) -> Result<(), Failure> {
        match self.put(at, bytes, PutMode::Create).await {
            // It may also say that an earlier try is still going on.
            Err(Failure::Refused) if self.is_there(at).await? => Ok(()),
            answer => answer,
        }
    }

    async fn read_data(&self, at: &Path) -> Result<Vec<u8>> {
        let mut attempts = Attempts::new(self);
        loop {
            match self.read(at, u64::MAX).await {
                Ok(Some(found)) => return Ok(found.body),
                Ok(None) => {
                    let what = format!("{} is gone, and the pointer leads to it", self.url(at));
                    return Err(Error::new(ErrorKind::Unexpected, "read the current result", what)
                        .hint("a lifecycle rule must not remove current results"));
                }
                Err(failure) => attempts.next(failure).await?,
            }
        }
    }
}

fn result_name(name: &str) -> Result<String> {
    let fits = (1..=100).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if fits {
        return Ok(name.to_owned());
    }
    let what = format!("{name:?} is not 1 to 100 letters, digits, dots, underscores and hyphens");
    Err(Error::new(ErrorKind::InvalidArgument, "name the result", what))
}

/// More than a job has, and few enough for one small object.
const MOST_RESULTS: usize = 1000;

const PUBLISH: &str = "publish the result";

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(token: u64) -> Stamp {
        let lock = "ledger".parse().unwrap();
        Stamp { lock, token: token.try_into().unwrap(), holder: fencepost_core::StampHolder::default() }
    }

    fn sealed(before: Option<&Envelope>, token: u64) -> Envelope {
        let mark = Mark::sealed(None, &stamp(token)).unwrap();
        Envelope::following(before, &stamp(token).lock, Some(mark))
    }

    #[test]
    fn pointer_that_was_moved_before_a_newer_seal_was_moved() {
        let Ok(Step::Put(moved, ())) = point(Some(&sealed(None, 7)), &stamp(7), "totals", "7-a") else {
            panic!("the stamp is the sealed one");
        };
        let newer = sealed(Some(&moved), 8);
        assert!(matches!(point(Some(&newer), &stamp(7), "totals", "7-a"), Ok(Step::Done(()))));
        assert!(point(Some(&newer), &stamp(7), "totals", "7-b").is_err());
    }

    #[test]
    fn lock_has_only_so_many_results() {
        let mut full = sealed(None, 7);
        full.results = (0..MOST_RESULTS).map(|name| (name.to_string(), "7-a".to_owned())).collect();
        assert!(point(Some(&full), &stamp(7), "0", "7-b").is_ok());
        assert!(point(Some(&full), &stamp(7), "totals", "7-b").is_err());
        assert!((full.text().len() as u64) < crate::envelope::LONGEST);
    }
}
