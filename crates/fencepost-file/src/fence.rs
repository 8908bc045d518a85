//! A fence in a directory: a mark per lock, replaced in one atomic step while nobody else does.
//!
//! Invariant: a crash at any moment leaves the old mark or the new one, on the disk, and the mark never goes down.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{
    BackendUrl, Clock, Error, ErrorKind, Fence, FencingToken, LockName, Mark, Result, Stamp, StampHolder,
};
use serde::{Deserialize, Serialize};

use crate::directory::{Directory, failure};
use crate::record::exclusively;

/// How long a seal waits at most for another one of the same lock.
const CHANGE_MOST: Duration = Duration::from_secs(30);

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
            return Err(url.wrong("a fence needs the directory that it protects").hint("file:/srv/exports"));
        }
        Directory::of(url).map(Self)
    }

    fn path(&self, lock: &LockName) -> PathBuf {
        self.0.path().join(format!("{}.mark", lock.canonical()))
    }

    fn read(&self, lock: &LockName) -> Result<Option<Mark>> {
        let path = self.path(lock);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failure("read the fence's mark", &path, error)),
        };
        let line: Line = serde_json::from_str(&text).map_err(|error| {
            let what = format!("{} is damaged", path.display());
            Error::new(ErrorKind::Unexpected, "read the fence's mark", what).caused_by(error)
        })?;
        Ok(Some(Mark { token: line.token, holder: StampHolder::new(line.holder)? }))
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

    /// Raises the mark, unless it is higher.
    fn raise(&self, stamp: &Stamp) -> Result<()> {
        let present = self.read(&stamp.lock)?;
        let mark = Mark::sealed(present.as_ref(), stamp)?;
        if present.as_ref() == Some(&mark) { Ok(()) } else { self.write(&stamp.lock, &mark) }
    }
}

/// Puts `text` in the place of `path`, on the disk before the name leads to it.
fn replace(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let staged = path.with_extension("mark.new");
    let mut file = File::create(&staged)?;
    file.write_all(text)?;
    file.sync_all()?;
    std::fs::rename(&staged, path)?;
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
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
        let path = self.0.path().join(format!("{}.fence", stamp.lock.canonical()));
        let (alone, clock) = (self.0.open(&path)?, Clock::system());
        let limit = clock.now().after(CHANGE_MOST);
        let raised = exclusively(&alone, &clock, limit, || Ok(self.raise(stamp))).await;
        raised.map_err(|error| failure("lock the fence", &path, error))?
    }

    async fn check(&self, stamp: &Stamp) -> Result<()> {
        Mark::checked(self.read(&stamp.lock)?.as_ref(), stamp)
    }

    async fn mark(&self, lock: &LockName) -> Result<Option<Mark>> {
        self.read(lock)
    }
}
