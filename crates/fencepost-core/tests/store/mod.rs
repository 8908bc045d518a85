//! The memory backend, with a network in front of it that fails as told and counts what it is asked.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{
    AcquireRequest, Backend, Claim, Clock, Error, ErrorKind, Examination, FencingToken, Handover, HolderId,
    LockName, LockState, MemoryBackend, Mode, NamePrefix, Profile, Renewal, Result, Revoked, Wait,
};
use futures_util::stream::{self, BoxStream, StreamExt};

/// What becomes of signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signals {
    Healthy,
    /// The store pushes none.
    None,
    /// None comes through.
    Silent,
    /// The stream ends at once.
    Ended,
    Endless,
}

/// A store that fails as told. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    healthy: MemoryBackend,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    signals: Signals,
    fails: bool,
    hangs: bool,
    takes: Duration,
    looks: usize,
    asked: usize,
}

impl Store {
    pub(crate) fn new(clock: Clock) -> Self {
        let state = State {
            signals: Signals::Healthy,
            fails: false,
            hangs: false,
            takes: Duration::ZERO,
            looks: 0,
            asked: 0,
        };
        Self { healthy: MemoryBackend::new(clock), state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn set(&self, signals: Signals) {
        self.state.lock().unwrap().signals = signals;
    }

    pub(crate) fn fail(&self, fails: bool) {
        self.state.lock().unwrap().fails = fails;
    }

    pub(crate) fn hang(&self, hangs: bool) {
        self.state.lock().unwrap().hangs = hangs;
    }

    /// How long a look takes.
    pub(crate) fn slow(&self, takes: Duration) {
        self.state.lock().unwrap().takes = takes;
    }

    /// How often it was looked at.
    pub(crate) fn looks(&self) -> usize {
        self.state.lock().unwrap().looks
    }

    /// How often it was asked for signals.
    pub(crate) fn asked(&self) -> usize {
        self.state.lock().unwrap().asked
    }
}

/// A request below the level of leases, where nothing renews.
pub(crate) fn request(clock: &Clock, name: &str, wait: Wait, ttl: Duration) -> AcquireRequest {
    AcquireRequest {
        name: name.parse().unwrap(),
        holder: HolderId::draw(clock),
        label: "a test".to_owned(),
        ttl,
        at_least: None,
        mode: Mode::Exclusive,
        beside: Vec::new(),
        wait,
        observer: None,
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.healthy.fmt(f)
    }
}

#[async_trait]
impl Backend for Store {
    fn profile(&self) -> &Profile {
        self.healthy.profile()
    }

    fn clock(&self) -> &Clock {
        self.healthy.clock()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Box<dyn Claim>> {
        self.healthy.acquire(request).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState> {
        self.healthy.inspect(name).await
    }

    async fn list(&self, prefix: &NamePrefix) -> Result<Vec<LockState>> {
        let (fails, hangs, takes) = {
            let mut state = self.state.lock().unwrap();
            state.looks += 1;
            (state.fails, state.hangs, state.takes)
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        let states = self.healthy.list(prefix).await;
        self.clock().sleep(takes).await;
        if fails { Err(Error::new(ErrorKind::Unavailable, "list the locks", "a test")) } else { states }
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, reason: &str) -> Result<Revoked> {
        self.healthy.revoke(name, token, reason).await
    }

    async fn lift(&self, name: &LockName, to: FencingToken) -> Result<()> {
        self.healthy.lift(name, to).await
    }

    async fn renew(&self, handover: &Handover, ttl: Duration) -> Result<Renewal> {
        self.healthy.renew(handover, ttl).await
    }

    async fn give_back(&self, handover: &Handover) -> Result<()> {
        self.healthy.give_back(handover).await
    }

    async fn logbook(&self, name: &LockName) -> Result<Option<Vec<u8>>> {
        self.healthy.logbook(name).await
    }

    async fn signals(&self, prefix: &NamePrefix) -> Result<Option<BoxStream<'static, ()>>> {
        let signals = {
            let mut state = self.state.lock().unwrap();
            state.asked += 1;
            state.signals
        };
        Ok(match signals {
            Signals::Healthy => self.healthy.signals(prefix).await?,
            Signals::None => None,
            Signals::Silent => Some(stream::pending().boxed()),
            Signals::Ended => Some(stream::empty().boxed()),
            Signals::Endless => Some(stream::repeat(()).boxed()),
        })
    }

    async fn examine(&self) -> Result<Examination> {
        self.healthy.examine().await
    }
}
