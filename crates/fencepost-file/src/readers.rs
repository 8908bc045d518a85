//! Who shares a lock, who waits to share it, and a gate between them and those who wait to have it alone.
//!
//! All of it is kernel locks on ranges of one file, so that nothing is left of a process that is gone. A reader keeps its slot of the
//! file locked, and what stands there about it is believed only while it does. Who waits to have the lock alone keeps a byte of the
//! gate locked, behind all slots, and new readers wait until nobody does. Safety needs none of this.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use fencepost_core::{Clock, FencingToken, HolderId, Result};
use serde::{Deserialize, Serialize};

use crate::directory::{Directory, Paths, failure};
use crate::range::{Access, Blocking, END, held, lock};
use crate::record::open_carefully;

const SLOT: i64 = 2048;

/// How many slots are looked at, at most.
const MOST_SLOTS: i64 = 10_000;

/// A label is a line of a table; in a slot there is room for so much of it, however it is escaped.
const MOST_LETTERS: usize = 200;

/// Where the gate is.
const GATE: Range<i64> = 1 << 62..END;

/// What a slot says of its reader.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SlotLine {
    pub(crate) holder: HolderId,
    pub(crate) label: String,
    /// None while it waits.
    pub(crate) token: Option<FencingToken>,
    pub(crate) pid: u32,
    /// Since when it holds the lock or waits for it: microseconds since 1970.
    pub(crate) since_micros: u64,
}

/// A reader's place in the file, for as long as it is kept open.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) file: File,
    start: i64,
    line: SlotLine,
}

impl Slot {
    /// Takes the first slot that nobody has.
    pub(crate) fn take(directory: &Directory, paths: &Paths, holder: HolderId, label: &str) -> Result<Self> {
        let path = paths.readers();
        let file = directory.open(&path)?;
        let label = label.chars().filter(|letter| !letter.is_control()).take(MOST_LETTERS).collect();
        let line = SlotLine { holder, label, token: None, pid: std::process::id(), since_micros: 0 };
        for start in (0..MOST_SLOTS).map(|slot| slot * SLOT) {
            let range = start + offset(holder)..start + SLOT;
            match lock(&file, Access::Write, range, Blocking::No) {
                Ok(()) => return Ok(Self { file, start, line }),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(failure("share the lock", &path, error)),
            }
        }
        let full = io::Error::other(format!("all of its {MOST_SLOTS} places are taken"));
        Err(failure("share the lock", &path, full))
    }

    /// Says that its reader waits, or holds the lock with this token. It is for people, so a full disk does not keep anybody
    /// from the lock.
    pub(crate) fn say(&mut self, token: Option<FencingToken>, since_micros: u64) {
        (self.line.token, self.line.since_micros) = (token, since_micros);
        let Ok(mut text) = serde_json::to_vec(&self.line) else { return };
        text.resize(usize::try_from(SLOT - 1).unwrap_or_default(), b' ');
        text.push(b'\n');
        let _ = self.file.write_all_at(&text, self.start.unsigned_abs());
    }
}

/// Where in a slot the lock of its reader begins. It ends with the slot, so that two never go together; and it tells what the reader
/// before has left from what this one has written.
fn offset(holder: HolderId) -> i64 {
    let [.., high, low] = holder.to_bytes();
    i64::from(u16::from_be_bytes([high, low])) % (SLOT - 1)
}

/// All who share the lock or wait to, in the order of their tokens; who waits comes last.
pub(crate) fn seen(paths: &Paths) -> io::Result<Vec<SlotLine>> {
    let Some(file) = open_carefully(&paths.readers()) else { return Ok(Vec::new()) };
    let length = i64::try_from(file.metadata()?.len()).unwrap_or(END).min(MOST_SLOTS * SLOT);
    let mut seen = Vec::new();
    let mut start = 0;
    while start < length {
        seen.extend(seen_at(&file, start)?);
        start += SLOT;
    }
    seen.sort_by_key(|line: &SlotLine| (line.token.is_none(), line.token, line.since_micros));
    Ok(seen)
}

fn seen_at(file: &File, start: i64) -> io::Result<Option<SlotLine>> {
    // What is being written just now is read again.
    for _ in 0..READS {
        let Some(locked_from) = held(file, Access::Write, start..start + SLOT)? else { return Ok(None) };
        let mut text = vec![0; usize::try_from(SLOT).unwrap_or_default()];
        let read = file.read_at(&mut text, start.unsigned_abs())?;
        text.truncate(read);
        if let Ok(line) = serde_json::from_slice::<SlotLine>(&text)
            && start + offset(line.holder) == locked_from
        {
            return Ok(Some(line));
        }
        std::thread::yield_now();
    }
    Ok(None)
}

/// How often a slot is read whose content is not its reader's.
const READS: usize = 5;

/// A mark that somebody waits to have the lock alone, for as long as it is kept.
#[derive(Debug)]
pub(crate) struct Mark(#[expect(dead_code, reason = "the kernel's lock hangs on it")] File);

/// Marks that. A reader that passes the gate in this moment is waited for; where none can be made, only the order of waiters suffers.
pub(crate) async fn mark(directory: &Directory, paths: &Paths, clock: &Clock) -> Option<Mark> {
    let file = directory.open(&paths.readers()).ok()?;
    for _ in 0..TRIES {
        let byte = GATE.start + (clock.random() >> 2).cast_signed();
        if lock(&file, Access::Write, byte..byte + 1, Blocking::No).is_ok() {
            return Some(Mark(file));
        }
        clock.sleep(PAUSE + clock.jitter(PAUSE)).await;
    }
    None
}

const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_micros(50);

/// Whether nobody waits to have the lock alone.
pub(crate) fn is_gate_open(paths: &Paths) -> Result<bool> {
    let path = paths.readers();
    let Some(file) = open_carefully(&path) else { return Ok(true) };
    let held = held(&file, Access::Read, GATE).map_err(|error| failure("look at the gate", &path, error))?;
    Ok(held.is_none())
}

/// Waits until nobody waits to have the lock alone.
pub(crate) fn pass_the_gate(directory: &Directory, paths: &Paths) -> Result<()> {
    let path = paths.readers();
    let file = directory.open(&path)?;
    loop {
        match lock(&file, Access::Read, GATE, Blocking::Yes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome.map_err(|error| failure("pass the gate", &path, error)),
        }
    }
}
