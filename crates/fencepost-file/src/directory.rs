//! The directory of the locks: where it is, that it is fit for locks, and how files in it are opened.
//!
//! Invariant: nothing here ever unlinks or renames a file that is locked, and nothing follows a symbolic link inside the directory.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fencepost_core::{BackendUrl, Error, ErrorKind, LockName, Result};
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;

/// File systems on which `flock` is emulated, or local to one client of many. The numbers are from `statfs(2)`.
const SHARED_FILE_SYSTEMS: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9P"),
    (0x5346_414f, "AFS"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x4750_4653, "GPFS"),
];

/// The directory that `file:` means: `$XDG_STATE_HOME/fencepost`, else `~/.local/state/fencepost`.
///
/// # Errors
/// `InvalidArgument` when there is no home directory either.
pub fn default_directory() -> Result<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home =
        || std::env::home_dir().filter(|path| path.is_absolute()).map(|home| home.join(".local/state"));
    state.or_else(home).map(|state| state.join("fencepost")).ok_or_else(|| {
        let what = "neither XDG_STATE_HOME nor HOME names a directory";
        Error::new(ErrorKind::InvalidArgument, "choose the directory of the locks", what)
            .hint("name it: --backend file:/var/lib/fencepost")
    })
}

/// A directory of lock files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directory(PathBuf);

/// The files of one lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Paths {
    /// What waiters queue on, with the holder's line in it.
    pub(crate) lock: PathBuf,
    /// The token record.
    pub(crate) token: PathBuf,
}

/// Which file it is, whatever its path leads to later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn new(stat: &Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }

    pub(crate) fn of(file: &File) -> Option<Self> {
        rustix::fs::fstat(file).ok().map(|stat| Self::new(&stat))
    }

    /// Whether `path` leads to this file.
    pub(crate) fn is_at(self, path: &Path) -> bool {
        rustix::fs::lstat(path).is_ok_and(|stat| Self::new(&stat) == self)
    }
}

impl Paths {
    /// What the holders leave for those to come.
    pub(crate) fn logbook(&self) -> PathBuf {
        self.lock.with_extension("logbook")
    }

    /// Who shares the lock, and who waits.
    pub(crate) fn readers(&self) -> PathBuf {
        self.lock.with_extension("readers")
    }

    /// Whose leases are taken away, and why.
    pub(crate) fn revoke(&self) -> PathBuf {
        self.lock.with_extension("revoke")
    }
}

impl Directory {
    /// The directory that a URL names: absolute, or the default one.
    pub(crate) fn of(url: &BackendUrl) -> Result<Self> {
        let path = url.body().strip_prefix("//").map_or(url.body(), |rest| rest);
        if url.body().is_empty() {
            return default_directory().map(Self);
        }
        if Path::new(path).is_absolute() {
            return Ok(Self(PathBuf::from(path)));
        }
        // A relative path would name another lock in every working directory.
        let absolute = std::path::absolute(path).unwrap_or_default();
        let hint = format!("did you mean file:{}?", absolute.display());
        Err(url.wrong("the directory is not an absolute path").hint(hint))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn paths(&self, name: &LockName) -> Paths {
        let spelled = name.canonical();
        Paths { lock: self.0.join(format!("{spelled}.lock")), token: self.0.join(format!("{spelled}.tok")) }
    }

    /// Makes the directory where it is missing, for its owner alone, and refuses one that is not fit for locks.
    pub(crate) fn prepare(&self) -> Result<()> {
        let system = match rustix::fs::statfs(&self.0) {
            Err(Errno::NOENT) => {
                let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0);
                made.map_err(|error| failure("make the directory of the locks", &self.0, error))?;
                rustix::fs::statfs(&self.0)
            }
            system => system,
        };
        let system =
            system.map_err(|error| failure("look at the directory of the locks", &self.0, error.into()))?;
        match shared_file_system(u64::try_from(system.f_type).unwrap_or_default()) {
            Some(name) => Err(self.refusal(name)),
            None => Ok(()),
        }
    }

    fn refusal(&self, file_system: &str) -> Error {
        let what = format!("{} is on {file_system}, where two hosts may both get a lock", self.0.display());
        Error::new(ErrorKind::Unsupported, "use the directory of the locks", what)
            .hint("choose a directory on a local disk, or a backend that reaches several hosts")
    }

    /// Opens a file of the directory for reading and writing, and makes it where it is missing.
    pub(crate) fn open(&self, path: &Path) -> Result<File> {
        self.open_known(path).map(|(file, _)| file)
    }

    /// The same, with which file it is.
    pub(crate) fn open_known(&self, path: &Path) -> Result<(File, FileId)> {
        loop {
            // Without O_CREAT first: in a sticky shared directory the kernel refuses O_CREAT on another user's file.
            if let Some(known) = Self::open_present(path)? {
                return Ok(known);
            }
            match options().create_new(true).mode(0o600).open(path) {
                Ok(file) => return regular(self.share(file, path)?, path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failure("make the lock's file", path, error)),
            }
        }
    }

    /// Opens a file for reading and writing, if it is there.
    pub(crate) fn open_present(path: &Path) -> Result<Option<(File, FileId)>> {
        match options().open(path) {
            Ok(file) => regular(file, path).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failure("open the lock's file", path, error)),
        }
    }

    /// Puts `content` in the place of `path`: it is on the disk before the name leads to it, and the name is when this returns. Only
    /// one at a time may do so, and what one that was killed has left is removed by the next.
    pub(crate) fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut staged = path.as_os_str().to_owned();
        staged.push(".new");
        let staged = Path::new(&staged);
        remove(staged)?;
        let replaced = self.stage(staged, content).and_then(|()| std::fs::rename(staged, path));
        if replaced.is_err() {
            // The next one removes it otherwise.
            let _ = remove(staged);
        }
        replaced?;
        File::open(&self.0)?.sync_all()
    }

    fn stage(&self, staged: &Path, content: &[u8]) -> io::Result<()> {
        let mut file = options().create_new(true).mode(0o600).open(staged)?;
        file.set_permissions(self.shared_mode())?;
        file.write_all(content)?;
        file.sync_all()
    }

    /// Whoever may make files in the directory may use those that are there.
    fn share(&self, file: File, path: &Path) -> Result<File> {
        let changed = file.set_permissions(self.shared_mode());
        changed.map_err(|error| failure("share the lock's file", path, error))?;
        Ok(file)
    }

    /// Whatever the umask says: a file that its owner cannot open would keep everybody from the lock.
    fn shared_mode(&self) -> std::fs::Permissions {
        let shared = std::fs::metadata(&self.0).map(|metadata| metadata.mode() & 0o022).unwrap_or_default();
        std::fs::Permissions::from_mode(0o600 | shared | shared << 1)
    }
}

/// The name of a file system, by its number, on which two hosts may both get a lock.
pub(crate) fn shared_file_system(kind: u64) -> Option<&'static str> {
    // The kernel's numbers have 32 bits, and some of them come out with a sign.
    let known = SHARED_FILE_SYSTEMS.iter().find(|(number, _)| *number == kind & 0xffff_ffff);
    known.map(|(_, name)| *name)
}

/// Removes a file that need not be there.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn options() -> std::fs::OpenOptions {
    let mut options = File::options();
    options.read(true).write(true);
    options.custom_flags(OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed());
    options
}

fn regular(file: File, path: &Path) -> Result<(File, FileId)> {
    match rustix::fs::fstat(&file) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
            Ok((file, FileId::new(&stat)))
        }
        Ok(_) => {
            let what = format!("{} is not a regular file", path.display());
            Err(Error::new(ErrorKind::Unavailable, "open the lock's file", what)
                .hint("move it out of the way"))
        }
        Err(error) => Err(failure("open the lock's file", path, error.into())),
    }
}

/// A failure of the file system, in fencepost's terms.
pub(crate) fn failure(operation: &'static str, path: &Path, error: io::Error) -> Error {
    let kind = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => ErrorKind::Denied,
        Some(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP | Errno::LOOP | Errno::NOTDIR | Errno::EXIST) => {
            ErrorKind::Unsupported
        }
        _ => ErrorKind::Unavailable,
    };
    let failure = Error::new(kind, operation, path.display().to_string()).caused_by(error);
    match kind {
        ErrorKind::Unsupported => failure.hint("choose a directory on a local disk"),
        ErrorKind::Denied => failure.hint(
            "users share locks in a directory that all of them may write: install -d -m 2770 -g GROUP DIRECTORY",
        ),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_refused() {
        let directory = Directory(PathBuf::from("/mnt/shared"));
        for (number, name) in [(0x6969, "NFS"), (0xffff_ffff_ff53_4d42, "CIFS"), (0x6573_5546, "FUSE")] {
            assert_eq!(shared_file_system(number), Some(name));
            let error = directory.refusal(name);
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(name) && error.advice().is_some(), "{error}");
        }
        for local in [0xef53, 0x0102_1994, 0x5846_5342, 0x9123_683e] {
            assert_eq!(shared_file_system(local), None, "ext4, tmpfs, XFS and Btrfs are local");
        }
    }

    #[test]
    fn relative_directory_is_refused_with_the_absolute_one() {
        let error = Directory::of(&"file:locks".parse().unwrap()).unwrap_err();
        assert!(error.advice().unwrap().starts_with("did you mean file:/"), "{error:?}");
    }
}
