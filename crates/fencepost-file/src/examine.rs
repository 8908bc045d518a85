//! What the directory of locks or marks shows of itself: the file system, who may write, and who removes files there.
//!
//! Invariant: it only looks; nothing is made, not even the directory.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fencepost_core::{Error, ErrorKind, Examination, Finding, Result, Severity};
use rustix::fs::{Access, StatVfs};

use crate::directory::{Directory, shared_file_system};

/// What the directory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Locks, whose tokens count as durable or not.
    Locks { durable: bool },
    /// The marks of a fence.
    Marks,
}

/// Looks at a directory, which need not be there.
pub(crate) fn examine(directory: &Directory, purpose: Purpose) -> Result<Examination> {
    let place = Place::of(directory.path(), purpose)?;
    let mut findings = vec![place.absent(), place.access(), place.sharing(), place.space()];
    findings.extend([place.file_system(), place.sweeping()]);
    Ok(Examination::new(Vec::new(), findings.into_iter().flatten().collect()))
}

/// The directory, or the nearest one above it that is there.
struct Place<'a> {
    path: &'a Path,
    purpose: Purpose,
    /// With every symbolic link followed.
    there: PathBuf,
    metadata: Metadata,
    kind: u64,
    room: StatVfs,
}

impl<'a> Place<'a> {
    fn of(path: &'a Path, purpose: Purpose) -> Result<Self> {
        let unreadable = |error: std::io::Error| {
            let what = path.display().to_string();
            Error::new(ErrorKind::Unavailable, "look at the directory", what).caused_by(error)
        };
        let there = path.ancestors().find_map(|path| path.canonicalize().ok());
        let there = there.unwrap_or_else(|| PathBuf::from("/"));
        let metadata = there.metadata().map_err(unreadable)?;
        let kind = rustix::fs::statfs(&there).map_err(|error| unreadable(error.into()))?.f_type;
        let kind = u64::try_from(kind).unwrap_or_default() & 0xffff_ffff;
        let room = rustix::fs::statvfs(&there).map_err(|error| unreadable(error.into()))?;
        Ok(Self { path, purpose, there, metadata, kind, room })
    }

    fn is_there(&self) -> bool {
        self.path.exists()
    }

    fn found(&self, severity: Severity, evidence: impl fmt::Display) -> Finding {
        Finding::new(severity, self.path.display(), evidence.to_string())
    }

    fn absent(&self) -> Option<Finding> {
        let is_marks = self.purpose == Purpose::Marks;
        (!self.is_there()).then(|| {
            self.found(Severity::Note, "the directory does not exist")
                .means(if is_marks {
                    "nothing was ever sealed there; the first seal makes it"
                } else {
                    "nothing was ever held there; the first lock makes it"
                })
                .remedy("nothing, unless there is a typing error in the path")
        })
    }

    /// Whether this process may use it, or make it.
    fn access(&self) -> Option<Finding> {
        if !self.metadata.is_dir() {
            let finding = self.found(Severity::Serious, format_args!("{} is not a directory", self.shown()));
            return Some(
                finding.means(self.unusable()).remedy("name a directory, such as file:/var/lib/fencepost"),
            );
        }
        let all = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
        rustix::fs::access(&self.there, all).err().map(|_| {
            let (uid, gid, mode) = (self.metadata.uid(), self.metadata.gid(), self.metadata.mode() & 0o7777);
            let evidence = format!(
                "{} belongs to user {uid} and group {gid} with mode {mode:04o}, and this process may not write there",
                self.shown()
            );
            self.found(Severity::Serious, evidence).means(self.unusable()).remedy(format!(
                "share it with a group that this user is in: install -d -m 2770 -g GROUP {}",
                self.path.display()
            ))
        })
    }

    fn unusable(&self) -> &'static str {
        match self.purpose {
            Purpose::Locks { .. } => "no lock can be acquired there",
            Purpose::Marks => "no token can be sealed there, so no command that needs this fence starts",
        }
    }

    /// Whether anybody on the host may remove what is in it.
    fn sharing(&self) -> Option<Finding> {
        let mode = self.metadata.mode() & 0o7777;
        let is_open = self.is_there() && mode & 0o002 != 0 && mode & 0o1000 == 0;
        is_open.then(|| {
            let (severity, means) = match self.purpose {
                Purpose::Locks { .. } => (
                    Severity::Warning,
                    "every user of this host can hold any lock, and remove or replace its files: removing both of \
                     a held one lets a second holder in for a second",
                ),
                Purpose::Marks => (
                    Severity::Serious,
                    "every user of this host can remove a mark, and a stale holder is accepted then",
                ),
            };
            self.found(severity, format!("everybody may write there: mode {mode:04o}"))
                .means(means)
                .remedy(format!("let a group write, and nobody else: chmod 2770 {}", self.path.display()))
        })
    }

    fn space(&self) -> Option<Finding> {
        let bytes = self.room.f_bavail.saturating_mul(self.room.f_frsize);
        let inodes = self.room.f_favail;
        // A file system that makes inodes as they are needed says that it has none at all.
        let is_full = bytes < LEAST_BYTES || (self.room.f_files > 0 && inodes < LEAST_INODES);
        is_full.then(|| {
            let evidence = format!("{} KiB and {inodes} inodes are free on its file system", bytes >> 10);
            self.found(Severity::Serious, evidence)
                .means(match self.purpose {
                    Purpose::Locks { .. } => {
                        "a lock that was never held there before can be acquired no more when it is full"
                    }
                    Purpose::Marks => {
                        "no mark can be raised when it is full, so no command that needs this fence starts"
                    }
                })
                .remedy("make room there, or use a directory on another file system")
        })
    }

    fn file_system(&self) -> Option<Finding> {
        let (name, is_lost) = match self.kind {
            TMPFS => ("tmpfs", "a reboot"),
            RAMFS => ("ramfs", "a reboot"),
            OVERLAY => ("overlay", "the end of the container whose file system it is"),
            kind => return shared_file_system(kind).map(|name| self.shared(name)),
        };
        let (severity, means) = match self.purpose {
            Purpose::Locks { durable: true } => (
                Severity::Serious,
                format!("fsync=on promises tokens that outlive everything, and {is_lost} forgets them"),
            ),
            Purpose::Locks { durable: false } => (
                Severity::Warning,
                format!(
                    "{is_lost} forgets all tokens: they grow on as long as the wall clock has not gone back"
                ),
            ),
            Purpose::Marks => (
                Severity::Serious,
                format!("{is_lost} forgets all marks, and former holders are accepted then"),
            ),
        };
        let others = if self.kind == OVERLAY {
            "; no other container, and not the host, sees this directory"
        } else {
            ""
        };
        let remedy = if self.kind == OVERLAY {
            "mount a directory of the host, the same into every container that shares the locks"
        } else {
            "use a directory on a disk, such as /var/lib/fencepost"
        };
        Some(self.found(severity, format!("it is on {name}")).means(means + others).remedy(remedy))
    }

    fn shared(&self, name: &str) -> Finding {
        self.found(Severity::Serious, format!("it is on {name}, which several hosts share"))
            .means("two hosts may both get a lock there; it is refused")
            .remedy("use a directory on a local disk, or a backend that reaches several hosts")
    }

    fn sweeping(&self) -> Option<Finding> {
        let (swept, who) = SWEPT.iter().find(|(swept, _)| self.there.starts_with(swept))?;
        let (severity, means) = match self.purpose {
            Purpose::Locks { .. } => (
                Severity::Warning,
                "a lock that is held for days may lose its files: its holder sees that within a second, and until its \
                 command has stopped there may be two",
            ),
            Purpose::Marks => (
                Severity::Serious,
                "a mark that is not raised for days may be removed, and former holders are accepted then",
            ),
        };
        Some(
            self.found(severity, format!("it is below {swept}, where {who}"))
                .means(means)
                .remedy("use a directory that nobody sweeps, such as /var/lib/fencepost"),
        )
    }

    fn shown(&self) -> impl fmt::Display {
        self.there.display()
    }
}

/// The numbers of file systems, from `statfs(2)`.
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
const OVERLAY: u64 = 0x794c_7630;

/// Directories in which somebody removes what others have left, and who.
const SWEPT: &[(&str, &str)] = &[
    ("/tmp", "systemd-tmpfiles and other cleaners remove what is old"),
    ("/var/tmp", "systemd-tmpfiles and other cleaners remove what is old"),
    ("/run/user", "everything is removed when its user logs out"),
];

/// What the files of a few locks, or the results of a small job, need.
const LEAST_BYTES: u64 = 1 << 20;
const LEAST_INODES: u64 = 16;
