//! A lock server of these tests: the memory backend behind a socket, so that several processes share it.
//!
//! It keeps the rule for every server: a wait yields a reservation, and only the claim of a client that still lives
//! makes it a hold. Invariant: a client that is stopped blocks no other.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencepost_core::{
    AcquireRequest, Backend, Claim, Clock, Error, Expiry, Handover, HolderId, LossReason, MemoryBackend,
    NamePrefix, Raced, Revoked, race, until,
};
use fencepost_testkit::block_on;
use fencepost_testkit::broken::{Broken, Defect};
use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_channel::oneshot;
use futures_util::StreamExt;
use tempfile::TempDir;

use crate::wire;

/// How long a reservation is kept for a client that does not claim it.
const CLAIM_WITHIN: Duration = Duration::from_millis(500);

/// The ttl inside the server of a lease that does not run out.
const NEVER: Duration = Duration::from_hours(24);

/// Why a look or a revocation does not fail.
const MEMORY: &str = "memory is always there";

/// What can be wrong with the server itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misdeed {
    None,
    /// It does not notice that a client is gone.
    KeepsTheDead,
    /// It keeps a reservation for a client that does not claim it.
    WaitsForTheStopped,
    /// It confirms a grant without beginning the lease anew.
    ConfirmsOldGrants,
    /// A release frees the lock although a descriptor is open.
    ReleasesTooMuch,
    /// It takes the lock away from whoever is silent for a while.
    EndsTheSilent,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    directory: TempDir,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    backend: Arc<dyn Backend>,
    expiry: Expiry,
    misdeed: Misdeed,
    has_ended: AtomicBool,
    /// What is dropped when the descriptor of a hold is closed.
    holds: Mutex<HashMap<HolderId, oneshot::Sender<()>>>,
}

impl Server {
    pub(crate) fn start(expiry: Expiry, defect: Option<Defect>, misdeed: Misdeed) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let memory: Arc<dyn Backend> = Arc::new(MemoryBackend::new(Clock::system()));
        let backend = match defect {
            Some(defect) => Arc::new(Broken::new(memory, defect)),
            None => memory,
        };
        let (has_ended, holds) = (AtomicBool::new(false), Mutex::default());
        let shared = Arc::new(Shared { backend, expiry, misdeed, has_ended, holds });
        let listener = UnixListener::bind(socket_in(directory.path())).expect("the directory is new");
        let listening = Arc::clone(&shared);
        std::thread::spawn(move || listening.listen(&listener));
        Self { directory, shared }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        socket_in(self.directory.path())
    }
}

fn socket_in(directory: &Path) -> PathBuf {
    directory.join("socket")
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Release);
        // Wakes the listener.
        drop(UnixStream::connect(self.socket()));
    }
}

impl Shared {
    fn listen(self: &Arc<Self>, listener: &UnixListener) {
        for stream in listener.incoming() {
            if self.has_ended.load(Ordering::Acquire) {
                return;
            }
            let (server, stream) = (Arc::clone(self), stream.expect("a listener accepts"));
            std::thread::spawn(move || server.serve(stream));
        }
    }

    fn serve(&self, mut stream: UnixStream) {
        let mut reader = BufReader::new(stream.try_clone().expect("there are descriptors left"));
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        match wire::fields(&line)[..] {
            ["acquire", ref request @ ..] => {
                let (sender, lines) = unbounded();
                std::thread::spawn(move || pass_on(reader, &sender));
                let client = Client { server: self, stream, lines, closed: None };
                block_on(client.serve(wire::read_acquire(request)));
            }
            ["hold", holder] => {
                // Nothing comes but the end, when the last duplicate of the descriptor is closed.
                drop(reader.read_line(&mut String::new()));
                drop(self.holds().remove(&wire::read(holder)));
            }
            ref request => drop(stream.write_all(block_on(self.answer(request)).as_bytes())),
        }
    }

    async fn answer(&self, request: &[&str]) -> String {
        match *request {
            ["inspect", name] => {
                let state = self.backend.inspect(&wire::read(name)).await.expect(MEMORY);
                self.told(state)
            }
            ["list", prefix] => {
                let states = self.backend.list(&NamePrefix::new(prefix)).await.expect(MEMORY);
                let states: String = states.into_iter().map(|state| self.told(state)).collect();
                states + "end\n"
            }
            ["revoke", token, reason, name] => {
                let revoked = self.backend.revoke(&wire::read(name), wire::read(token), reason).await;
                wire::line(&[if revoked.expect(MEMORY) == Revoked::Done { "done" } else { "not current" }])
            }
            ["lift", to, name] => wire::done(self.backend.lift(&wire::read(name), wire::read(to)).await),
            ["give back", holder, token, name] => {
                let (lock, holder, token) = (wire::read(name), wire::read(holder), wire::read(token));
                let handover = Handover { lock, holder, token, detail: None };
                wire::done(self.backend.give_back(&handover).await)
            }
            _ => panic!("{request:?} is no request"),
        }
    }

    fn holds(&self) -> MutexGuard<'_, HashMap<HolderId, oneshot::Sender<()>>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self, mut state: fencepost_core::LockState) -> String {
        if self.expiry == Expiry::WithProcess && state.holder.is_some() {
            state.remaining = None;
        }
        wire::state(&state)
    }
}

fn pass_on(mut reader: BufReader<UnixStream>, lines: &UnboundedSender<String>) {
    loop {
        let mut line = String::new();
        let is_over = reader.read_line(&mut line).unwrap_or(0) == 0;
        if is_over || lines.unbounded_send(line).is_err() {
            return;
        }
    }
}

/// A client that asked for a lock. It is gone when its lines end, or when the descriptor of its hold is closed.
struct Client<'a> {
    server: &'a Shared,
    stream: UnixStream,
    lines: UnboundedReceiver<String>,
    closed: Option<oneshot::Receiver<()>>,
}

impl Client<'_> {
    async fn serve(mut self, mut request: AcquireRequest) {
        if self.server.expiry == Expiry::WithProcess {
            request.ttl = NEVER;
        }
        let acquiring = self.server.backend.acquire(&request);
        let mut claim = match race(acquiring, self.next_line()).await {
            Raced::First(Ok(claim)) => claim,
            Raced::First(Err(error)) => return self.tell(&wire::error("error", &error)),
            Raced::Second(_) => return,
        };
        if self.server.expiry == Expiry::WithProcess {
            let (close, closed) = oneshot::channel();
            self.server.holds().insert(request.holder, close);
            self.closed = Some(closed);
        }
        let token = claim.grant().token.to_string();
        let ttl = claim.grant().ttl.expect("leases in memory run out").as_nanos().to_string();
        self.tell(&wire::line(&["granted", &token, &ttl]));
        if self.is_claimed(&mut *claim).await {
            self.tell("claimed\n");
            self.keep(claim).await;
        } else {
            drop(claim.release().await);
            let error = Error::lost(LossReason::Expired, "it was not claimed in time");
            self.tell(&wire::error("error", &error));
        }
    }

    fn tell(&mut self, line: &str) {
        // A client that is gone is noticed when it says nothing more.
        drop(self.stream.write_all(line.as_bytes()));
    }

    /// The client counts its lease from when it claims it, so the lease begins anew then.
    async fn is_claimed(&mut self, claim: &mut dyn Claim) -> bool {
        let clock = self.server.backend.clock();
        let is_patient = matches!(self.server.misdeed, Misdeed::WaitsForTheStopped | Misdeed::KeepsTheDead);
        let limit = if is_patient { NEVER } else { CLAIM_WITHIN };
        let line = until(clock, Some(clock.now().after(limit)), self.next_line()).await.flatten();
        let begins_anew = self.server.misdeed == Misdeed::ConfirmsOldGrants || claim.renew().await.is_ok();
        begins_anew && line.is_some_and(|line| line == "claim\n")
    }

    async fn keep(&mut self, mut claim: Box<dyn Claim>) {
        let (mut is_lost, mut wants_release) = (false, false);
        loop {
            let lost = claim.lost();
            let lost = async { if is_lost { std::future::pending().await } else { lost.await } };
            let line = match race(lost, self.next_line()).await {
                Raced::First(error) => {
                    is_lost = true;
                    self.tell(&wire::error("lost", &error));
                    continue;
                }
                Raced::Second(line) => line,
            };
            match line.as_deref().map(wire::fields).as_deref() {
                Some(["renew", number]) => match claim.renew().await {
                    Ok(_) => self.tell(&wire::line(&["renewed", number])),
                    Err(error) => self.tell(&wire::error("refused", &error)),
                },
                Some(["release"]) if self.frees_at_once() => return self.release(claim).await,
                Some(["release"]) => wants_release = true,
                None if wants_release => return self.release(claim).await,
                _ => return self.end_without_release(claim).await,
            }
        }
    }

    /// What the client says; `None` when it is gone.
    async fn next_line(&mut self) -> Option<String> {
        let keeps_the_dead = self.server.misdeed == Misdeed::KeepsTheDead;
        let (lines, closed) = (&mut self.lines, &mut self.closed);
        let has_descriptor = closed.is_some();
        let is_closed = async {
            match closed {
                Some(closed) => drop(closed.await),
                None => std::future::pending().await,
            }
        };
        let said = async {
            match lines.next().await {
                None if has_descriptor || keeps_the_dead => std::future::pending().await,
                line => line,
            }
        };
        let clock = self.server.backend.clock();
        let ends_the_silent = has_descriptor && self.server.misdeed == Misdeed::EndsTheSilent;
        let limit = ends_the_silent.then(|| clock.now().after(CLAIM_WITHIN));
        match until(clock, limit, race(is_closed, said)).await? {
            Raced::First(()) => None,
            Raced::Second(line) => line,
        }
    }

    fn frees_at_once(&self) -> bool {
        self.server.expiry == Expiry::AfterTtl || self.server.misdeed == Misdeed::ReleasesTooMuch
    }

    async fn release(&mut self, claim: Box<dyn Claim>) {
        let released = wire::done(claim.release().await);
        self.tell(&released);
    }

    async fn end_without_release(&mut self, claim: Box<dyn Claim>) {
        // The descriptor may be seen to be closed before the word that it will be.
        let clock = self.server.backend.clock();
        let word = until(clock, Some(clock.now().after(CLAIM_WITHIN)), self.lines.next()).await;
        let has_said_so = word.flatten().is_some();
        match self.server.expiry {
            Expiry::WithProcess if has_said_so || self.server.misdeed != Misdeed::KeepsTheDead => {
                self.release(claim).await;
            }
            // The claim in memory is left to run out, as after a crash.
            _ => drop(claim),
        }
    }
}
