//! An onlooker: what the kernel's table of locks and the files say of the locks of a directory. It touches none.

use std::collections::BTreeSet;
use std::time::Duration;

use fencepost_core::{Clock, FencingToken, LockName, LockState, Reader, Result, Status, Waiter};

use crate::directory::{Directory, Paths, failure};
use crate::queue;
use crate::range::{self, Access};
use crate::readers::{self, SlotLine};
use crate::record::{HolderLine, TokenRecord, open_carefully};
use crate::table::{LockTable, describe};

/// One look at a directory.
pub(crate) struct Look<'a> {
    directory: &'a Directory,
    clock: &'a Clock,
    table: LockTable,
}

impl<'a> Look<'a> {
    /// `None` if the directory does not exist, so that nothing can be held in it.
    pub(crate) fn at(directory: &'a Directory, clock: &'a Clock) -> Result<Option<Self>> {
        Ok(LockTable::read(directory)?.map(|table| Self { directory, clock, table }))
    }

    pub(crate) fn state(&self, name: LockName) -> Result<LockState> {
        let paths = self.directory.paths(&name);
        let mut state = LockState::free(name);
        let record = TokenRecord::at(&paths.token).unwrap_or_default();
        let (waiting, readers): (Vec<_>, Vec<_>) =
            readers_of(&paths)?.into_iter().partition(|line| line.token.is_none());
        state.waiters = self.waiters(&paths)?;
        state.waiters.extend(waiting.into_iter().map(waiter));
        match self.held(&paths)? {
            Some(Access::Read) => {
                state.status = Status::Held;
                state.readers = readers.into_iter().filter_map(reader).collect();
                if let Some(first) = state.readers.first() {
                    state.since_micros = first.since_micros;
                    (state.holder, state.token) = (Some(first.holder), Some(first.token));
                    state.label.clone_from(&first.label);
                }
            }
            Some(Access::Write) => {
                state.status = Status::Held;
                let line = line_of(&paths, &record);
                state.since_micros = line.as_ref().and_then(HolderLine::since_micros);
                state.holder = line.as_ref().map(|line| line.holder);
                state.token = line.as_ref().map(|line| line.token);
                state.label = line.map(|line| line.label);
            }
            None => {
                let rest = record.rests_until.saturating_sub(self.clock.wall_micros());
                if rest > 0 {
                    state.status = Status::Resting;
                    // A lift may have raised the record since.
                    state.token = line_of(&paths, &record).map(|line| line.token).or_else(|| record.last());
                    state.remaining = Some(Duration::from_micros(rest));
                }
            }
        }
        Ok(state)
    }

    /// How the lock is held, if it is. The kernel's table is read in pieces, and may lack a lock while others come and go, so that
    /// the record is asked first; the table knows of a lock that only a command has kept.
    fn held(&self, paths: &Paths) -> Result<Option<Access>> {
        let record = open_carefully(&paths.token).map(|record| range::held_as(&record)).transpose();
        let held = record.map_err(|error| failure("look at the token record", &paths.token, error))?;
        held.flatten().map_or_else(|| self.table.held(paths), |access| Ok(Some(access)))
    }

    /// The tokens of all who have the lock, as far as an onlooker can tell.
    pub(crate) fn held_tokens(&self, paths: &Paths) -> Result<Vec<FencingToken>> {
        Ok(match self.held(paths)? {
            Some(Access::Read) => readers_of(paths)?.into_iter().filter_map(|line| line.token).collect(),
            Some(Access::Write) => {
                let record = TokenRecord::at(&paths.token).unwrap_or_default();
                line_of(paths, &record).map(|line| line.token).into_iter().collect()
            }
            None => Vec::new(),
        })
    }

    /// Those who wait to have the lock alone.
    fn waiters(&self, paths: &Paths) -> Result<Vec<Waiter>> {
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        let (ours, others): (Vec<_>, Vec<_>) =
            self.table.waiters(paths)?.into_iter().partition(|pid| *pid == own);
        let ours = ours.into_iter().take(queue::waiting(paths));
        Ok(others.into_iter().chain(ours).map(describe).collect())
    }

    /// The names of all locks, by either of their files: a cleaner may have removed one.
    pub(crate) fn names(&self) -> Result<Vec<LockName>> {
        let path = self.directory.path();
        let entries = std::fs::read_dir(path)
            .map_err(|error| failure("list the directory of the locks", path, error))?;
        let files = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let spelled = files.filter_map(|file| {
            file.strip_suffix(".lock").or_else(|| file.strip_suffix(".tok")).map(ToOwned::to_owned)
        });
        let spelled: BTreeSet<String> = spelled.collect();
        let mut names: Vec<_> = spelled.iter().filter_map(|spelled| self.name_of(spelled)).collect();
        names.sort();
        Ok(names)
    }

    /// The name behind a file: from the holder's line, since a long name's spelling is a hash, else spelled back.
    fn name_of(&self, spelled: &str) -> Option<LockName> {
        let line = HolderLine::read(&self.directory.path().join(format!("{spelled}.lock")));
        let written = line.map(|line| line.name).filter(|name| name.canonical() == spelled);
        written.or_else(|| {
            let name = percent_encoding::percent_decode_str(spelled).decode_utf8().ok()?;
            name.parse().ok().filter(|name: &LockName| name.canonical() == spelled)
        })
    }
}

fn readers_of(paths: &Paths) -> Result<Vec<SlotLine>> {
    readers::seen(paths).map_err(|error| failure("look at the lock's readers", &paths.readers(), error))
}

/// The line of who has the lock alone. One of another grant is one that a full disk left there; nothing is known then of the present
/// holder.
fn line_of(paths: &Paths, record: &TokenRecord) -> Option<HolderLine> {
    HolderLine::read(&paths.lock).filter(|line| line.holder.to_bytes() == record.holder)
}

fn reader(line: SlotLine) -> Option<Reader> {
    let SlotLine { holder, label, token, since_micros, .. } = line;
    let (label, since_micros) = (Some(label), Some(since_micros));
    Some(Reader { holder, label, token: token?, since_micros, remaining: None })
}

fn waiter(line: SlotLine) -> Waiter {
    let SlotLine { holder, label, since_micros, .. } = line;
    Waiter { holder: Some(holder), label: Some(label), since_micros: Some(since_micros) }
}
