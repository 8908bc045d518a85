//! The whole lab: which cells there are, in which order they are run, and on which servers.
//!
//! Servers are started once for each kind of lock. Those that a fault has struck are not used again, so cells without such a fault
//! come first. Invariant: every pattern under every fault that was asked for gives one cell, in the order in which it was asked.

use std::path::Path;

use fencepost::{BackendUrl, Clock, Error, block_on};

use crate::crew::Program;
use crate::fault::Fault;
use crate::folder::Folder;
use crate::interrupt;
use crate::pattern::{Kind, Pattern};
use crate::report::{Cell, Report};
use crate::scenario::Scenario;
use crate::servers::{self, LockServers, Own};
use crate::system::System;
use crate::watch::Watch;

/// What is to be tried, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The patterns.
    pub patterns: Vec<Pattern>,
    /// The faults.
    pub faults: Vec<Fault>,
    /// From which the schedule of faults follows.
    pub seed: u32,
    /// How often a fault strikes in each cell.
    pub rounds: u32,
    /// How many workers there are in each cell.
    pub workers: usize,
    /// The user's own servers, instead of some that are started.
    pub own: Option<BackendUrl>,
    /// How a worker's process is started.
    pub program: Program,
    /// How a process is started that calls [`sweep`](crate::sweep).
    pub sweeper: Program,
    /// Whether the protected system is a SQLite file also where Postgres is installed.
    pub is_simple: bool,
    /// Leaves out the check of the fence, to see whether the checker notices.
    pub skips_the_check: bool,
}

impl Plan {
    /// Why a pattern cannot be tried under a fault, known before anything is started.
    fn inapplicable(&self, pattern: Pattern, fault: Fault) -> Option<String> {
        if !pattern.kind.is_built_in() {
            return Some(format!("this build of fencepost has no {}", pattern.kind.name()));
        }
        let own = self.own.is_some() && fault.is_of_servers();
        let own = own.then_some("these are your servers, and the lab leaves them alone");
        fault.inapplicable(pattern).or(own).map(ToOwned::to_owned)
    }

    fn applicable(&self) -> usize {
        let faults = |pattern: &Pattern| {
            self.faults.iter().filter(|fault| self.inapplicable(*pattern, **fault).is_none()).count()
        };
        self.patterns.iter().map(faults).sum()
    }
}

/// Why there is no report.
#[derive(Clone, Debug)]
pub enum Stopped {
    /// The user's own servers cannot be used.
    Failed(Error),
    /// Something that the lab itself needs is missing, in words.
    Impossible(String),
    /// It was told to end, by this signal.
    Interrupted(i32),
}

/// Runs the lab.
///
/// It has to be called before the process has a second thread, since it blocks the signals that end a program, and remembers them.
///
/// # Errors
/// Why there is no report.
pub fn run(plan: &Plan, watch: &mut dyn Watch) -> Result<Report, Stopped> {
    interrupt::listen();
    plan.own.as_ref().map_or(Ok(()), probe).map_err(Stopped::Failed)?;
    let began = Clock::system().now();
    let folder = Folder::make(&plan.sweeper).map_err(Stopped::Impossible)?;
    watch.prepares("the protected system");
    let system = System::start(folder.path(), plan.is_simple).map_err(Stopped::Impossible)?;
    let mut lab = Lab { plan, folder: folder.path(), system: &system, begun: 0 };
    let mut cells: Vec<(usize, Cell)> = Vec::new();
    for kind in kinds(plan) {
        cells.extend(lab.cells_of(kind, watch));
    }
    if let Some(signal) = interrupt::number() {
        return Err(Stopped::Interrupted(signal));
    }
    cells.sort_by_key(|(place, _)| *place);
    let cells = cells.into_iter().map(|(_, cell)| cell).collect();
    let took = Clock::system().now().since(began);
    Ok(Report { seed: plan.seed, cells, sink: system.describe().to_owned(), took })
}

/// Looks at a lock that nobody has, on the user's own servers.
fn probe(url: &BackendUrl) -> Result<(), Error> {
    let locks = fencepost::connect_url(url, &Clock::system())?;
    block_on(locks.inspect("fencepost-lab/probe")).map(drop)
}

/// A seed, where nobody has chosen one.
pub fn any_seed() -> u32 {
    let [.., a, b, c, d] = Clock::system().random().to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

struct Lab<'a> {
    plan: &'a Plan,
    folder: &'a Path,
    system: &'a System,
    begun: usize,
}

impl Lab<'_> {
    /// The cells of one kind of lock, each with its place.
    fn cells_of(&mut self, kind: Kind, watch: &mut dyn Watch) -> Vec<(usize, Cell)> {
        let mut servers = None;
        let mut cells = Vec::new();
        for (place, pattern, fault) in tasks(self.plan, kind) {
            if interrupt::has_come() {
                break;
            }
            cells.push((place, self.cell(pattern, fault, &mut servers, watch)));
            if fault.is_of_servers() {
                servers = None;
            }
        }
        cells
    }

    fn cell(
        &mut self,
        pattern: Pattern,
        fault: Fault,
        servers: &mut Option<Result<Box<dyn LockServers>, String>>,
        watch: &mut dyn Watch,
    ) -> Cell {
        if let Some(why) = self.plan.inapplicable(pattern, fault) {
            return Cell::vacuous(pattern, fault, why);
        }
        self.begun += 1;
        watch.begins(self.begun, self.plan.applicable(), &pattern.to_string(), fault.name());
        let started = servers.get_or_insert_with(|| self.start(pattern.kind, watch));
        let outcome = match started {
            Ok(started) => self.scenario(pattern, fault).run(&mut **started, watch),
            Err(why) => Err(why.clone()),
        };
        let cell = outcome.unwrap_or_else(|why| Cell::vacuous(pattern, fault, why));
        watch.ended(&cell);
        cell
    }

    fn start(&self, kind: Kind, watch: &mut dyn Watch) -> Result<Box<dyn LockServers>, String> {
        match &self.plan.own {
            Some(url) if url.kind() == kind.name() => Ok(Box::new(Own::new(url.clone()))),
            _ => {
                watch.prepares(kind.name());
                servers::start(kind, self.folder)
            }
        }
    }

    fn scenario(&self, pattern: Pattern, fault: Fault) -> Scenario<'_> {
        let Plan { seed, rounds, workers, .. } = *self.plan;
        // Nobody else has such a lock, also on servers that others use.
        let own = self.folder.file_name().and_then(|name| name.to_str()).unwrap_or("fencepost-lab");
        Scenario {
            pattern,
            fault,
            seed,
            rounds,
            workers,
            lock: format!("{own}/{pattern}/{fault}"),
            program: &self.plan.program,
            system: self.system,
            skips_the_check: self.plan.skips_the_check,
        }
    }
}

/// The kinds of lock, each once.
fn kinds(plan: &Plan) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = plan.patterns.iter().map(|pattern| pattern.kind).collect();
    kinds.sort();
    kinds.dedup();
    kinds
}

/// What is to be done with the servers of one kind, those last that strike the servers; each with its place in the report.
fn tasks(plan: &Plan, kind: Kind) -> Vec<(usize, Pattern, Fault)> {
    let cells =
        plan.patterns.iter().flat_map(|pattern| plan.faults.iter().map(move |fault| (*pattern, *fault)));
    let numbered = cells.enumerate().map(|(place, (pattern, fault))| (place, pattern, fault));
    let mut tasks: Vec<_> = numbered.filter(|(_, pattern, _)| pattern.kind == kind).collect();
    tasks.sort_by_key(|(_, _, fault)| fault.is_of_servers());
    tasks
}
