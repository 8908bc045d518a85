//! One cell: workers at work under one pattern, struck by one fault as the schedule says, and what the checker makes of it.

use std::time::Duration;

use fencepost::{BackendUrl, Clock, ErrorKind, Status, block_on};

use crate::check::{check, holds};
use crate::crew::{Crew, Program, holds_within};
use crate::fault::Fault;
use crate::history::{History, Record};
use crate::interrupt;
use crate::links::Links;
use crate::pattern::{Kind, Pattern};
use crate::report::Cell;
use crate::schedule::{Strike, strikes};
use crate::servers::LockServers;
use crate::sink::Sink;
use crate::strike::{Effect, Stage};
use crate::system::System;
use crate::watch::Watch;
use crate::worker::Order;

/// What one cell is about, and what it stands on.
pub(crate) struct Scenario<'a> {
    pub(crate) pattern: Pattern,
    pub(crate) fault: Fault,
    pub(crate) seed: u32,
    pub(crate) rounds: u32,
    pub(crate) workers: usize,
    /// The lock, which is the partition as well; nobody else uses it.
    pub(crate) lock: String,
    pub(crate) program: &'a Program,
    pub(crate) system: &'a System,
    /// Whether the fence is sealed and then not asked, to see whether the checker notices.
    pub(crate) skips_the_check: bool,
}

impl Scenario<'_> {
    /// Runs the cell, and judges it.
    ///
    /// # Errors
    /// Why it cannot be run.
    pub(crate) fn run(&self, servers: &mut dyn LockServers, watch: &mut dyn Watch) -> Result<Cell, String> {
        let strikes = strikes(u64::from(self.seed), self.pattern, self.fault, self.rounds);
        let name = self.lock.parse().map_err(in_words)?;
        let mut sink = Sink::open(self.system.url(), &name).map_err(in_words)?;
        sink.prepare(self.system.url()).map_err(in_words)?;
        let mut stage = self.stage(servers, watch)?;
        let effects = self.perform(&mut stage, &strikes);
        let Stage { crew, watch, links, .. } = stage;
        let records = crew.finish(watch);
        drop(links);
        let history = self.history(records, &mut sink, servers)?;
        let cell = Cell {
            tally: check(&history),
            schedule: strikes.iter().map(Strike::to_string).collect(),
            effects,
            history,
            ..Cell::vacuous(self.pattern, self.fault, "")
        };
        Ok(Cell { vacuous: None, ..cell }.judge())
    }

    fn stage<'a>(
        &self,
        servers: &'a mut dyn LockServers,
        watch: &'a mut dyn Watch,
    ) -> Result<Stage<'a>, String> {
        let link = || Links::new(servers, self.system.url(), self.system.address());
        let links: Vec<Links> = (0..self.workers).map(|_| link()).collect();
        let orders = links.iter().enumerate().map(|(worker, links)| self.order(worker, links)).collect();
        let crew = Crew::start(self.program, orders)?;
        let facts = self.pattern.kind.facts();
        Ok(Stage { servers, links, crew, watch, facts })
    }

    fn order(&self, worker: usize, links: &Links) -> Order {
        let has_lock = self.pattern.kind != Kind::None;
        Order {
            worker,
            first_hold: 1,
            backend: has_lock.then(|| links.backend().to_owned()),
            lock: self.lock.clone(),
            ttl_ms: crate::report::millis(self.pattern.kind.facts().ttl),
            sink: links.sink().to_owned(),
            seals: self.pattern.is_fenced,
            shows: self.pattern.is_fenced && !self.skips_the_check,
            computing_ms: COMPUTING_MS,
            sending_ms: SENDING_MS,
        }
    }

    fn perform(&self, stage: &mut Stage<'_>, strikes: &[Strike]) -> Vec<Effect> {
        if strikes.is_empty() {
            let holds = CALM_HOLDS * usize::try_from(self.rounds).unwrap_or(1);
            stage.pass_holds(holds, STARTING + PER_HOLD * u32::try_from(holds).unwrap_or(1));
        }
        let going = strikes.iter().take_while(|_| !interrupt::has_come());
        going.map(|strike| stage.strike(strike)).collect()
    }

    fn history(
        &self,
        records: Vec<Record>,
        sink: &mut Sink,
        servers: &dyn LockServers,
    ) -> Result<History, String> {
        let total = sink.read().map_err(in_words)?.total;
        let rows = sink.rows().map_err(in_words)?;
        let holds = holds(&records);
        let unanswered = holds.iter().flat_map(crate::check::Hold::unanswered);
        let refused_unheard = self.system.refused(&self.lock, unanswered);
        let has_orphan = self.has_orphan(servers);
        Ok(History { records, rows, total, refused_unheard, is_fenced: self.pattern.is_fenced, has_orphan })
    }

    /// Whether somebody still seems to hold the lock when every lease must have ended.
    fn has_orphan(&self, servers: &dyn LockServers) -> bool {
        let url = servers.url(&servers.addresses());
        if url.is_empty() || interrupt::has_come() {
            return false;
        }
        let Ok(locks) =
            url.parse().and_then(|url: BackendUrl| fencepost::connect_url(&url, &Clock::system()))
        else {
            return false;
        };
        let facts = self.pattern.kind.facts();
        !holds_within(facts.ttl * 2 + facts.recovery, || match block_on(locks.inspect(&self.lock)) {
            Ok(state) => state.status != Status::Held,
            Err(error) => error.kind() == ErrorKind::Unsupported,
        })
    }
}

fn in_words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Long enough for a strike to hit a holder at work, and short enough for many holds.
const COMPUTING_MS: u64 = 15;
const SENDING_MS: u64 = 30;
/// Holds of a cell without a fault.
const CALM_HOLDS: usize = 15;
const PER_HOLD: Duration = Duration::from_millis(300);
/// Workers take so long at most until the first of them is at work: a fresh server grants nothing for a while.
const STARTING: Duration = Duration::from_secs(5);
