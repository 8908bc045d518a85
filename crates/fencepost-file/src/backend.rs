//! The backend: acquiring, looking, lifting.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{
    AcquireRequest, Backend, BackendUrl, Claim, Clock, Connections, Error, ErrorKind, Examination, Expiry,
    FencingToken, Grant, Handover, LockName, LockState, Loss, LossReason, Moment, NamePrefix, Profile,
    Renewal, Result, Revoked, Scope, Status, Timing, Tokens, Wait, Waiting, until,
};

use crate::claim::FileClaim;
use crate::directory::{Directory, Paths, failure, remove};
use crate::examine::{Purpose, examine};
use crate::hold::Hold;
use crate::logbook;
use crate::queue;
use crate::record::{CHANGE_LEAST, CHANGE_MOST, HolderLine, TokenRecord, exclusively};
use crate::revocation;
use crate::table::{LockTable, describe};

/// What the file backend promises.
pub const PROFILE: Profile = Profile::weakest("file")
    .expiry(Expiry::WithProcess)
    .waiting(Waiting::Notified)
    .loss(Loss::Pushed)
    .scope(Scope::Host)
    .timing(Timing::Untimed)
    .outlives_sessions()
    .rests()
    .keeps_logbook()
    .revocable()
    .longest_ttl(None)
    .costs(0, 0, Connections::None);

/// A waiter of another process that gave up may hold the lock for an instant, so a try that must not wait tries twice.
const SECOND_TRY_AFTER: Duration = Duration::from_millis(1);

/// Locks in a directory of this host.
#[derive(Clone, Debug)]
pub struct FileBackend {
    directory: Directory,
    clock: Clock,
    profile: Profile,
    durable: bool,
    expires: bool,
}

impl FileBackend {
    /// The backend of `file:`, `file:/directory` and `file:/directory?fsync=on`. Touches nothing yet.
    ///
    /// # Errors
    /// `InvalidArgument` when the directory is not an absolute path or an option is not known.
    pub fn from_url(url: &BackendUrl, clock: Clock) -> Result<Self> {
        url.accept_options(&["fsync", "test_ttl"])?;
        let sync = url.switch("fsync", false)?;
        let tokens = if sync { Tokens::Durable } else { Tokens::WhileDataSurvives };
        Ok(Self {
            directory: Directory::of(url)?,
            clock,
            profile: PROFILE.tokens(tokens),
            durable: sync,
            expires: url.switch("test_ttl", false)?,
        })
    }

    /// The directory, whether or not it exists yet.
    pub fn directory(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    async fn hold(&self, paths: &Paths, wait: Wait, give_up_at: Option<Moment>) -> Result<Hold> {
        if let Some(hold) = Hold::attempt(&self.directory, paths)? {
            return Ok(hold);
        }
        if wait == Wait::No {
            self.clock.sleep(SECOND_TRY_AFTER).await;
            return Hold::attempt(&self.directory, paths)?.ok_or_else(|| contended("it is held"));
        }
        let waited = until(&self.clock, give_up_at, queue::wait(&self.directory, paths)).await;
        waited.unwrap_or_else(|| Err(contended("it was held all the time")))
    }

    /// Makes a claim of a hold, unless the lock rests.
    async fn claim(&self, hold: Hold, paths: &Paths, request: &AcquireRequest) -> Result<Outcome> {
        let limit = self.limit(request.wait);
        let draw = || self.draw(&hold.token, paths, request);
        let drawn = exclusively(&hold.token, &self.clock, limit, draw).await;
        let counted_from = self.clock.now();
        let (token, wall) =
            match drawn.map_err(|error| failure("draw a fencing token", &paths.token, error))? {
                Drawn::Token(token, wall) => (token?, wall),
                Drawn::Rests(rest) => return Ok(Outcome::Rests(counted_from.after(rest))),
            };
        let (name, holder) = (request.name.clone(), request.holder);
        HolderLine::new(name.clone(), token, holder, request.label.clone(), wall).write(&hold.lock);
        let ttl = self.expires.then_some(request.ttl);
        let grant = Grant { name, holder, token, ttl, counted_from, slack: None };
        Ok(Outcome::Granted(FileClaim::new(
            hold,
            grant,
            self.directory.clone(),
            paths.clone(),
            self.clock.clone(),
        )))
    }

    fn draw(&self, file: &File, paths: &Paths, request: &AcquireRequest) -> io::Result<Drawn> {
        let wall = self.clock.wall_micros();
        let mut record = TokenRecord::read(file)?;
        if record.rests_until > wall {
            return Ok(Drawn::Rests(Duration::from_micros(record.rests_until - wall)));
        }
        let token = match FencingToken::following(record.last(), wall) {
            Ok(token) => token,
            Err(exhausted) => return Ok(Drawn::Token(Err(exhausted), wall)),
        };
        record.token = token.get();
        record.holder = request.holder.to_bytes();
        if std::mem::take(&mut record.revoked) > 0 {
            // Where it cannot be removed it harms nobody: it names a token that is over.
            let _ = remove(&paths.revoke());
        }
        record.rests_until = request.at_least.map_or(0, |at_least| wall.saturating_add(micros(at_least)));
        record.write(file)?;
        // A lost write of a token that equals the clock is repaired by the clock; any other must reach the disk.
        if self.durable || token.get() != wall {
            sync(file, &record, paths)?;
        }
        Ok(Drawn::Token(Ok(token), wall))
    }

    /// Until when to wait for another process's change of a record.
    fn limit(&self, wait: Wait) -> Moment {
        let now = self.clock.now();
        let least = now.after(CHANGE_LEAST);
        wait.give_up_at(now).map_or_else(|| now.after(CHANGE_MOST), |at| at.max(least))
    }

    fn state(&self, table: &LockTable, name: LockName) -> Result<LockState> {
        let paths = self.directory.paths(&name);
        let mut state = LockState::free(name);
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        let (ours, others): (Vec<_>, Vec<_>) =
            table.waiters(&paths)?.into_iter().partition(|pid| *pid == own);
        let ours = ours.into_iter().take(queue::waiting(&paths));
        state.waiters = others.into_iter().chain(ours).map(describe).collect();
        let record = TokenRecord::at(&paths.token).unwrap_or_default();
        // A line of another grant is one that a full disk left there; nothing is known then of the present holder.
        let line = HolderLine::read(&paths.lock).filter(|line| line.holder.to_bytes() == record.holder);
        if table.is_held(&paths)? {
            state.status = Status::Held;
            state.since_micros = line.as_ref().and_then(HolderLine::since_micros);
            state.holder = line.as_ref().map(|line| line.holder);
            state.token = line.as_ref().map(|line| line.token);
            state.label = line.map(|line| line.label);
            return Ok(state);
        }
        let rest = record.rests_until.saturating_sub(self.clock.wall_micros());
        if rest > 0 {
            state.status = Status::Resting;
            // A lift may have raised the record since.
            state.token = line.map(|line| line.token).or_else(|| record.last());
            state.remaining = Some(Duration::from_micros(rest));
        }
        Ok(state)
    }

    /// Whether the holder with this token has the lock, as far as an onlooker can tell.
    fn is_held_with(&self, paths: &Paths, record: &TokenRecord, token: FencingToken) -> io::Result<bool> {
        let line = HolderLine::read(&paths.lock).filter(|line| line.holder.to_bytes() == record.holder);
        if line.is_none_or(|line| line.token != token) {
            return Ok(false);
        }
        let table = LockTable::read(&self.directory).map_err(io::Error::other)?;
        table.map_or(Ok(false), |table| table.is_held(paths).map_err(io::Error::other))
    }

    /// The names of all locks, by either of their files: a cleaner may have removed one.
    fn names(&self) -> Result<Vec<LockName>> {
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

/// Puts the record on the disk, and the first time the name that leads to it.
fn sync(file: &File, record: &TokenRecord, paths: &Paths) -> io::Result<()> {
    file.sync_data()?;
    match paths.token.parent().filter(|_| record.is_first()) {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

enum Drawn {
    /// The token, and the wall clock that it was drawn by.
    Token(Result<FencingToken>, u64),
    /// Its last holder asked that it stay taken for so long.
    Rests(Duration),
}

enum Outcome {
    Granted(FileClaim),
    /// Its last holder asked that it stay taken until then.
    Rests(Moment),
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn contended(why: &str) -> Error {
    Error::new(ErrorKind::Contended, "acquire the lock", why)
}

impl fmt::Display for FileBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file:{}", self.directory.path().display())
    }
}

#[async_trait]
impl Backend for FileBackend {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Box<dyn Claim>> {
        self.directory.prepare()?;
        let paths = self.directory.paths(&request.name);
        let give_up_at = request.wait.give_up_at(self.clock.now());
        loop {
            let hold = self.hold(&paths, request.wait, give_up_at).await?;
            let rests_until = match self.claim(hold, &paths, request).await? {
                Outcome::Granted(claim) => return Ok(Box::new(claim)),
                Outcome::Rests(until) => until,
            };
            if give_up_at.is_some_and(|give_up_at| give_up_at < rests_until) {
                self.clock.sleep_until(give_up_at.unwrap_or(rests_until)).await;
                return Err(contended("it rests after its last holder, as that one asked"));
            }
            self.clock.sleep_until(rests_until).await;
        }
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState> {
        let table = LockTable::read(&self.directory)?;
        table.map_or_else(|| Ok(LockState::free(name.clone())), |table| self.state(&table, name.clone()))
    }

    async fn list(&self, prefix: &NamePrefix) -> Result<Vec<LockState>> {
        let Some(table) = LockTable::read(&self.directory)? else { return Ok(Vec::new()) };
        let names = self.names()?.into_iter().filter(|name| prefix.matches(name));
        let mut states = names.map(|name| self.state(&table, name)).collect::<Result<Vec<_>>>()?;
        states.retain(|state| state.status != Status::Free);
        Ok(states)
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, reason: &str) -> Result<Revoked> {
        let paths = self.directory.paths(name);
        let Some(file) = Directory::open_present(&paths.token)? else { return Ok(Revoked::NotCurrent) };
        let revoke = || {
            let mut record = TokenRecord::read(&file)?;
            // Nobody else is granted the lock meanwhile.
            if !self.is_held_with(&paths, &record, token)? {
                return Ok(Revoked::NotCurrent);
            }
            revocation::write(&self.directory, &paths, token, reason, |_| false)?;
            record.revoked = token.get();
            record.rests_until = 0;
            record.write(&file)?;
            Ok(Revoked::Done)
        };
        let revoked = exclusively(&file, &self.clock, self.limit(Wait::Forever), revoke).await;
        revoked.map_err(|error| failure("revoke the lease", &paths.revoke(), error))
    }

    async fn lift(&self, name: &LockName, to: FencingToken) -> Result<()> {
        self.directory.prepare()?;
        let paths = self.directory.paths(name);
        let file = self.directory.open(&paths.token)?;
        let limit = self.limit(Wait::Forever);
        let lifted = exclusively(&file, &self.clock, limit, || {
            let mut record = TokenRecord::read(&file)?;
            if record.token >= to.get() - 1 {
                return Ok(());
            }
            record.token = to.get() - 1;
            record.write(&file)?;
            sync(&file, &record, &paths)
        });
        lifted.await.map_err(|error| failure("lift the fencing token", &paths.token, error))
    }

    async fn renew(&self, _: &Handover, _: Duration) -> Result<Renewal> {
        let what = "a lock in a file ends with the last process of its holder";
        Err(Error::new(ErrorKind::Unsupported, "renew the lease", what))
    }

    async fn give_back(&self, handover: &Handover) -> Result<()> {
        let paths = self.directory.paths(&handover.lock);
        let line = HolderLine::read(&paths.lock);
        let ours = line.is_some_and(|line| (line.token, line.holder) == (handover.token, handover.holder));
        if !ours {
            return Err(
                Error::lost(LossReason::Expired, "it is not held any more").during("release the lock")
            );
        }
        let file = self.directory.open(&paths.lock)?;
        HolderLine::clear(&file).map_err(|error| failure("clear the holder's line", &paths.lock, error))
    }

    async fn logbook(&self, name: &LockName) -> Result<Option<Vec<u8>>> {
        logbook::read(&self.directory.paths(name))
    }

    async fn examine(&self) -> Result<Examination> {
        examine(&self.directory, Purpose::Locks { durable: self.durable })
    }
}
