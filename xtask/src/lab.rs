//! The lab for as long as somebody wants: one run after the other, each with the next seed, and a page that sums them up; and the
//! picture in the documentation.
//!
//! Invariant: the page is written from what the runs have reported, and a run in which something broke ends the task with its seed.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use fencepost::{Clock, Moment};
use serde_json::Value;

use crate::picture;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Runs until so many minutes have passed, from this seed on.
    Runs {
        /// The minutes.
        minutes: u64,
        /// The first seed.
        seed: u32,
    },
    /// The picture of one run, as a browser shows it.
    Screenshot,
    /// The picture of a paused holder.
    Picture,
}

/// The task that the arguments ask for; `None` if they make no sense.
pub fn task(arguments: &[&str]) -> Option<Task> {
    let (mut minutes, mut seed) = (10, 1);
    if arguments == ["--screenshot"] {
        return Some(Task::Screenshot);
    }
    if arguments == ["--picture"] {
        return Some(Task::Picture);
    }
    for pair in arguments.chunks(2) {
        match pair {
            ["--minutes", number] => minutes = number.parse().ok()?,
            ["--seed", number] => seed = number.parse().ok()?,
            _ => return None,
        }
    }
    Some(Task::Runs { minutes, seed })
}

/// Does it.
///
/// # Errors
/// When cargo, the lab or a browser cannot be started, or a file cannot be written.
pub fn run(root: &Path, task: Task) -> io::Result<ExitCode> {
    build(root)?;
    match task {
        Task::Runs { minutes, seed } => run_for(root, Duration::from_mins(minutes), seed),
        Task::Screenshot => screenshot(root),
        Task::Picture => picture(root),
    }
}

fn build(root: &Path) -> io::Result<()> {
    let built =
        Command::new("cargo").current_dir(root).args(["build", "--package", "fencepost-cli"]).status()?;
    if built.success() { Ok(()) } else { Err(io::Error::other("the command is not built")) }
}

fn fencepost(root: &Path) -> Command {
    let mut command = Command::new(root.join("target/debug/fencepost"));
    command.current_dir(root).arg("lab");
    command
}

fn run_for(root: &Path, time: Duration, first: u32) -> io::Result<ExitCode> {
    let clock = Clock::system();
    let (began, mut sums, mut seed) = (clock.now(), Sums::default(), first);
    let end: Moment = began.after(time);
    while clock.now() < end {
        let arguments = ["--seed", &seed.to_string(), "--rounds", ROUNDS, "--json", "--quiet"];
        let output = fencepost(root).args(arguments).stderr(Stdio::inherit()).output()?;
        let report: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| io::Error::other(format!("the lab with seed {seed} gave no report: {error}")))?;
        sums.add(&report);
        std::fs::write(root.join(PAGE), sums.page(first, seed, clock.now().since(began)))?;
        if !output.status.success() {
            return Err(io::Error::other(format!(
                "something broke; fencepost lab --rounds {ROUNDS} --seed {seed} repeats its faults"
            )));
        }
        seed += 1;
    }
    Ok(ExitCode::SUCCESS)
}

/// What the runs have counted, for each pattern under each fault.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    patterns: Vec<String>,
    faults: Vec<String>,
    cells: BTreeMap<(String, String), Sum>,
}

#[derive(Clone, Debug, Default)]
struct Sum {
    grants: u64,
    stale: u64,
    refused: u64,
    lost: u64,
    overlaps: u64,
    broken: u64,
    runs: u64,
    vacuous: u64,
}

impl Sums {
    /// Adds a report.
    pub fn add(&mut self, report: &Value) {
        for cell in report["cells"].as_array().into_iter().flatten() {
            let (pattern, fault) = (text(&cell["pattern"]), text(&cell["fault"]));
            note(&mut self.patterns, &pattern);
            note(&mut self.faults, &fault);
            self.cells.entry((pattern, fault)).or_default().add(cell);
        }
    }

    /// The page.
    pub fn page(&self, first: u32, last: u32, took: Duration) -> String {
        let total = |number: fn(&Sum) -> u64| self.cells.values().map(number).sum::<u64>();
        let minutes = took.as_secs().div_ceil(60);
        let mut page = format!(
            "# What the lab has counted\n\nWritten by `cargo xtask lab`: seeds {first} to {last}, {ROUNDS} strikes in each cell, \
             {minutes} minutes, {} grants.\nBroken promises: {}.\n\nA cell says how many stale writes were accepted (a), refused by \
             the fence (r), how many updates were\nlost (l) and how often two held at once (o), over all runs; `–` where no run of \
             the cell says anything,\nas `fencepost lab` explains for each.\n\n| pattern |",
            total(|sum| sum.grants),
            total(|sum| sum.broken)
        );
        for fault in &self.faults {
            let _ = write!(page, " {fault} |");
        }
        page += "\n|---|";
        page += &"---|".repeat(self.faults.len());
        for pattern in &self.patterns {
            let _ = write!(page, "\n| `{pattern}` |");
            for fault in &self.faults {
                let sum = self.cells.get(&(pattern.clone(), fault.clone())).cloned().unwrap_or_default();
                let _ = write!(page, " {} |", sum.entry());
            }
        }
        page.push('\n');
        page
    }
}

impl Sum {
    fn add(&mut self, cell: &Value) {
        let number = |key: &str| cell[key].as_u64().unwrap_or(0);
        self.runs += 1;
        self.grants += number("grants");
        self.stale += number("stale_accepted");
        self.refused += number("stale_refused");
        self.lost += number("lost_updates");
        self.overlaps += number("overlaps");
        self.vacuous += u64::from(!cell["vacuous"].is_null());
        self.broken += u64::from(cell["broken"].as_array().is_some_and(|broken| !broken.is_empty()));
    }

    fn entry(&self) -> String {
        if self.vacuous == self.runs {
            return "–".to_owned();
        }
        let counts = [(self.stale, "a"), (self.refused, "r"), (self.lost, "l"), (self.overlaps, "o")];
        let seen = counts.iter().filter(|(count, _)| *count > 0);
        let seen: Vec<String> = seen.map(|(count, letter)| format!("{count} {letter}")).collect();
        match (self.broken, seen.is_empty()) {
            (0, true) => "clean".to_owned(),
            (0, false) => seen.join(", "),
            (broken, _) => format!("**{broken} broken**, {}", seen.join(", ")),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn note(names: &mut Vec<String>, name: &str) {
    if !names.iter().any(|other| other == name) {
        names.push(name.to_owned());
    }
}

/// Runs a part of the lab, and has a browser look at its page.
fn screenshot(root: &Path) -> io::Result<ExitCode> {
    let page = root.join("target/lab.html");
    let cells = ["--patterns", "none,redis,redis+fence", "--faults", "pause", "--seed", "7", "--report"];
    fencepost(root).args(cells).arg(&page).stdout(Stdio::null()).status()?;
    let shot = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1120,1570"])
        .arg(format!("--screenshot={}", root.join(PICTURE).display()))
        .arg(format!("file://{}#", page.display()))
        .stderr(Stdio::null())
        .status()?;
    Ok(if shot.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn picture(root: &Path) -> io::Result<ExitCode> {
    let page = root.join("target/paused.html");
    let cells = ["--patterns", "redis,redis+fence", "--faults", "pause", "--seed", "7", "--rounds", "1"];
    fencepost(root).args(cells).arg("--report").arg(&page).stdout(Stdio::null()).status()?;
    let drawn = picture::of(&std::fs::read_to_string(&page)?);
    let drawn = drawn.ok_or_else(|| io::Error::other("the lab has drawn nothing"))?;
    std::fs::write(root.join(PAUSED), drawn)?;
    Ok(ExitCode::SUCCESS)
}

/// A strike between check and write, and two that are drawn.
const ROUNDS: &str = "3";
const PAGE: &str = "docs/lab-results.md";
const PICTURE: &str = "docs/lab.png";
const PAUSED: &str = "docs/paused-holder.svg";
