//! What was found, for people and for machines: the worst place first, and in it the worst finding.

use std::cmp::Reverse;

use fencepost::{Error, Examination, Finding, Result, Severity};
use serde::Serialize;

use super::target::{CONFIGURATION, Target};
use crate::commands::layout::{counted, wrapped};

/// All that was looked at.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    checked: Vec<Checked>,
    serious: usize,
    warnings: usize,
    notes: usize,
}

/// One backend or fence, or a configuration that has no rule.
#[derive(Debug, Serialize)]
struct Checked {
    role: &'static str,
    kind: &'static str,
    place: String,
    /// The rules that use it; none where no configuration was asked.
    rules: Vec<String>,
    servers: Vec<String>,
    findings: Vec<Finding>,
}

impl Report {
    pub(super) fn new(targets: &[Target], outcomes: Vec<Result<Examination>>) -> Self {
        let checked = targets.iter().zip(outcomes).map(|(target, outcome)| Checked::new(target, outcome));
        let mut checked: Vec<Checked> = checked.collect();
        checked.sort_by_key(|checked| Reverse(checked.findings.iter().map(|finding| finding.severity).max()));
        let findings = || checked.iter().flat_map(|checked| &checked.findings);
        let count = |severity| findings().filter(|finding| finding.severity == severity).count();
        let (serious, warnings, notes) =
            (count(Severity::Serious), count(Severity::Warning), count(Severity::Note));
        Self { checked, serious, warnings, notes }
    }

    pub(super) fn is_serious(&self) -> bool {
        self.serious > 0
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let mut told = Vec::new();
        let mut lines: Vec<String> =
            self.checked.iter().flat_map(|checked| checked.lines(&mut told)).collect();
        lines.push(self.summary());
        lines
    }

    fn summary(&self) -> String {
        let places = self.checked.iter().filter(|checked| checked.role != CONFIGURATION).count();
        let places = counted(places, "place");
        if self.serious + self.warnings + self.notes == 0 {
            return format!("{places} looked at, nothing found");
        }
        let (warnings, notes) = (counted(self.warnings, "warning"), counted(self.notes, "note"));
        format!("{places} looked at: {} serious, {warnings}, {notes}", self.serious)
    }
}

impl Checked {
    fn new(target: &Target, outcome: Result<Examination>) -> Self {
        let examination =
            outcome.unwrap_or_else(|error| Examination::new(Vec::new(), vec![away(target, &error)]));
        Self {
            role: target.role(),
            kind: target.kind(),
            place: target.place(),
            rules: target.rules.clone(),
            servers: examination.servers,
            findings: examination.findings,
        }
    }

    /// What was told of another place already, such as of a server that is a backend and a fence, is only named.
    fn lines<'a>(&'a self, told: &mut Vec<&'a Finding>) -> Vec<String> {
        let globs: Vec<_> = self.rules.iter().map(|glob| format!("{glob:?}")).collect();
        let users = match globs[..] {
            [] => String::new(),
            [_] => format!(", of the rule {}", globs[0]),
            _ => format!(", of the rules {}", globs.join(", ")),
        };
        let mut lines = wrapped("", &format!("{} ({}{users})", self.place, self.role));
        lines.extend(self.servers.iter().flat_map(|server| wrapped("  ", server)));
        for finding in &self.findings {
            lines.extend(self.lines_of(finding, told.contains(&finding)));
            told.push(finding);
        }
        if self.findings.is_empty() {
            lines.push("  nothing found".to_owned());
        }
        lines.push(String::new());
        lines
    }

    fn lines_of(&self, finding: &Finding, is_told: bool) -> Vec<String> {
        let is_evident = self.servers.len() <= 1 && self.place.contains(&finding.about);
        let about = if is_evident { String::new() } else { format!("{}: ", finding.about) };
        let head = format!("  {:<7}  ", finding.severity);
        if is_told {
            return wrapped(&head, &format!("{about}{} (as above)", finding.evidence));
        }
        let mut lines = wrapped(&head, &format!("{about}{}", finding.evidence));
        lines.extend(wrapped("           means:  ", &finding.consequence));
        lines.extend(wrapped("           change: ", &finding.remedy));
        lines
    }
}

/// What could not be looked at is a finding about it.
fn away(target: &Target, error: &Error) -> Finding {
    if target.is_idle() {
        let evidence = format!("it was not looked at: {error}");
        return Finding::note(target.place(), evidence)
            .means("no rule uses it, so no lock depends on it")
            .remedy(error.advice().unwrap_or("correct it, or take it out of the configuration"));
    }
    let means = match target.role() {
        "fence" => "no token can be sealed there, so no command that needs this fence starts",
        _ => "no lock can be acquired there, and what is held is lost at its deadline",
    };
    Finding::failed(target.place(), error, means)
}
