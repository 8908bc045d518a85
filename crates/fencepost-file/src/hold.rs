//! One hold: two kernel locks that end with the last descriptor, however the process ends.
//!
//! Waiters queue on the lock file by `flock(2)`. A cleaner that removes that file would let a newcomer lock a new file
//! of the same name, so the holder keeps an open-file-description lock (`fcntl(2)`, independent of `flock`) on the token
//! record as well. Invariant: a hold is given out only while both paths still lead to the locked files.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fencepost_core::Result;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::directory::{Directory, Paths, failure};

/// Both kernel locks of one lock.
#[derive(Debug)]
pub(crate) struct Hold {
    /// The lock file.
    pub(crate) lock: File,
    /// The token record.
    pub(crate) token: File,
    /// Which file the token record is.
    pub(crate) token_id: FileId,
}

/// Which file it is, whatever its path leads to later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(crate) fn new(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    /// Whether `path` leads to this file.
    pub(crate) fn is_at(self, path: &Path) -> bool {
        std::fs::symlink_metadata(path).is_ok_and(|metadata| Self::new(&metadata) == self)
    }
}

/// Whether to wait for a kernel lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocking {
    No,
    Yes,
}

impl Hold {
    /// Takes both locks if nobody has them.
    pub(crate) fn attempt(directory: &Directory, paths: &Paths) -> Result<Option<Self>> {
        Self::take(directory, paths, Blocking::No)
    }

    /// Waits for both locks, in the kernel.
    pub(crate) fn wait(directory: &Directory, paths: &Paths) -> Result<Self> {
        loop {
            if let Some(hold) = Self::take(directory, paths, Blocking::Yes)? {
                return Ok(hold);
            }
        }
    }

    fn take(directory: &Directory, paths: &Paths, blocking: Blocking) -> Result<Option<Self>> {
        loop {
            let lock = directory.open(&paths.lock)?;
            if !taken(&paths.lock, || queue_on(&lock, blocking))? {
                return Ok(None);
            }
            let token = directory.open(&paths.token)?;
            if !taken(&paths.token, || claim_record(&token, blocking))? {
                return Ok(None);
            }
            // A file that was replaced while we waited is no lock any more: others will open the new one.
            let (lock_id, token_id) = (id(&lock, &paths.lock)?, id(&token, &paths.token)?);
            if lock_id.is_at(&paths.lock) && token_id.is_at(&paths.token) {
                return Ok(Some(Self { lock, token, token_id }));
            }
        }
    }
}

/// Takes one kernel lock; `false` when somebody has it, also when the file was replaced on a server under our feet.
fn taken(path: &Path, mut take: impl FnMut() -> io::Result<()>) -> Result<bool> {
    loop {
        let Err(error) = take() else { return Ok(true) };
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::INTR) => {}
            Some(Errno::AGAIN | Errno::STALE) => return Ok(false),
            _ => return Err(failure("lock the file", path, error)),
        }
    }
}

fn queue_on(lock: &File, blocking: Blocking) -> io::Result<()> {
    let operation = match blocking {
        Blocking::No => FlockOperation::NonBlockingLockExclusive,
        Blocking::Yes => FlockOperation::LockExclusive,
    };
    rustix::fs::flock(lock, operation).map_err(io::Error::from)
}

/// The kernel's structure has these two as shorts, and the constants are ints.
#[expect(clippy::cast_possible_truncation, reason = "both are small numbers of the kernel's interface")]
const WRITE: libc::c_short = libc::F_WRLCK as libc::c_short;
#[expect(clippy::cast_possible_truncation, reason = "both are small numbers of the kernel's interface")]
const FROM_START: libc::c_short = libc::SEEK_SET as libc::c_short;

fn claim_record(token: &File, blocking: Blocking) -> io::Result<()> {
    let whole = libc::flock { l_type: WRITE, l_whence: FROM_START, l_start: 0, l_len: 0, l_pid: 0 };
    let argument = match blocking {
        Blocking::No => FcntlArg::F_OFD_SETLK(&whole),
        Blocking::Yes => FcntlArg::F_OFD_SETLKW(&whole),
    };
    fcntl(token, argument).map(drop).map_err(io::Error::from)
}

fn id(file: &File, path: &Path) -> Result<FileId> {
    let metadata = file.metadata().map_err(|error| failure("look at the lock's file", path, error))?;
    Ok(FileId::new(&metadata))
}
