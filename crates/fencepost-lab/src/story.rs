//! The one experiment that everybody should see, told while it happens: one Redis, and a holder that is stopped for longer than its
//! lease, without and with the fence.

use std::time::Duration;

use crate::fault::Fault;
use crate::history::{Record, Step};
use crate::pattern::{Kind, Pattern};
use crate::report::{Cell, Report};
use crate::run::{Plan, Stopped, run};
use crate::table::folded;
use crate::watch::Watch;
use crate::words::{capitalized, shown, sum};

/// Tells it, line by line. Of the plan, only the seed and the programs count.
///
/// # Errors
/// Those of [`run`], and `Impossible` where the experiment could not be made.
pub fn story(plan: &Plan, tell: &mut dyn FnMut(&str)) -> Result<Report, Stopped> {
    let pattern = |is_fenced| Pattern { kind: Kind::Redis, is_fenced };
    let plan = Plan {
        patterns: vec![pattern(false), pattern(true)],
        faults: vec![Fault::Pause],
        rounds: 1,
        workers: 2,
        own: None,
        is_simple: true,
        ..plan.clone()
    };
    for line in OPENING {
        tell(line);
    }
    let report = run(&plan, &mut Teller { tell, scene: Scene::default() })?;
    if let Some(why) = report.cells.iter().find(|cell| !cell.has_run()).and_then(|cell| cell.vacuous.clone())
    {
        return Err(Stopped::Impossible(why));
    }
    for line in CLOSING {
        tell(line);
    }
    Ok(report)
}

struct Teller<'a> {
    tell: &'a mut dyn FnMut(&str),
    scene: Scene,
}

/// What has been told of one half.
#[derive(Default)]
struct Scene {
    began: Option<u64>,
    tokens: Vec<u64>,
    /// Who was stopped, in which hold, and until when its lease lasts.
    stopped: Option<(usize, u32)>,
    deadline: Option<u64>,
    /// The last deadline of each worker.
    deadlines: [Option<u64>; 2],
    is_over: bool,
}

impl Watch for Teller<'_> {
    fn prepares(&mut self, _: &str) {}

    fn begins(&mut self, number: usize, _: usize, _: &str, _: &str) {
        self.scene = Scene::default();
        let heading = if number == 1 { "1. Without a fence" } else { "2. With the fence" };
        (self.tell)(&format!("\n{heading}\n"));
    }

    fn saw(&mut self, record: &Record) {
        for what in self.scene.lines(record) {
            let began = *self.scene.began.get_or_insert(record.at);
            let at = record.at.saturating_sub(began);
            let seconds = Duration::from_nanos(at).as_secs_f64();
            (self.tell)(&format!("  {seconds:.3} s  {what}"));
        }
    }

    fn strikes(&mut self, _: &str) {}

    fn ended(&mut self, cell: &Cell) {
        (self.tell)("");
        for line in folded(&sum(cell), 76) {
            (self.tell)(&format!("  {line}"));
        }
        if let Some(why) = &cell.vacuous {
            (self.tell)(&format!("  {}.", capitalized(why)));
        }
    }
}

impl Scene {
    /// What is said of a step, if it matters.
    fn lines(&mut self, record: &Record) -> Vec<String> {
        let name = format!("worker {}", record.worker + 1);
        let is_stopped = self.stopped == Some(record.key());
        match &record.step {
            _ if self.is_over => Vec::new(),
            Step::Claimed { token, deadline, .. } => {
                self.note_deadline(record.worker, *deadline);
                self.tokens.extend(token);
                let mut lines: Vec<String> = self.lapse(record.at).into_iter().collect();
                lines.push(format!("{name} gets the lock, with token T{}", self.tokens.len()));
                lines
            }
            Step::Renewed { deadline } => {
                self.note_deadline(record.worker, *deadline);
                Vec::new()
            }
            Step::Paused => {
                self.stopped = Some(record.key());
                self.deadline = self.deadlines.get(record.worker).copied().flatten();
                vec![
                    format!("{name} looks: it still holds the lock, so it may write"),
                    STOPS.replace("NAME", &name),
                ]
            }
            Step::Resumed => vec![format!("{name} goes on where it was, and knows of nothing")],
            Step::Accepted { .. } if is_stopped => {
                self.is_over = true;
                vec![format!("{name} writes the total that it has computed: accepted")]
            }
            Step::Refused { .. } if is_stopped => {
                self.is_over = true;
                vec![format!("{name} shows its old token and writes: REFUSED, it is stale")]
            }
            Step::Accepted { .. } => vec![format!("{name} adds 1 to the total: accepted")],
            _ => Vec::new(),
        }
    }

    fn note_deadline(&mut self, worker: usize, deadline: Option<u64>) {
        if let Some(last) = self.deadlines.get_mut(worker) {
            *last = deadline.or(*last);
        }
    }

    /// That the lease of the stopped worker has run out, told once.
    fn lapse(&mut self, now: u64) -> Option<String> {
        let (worker, _) = self.stopped?;
        let deadline = self.deadline.take().filter(|deadline| *deadline <= now)?;
        let ago = shown(Duration::from_nanos(now - deadline));
        Some(format!("(the lease of worker {} ran out {ago} ago)", worker + 1))
    }
}

const OPENING: [&str; 4] = [
    "Two workers add to one running total, which lies in a database. A lock on one",
    "Redis sees to it that one works at a time: each takes it, reads the total,",
    "computes, looks whether it still holds the lock, and writes. A lease lasts",
    "0.8 s unless it is renewed.",
];
const STOPS: &str = "now NAME is stopped, as by a garbage collection or a full machine";
const CLOSING: [&str; 5] = [
    "",
    "The lock did the same both times. It says who may start; it cannot hold back",
    "whoever was stopped. The fence can: each grant has a greater token, and the",
    "database refuses an older one.",
    "Every pattern under every fault: fencepost lab --report lab.html",
];
