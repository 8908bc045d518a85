//! What a lock's files say: the token record, written in place in two slots, and the line that names the holder.
//!
//! Invariant: a write that is torn by a crash leaves the other slot as it was. The layout is shared by all versions.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fencepost_core::{Clock, FencingToken, HolderId, LockName, Moment};
use rustix::fd::AsFd;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::stat::Seen;

const SLOT: usize = 64;
const MAGIC: [u8; 4] = *b"FPT1";

/// What outlives every hold: the last token, and until when the lock rests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TokenRecord {
    generation: u64,
    /// The last token; zero before the first grant.
    pub(crate) token: u64,
    /// The holder of the last grant.
    pub(crate) holder: [u8; 16],
    /// Until when the lock stays taken, in microseconds since 1970.
    pub(crate) rests_until: u64,
    /// The token of a lease that was taken away, where there is a file that says so; else zero.
    pub(crate) revoked: u64,
}

impl TokenRecord {
    /// The newer valid slot. Neither is valid before the first grant, and after a power cut that lost the data: the
    /// wall clock then lifts the next token above the lost ones.
    pub(crate) fn read(file: impl AsFd) -> io::Result<Self> {
        let mut slots = [0; 2 * SLOT];
        let mut filled = 0;
        while filled < slots.len() {
            match rustix::io::pread(&file, &mut slots[filled..], filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let valid = slots.chunks_exact(SLOT).filter_map(Self::decode);
        Ok(valid.max_by_key(|record| record.generation).unwrap_or_default())
    }

    /// The record at a path, for a look.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        Self::read(open_carefully(path)?).ok()
    }

    /// Writes the record into the slot that does not hold the present one.
    pub(crate) fn write(&mut self, file: &File) -> io::Result<()> {
        self.generation += 1;
        let offset = if self.generation.is_multiple_of(2) { 0 } else { SLOT };
        file.write_all_at(&self.encode(), offset as u64)
    }

    /// Whether this is the first record that was ever written into its file.
    pub(crate) fn is_first(&self) -> bool {
        self.generation == 1
    }

    /// The last token, where there was one.
    pub(crate) fn last(&self) -> Option<FencingToken> {
        FencingToken::try_from(self.token).ok()
    }

    fn encode(&self) -> [u8; SLOT] {
        let mut slot = [0; SLOT];
        slot[..4].copy_from_slice(&MAGIC);
        slot[8..16].copy_from_slice(&self.generation.to_le_bytes());
        slot[16..24].copy_from_slice(&self.token.to_le_bytes());
        slot[24..40].copy_from_slice(&self.holder);
        slot[40..48].copy_from_slice(&self.rests_until.to_le_bytes());
        slot[48..56].copy_from_slice(&self.revoked.to_le_bytes());
        let checksum = crc32c::crc32c(&slot[8..]);
        slot[4..8].copy_from_slice(&checksum.to_le_bytes());
        slot
    }

    fn decode(slot: &[u8]) -> Option<Self> {
        let number = |at: usize| slot[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        let checksum = crc32c::crc32c(&slot[8..]).to_le_bytes();
        if slot[..4] != MAGIC || slot[4..8] != checksum {
            return None;
        }
        Some(Self {
            // No file has been written so often, and there is no next one.
            generation: number(8).filter(|generation| *generation < u64::MAX)?,
            token: number(16)?,
            holder: slot[24..40].try_into().ok()?,
            rests_until: number(40)?,
            revoked: number(48)?,
        })
    }
}

/// Runs `change` while no other process reads and writes the file. What such a change takes is over in microseconds, but
/// its process may be stopped in the middle, so nobody waits in the kernel for it: `limit` bounds the tries.
///
/// The kernel's advisory lock is taken back explicitly, which would free it for every duplicate of the descriptor; at
/// that time there is none.
pub(crate) async fn exclusively<T>(
    file: &File,
    clock: &Clock,
    limit: Moment,
    change: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let mut pause = FIRST_PAUSE;
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::AGAIN) if clock.now() < limit => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        clock.sleep(pause + clock.jitter(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    let outcome = change();
    rustix::fs::flock(file, FlockOperation::Unlock)?;
    outcome
}

/// Pauses between tries for a lock that is held for microseconds, or by a process that is stopped.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// How long anybody waits at least for another's change of a file.
pub(crate) const CHANGE_LEAST: Duration = Duration::from_millis(500);

/// How long anybody waits at most for it: whoever changes it is stopped.
pub(crate) const CHANGE_MOST: Duration = Duration::from_secs(30);

/// Opens a regular file for a look.
pub(crate) fn open_carefully(path: &Path) -> Option<File> {
    let file = File::options().read(true).custom_flags(CAREFULLY).open(path).ok()?;
    Seen::of(&file).is_ok_and(|seen| seen.is_regular).then_some(file)
}

/// Neither following a link nor waiting for the other end of a pipe.
const CAREFULLY: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();

/// A name has 1024 bytes, and each may be escaped; the rest is short.
const LONGEST_LINE: u64 = 16 * 1024;

/// Most lines have room in so much.
const USUAL_LINE: usize = 512;

/// Who holds the lock, in the lock's file; believed only while the lock is held.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HolderLine {
    pub(crate) name: LockName,
    pub(crate) token: FencingToken,
    pub(crate) holder: HolderId,
    pub(crate) label: String,
    pub(crate) pid: u32,
    /// RFC 3339, UTC.
    since: String,
}

impl HolderLine {
    pub(crate) fn new(
        name: LockName,
        token: FencingToken,
        holder: HolderId,
        label: String,
        since_micros: u64,
    ) -> Self {
        let since = UNIX_EPOCH + Duration::from_micros(since_micros);
        let since = humantime::format_rfc3339_micros(since).to_string();
        Self { name, token, holder, label, pid: std::process::id(), since }
    }

    pub(crate) fn since_micros(&self) -> Option<u64> {
        let since: SystemTime = humantime::parse_rfc3339(&self.since).ok()?;
        u64::try_from(since.duration_since(UNIX_EPOCH).ok()?.as_micros()).ok()
    }

    /// Reads the line, if there is a whole one. Whoever may write the directory may have put anything in its place, so
    /// it is read with care and shown without control characters.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let mut text = Vec::new();
        open_carefully(path)?.take(LONGEST_LINE).read_to_end(&mut text).ok()?;
        let line = text.split(|byte| *byte == b'\n').next()?;
        let mut line: Self = serde_json::from_slice(line).ok()?;
        line.label.retain(|letter| !letter.is_control());
        Some(line)
    }

    /// Writes the line into a file of `length`. It is for people, so a full disk does not keep anybody from the lock.
    pub(crate) fn write(&self, file: &File, length: u64) {
        let mut line = Vec::with_capacity(USUAL_LINE);
        if serde_json::to_writer(&mut line, self).is_err() {
            return;
        }
        // To make the file shorter takes longer than to fill the rest of it with blanks.
        let length = usize::try_from(length.min(LONGEST_LINE)).unwrap_or_default();
        line.resize(line.len().max(length.saturating_sub(1)), b' ');
        line.push(b'\n');
        let _ = file.write_all_at(&line, 0);
    }

    /// Removes the line.
    pub(crate) fn clear(file: &File) -> io::Result<()> {
        file.set_len(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(token: u64) -> TokenRecord {
        TokenRecord { generation: 0, token, holder: [7; 16], rests_until: 9, revoked: 0 }
    }

    #[test]
    fn layout_is_the_one_that_all_versions_share() {
        let mut first = TokenRecord { generation: 1, ..record(0x0102) };
        let slot = first.encode();
        assert_eq!(&slot[..4], b"FPT1");
        assert_eq!(slot[16..24], [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(slot[48..], [0; 16]);
        let file = tempfile::tempfile().unwrap();
        first.write(&file).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 64, "an even generation stands in the first slot");
    }

    #[test]
    fn line_that_is_shorter_than_the_one_before_is_read_back_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.lock");
        let file = File::options().create_new(true).write(true).open(&path).unwrap();
        for label in ["a label of some length", "short", "", "a label of some more length"] {
            let (name, holder) = ("a".parse().unwrap(), HolderId::from_bytes([1; 16]));
            let line = HolderLine::new(name, 1.try_into().unwrap(), holder, label.to_owned(), 5);
            line.write(&file, file.metadata().unwrap().len());
            assert_eq!(HolderLine::read(&path).unwrap().label, label);
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.ends_with('\n') && text.lines().count() == 1, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn torn_write_leaves_the_record_before_it(cut in 0..64_usize, garbage in any::<u8>()) {
            let file = tempfile::tempfile().unwrap();
            let mut written = record(5);
            written.write(&file).unwrap();
            written.token = 6;
            written.write(&file).unwrap();
            let mut torn = TokenRecord { token: 7, ..written };
            torn.generation += 1;
            let slot = torn.encode();
            let mut bytes = slot[..cut].to_vec();
            bytes.push(slot[cut] ^ (garbage | 1));
            file.write_all_at(&bytes, 64).unwrap();
            prop_assert_eq!(TokenRecord::read(&file).unwrap(), written);
        }

        #[test]
        fn any_content_is_a_record_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&bytes, 0).unwrap();
            prop_assert_eq!(TokenRecord::read(&file).unwrap(), TokenRecord::default());
        }
    }
}
