//! Copies what a job has made, whole and onto the disk: files with their holes, directories, symbolic links, their permissions and
//! times.
//!
//! Invariant: what lies at the target when a copy has succeeded is on the disk, and was there all at once.

use std::fs::{File, FileTimes, Metadata};
use std::io::{self, ErrorKind as IoKind, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fencepost_core::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, CWD, OFlags, Timespec, Timestamps, ioctl_ficlone};
use rustix::io::Errno;

use crate::directory::failure;

const READ: &str = "read what is to be published";
const WRITE: &str = "stage the result";

/// Copies `source`, a file or a directory, to `target`, which is not there. A directory has no permissions and times of its own yet;
/// [`settle`] gives them to it, since one that nobody may write cannot be moved.
pub(crate) fn copy(source: &Path, target: &Path) -> Result<Metadata> {
    let top = std::fs::symlink_metadata(source).map_err(|error| unreadable(source, error))?;
    let mut folders = Vec::new();
    let mut left = vec![PathBuf::new()];
    while let Some(inside) = left.pop() {
        // An empty path would end in a slash, which a file must not have.
        let at =
            |base: &Path| if inside.as_os_str().is_empty() { base.to_owned() } else { base.join(&inside) };
        let (from, to) = (at(source), at(target));
        let metadata = std::fs::symlink_metadata(&from).map_err(|error| unreadable(&from, error))?;
        if metadata.is_dir() {
            left.extend(names(&from)?.into_iter().map(|name| inside.join(name)));
            let made = std::fs::DirBuilder::new().mode(0o700).create(&to);
            made.map_err(|error| failure(WRITE, &to, error))?;
            folders.push((to, metadata));
        } else if metadata.is_file() {
            copy_file(&from, &to, &metadata)?;
        } else if metadata.is_symlink() {
            copy_link(&from, &to, &metadata)?;
        } else {
            return Err(special(&from, &metadata));
        }
    }
    // The innermost first: what is written into a folder changes its time.
    for (folder, metadata) in folders.iter().rev().filter(|(folder, _)| folder != target) {
        settle(folder, metadata)?;
    }
    if top.is_dir() {
        sync(target)?;
    }
    Ok(top)
}

/// Gives a copied directory its permissions and times.
pub(crate) fn settle(folder: &Path, metadata: &Metadata) -> Result<()> {
    let settled = File::open(folder).and_then(|open| {
        open.set_times(times(metadata)?)?;
        open.set_permissions(metadata.permissions())?;
        open.sync_all()
    });
    settled.map_err(|error| failure(WRITE, folder, error))
}

/// Removes what a copy has made, also where its permissions are against it. What is gone already is no failure.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == IoKind::NotFound => return Ok(()),
        metadata => metadata?,
    };
    if !metadata.is_dir() {
        return gone(std::fs::remove_file(path));
    }
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == IoKind::PermissionDenied => {
            open_up(path)?;
            gone(std::fs::remove_dir_all(path))
        }
        removed => gone(removed),
    }
}

/// Puts a file or a directory on the disk.
pub(crate) fn sync(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|open| open.sync_all());
    synced.map_err(|error| failure("put the result on the disk", path, error))
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| if error.kind() == IoKind::NotFound { Ok(()) } else { Err(error) })
}

/// Lets its owner remove all that is in a directory.
fn open_up(folder: &Path) -> io::Result<()> {
    let mut left = vec![folder.to_owned()];
    while let Some(folder) = left.pop() {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                left.push(entry.path());
            }
        }
    }
    Ok(())
}

fn names(folder: &Path) -> Result<Vec<std::ffi::OsString>> {
    let entries = std::fs::read_dir(folder).map_err(|error| unreadable(folder, error))?;
    let names = entries.map(|entry| Ok(entry?.file_name()));
    names.collect::<io::Result<_>>().map_err(|error| unreadable(folder, error))
}

fn copy_file(from: &Path, to: &Path, metadata: &Metadata) -> Result<()> {
    // Whatever has come into its place meanwhile: no link is followed, and nobody waits for the other end of a pipe.
    let careful = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();
    let read = File::options().read(true).custom_flags(careful).open(from);
    let source = read.map_err(|error| unreadable(from, error))?;
    let made = File::options().write(true).create_new(true).mode(0o600).open(to);
    let target = made.map_err(|error| failure(WRITE, to, error))?;
    copy_content(&source, &target, metadata.len()).map_err(|error| failure(WRITE, to, error))?;
    let now = source.metadata().map_err(|error| unreadable(from, error))?;
    if version(&now) != version(metadata) {
        let what = format!("{} has changed while it was copied", from.display());
        return Err(
            Error::new(ErrorKind::Unavailable, READ, what).hint("publish what nobody writes any more")
        );
    }
    let settled = target.set_permissions(metadata.permissions()).and_then(|()| {
        target.set_times(times(metadata)?)?;
        target.sync_all()
    });
    settled.map_err(|error| failure(WRITE, to, error))
}

/// Shares the content where the file system can, and copies what is not a hole elsewhere.
fn copy_content(source: &File, target: &File, length: u64) -> io::Result<()> {
    if ioctl_ficlone(target, source).is_ok() {
        return Ok(());
    }
    target.set_len(length)?;
    let mut at = 0;
    while let Some(start) = find(source, rustix::fs::SeekFrom::Data(at))?.filter(|start| *start < length) {
        let end = find(source, rustix::fs::SeekFrom::Hole(start))?.unwrap_or(length).min(length);
        { source }.seek(SeekFrom::Start(start))?;
        { target }.seek(SeekFrom::Start(start))?;
        io::copy(&mut io::Read::take(source, end - start), &mut { target })?;
        at = end;
    }
    Ok(())
}

/// Where the next data, or the next hole, begins; `None` where there is none.
fn find(file: &File, what: rustix::fs::SeekFrom) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, what) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What differs once a file was written.
fn version(metadata: &Metadata) -> (u64, u64, i64, i64) {
    (metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

fn times(metadata: &Metadata) -> io::Result<FileTimes> {
    Ok(FileTimes::new().set_accessed(metadata.accessed()?).set_modified(metadata.modified()?))
}

fn copy_link(from: &Path, to: &Path, metadata: &Metadata) -> Result<()> {
    let leads_to = std::fs::read_link(from).map_err(|error| unreadable(from, error))?;
    let moment = |seconds, nanos| Timespec { tv_sec: seconds, tv_nsec: nanos };
    let times = Timestamps {
        last_access: moment(metadata.atime(), metadata.atime_nsec()),
        last_modification: moment(metadata.mtime(), metadata.mtime_nsec()),
    };
    let made = std::os::unix::fs::symlink(leads_to, to)
        .and_then(|()| Ok(rustix::fs::utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW)?));
    made.map_err(|error| failure(WRITE, to, error))
}

fn special(path: &Path, metadata: &Metadata) -> Error {
    let kind = metadata.file_type();
    let kind = match () {
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    let what = format!(
        "{} is {kind}, and only files, directories and symbolic links can be published",
        path.display()
    );
    Error::new(ErrorKind::InvalidArgument, READ, what)
}

/// A failure to read what the caller has named, which is not the fence's directory.
pub(crate) fn unreadable(path: &Path, error: io::Error) -> Error {
    let kind = match error.kind() {
        IoKind::NotFound | IoKind::NotADirectory => ErrorKind::InvalidArgument,
        IoKind::PermissionDenied => ErrorKind::Denied,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, READ, path.display().to_string()).caused_by(error)
}
