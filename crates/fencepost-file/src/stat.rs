//! What the kernel says of a file: which one it is, and no more than is needed.
//!
//! Nobody here asks for times. A file whose times somebody has asked for gets new and exact ones from its next write, which
//! Linux (6.13 and later) then puts into the file system's journal: the write takes twice as long.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fd::AsFd;
use rustix::fs::{AtFlags, CWD, FileType, Stat, Statx, StatxFlags};
use rustix::io::Errno;

/// What is asked for.
const ASKED: StatxFlags =
    StatxFlags::TYPE.union(StatxFlags::INO).union(StatxFlags::NLINK).union(StatxFlags::SIZE);

/// Which file it is, whatever its path leads to later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: (u32, u32),
    inode: u64,
}

/// A file as it was when it was looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) id: FileId,
    pub(crate) is_regular: bool,
    /// Whether any path leads to it.
    pub(crate) is_linked: bool,
    pub(crate) length: u64,
}

impl FileId {
    pub(crate) fn of(file: &File) -> Option<Self> {
        Seen::of(file).ok().map(|seen| seen.id)
    }

    /// Whether `path` leads to this file.
    pub(crate) fn is_at(self, path: &Path) -> bool {
        Seen::at(path).is_ok_and(|seen| seen.id == self)
    }
}

impl Seen {
    pub(crate) fn of(file: impl AsFd) -> io::Result<Self> {
        match rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, ASKED) {
            Err(Errno::NOSYS) => Ok(Self::from(rustix::fs::fstat(file)?)),
            seen => Ok(Self::from(seen?)),
        }
    }

    /// What is at `path`, which may be a link.
    fn at(path: &Path) -> io::Result<Self> {
        match rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, ASKED) {
            Err(Errno::NOSYS) => Ok(Self::from(rustix::fs::lstat(path)?)),
            seen => Ok(Self::from(seen?)),
        }
    }
}

impl From<Statx> for Seen {
    fn from(statx: Statx) -> Self {
        Self {
            id: FileId { device: (statx.stx_dev_major, statx.stx_dev_minor), inode: statx.stx_ino },
            is_regular: FileType::from_raw_mode(statx.stx_mode.into()) == FileType::RegularFile,
            is_linked: statx.stx_nlink > 0,
            length: statx.stx_size,
        }
    }
}

/// From a kernel that cannot be asked for less.
impl From<Stat> for Seen {
    fn from(stat: Stat) -> Self {
        let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
        Self {
            id: FileId { device, inode: stat.st_ino },
            is_regular: FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile,
            is_linked: stat.st_nlink > 0,
            length: u64::try_from(stat.st_size).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_the_same_by_its_path_and_by_what_it_was_opened_as() {
        let directory = tempfile::tempdir().unwrap();
        let [path, link] = ["file", "link"].map(|name| directory.path().join(name));
        std::fs::write(&path, "five!").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let file = File::open(&path).unwrap();
        let seen = Seen::of(&file).unwrap();
        assert!(seen.is_regular && seen.is_linked && seen.length == 5, "{seen:?}");
        assert!(seen.id.is_at(&path) && !seen.id.is_at(&link));
        let old = Seen::from(rustix::fs::fstat(&file).unwrap());
        assert_eq!(old.id, seen.id, "an old kernel names it in the same way");
        std::fs::remove_file(&path).unwrap();
        assert!(!Seen::of(&file).unwrap().is_linked && !seen.id.is_at(&path));
    }
}
