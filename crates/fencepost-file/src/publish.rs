//! Publishing a result of a job behind the fence: staged beside the data, made current by one rename under the mark's lock.
//!
//! Invariant: whatever is killed when, a name leads to the result before or to the new one, each of them whole and on the disk, and
//! never from a newer token to an older one.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::ErrorKind as IoKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fencepost_core::{Clock, Error, ErrorKind, Fence, FencingToken, LockName, Mark, Result, Stamp};
use futures_channel::oneshot;
use rustix::fs::FlockOperation;

use crate::copy::{copy, remove, settle, sync, unreadable};
use crate::directory::failure;
use crate::fence::FileFence;

const PUBLISH: &str = "publish the result";

/// Endings of files that fencepost keeps in a directory itself.
const OWN_ENDINGS: &[&str] = &["mark", "new", "fence", "lock", "tok", "logbook", "revoke"];

impl FileFence {
    /// Makes a copy of `path`, a file or a directory, the current result of the lock: from then on the lock's canonical name in the
    /// directory leads to it. Its stamp has to be the sealed one, so an older result never takes the place of a newer one. Under
    /// the same stamp a second result takes the place of the first. Gives the name that leads to it.
    ///
    /// What is copied has to be finished; it stays as it is. The result before is kept for those who read it, older ones are removed.
    ///
    /// # Cancel safety
    /// A dropped call has published the result or not; what it has staged is removed.
    ///
    /// # Errors
    /// `Stale` when the stamp is not the sealed one; `InvalidArgument` when there is nothing at `path`, or what cannot be copied;
    /// `Indeterminate` when the result is current and may not be on the disk yet. After any other failure the result before is
    /// current.
    ///
    /// # Examples
    /// ```
    /// use fencepost_core::{Locks, Result};
    /// use fencepost_file::FileFence;
    ///
    /// async fn export(locks: &Locks, fence: std::sync::Arc<FileFence>) -> Result<()> {
    ///     let lease = locks.lock("totals")?.fence(fence.clone()).acquire().await?;
    ///     std::fs::write("/tmp/totals.csv", "a,1\n").expect("there is room");
    ///     lease.check()?;
    ///     lease.heed(fence.publish(&lease.stamp(), "/tmp/totals.csv").await)?;
    ///     lease.release().await
    /// }
    /// ```
    pub async fn publish(&self, stamp: &Stamp, path: impl AsRef<Path>) -> Result<PathBuf> {
        let published = self.try_publish(stamp, path.as_ref().to_owned()).await;
        published.map_err(|error| error.on(&stamp.lock))
    }

    async fn try_publish(&self, stamp: &Stamp, path: PathBuf) -> Result<PathBuf> {
        let place = Place::of(self.directory(), &stamp.lock)?;
        // Nothing is copied for a stamp that is stale already.
        self.check(stamp).await.map_err(|error| error.during(PUBLISH))?;
        self.prepare()?;
        let source = place.source(&path)?;
        place.current()?;
        let staged = self.alone(&stamp.lock, || place.stage(stamp.token)).await?;
        let copied = on_a_thread(move || {
            let metadata = copy(&source, &staged.result())?;
            Ok((staged, metadata))
        });
        let (staged, metadata) = match copied.await {
            Ok(copied) => copied,
            Err(error) => {
                // A newer holder removes what an older one has staged.
                self.check(stamp).await.map_err(|error| error.during(PUBLISH))?;
                return Err(error);
            }
        };
        let make_current = || {
            let mark = self.read(&stamp.lock)?;
            Mark::checked(mark.as_ref(), stamp).map_err(|error| error.during(PUBLISH))?;
            place.make_current(&staged, &metadata)
        };
        for old in self.alone(&stamp.lock, make_current).await? {
            // What stays is tried again next time.
            let _ = remove(&old);
        }
        Ok(place.name)
    }
}

/// Where the results of one lock lie.
struct Place {
    directory: PathBuf,
    /// What leads to the current result.
    name: PathBuf,
    /// What is being copied: a folder for each try.
    staging: PathBuf,
    /// Whole results: the current one, the one before, and what a crash has left.
    results: PathBuf,
    /// The results, as the name leads to them.
    leads_to: PathBuf,
}

impl Place {
    fn of(directory: &Path, lock: &LockName) -> Result<Self> {
        let spelled = lock.canonical();
        if Path::new(&spelled).extension().is_some_and(|end| OWN_ENDINGS.iter().any(|own| end == *own)) {
            let what = format!("{spelled} is how fencepost's own files end");
            return Err(Error::new(ErrorKind::InvalidArgument, PUBLISH, what).hint("choose another name"));
        }
        let leads_to = Path::new(".results").join(&spelled);
        Ok(Self {
            directory: directory.to_owned(),
            name: directory.join(&spelled),
            staging: directory.join(".staging").join(&spelled),
            results: directory.join(&leads_to),
            leads_to,
        })
    }

    /// What is to be copied; the path itself may be a link.
    fn source(&self, path: &Path) -> Result<PathBuf> {
        let source = path.canonicalize().map_err(|error| unreadable(path, error))?;
        let directory =
            self.directory.canonicalize().map_err(|error| failure(PUBLISH, &self.directory, error))?;
        if directory.starts_with(&source) {
            let what = format!("{} contains the fence's own directory", path.display());
            return Err(Error::new(ErrorKind::InvalidArgument, PUBLISH, what));
        }
        Ok(source)
    }

    /// The current result, if there is one.
    fn current(&self) -> Result<Option<OsString>> {
        let leads_to = match std::fs::read_link(&self.name) {
            Ok(leads_to) => leads_to,
            Err(error) if error.kind() == IoKind::NotFound => return Ok(None),
            Err(error) if error.kind() == IoKind::InvalidInput => return Err(self.foreign()),
            Err(error) => return Err(failure(PUBLISH, &self.name, error)),
        };
        let ours = leads_to.parent().is_some_and(|parent| parent == self.leads_to);
        let entry = leads_to.file_name().filter(|_| ours).ok_or_else(|| self.foreign())?;
        Ok(Some(entry.to_owned()))
    }

    fn foreign(&self) -> Error {
        let what = format!("{} is not a published result", self.name.display());
        Error::new(ErrorKind::Unsupported, PUBLISH, what).hint("move it out of the way")
    }

    /// Makes the folder of a new try, and removes those of tries that cannot succeed any more. Nobody else changes anything here
    /// meanwhile.
    fn stage(&self, token: FencingToken) -> Result<Staged> {
        for folder in [&self.staging, &self.results] {
            if let Some(parent) = folder.parent() {
                self.make_folder(parent)?;
            }
            self.make_folder(folder)?;
        }
        for entry in entries(&self.staging)? {
            let folder = self.staging.join(&entry);
            let is_over = token_of(&entry).is_none_or(|theirs| {
                theirs < token.get() || (theirs == token.get() && alive(&folder).is_ok())
            });
            if is_over {
                // What stays is tried again next time.
                let _ = remove(&folder);
            }
        }
        let folder = self.staging.join(format!("{token}-{:016x}", Clock::system().random()));
        self.make_folder(&folder)?;
        let alive = alive(&folder).map_err(|error| failure(PUBLISH, &folder, error))?;
        Ok(Staged { folder, _alive: alive })
    }

    /// Makes a folder where it is missing, for whoever may use the directory.
    fn make_folder(&self, folder: &Path) -> Result<()> {
        let failed = |error| failure(PUBLISH, folder, error);
        match std::fs::create_dir(folder) {
            Ok(()) => {
                let mode = std::fs::metadata(&self.directory).map_err(failed)?.permissions().mode();
                std::fs::set_permissions(folder, PermissionsExt::from_mode(mode & 0o7777)).map_err(failed)?;
                folder.parent().map_or(Ok(()), sync)
            }
            Err(error) if error.kind() == IoKind::AlreadyExists => {
                let is_folder = std::fs::symlink_metadata(folder).map_err(failed)?.is_dir();
                if is_folder { Ok(()) } else { Err(failed(error)) }
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Makes a staged result current; gives what is not needed any more. Each step is on the disk before the next one.
    fn make_current(&self, staged: &Staged, metadata: &Metadata) -> Result<Vec<PathBuf>> {
        let before = self.current()?;
        let entry = staged.folder.file_name().unwrap_or_default().to_owned();
        let result = self.results.join(&entry);
        std::fs::rename(staged.result(), &result).map_err(|error| failure(PUBLISH, &result, error))?;
        if metadata.is_dir() {
            settle(&result, metadata)?;
        }
        sync(&self.results)?;
        let link = staged.folder.join("link");
        let linked = std::os::unix::fs::symlink(self.leads_to.join(&entry), &link)
            .and_then(|()| std::fs::rename(&link, &self.name));
        linked.map_err(|error| {
            // On a disk that is full it would be in the way.
            let _ = remove(&result);
            failure(PUBLISH, &self.name, error)
        })?;
        sync(&self.directory).map_err(|error| {
            let what = format!("{} is current, and may not be on the disk", self.name.display());
            Error::new(ErrorKind::Indeterminate, PUBLISH, what).caused_by(error)
        })?;
        let is_old = |other: &OsString| *other != entry && Some(other) != before.as_ref();
        let old = entries(&self.results).unwrap_or_default().into_iter().filter(is_old);
        Ok(old.map(|entry| self.results.join(entry)).collect())
    }
}

/// The folder of one try. It is known to be alive by the kernel's lock on it, which ends with its process.
struct Staged {
    folder: PathBuf,
    _alive: File,
}

impl Staged {
    fn result(&self) -> PathBuf {
        self.folder.join("result")
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // What stays is removed by whoever publishes next.
        let _ = remove(&self.folder);
    }
}

/// Shows others that the folder is in use, as long as the file is open. Fails where somebody else does that.
fn alive(folder: &Path) -> std::io::Result<File> {
    let alive = File::open(folder)?;
    rustix::fs::flock(&alive, FlockOperation::NonBlockingLockExclusive)?;
    Ok(alive)
}

/// The token in the name of a try, or of a result.
fn token_of(entry: &OsStr) -> Option<u64> {
    entry.to_str()?.split_once('-')?.0.parse().ok()
}

fn entries(folder: &Path) -> Result<Vec<OsString>> {
    let entries =
        std::fs::read_dir(folder).and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
    entries.map_err(|error| failure(PUBLISH, folder, error))
}

/// Does what may take minutes where it keeps nobody waiting. When nobody wants the outcome any more it is dropped.
async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let (sender, outcome) = oneshot::channel();
    let thread = std::thread::Builder::new().name("fencepost-copy".to_owned());
    let started = thread.spawn(move || drop(sender.send(work())));
    started.map_err(|error| {
        Error::new(ErrorKind::Unavailable, PUBLISH, "no thread could be started").caused_by(error)
    })?;
    let ended = || Error::new(ErrorKind::Unexpected, PUBLISH, "its thread ended");
    outcome.await.unwrap_or_else(|_| Err(ended()))
}
