//! Claims with a defect, and the claim that no store has granted.

use async_trait::async_trait;
use fencepost_core::{AcquireRequest, Claim, Clock, Descriptor, Error, Grant, Handover, Renewal, Result};
use futures_util::future::BoxFuture;

use super::{Broken, Defect, token};

/// A claim of a [`Broken`] backend.
#[derive(Debug)]
pub(super) struct BrokenClaim {
    broken: Broken,
    healthy: Box<dyn Claim>,
    grant: Grant,
}

impl BrokenClaim {
    /// The claim `healthy`, told as `grant`.
    pub(super) fn new(broken: Broken, healthy: Box<dyn Claim>, grant: Grant) -> Self {
        Self { broken, healthy, grant }
    }
}

#[async_trait]
impl Claim for BrokenClaim {
    fn grant(&self) -> &Grant {
        &self.grant
    }

    async fn renew(&mut self) -> Result<Renewal> {
        let false_renewal = Renewal { ttl: self.grant.ttl, counted_from: self.broken.now() };
        let renewed = match self.broken.defect() {
            Defect::NeverRenews => return Ok(false_renewal),
            Defect::RevivesLeases | Defect::RevokesSilently => {
                return Ok(self.healthy.renew().await.unwrap_or(false_renewal));
            }
            _ => self.healthy.renew().await?,
        };
        // What is told stays what was told of the grant.
        Ok(Renewal { ttl: self.grant.ttl, ..renewed })
    }

    async fn write_logbook(&mut self, content: &[u8]) -> Result<()> {
        match self.broken.defect() {
            Defect::ForgetsTheLogbook => Ok(()),
            Defect::WritesForAnybody => {
                drop(self.healthy.write_logbook(content).await);
                Ok(())
            }
            _ => self.healthy.write_logbook(content).await,
        }
    }

    fn lost(&self) -> BoxFuture<'static, Error> {
        match self.broken.defect() {
            Defect::RevokesSilently => Box::pin(std::future::pending()),
            _ => self.healthy.lost(),
        }
    }

    fn descriptors(&self) -> Vec<Descriptor> {
        self.healthy.descriptors()
    }

    fn handover(&self) -> Option<Handover> {
        self.healthy.handover()
    }

    fn detach(self: Box<Self>) {
        self.healthy.detach();
    }

    async fn release(self: Box<Self>) -> Result<()> {
        match self.broken.defect() {
            Defect::ForgetsToRelease => {
                std::mem::forget(self.healthy);
                Ok(())
            }
            Defect::ReleasesForAnybody => self.broken.free(&self.grant.name).await,
            _ => self.healthy.release().await,
        }
    }
}

/// A claim on a lock that somebody else holds.
#[derive(Debug)]
pub(super) struct FalseClaim {
    clock: Clock,
    grant: Grant,
}

impl FalseClaim {
    /// What `request` asks for, granted by nobody.
    pub(super) fn new(request: &AcquireRequest, clock: &Clock) -> Self {
        let grant = Grant {
            name: request.name.clone(),
            holder: request.holder,
            token: token(clock.wall_micros()),
            ttl: Some(request.ttl),
            counted_from: clock.now(),
            slack: None,
        };
        Self { clock: clock.clone(), grant }
    }
}

#[async_trait]
impl Claim for FalseClaim {
    fn grant(&self) -> &Grant {
        &self.grant
    }

    async fn renew(&mut self) -> Result<Renewal> {
        Ok(Renewal { ttl: self.grant.ttl, counted_from: self.clock.now() })
    }

    fn lost(&self) -> BoxFuture<'static, Error> {
        Box::pin(std::future::pending())
    }

    fn descriptors(&self) -> Vec<Descriptor> {
        Vec::new()
    }

    fn handover(&self) -> Option<Handover> {
        None
    }

    fn detach(self: Box<Self>) {}

    async fn release(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
