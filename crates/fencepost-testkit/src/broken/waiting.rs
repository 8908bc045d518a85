//! The wrong ways to acquire and to wait.
//!
//! Waiters that the healthy backend does not know are noted here, so that an onlooker sees them as it should.

use std::time::Duration;

use fencepost_core::{AcquireRequest, Backend, Claim, ErrorKind, Result, Wait};
use futures_channel::oneshot;

use super::claim::FalseClaim;
use super::{Broken, Defect, contended};

/// Longer than any case waits for a waiter to be woken.
const LONG: Duration = Duration::from_secs(10);

impl Broken {
    pub(super) async fn acquire_somehow(&self, request: &AcquireRequest) -> Result<Box<dyn Claim>> {
        match self.defect() {
            Defect::GrantsWhileHeld => self.grant_anyway(request).await,
            Defect::GivesUpUntried => {
                let is_over = matches!(request.wait, Wait::Until(at) if at <= self.now());
                if is_over { Err(contended()) } else { self.healthy().acquire(request).await }
            }
            Defect::SleepsThroughReleases => self.wait_in_line(request, LONG, |_, _| true).await,
            Defect::ServesTheLastFirst => {
                self.wait_in_line(request, Duration::from_millis(1), |place, waiters| place + 1 == waiters)
                    .await
            }
            Defect::KeepsWaiters => self.acquire_and_leave_a_trace(request).await,
            Defect::KeepsDroppedGrants => self.acquire_in_the_background(request).await,
            _ => self.healthy().acquire(request).await,
        }
    }

    async fn grant_anyway(&self, request: &AcquireRequest) -> Result<Box<dyn Claim>> {
        let now = AcquireRequest { wait: Wait::No, ..request.clone() };
        match self.healthy().acquire(&now).await {
            Err(error) if error.kind() == ErrorKind::Contended => {
                Ok(Box::new(FalseClaim::new(request, self.clock())))
            }
            outcome => outcome,
        }
    }

    /// Tries again every `pause`, when `has_turn` says so of its place among the waiters.
    async fn wait_in_line(
        &self,
        request: &AcquireRequest,
        pause: Duration,
        has_turn: fn(usize, usize) -> bool,
    ) -> Result<Box<dyn Claim>> {
        let give_up_at = request.wait.give_up_at(self.now());
        let now = AcquireRequest { wait: Wait::No, ..request.clone() };
        let _place = Place::new(self, request);
        loop {
            let (place, waiters) = self.place(request);
            if has_turn(place, waiters) {
                match self.healthy().acquire(&now).await {
                    Err(error) if error.kind() == ErrorKind::Contended => {}
                    outcome => return outcome,
                }
            }
            let next = self.now().after(pause);
            let next = give_up_at.map_or(next, |at| at.min(next));
            if self.now() >= next {
                return Err(contended());
            }
            self.clock().sleep_until(next).await;
        }
    }

    fn place(&self, request: &AcquireRequest) -> (usize, usize) {
        let notes = self.notes();
        let mut waiters = notes.waiters.iter().filter(|(name, _)| *name == request.name);
        let place = waiters.clone().position(|(_, holder)| *holder == request.holder).unwrap_or(0);
        (place, waiters.by_ref().count())
    }

    async fn acquire_and_leave_a_trace(&self, request: &AcquireRequest) -> Result<Box<dyn Claim>> {
        let now = AcquireRequest { wait: Wait::No, ..request.clone() };
        if let Ok(claim) = self.healthy().acquire(&now).await {
            return Ok(claim);
        }
        let place = Place::new(self, request);
        // Whoever gives up or is dropped stays in the notes.
        let place = std::mem::ManuallyDrop::new(place);
        let claim = self.healthy().acquire(request).await?;
        drop(std::mem::ManuallyDrop::into_inner(place));
        Ok(claim)
    }

    async fn acquire_in_the_background(&self, request: &AcquireRequest) -> Result<Box<dyn Claim>> {
        let (sender, claim) = oneshot::channel();
        let (broken, request) = (self.clone(), request.clone());
        self.clock().spawn(async move {
            // The claim of a call that was dropped meanwhile is forgotten, and so is the lock.
            if let Err(Ok(claim)) = sender.send(broken.healthy().acquire(&request).await) {
                std::mem::forget(claim);
            }
        });
        claim.await.unwrap_or_else(|_| Err(contended()))
    }
}

/// A waiter in the notes.
struct Place<'a> {
    broken: &'a Broken,
    request: &'a AcquireRequest,
}

impl<'a> Place<'a> {
    fn new(broken: &'a Broken, request: &'a AcquireRequest) -> Self {
        broken.notes().waiters.push((request.name.clone(), request.holder));
        Self { broken, request }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.broken.notes().waiters.retain(|(_, holder)| *holder != self.request.holder);
    }
}
