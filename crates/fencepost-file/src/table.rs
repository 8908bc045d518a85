//! The kernel's table of locks: who holds a file and who waits for it, without touching the file.
//!
//! An onlooker that tried the lock would make another's `--no-wait` fail; this one only reads `/proc/locks`.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fencepost_core::{Result, Waiter};

use crate::directory::{Directory, Paths, failure};
use crate::range::Access;

/// A file as the table names it, and which of the two kinds of kernel lock it has: the device, the inode, the kind.
type Key = (u32, u32, u64, Kind);

/// A line of the table.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    key: Key,
    access: Access,
    waits: bool,
    pid: i32,
}

/// The two kinds of kernel lock that make a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// On the lock file, by `flock(2)`.
    Flock,
    /// On the token record, of an open file description.
    Description,
}

/// All kernel locks on the files of one directory's file system.
#[derive(Debug)]
pub(crate) struct LockTable {
    device: (u32, u32),
    files: HashMap<Key, Entry>,
}

#[derive(Debug, Default)]
struct Entry {
    held: Option<Access>,
    /// Those who wait to have it alone. Who waits to share it says so in a slot.
    waiters: Vec<i32>,
}

impl LockTable {
    /// Reads the table; `None` if the directory does not exist, so that nothing can be held in it.
    pub(crate) fn read(directory: &Directory) -> Result<Option<Self>> {
        let handle = match File::open(directory.path()) {
            Ok(handle) => handle,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failure("open the directory of the locks", directory.path(), error)),
        };
        let device = device_of(&handle)
            .map_err(|error| failure("find the file system of the locks", directory.path(), error))?;
        let path = Path::new("/proc/locks");
        let text =
            std::fs::read_to_string(path).map_err(|error| failure("read the table of locks", path, error))?;
        let mut files: HashMap<Key, Entry> = HashMap::new();
        for Line { key, access, waits, pid } in text.lines().filter_map(parse) {
            let entry = files.entry(key).or_default();
            match (waits, access) {
                (false, _) => entry.held = Some(access),
                (true, Access::Write) => entry.waiters.push(pid),
                (true, Access::Read) => {}
            }
        }
        Ok(Some(Self { device, files }))
    }

    /// How the lock is held, if it is. The token record counts too: its lock is seen from every container, and stays
    /// when a cleaner has removed the lock file.
    ///
    /// # Errors
    /// When the files cannot be looked at: that is no reason to call a lock free.
    pub(crate) fn held(&self, paths: &Paths) -> Result<Option<Access>> {
        Ok(self.entries(paths)?.find_map(|entry| entry.held))
    }

    /// The processes that wait to have the lock alone, in the table's order.
    ///
    /// # Errors
    /// When the files cannot be looked at.
    pub(crate) fn waiters(&self, paths: &Paths) -> Result<Vec<i32>> {
        Ok(self.entries(paths)?.flat_map(|entry| entry.waiters.clone()).collect())
    }

    fn entries(&self, paths: &Paths) -> Result<impl Iterator<Item = &Entry>> {
        let lock = self.entry(&paths.lock, Kind::Flock)?;
        let token = self.entry(&paths.token, Kind::Description)?;
        Ok(lock.into_iter().chain(token))
    }

    fn entry(&self, path: &Path, kind: Kind) -> Result<Option<&Entry>> {
        match std::fs::symlink_metadata(path) {
            Ok(metadata) => Ok(self.files.get(&(self.device.0, self.device.1, metadata.ino(), kind))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failure("look at the lock's file", path, error)),
        }
    }
}

/// One line: `12: FLOCK  ADVISORY  WRITE 4711 fd:01:131 0 EOF`, with an arrow after the number for a waiter.
fn parse(line: &str) -> Option<Line> {
    let mut words = line.split_ascii_whitespace().skip(1).peekable();
    let waits = words.next_if_eq(&"->").is_some();
    let kind = match words.next()? {
        "FLOCK" => Kind::Flock,
        "OFDLCK" => Kind::Description,
        _ => return None,
    };
    let access = match words.nth(1)? {
        "READ" => Access::Read,
        _ => Access::Write,
    };
    let pid = words.next()?.parse().ok()?;
    let mut file = words.next()?.split(':');
    let mut device = || u32::from_str_radix(file.next()?, 16).ok();
    let (major, minor) = (device()?, device()?);
    let key = (major, minor, file.next()?.parse().ok()?, kind);
    Some(Line { key, access, waits, pid })
}

/// The device as the table names it. `stat(2)` names another one on file systems with subvolumes or layers, so it is
/// taken from the mount that the directory is on.
fn device_of(handle: &File) -> io::Result<(u32, u32)> {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", handle.as_raw_fd()))?;
    let mount = about.lines().find_map(|line| line.strip_prefix("mnt_id:")).map(str::trim);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let device = mounts.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (major, minor) = (words.next() == mount).then(|| words.nth(1))??.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    device.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "its mount is not in /proc/self/mountinfo"))
}

/// A waiting process in words: its program, and the one that it is going to run. Arguments may contain secrets.
pub(crate) fn describe(pid: i32) -> Waiter {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let command = words.iter().position(|word| word == "--").and_then(|dashes| words.get(dashes + 1));
    let this = words.first().map_or_else(String::new, |word| program(word));
    let label = match command {
        Some(command) => format!("{} ({this} pid {pid})", program(command)),
        None => format!("{this} (pid {pid})"),
    };
    Waiter { holder: None, label: Some(label), since_micros: None }
}

/// The last part of a path, as one short line.
fn program(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.chars().filter(|letter| !letter.is_control()).take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table_are_read() {
        let line = |key, access, waits, pid| Some(Line { key, access, waits, pid });
        for (text, read) in [
            (
                "3: FLOCK  ADVISORY  WRITE 4711 fe:00:131 0 EOF",
                line((0xfe, 0, 131, Kind::Flock), Access::Write, false, 4711),
            ),
            (
                "3: -> FLOCK  ADVISORY  WRITE 12 08:1f:9 0 EOF",
                line((8, 31, 9, Kind::Flock), Access::Write, true, 12),
            ),
            (
                "4: FLOCK  ADVISORY  READ 12 08:1f:9 0 EOF",
                line((8, 31, 9, Kind::Flock), Access::Read, false, 12),
            ),
            (
                "7: OFDLCK ADVISORY  WRITE -1 00:1a:5 0 EOF",
                line((0, 26, 5, Kind::Description), Access::Write, false, -1),
            ),
        ] {
            assert_eq!(parse(text), read, "{text}");
        }
        assert_eq!(parse("7: POSIX  ADVISORY  WRITE 12 00:1a:5 0 EOF"), None);
        assert_eq!(parse("nonsense"), None);
    }
}
