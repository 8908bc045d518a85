//! A fence in a directory: a mark per lock, replaced in one atomic step while nobody else does.
//!
//! Invariant: a crash at any moment leaves the old mark or the new one, on the disk, and the mark never goes down, unless
//! it is forgotten.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use fencepost_core::{
    BackendUrl, Clock, Error, ErrorKind, Examination, Fence, FencingToken, Finding, LockName, Mark,
    NamePrefix, Result, Stamp, StampHolder,
};
use serde::{Deserialize, Serialize};

use crate::directory::{Directory, failure};
use crate::examine::{Purpose, examine};
use crate::record::{CHANGE_MOST, exclusively};

/// A fence whose marks are files of one directory.
#[derive(Debug)]
pub struct FileFence(Directory);

#[derive(Serialize, Deserialize)]
struct Line {
    lock: LockName,
    token: FencingToken,
    holder: String,
}

impl FileFence {
    /// The fence of `file:/directory`. Touches nothing yet.
    ///
    /// # Errors
    /// `InvalidArgument` when the directory is missing or is not an absolute path.
    pub fn from_url(url: &BackendUrl) -> Result<Self> {
        url.accept_options(&[])?;
        if url.body().is_empty() {
            return Err(url
                .wrong("a fence needs the directory that it protects")
                .hint("name it, such as file:/srv/exports"));
        }
        Directory::of(url).map(Self)
    }

    /// Makes the directory where it is missing, for its owner alone; otherwise the first seal does it.
    ///
    /// # Errors
    /// `Denied`, `Unavailable`, or `Unsupported` on a file system that several hosts share.
    pub fn prepare(&self) -> Result<()> {
        self.0.prepare()
    }

    /// The directory of the marks.
    pub fn directory(&self) -> &Path {
        self.0.path()
    }

    fn path(&self, lock: &LockName) -> PathBuf {
        self.0.path().join(format!("{}.mark", lock.canonical()))
    }

    pub(crate) fn read(&self, lock: &LockName) -> Result<Option<Mark>> {
        Ok(self.line(&self.path(lock))?.map(|(_, mark)| mark))
    }

    /// What a mark's file says, if it is there. One that says the mark of another lock was not written here.
    fn line(&self, path: &Path) -> Result<Option<(LockName, Mark)>> {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failure("read the fence's mark", path, error)),
        };
        let line: Line = serde_json::from_slice(&text).map_err(|error| damaged(path).caused_by(error))?;
        if self.path(&line.lock) != path {
            return Err(damaged(path));
        }
        let holder = StampHolder::new(line.holder).map_err(|error| damaged(path).caused_by(error))?;
        Ok(Some((line.lock, Mark { token: line.token, holder })))
    }

    /// The files of all marks; none where there is no directory yet.
    fn paths(&self) -> Result<Vec<PathBuf>> {
        let directory = self.0.path();
        let unreadable = |error| failure("read the fence's directory", directory, error);
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(unreadable(error)),
        };
        let paths = entries.map(|entry| Ok(entry?.path()));
        let paths: Vec<_> = paths.collect::<std::io::Result<_>>().map_err(unreadable)?;
        Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|end| end == "mark")).collect())
    }

    fn write(&self, lock: &LockName, mark: &Mark) -> Result<()> {
        let path = self.path(lock);
        let line = Line { lock: lock.clone(), token: mark.token, holder: mark.holder.as_str().to_owned() };
        let written = serde_json::to_vec(&line).map_err(std::io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            replace(&path, &text)
        });
        written.map_err(|error| failure("raise the fence's mark", &path, error))
    }

    /// Changes the mark of `lock` while nobody else does. The file that this is agreed upon with stays for ever: who
    /// removed it would let two in.
    pub(crate) async fn alone<T>(&self, lock: &LockName, change: impl FnOnce() -> Result<T>) -> Result<T> {
        let path = self.0.path().join(format!("{}.fence", lock.canonical()));
        let (agreed, clock) = (self.0.open(&path)?, Clock::system());
        let limit = clock.now().after(CHANGE_MOST);
        let changed = exclusively(&agreed, &clock, limit, || Ok(change())).await;
        changed.map_err(|error| failure("lock the fence", &path, error))?
    }

    /// Raises the mark, unless it is higher.
    fn raise(&self, stamp: &Stamp) -> Result<()> {
        let present = self.read(&stamp.lock)?;
        let mark = Mark::sealed(present.as_ref(), stamp)?;
        if present.as_ref() == Some(&mark) { Ok(()) } else { self.write(&stamp.lock, &mark) }
    }
}

fn damaged(path: &Path) -> Error {
    let what = format!("{} is damaged", path.display());
    Error::new(ErrorKind::Unexpected, "read the fence's mark", what)
        .hint("restore it; a mark that is older than the last seal lets former holders write")
}

/// Puts `text` in the place of `path`, on the disk before the name leads to it.
fn replace(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let staged = path.with_extension("mark.new");
    let mut file = File::create(&staged)?;
    file.write_all(text)?;
    file.sync_all()?;
    std::fs::rename(&staged, path)?;
    sync_name(path)
}

/// Puts what became of a name on the disk.
fn sync_name(path: &Path) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

/// Removes a file whose name may be gone already; says whether it was there.
fn remove(path: &Path) -> std::io::Result<bool> {
    match std::fs::remove_file(path) {
        Ok(()) => sync_name(path).map(|()| true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

impl fmt::Display for FileFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file:{}", self.0.path().display())
    }
}

#[async_trait]
impl Fence for FileFence {
    async fn seal(&self, stamp: &Stamp) -> Result<()> {
        self.0.prepare()?;
        self.alone(&stamp.lock, || self.raise(stamp)).await
    }

    async fn check(&self, stamp: &Stamp) -> Result<()> {
        Mark::checked(self.read(&stamp.lock)?.as_ref(), stamp)
    }

    async fn mark(&self, lock: &LockName) -> Result<Option<Mark>> {
        self.read(lock)
    }

    async fn marks(&self, prefix: &NamePrefix) -> Result<Vec<(LockName, Mark)>> {
        let mut marks = Vec::new();
        for path in self.paths()? {
            marks.extend(self.line(&path)?.filter(|(lock, _)| prefix.matches(lock)));
        }
        marks.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(marks)
    }

    async fn forget(&self, lock: &LockName) -> Result<bool> {
        let path = self.path(lock);
        let failed = |error| failure("forget the fence's mark", &path, error);
        // Where there is no mark, nothing is made either.
        if !path.try_exists().map_err(failed)? {
            return Ok(false);
        }
        self.alone(lock, || remove(&path).map_err(failed)).await
    }

    async fn findings(&self, _: &LockName) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    async fn examine(&self) -> Result<Examination> {
        examine(&self.0, Purpose::Marks)
    }
}
