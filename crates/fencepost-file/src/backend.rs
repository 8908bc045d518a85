//! The backend of one directory: acquiring, looking, lifting, revoking.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{
    AcquireRequest, Backend, BackendUrl, Claim, Clock, Connections, Error, ErrorKind, Examination, Expiry,
    FencingToken, Grant, Handover, LockName, LockState, Loss, LossReason, Mode, Moment, NamePrefix, Profile,
    Renewal, Result, Revoked, Scope, Status, Timing, Tokens, Wait, Waiting, until,
};
use futures_util::stream::BoxStream;

use crate::claim::FileClaim;
use crate::directory::{Directory, Paths, failure, remove};
use crate::examine::{Purpose, examine};
use crate::hold::Hold;
use crate::logbook;
use crate::look::Look;
use crate::queue;
use crate::readers::Slot;
use crate::record::{CHANGE_LEAST, CHANGE_MOST, HolderLine, TokenRecord, exclusively};
use crate::{revocation, signals};

/// What the file backend promises.
pub const PROFILE: Profile = Profile::weakest("file")
    .expiry(Expiry::WithProcess)
    .waiting(Waiting::Notified)
    .loss(Loss::Pushed)
    .scope(Scope::Host)
    .timing(Timing::Untimed)
    .outlives_sessions()
    .revocable()
    .rests()
    .shares()
    .keeps_logbook()
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

    /// Gets both kernel locks. A reader that has to wait takes its slot before, so that it is seen.
    async fn hold(
        &self,
        paths: &Paths,
        request: &AcquireRequest,
        give_up_at: Option<Moment>,
        slot: &mut Option<Slot>,
    ) -> Result<Hold> {
        let attempt = || Hold::attempt(&self.directory, paths, request.mode);
        if let Some(hold) = attempt()? {
            return Ok(hold);
        }
        if request.wait == Wait::No {
            self.clock.sleep(SECOND_TRY_AFTER).await;
            return attempt()?.ok_or_else(|| contended("it is held"));
        }
        if request.mode == Mode::Shared {
            self.slot(paths, request, slot)?.say(None, self.clock.wall_micros());
        }
        let wait = queue::wait(&self.directory, paths, request.mode, &self.clock);
        let waited = until(&self.clock, give_up_at, wait).await;
        waited.unwrap_or_else(|| Err(contended("it was held all the time")))
    }

    /// The slot of a reader, which is taken where it has none yet.
    fn slot<'a>(
        &self,
        paths: &Paths,
        request: &AcquireRequest,
        slot: &'a mut Option<Slot>,
    ) -> Result<&'a mut Slot> {
        let taken = match slot.take() {
            Some(slot) => slot,
            None => Slot::take(&self.directory, paths, request.holder, &request.label)?,
        };
        Ok(slot.insert(taken))
    }

    /// Makes a claim of a hold, unless the lock rests.
    async fn claim(
        &self,
        hold: Hold,
        paths: &Arc<Paths>,
        request: &AcquireRequest,
        slot: &mut Option<Slot>,
    ) -> Result<Outcome> {
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
        let line = HolderLine::new(name.clone(), token, holder, request.label.clone(), wall);
        match request.mode {
            Mode::Exclusive => line.write(&hold.lock, hold.lock_length),
            Mode::Shared => {
                self.slot(paths, request, slot)?.say(Some(token), wall);
                // The name of the lock may be known from here alone.
                if hold.lock_length == 0 {
                    line.write(&hold.lock, 0);
                }
            }
        }
        let ttl = self.expires.then_some(request.ttl);
        let grant = Grant { name, holder, token, ttl, counted_from, slack: None };
        let (directory, paths, clock) = (self.directory.clone(), Arc::clone(paths), self.clock.clone());
        let claim = FileClaim::new(hold, slot.take(), grant, directory, paths, clock);
        Ok(Outcome::Granted(Box::new(claim)))
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
        if request.mode == Mode::Exclusive && std::mem::take(&mut record.revoked) > 0 {
            // Those whom it names are gone. Where it cannot be removed it harms nobody.
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
    Granted(Box<FileClaim>),
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
        let paths = Arc::new(self.directory.paths(&request.name));
        let give_up_at = request.wait.give_up_at(self.clock.now());
        let mut slot = None;
        loop {
            let hold = self.hold(&paths, request, give_up_at, &mut slot).await?;
            let rests_until = match self.claim(hold, &paths, request, &mut slot).await? {
                Outcome::Granted(claim) => return Ok(claim),
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
        let look = Look::at(&self.directory, &self.clock)?;
        look.map_or_else(|| Ok(LockState::free(name.clone())), |look| look.state(name.clone()))
    }

    async fn list(&self, prefix: &NamePrefix) -> Result<Vec<LockState>> {
        let Some(look) = Look::at(&self.directory, &self.clock)? else { return Ok(Vec::new()) };
        let names = look.names()?.into_iter().filter(|name| prefix.matches(name));
        let mut states = names.map(|name| look.state(name)).collect::<Result<Vec<_>>>()?;
        states.retain(|state| state.status != Status::Free);
        Ok(states)
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, reason: &str) -> Result<Revoked> {
        let paths = self.directory.paths(name);
        let Some(file) = Directory::open_present(&paths.token)? else {
            return Ok(Revoked::NotCurrent);
        };
        let revoke = || {
            // Nobody is granted the lock meanwhile.
            let held = match Look::at(&self.directory, &self.clock) {
                Ok(look) => look.map_or(Ok(Vec::new()), |look| look.held_tokens(&paths)),
                Err(error) => Err(error),
            };
            let held = held.map_err(io::Error::other)?;
            if !held.contains(&token) {
                return Ok(Revoked::NotCurrent);
            }
            let is_held = |token| held.contains(&token);
            revocation::write(&self.directory, &paths, token, reason, is_held)?;
            let mut record = TokenRecord::read(&file)?;
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

    async fn signals(&self, _: &NamePrefix) -> Result<Option<BoxStream<'static, ()>>> {
        Ok(signals::of(self.directory.path(), &self.clock))
    }

    async fn examine(&self) -> Result<Examination> {
        examine(&self.directory, Purpose::Locks { durable: self.durable })
    }
}
