//! What `--metrics-file` leaves for Prometheus: a text file for the textfile collector of the node exporter.
//!
//! Counters go on from what the file says, so it may be shared by the runs of one job and by several jobs. Invariant: whoever reads it
//! finds a whole file, since it is replaced in one step, under a lock that two writers do not have at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fencepost::{Clock, FencingToken, LockName};

use super::outcome::{Ending, Times};
use crate::commands::alone::alone;
use crate::exit::Exit;
use crate::printer::Printer;

/// The metrics of one run.
#[derive(Debug)]
pub(super) struct Metrics {
    path: PathBuf,
    /// The labels of each lock.
    locks: BTreeMap<LockName, String>,
    /// Whose lease was lost, as far as that is known.
    lost: BTreeSet<LockName>,
    /// What is to be added to the counters of the file.
    added: Samples,
    /// What replaces the gauges of the file.
    set: Samples,
    printer: Printer,
}

/// Values by metric and labels, as they stand in the file: `fencepost_runs_total{lock="nightly",…}`.
type Samples = BTreeMap<String, f64>;

impl Metrics {
    /// The metrics that go to `path`, which is written once already, so that a wrong path stops nothing half-way. Each lock comes with
    /// the kind of its backend.
    ///
    /// # Errors
    /// The exit code; the reason has been printed.
    pub(super) fn open<'a>(
        path: &Path,
        locks: impl Iterator<Item = (&'a LockName, &'a str)>,
        printer: Printer,
    ) -> Result<Self, Exit> {
        let locks = locks.map(|(lock, backend)| (lock.clone(), labels(lock.as_str(), backend))).collect();
        // Behind a link, the file itself is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let (lost, added, set) = (BTreeSet::new(), Samples::new(), Samples::new());
        let mut metrics = Self { path, locks, lost, added, set, printer };
        match metrics.merge() {
            Ok(()) => Ok(metrics),
            Err(error) => {
                let path = metrics.path.display();
                printer.error(format_args!("cannot write the file of --metrics-file: {path}: {error}"));
                Err(Exit::USAGE)
            }
        }
    }

    /// Something has happened to a lock; `detail` says why.
    pub(super) fn event(
        &mut self,
        event: &str,
        lock: &LockName,
        token: Option<FencingToken>,
        detail: Option<&str>,
    ) {
        let Some(labels) = self.locks.get(lock).cloned() else { return };
        match event {
            "acquired" => {
                self.set("fencepost_held", &labels, 1.0);
                // Exact up to 2^53, and so up to the year 2255.
                #[expect(clippy::cast_precision_loss, reason = "a metric is a floating-point number")]
                self.set("fencepost_token", &labels, token.map_or(0, FencingToken::get) as f64);
            }
            "renewed" | "renew_failed" => {
                let outcome = if event == "renewed" { "acknowledged" } else { "failed" };
                self.add("fencepost_renewals_total", &format!("{labels},outcome=\"{outcome}\""), 1.0);
            }
            // The loss of one lease is told when it happens, and again when it cannot be given back.
            "lost" if self.lost.insert(lock.clone()) => self.lose(&labels, detail.unwrap_or("deadline")),
            _ => {}
        }
    }

    fn lose(&mut self, labels: &str, reason: &str) {
        self.add("fencepost_leases_lost_total", &format!("{labels},reason=\"{reason}\""), 1.0);
    }

    /// The locks are held.
    pub(super) fn acquired(&mut self) {
        self.write();
    }

    /// The run has ended.
    pub(super) fn ended(&mut self, ending: &Ending, times: &Times) {
        // A run that did not get the lock says nothing of the one that has it.
        if times.held.is_some() {
            self.set_all("fencepost_held", 0.0);
        }
        self.set_all("fencepost_last_exit_code", f64::from(ending.exit.0));
        let now = Duration::from_micros(Clock::system().wall_micros()).as_secs_f64();
        self.set_all("fencepost_last_end_timestamp_seconds", now);
        for labels in self.locks.values().cloned().collect::<Vec<_>>() {
            self.observe("fencepost_wait_seconds", &labels, times.waited);
            if let Some(held) = times.held {
                self.observe("fencepost_hold_seconds", &labels, held);
            }
            let outcome = ending.outcome.as_str();
            self.add("fencepost_runs_total", &format!("{labels},outcome=\"{outcome}\""), 1.0);
        }
        if let Some(reason) = ending.lost_reason.as_ref().filter(|_| self.lost.is_empty()) {
            // The command was ended before a loss, or with its guardian: as if all leases were lost.
            for labels in self.locks.values().cloned().collect::<Vec<_>>() {
                self.lose(&labels, reason);
            }
        }
        self.write();
    }

    /// Writes what is new.
    fn write(&mut self) {
        if let Err(error) = self.merge() {
            self.printer.warn(format_args!("cannot write {}: {error}", self.path.display()));
        }
    }

    fn set(&mut self, metric: &str, labels: &str, value: f64) {
        self.set.insert(format!("{metric}{{{labels}}}"), value);
    }

    fn set_all(&mut self, metric: &str, value: f64) {
        for labels in self.locks.values().cloned().collect::<Vec<_>>() {
            self.set(metric, &labels, value);
        }
    }

    fn add(&mut self, metric: &str, labels: &str, value: f64) {
        *self.added.entry(format!("{metric}{{{labels}}}")).or_default() += value;
    }

    fn observe(&mut self, metric: &str, labels: &str, duration: Duration) {
        let seconds = duration.as_secs_f64();
        for bound in BOUNDS {
            let is_below = if seconds <= bound { 1.0 } else { 0.0 };
            self.add(&format!("{metric}_bucket"), &format!("{labels},le=\"{bound}\""), is_below);
        }
        self.add(&format!("{metric}_bucket"), &format!("{labels},le=\"+Inf\""), 1.0);
        self.add(&format!("{metric}_sum"), labels, seconds);
        self.add(&format!("{metric}_count"), labels, 1.0);
    }

    fn merge(&mut self) -> io::Result<()> {
        let _alone = alone_at(&self.path)?;
        let mut samples = read(&fs::read_to_string(&self.path)?)?;
        for (sample, value) in std::mem::take(&mut self.added) {
            *samples.entry(sample).or_default() += value;
        }
        samples.append(&mut self.set.clone());
        // The collector reads what ends with .prom, and not this.
        let beside = self.path.with_extension(format!("{}.tmp", std::process::id()));
        let replaced =
            fill(&beside, &self.path, &rendered(&samples)).and_then(|()| fs::rename(&beside, &self.path));
        replaced.inspect_err(|_| drop(fs::remove_file(&beside)))
    }
}

/// The upper bounds of what is counted by length, in seconds.
const BOUNDS: [f64; 10] = [0.01, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0];

/// How often it is looked whether another writer has finished: for half a second.
const LOOKS: u32 = 100;

/// Each metric: its name, its type, and what it says.
const METRICS: [(&str, &str, &str); 9] = [
    ("fencepost_held", "gauge", "Whether a run holds the lock now."),
    ("fencepost_hold_seconds", "histogram", "How long runs held the lock, in seconds."),
    ("fencepost_last_end_timestamp_seconds", "gauge", "When the last run ended, in seconds since 1970."),
    ("fencepost_last_exit_code", "gauge", "The exit code of the last run."),
    ("fencepost_leases_lost_total", "counter", "Leases that were lost, by reason."),
    ("fencepost_renewals_total", "counter", "Renewals of leases, by outcome."),
    ("fencepost_runs_total", "counter", "Runs, by outcome."),
    ("fencepost_token", "gauge", "The fencing token of the last grant."),
    ("fencepost_wait_seconds", "histogram", "How long runs waited for the lock, in seconds."),
];

/// Keeps other writers away. The file is replaced each time, so it has to be the same one after the wait.
fn alone_at(path: &Path) -> io::Result<File> {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file, and would be replaced",
        ));
    }
    alone(path, File::options().read(true).append(true).create(true), LOOKS)
}

/// Writes a new file that is to take the place of `old`, and may be read by whoever may read that.
fn fill(beside: &Path, old: &Path, text: &str) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(beside)?;
    file.set_permissions(fs::metadata(old)?.permissions())?;
    file.write_all(text.as_bytes())
}

/// What stands in a file of ours.
///
/// # Errors
/// Where there are other lines in it, which would be lost.
fn read(text: &str) -> io::Result<Samples> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines.map(|line| sample(line).ok_or_else(|| foreign(line))).collect()
}

fn sample(line: &str) -> Option<(String, f64)> {
    let (sample, value) = line.rsplit_once(' ').filter(|_| line.starts_with("fencepost_"))?;
    Some((sample.to_owned(), value.parse().ok()?))
}

fn foreign(line: &str) -> io::Error {
    let beginning: String = line.chars().take(40).collect();
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("it holds what is none of fencepost's metrics: {beginning:?}"),
    )
}

fn rendered(samples: &Samples) -> String {
    let mut text = String::new();
    for (metric, kind, help) in METRICS {
        let own = samples.iter().filter(|(sample, _)| is_of(sample, metric, kind));
        let mut own: Vec<_> = own.map(|(sample, value)| (place(sample), sample, value)).collect();
        if own.is_empty() {
            continue;
        }
        own.sort_by(|(one, ..), (other, ..)| one.0.cmp(other.0).then(one.1.total_cmp(&other.1)));
        // A string takes everything.
        let _ = write!(text, "# HELP {metric} {help}\n# TYPE {metric} {kind}\n");
        for (_, sample, value) in own {
            let _ = writeln!(text, "{sample} {value}");
        }
    }
    text
}

/// The format wants the buckets of a histogram in the order of their bounds: what stands before the bound, and the bound.
fn place(sample: &str) -> (&str, f64) {
    let bounded = sample.rsplit_once(",le=\"");
    let bound = |(before, bound): (_, &str)| Some((before, bound.trim_end_matches("\"}").parse().ok()?));
    bounded.and_then(bound).unwrap_or((sample, 0.0))
}

fn is_of(sample: &str, metric: &str, kind: &str) -> bool {
    let Some(rest) = sample.strip_prefix(metric) else { return false };
    let parts = ["_bucket{", "_sum{", "_count{"];
    rest.starts_with('{') || (kind == "histogram" && parts.iter().any(|part| rest.starts_with(part)))
}

/// One lock, as every metric of it says.
fn labels(lock: &str, backend: &str) -> String {
    format!("lock=\"{}\",backend=\"{backend}\"", escaped(lock))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_kind_stay_inside_their_label() {
        assert_eq!(labels("a\"b\\c", "file"), r#"lock="a\"b\\c",backend="file""#);
    }

    #[test]
    fn what_was_written_is_read_back() {
        let samples: Samples = [
            (r#"fencepost_runs_total{lock="a b",backend="file",outcome="ran"}"#.to_owned(), 3.0),
            (r#"fencepost_wait_seconds_sum{lock="a b",backend="file"}"#.to_owned(), 0.125),
        ]
        .into();
        let text = rendered(&samples);
        assert_eq!(read(&text).unwrap(), samples, "{text}");
        assert!(read("root:x:0:0\n").is_err());
        assert!(text.contains("# TYPE fencepost_wait_seconds histogram\n"), "{text}");
    }

    #[test]
    fn buckets_stand_in_the_order_of_their_bounds() {
        let mut added = Samples::new();
        for bound in ["+Inf".to_owned()].into_iter().chain(BOUNDS.map(|bound| bound.to_string())) {
            for lock in ["a", "b"] {
                added.insert(
                    format!("fencepost_hold_seconds_bucket{{{},le=\"{bound}\"}}", labels(lock, "file")),
                    1.0,
                );
            }
        }
        let text = rendered(&added);
        let bounds =
            text.lines().filter_map(|line| line.split_once(",le=\"")?.1.split('"').next()?.parse().ok());
        let ascending: Vec<f64> = BOUNDS.into_iter().chain([f64::INFINITY]).collect();
        assert_eq!(bounds.collect::<Vec<f64>>(), [ascending.clone(), ascending].concat(), "{text}");
    }

    #[test]
    fn page_for_operators_lists_what_is_written_and_nothing_else() {
        let page = include_str!("../../../../../docs/operating.md");
        let table =
            page.split("<!-- metrics of run -->").nth(1).unwrap().split("<!-- /metrics").next().unwrap();
        let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
        let listed: Vec<_> = rows.map(|row| row.split("` | ").collect::<Vec<_>>()).collect();
        let listed: Vec<_> = listed.iter().map(|row| (row[0], row[1].split(' ').next().unwrap())).collect();
        let written: Vec<_> = METRICS.iter().map(|(name, kind, _)| (*name, *kind)).collect();
        assert_eq!(listed, written);
    }
}
