//! One hold: two kernel locks that end with the last descriptor, however the process ends.
//!
//! Waiters queue on the lock file by `flock(2)`. A cleaner that removes that file would let a newcomer lock a new file
//! of the same name, so the holder keeps an open-file-description lock (`fcntl(2)`, independent of `flock`) on the token
//! record as well. Who shares the lock has both locks shared. Invariant: a hold is given out only after its files were seen to be there
//! still when they were locked.

use std::fs::File;
use std::io;
use std::path::Path;

use fencepost_core::{Mode, Result};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::directory::{Directory, Paths, failure, regular};
use crate::range::{self, Access, Blocking};
use crate::readers;
use crate::stat::FileId;

/// Both kernel locks of one lock.
#[derive(Debug)]
pub(crate) struct Hold {
    /// The lock file.
    pub(crate) lock: File,
    /// How long it is.
    pub(crate) lock_length: u64,
    /// The token record.
    pub(crate) token: File,
    /// Which file the token record is.
    pub(crate) token_id: FileId,
}

impl Hold {
    /// Takes both locks if nobody has them, or else only such as share them, too. A reader goes behind those who wait to have the
    /// lock alone.
    pub(crate) fn attempt(directory: &Directory, paths: &Paths, mode: Mode) -> Result<Option<Self>> {
        if mode == Mode::Shared {
            directory.prepare()?;
            if !readers::is_gate_open(paths)? {
                return Ok(None);
            }
        }
        Self::take(directory, paths, mode, Blocking::No)
    }

    /// Waits for both locks, in the kernel.
    pub(crate) fn wait(directory: &Directory, paths: &Paths, mode: Mode) -> Result<Self> {
        loop {
            if mode == Mode::Shared {
                readers::pass_the_gate(directory, paths)?;
            }
            if let Some(hold) = Self::take(directory, paths, mode, Blocking::Yes)? {
                return Ok(hold);
            }
        }
    }

    fn take(directory: &Directory, paths: &Paths, mode: Mode, blocking: Blocking) -> Result<Option<Self>> {
        let access = match mode {
            Mode::Exclusive => Access::Write,
            Mode::Shared => Access::Read,
        };
        loop {
            let lock = directory.open_any(&paths.lock)?;
            directory.refuse_unfit(&lock)?;
            if !taken(&paths.lock, || queue_on(&lock, mode, blocking))? {
                return Ok(None);
            }
            let token = directory.open_any(&paths.token)?;
            if !taken(&paths.token, || range::lock(&token, access, range::WHOLE, blocking))? {
                return Ok(None);
            }
            // A file that was replaced before we had it is no lock any more: others will open the new one. It is the token record that
            // keeps them out, but who holds a lock file that was moved away is not seen there, and cannot be told of a revocation.
            // Where nothing was waited for, a file that was moved away in between is as rare as one that is moved away the moment
            // after, and is noticed like that one.
            let (lock_seen, token_seen) = (regular(&lock, &paths.lock)?, regular(&token, &paths.token)?);
            let are_in_place = || token_seen.id.is_at(&paths.token) && lock_seen.id.is_at(&paths.lock);
            let is_in_place = || blocking == Blocking::No || are_in_place();
            if lock_seen.is_linked && token_seen.is_linked && is_in_place() {
                let (lock_length, token_id) = (lock_seen.length, token_seen.id);
                return Ok(Some(Self { lock, lock_length, token, token_id }));
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

fn queue_on(lock: &File, mode: Mode, blocking: Blocking) -> io::Result<()> {
    let operation = match (mode, blocking) {
        (Mode::Exclusive, Blocking::No) => FlockOperation::NonBlockingLockExclusive,
        (Mode::Exclusive, Blocking::Yes) => FlockOperation::LockExclusive,
        (Mode::Shared, Blocking::No) => FlockOperation::NonBlockingLockShared,
        (Mode::Shared, Blocking::Yes) => FlockOperation::LockShared,
    };
    rustix::fs::flock(lock, operation).map_err(io::Error::from)
}
