//! A claim whose holder keeps the logbook: it writes at the grant and before the release, and passes all else on.
//!
//! Invariant: the period is marked in the store before the holder learns that it may begin, or before its lease is given back; and
//! what cannot be written never keeps a lock from being given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Ended, Logbook, MOST_GRANTS, MarkOn, PastGrant, Period};
use crate::backend::{AcquireRequest, Backend, Claim, Descriptor, Grant, Handover, Renewal, Wait};
use crate::clock::Clock;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::poll::{Raced, race, until};

/// How long the store may take to note how a grant has ended, before the lock is given back.
const NOTE_MOST: Duration = Duration::from_millis(200);

/// How long it may take to note that a period is done.
const MARK_MOST: Duration = Duration::from_secs(5);

/// How long it may take where no deadline bounds it.
const BEGIN_MOST: Duration = Duration::from_secs(30);

/// How long it takes from a grant until the mark is there, as a rule; nothing depends on that.
const BETWEEN_GRANT_AND_MARK: Duration = Duration::from_millis(200);

/// The longest pause between two looks of one who waits.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What is to be written about a grant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    /// What the work is for, and when that counts as done.
    pub(crate) once: Option<(Period, MarkOn)>,
    /// How many grants are kept; zero where none is written down.
    pub(crate) history: u64,
}

/// A claim whose holder keeps the logbook.
#[derive(Debug)]
pub(crate) struct Booked {
    claim: Box<dyn Claim>,
    book: Logbook,
    clock: Clock,
    entries: Entries,
    /// Whether the holder has said that its work is done.
    is_complete: Arc<AtomicBool>,
}

impl Entries {
    pub(crate) fn are_none(&self) -> bool {
        self.once.is_none() && self.history == 0
    }

    /// Gets a claim and writes down that it begins, unless its period is done already, or gets done while this waits.
    pub(crate) async fn claim(&self, backend: &dyn Backend, request: &AcquireRequest) -> Result<Booked> {
        self.refuse_done(backend, request).await?;
        match race(self.done_meanwhile(backend, request), backend.acquire(request)).await {
            Raced::First(done) => Err(done),
            Raced::Second(Err(error)) if error.kind() == ErrorKind::Contended => {
                self.refuse_begun(backend, request).await?;
                Err(error)
            }
            Raced::Second(claim) => self.begin(backend, claim?, request).await,
        }
    }

    async fn refuse_done(&self, backend: &dyn Backend, request: &AcquireRequest) -> Result<()> {
        let Some((period, _)) = &self.once else { return Ok(()) };
        Logbook::read(backend.logbook(&request.name).await?.as_deref())?.refuse_done(period)
    }

    /// Ends when the period gets done while this waits: whoever has begun it holds the lock for as long as its work takes, and
    /// there is nothing to wait for. It only looks, and the place in the queue stays.
    async fn done_meanwhile(&self, backend: &dyn Backend, request: &AcquireRequest) -> Error {
        if self.once.is_none() || request.wait == Wait::No {
            return std::future::pending().await;
        }
        let (clock, mut pause) = (backend.clock(), BETWEEN_GRANT_AND_MARK);
        loop {
            clock.sleep(pause + clock.jitter(pause)).await;
            match self.refuse_done(backend, request).await {
                Err(error) if error.kind() == ErrorKind::AlreadyDone => return error,
                _ => pause = (2 * pause).min(LONGEST_PAUSE),
            }
        }
    }

    /// Refuses a period that has begun, where somebody else holds the lock: or is just about to, between its grant and its mark.
    async fn refuse_begun(&self, backend: &dyn Backend, request: &AcquireRequest) -> Result<()> {
        self.refuse_done(backend, request).await?;
        if let Some((_, MarkOn::Start)) = &self.once {
            backend.clock().sleep(BETWEEN_GRANT_AND_MARK).await;
            self.refuse_done(backend, request).await?;
        }
        Ok(())
    }

    /// Writes down that `claim` begins, unless its period is done already; gives it back if it cannot begin.
    async fn begin(
        &self,
        backend: &dyn Backend,
        claim: Box<dyn Claim>,
        request: &AcquireRequest,
    ) -> Result<Booked> {
        let clock = backend.clock().clone();
        let (entries, is_complete) = (self.clone(), Arc::default());
        let mut beginning =
            Beginning(Some(Booked { claim, book: Logbook::default(), clock, entries, is_complete }));
        let begun = beginning.write(backend, request).await;
        match beginning.0.take() {
            Some(booked) if begun.is_ok() => return Ok(booked),
            Some(booked) => booked.given_back().await,
            None => {}
        }
        Err(begun.err().unwrap_or_else(unanswered))
    }
}

/// A claim that is about to begin, and is given back if nobody waits for that any more.
struct Beginning(Option<Booked>);

impl Beginning {
    async fn write(&mut self, backend: &dyn Backend, request: &AcquireRequest) -> Result<()> {
        match &mut self.0 {
            Some(booked) => booked.begin(backend, request).await,
            None => Err(unanswered()),
        }
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        if let Some(booked) = self.0.take() {
            drop(booked.given_back());
        }
    }
}

impl Booked {
    /// What the holder sets when its work is done.
    pub(crate) fn completion(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_complete)
    }

    /// Gives the lock back in the background, with no entry; for whoever wants to wait for it. What is not given back is bounded by
    /// the ttl.
    fn given_back(self) -> impl Future<Output = ()> {
        let (done, is_done) = oneshot::channel();
        let claim = self.claim;
        self.clock.spawn(async move {
            drop(claim.release().await);
            // Nobody may wait for it.
            let _ = done.send(());
        });
        is_done.map(drop)
    }

    async fn begin(&mut self, backend: &dyn Backend, request: &AcquireRequest) -> Result<()> {
        let grant = self.claim.grant();
        let (token, holder) = (grant.token, grant.holder);
        let deadline = Deadline::of(grant.counted_from, grant.ttl).moment();
        let give_up_at = deadline.unwrap_or_else(|| self.clock.now().after(BEGIN_MOST));
        let read = until(&self.clock, Some(give_up_at), backend.logbook(&request.name)).await;
        self.book = Logbook::read(read.unwrap_or_else(|| Err(unanswered()))?.as_deref())?;
        if let Some((period, mark_on)) = &self.entries.once {
            self.book.refuse_done(period)?;
            if *mark_on == MarkOn::Start {
                self.book.last_period = Some(period.as_str().to_owned());
            }
        }
        if self.entries.history > 0 {
            let (label, from_micros) = (request.label.clone(), self.clock.wall_micros());
            let most = usize::try_from(self.entries.history.min(MOST_GRANTS)).unwrap_or(usize::MAX);
            let grant = PastGrant { token, holder, label, from_micros, to_micros: None, ended: None };
            self.book.note(grant, most);
        }
        if matches!(self.entries, Entries { once: Some((_, MarkOn::Success)), history: 0 }) {
            return Ok(());
        }
        let content = self.book.written();
        let written = until(&self.clock, Some(give_up_at), self.claim.write_logbook(&content)).await;
        written.unwrap_or_else(|| Err(unanswered()))
    }

    /// Writes down how the grant has ended. Only what must not be missing is an error.
    async fn end(&mut self) -> Result<()> {
        let is_complete = self.is_complete.load(Ordering::Acquire);
        let mut must = false;
        if let Some((period, MarkOn::Success)) = &self.entries.once
            && is_complete
        {
            self.book.last_period = Some(period.as_str().to_owned());
            must = true;
        }
        let ended = if is_complete { Ended::Completed } else { Ended::Released };
        self.book.note_end(self.claim.grant().token, self.clock.wall_micros(), ended);
        if !must && self.entries.history == 0 {
            return Ok(());
        }
        let give_up_at = self.clock.now().after(if must { MARK_MOST } else { NOTE_MOST });
        let content = self.book.written();
        let written = until(&self.clock, Some(give_up_at), self.claim.write_logbook(&content)).await;
        match written.unwrap_or_else(|| Err(unanswered())) {
            Err(error) if must => Err(error.during("mark the period as done")),
            _ => Ok(()),
        }
    }
}

fn unanswered() -> Error {
    Error::new(ErrorKind::Indeterminate, "write the logbook", "the store did not answer in time")
}

#[async_trait]
impl Claim for Booked {
    fn grant(&self) -> &Grant {
        self.claim.grant()
    }

    async fn renew(&mut self) -> Result<Renewal> {
        self.claim.renew().await
    }

    async fn write_logbook(&mut self, content: &[u8]) -> Result<()> {
        self.claim.write_logbook(content).await
    }

    fn lost(&self) -> BoxFuture<'static, Error> {
        self.claim.lost()
    }

    fn descriptors(&self) -> Vec<Descriptor> {
        self.claim.descriptors()
    }

    fn handover(&self) -> Option<Handover> {
        self.claim.handover()
    }

    fn detach(self: Box<Self>) {
        self.claim.detach();
    }

    async fn release(mut self: Box<Self>) -> Result<()> {
        let noted = self.end().await;
        self.claim.release().await.and(noted)
    }
}
