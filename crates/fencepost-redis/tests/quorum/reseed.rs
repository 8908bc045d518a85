//! How a client gives a node its floor: it reads the node, then the others, and then names the incarnation that it read.

use fencepost_core::FencingToken;
use fencepost_redis::quorum::{Basis, Decision, Reading, Seed, decide};

use crate::client::{Client, Timer};
use crate::clock::MS;
use crate::scenario::Flaw;
use crate::tally::Count;
use crate::world::{Ask, Stage};

pub(crate) struct Reseed {
    serial: u32,
    node: usize,
    /// The incarnation that waits for its floor, once it is known. Only then are the others read.
    incarnation: Option<u32>,
    readings: Vec<Reading>,
}

impl Client {
    pub(crate) fn begin_reseed(&mut self, stage: &mut Stage, node: usize) {
        if self.reseed.is_some() {
            return;
        }
        self.serial += 1;
        let readings = vec![Reading::Unreachable; stage.quorum.nodes()];
        self.reseed = Some(Reseed { serial: self.serial, node, incarnation: None, readings });
        stage.send(self.number, node, Ask::Read { serial: self.serial });
        stage.wake(stage.now + 100 * MS, self.number, Timer::Reseed(self.serial));
    }

    pub(crate) fn hear_reading(
        &mut self,
        stage: &mut Stage,
        node: usize,
        serial: u32,
        reading: Reading,
        incarnation: u32,
    ) {
        let Some(reseed) = self.reseed.as_mut().filter(|reseed| reseed.serial == serial) else { return };
        if node == reseed.node && reseed.incarnation.is_none() {
            reseed.readings[node] = reading;
            reseed.incarnation = Some(incarnation);
            for other in (0..stage.quorum.nodes()).filter(|other| *other != node) {
                stage.send(self.number, other, Ask::Read { serial });
            }
        } else if node != reseed.node && reseed.incarnation.is_some() {
            reseed.readings[node] = reading;
        }
    }

    pub(crate) fn decide_seed(&mut self, stage: &mut Stage, serial: u32) {
        let Some(reseed) = self.reseed.take_if(|reseed| reseed.serial == serial) else { return };
        let decision = decision(stage, &reseed);
        stage.trace(|| format!("client {}: {decision:?} for node {}", self.number, reseed.node));
        let (Decision::Seed(seed), Some(incarnation)) = (decision, reseed.incarnation) else { return };
        stage.tally.count(match seed.basis {
            Basis::Witnesses => Count::SeededByWitnesses,
            Basis::WallClock => Count::SeededByWallClock,
        });
        let floor = seed.floor.map_or(0, FencingToken::get);
        stage.send(self.number, reseed.node, Ask::Seed { incarnation, floor });
    }
}

fn decision(stage: &Stage, reseed: &Reseed) -> Decision {
    let decision = decide(stage.quorum, reseed.node, &reseed.readings);
    match (stage.scenario.flaw, decision) {
        (Flaw::SeedsNever, _) => Decision::Wait,
        (Flaw::SeedsNothing, Decision::Seed(seed)) => Decision::Seed(Seed { floor: None, ..seed }),
        (Flaw::SeedsTooSoon, Decision::Wait) => decide_too_soon(stage, &reseed.readings),
        _ => decision,
    }
}

fn decide_too_soon(stage: &Stage, readings: &[Reading]) -> Decision {
    let is_quarantined = |reading: &Reading| matches!(reading, Reading::Quarantined { .. });
    let answering = readings.iter().filter(|reading| **reading != Reading::Unreachable).count();
    if answering < stage.quorum.majority() || readings.iter().any(is_quarantined) {
        return Decision::Wait;
    }
    let max = |reading: &Reading| match reading {
        Reading::Ready { max } | Reading::Unseeded { max } => *max,
        _ => None,
    };
    Decision::Seed(Seed { floor: readings.iter().filter_map(max).max(), basis: Basis::WallClock })
}
