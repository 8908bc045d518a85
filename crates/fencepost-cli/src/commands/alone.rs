//! A file that one process has alone, for a moment: while it is read, changed and replaced.
//!
//! Invariant: the file that is locked is the one at the path. It may have been replaced or removed during the wait.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::event::{Timespec, poll};

/// How often it is looked whether another writer has finished.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// Opens `path` as `options` say, and locks it, after `looks` looks at most. The lock ends with the file.
///
/// # Errors
/// `TimedOut` when another process keeps it locked.
pub(crate) fn alone(path: &Path, options: &OpenOptions, looks: u32) -> Result<File> {
    for _ in 0..looks {
        let file = options.open(path)?;
        match file.try_lock() {
            Ok(()) if is_at(path, &file) => return Ok(file),
            // No timer of ours: there may be no thread yet.
            Ok(()) | Err(TryLockError::WouldBlock) => drop(poll(&mut [], Some(&LOOK_EVERY))),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(Error::new(ErrorKind::TimedOut, "another process keeps it locked"))
}

fn is_at(path: &Path, file: &File) -> bool {
    let same =
        |ours: fs::Metadata, there: fs::Metadata| (ours.dev(), ours.ino()) == (there.dev(), there.ino());
    file.metadata().is_ok_and(|ours| fs::metadata(path).is_ok_and(|there| same(ours, there)))
}
