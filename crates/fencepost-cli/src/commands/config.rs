//! `fencepost config check`: what is wrong with the configuration, before a job finds out; and `config schema`.

use std::path::PathBuf;

use fencepost::{Clock, Tokens};
use fencepost_policy::{ConfigError, Finding, Policy, Rule, SCHEMA, Severity};
use serde::Serialize;

use super::layout::counted;
use super::place::misconfigured;
use crate::args::{ConfigCheck, Global};
use crate::exit::Exit;
use crate::printer::Printer;

/// The answer for machines.
#[derive(Debug, Serialize)]
struct Checked {
    /// Null where there is no configuration.
    file: Option<String>,
    sound: bool,
    rules: usize,
    backends: usize,
    findings: Vec<Found>,
}

/// One finding. What is not known is null.
#[derive(Debug, Serialize)]
struct Found {
    severity: &'static str,
    line: Option<usize>,
    column: Option<usize>,
    message: String,
    advice: Option<String>,
}

/// Prints what an editor needs.
pub(crate) fn schema(printer: Printer) -> Exit {
    printer.data(SCHEMA.trim_end());
    Exit::OK
}

/// Checks the configuration that would be used, or those that are named; exit 0 when all are sound, 78 when one is not.
pub(crate) fn check(global: &Global, args: &ConfigCheck, printer: Printer) -> Exit {
    if !args.files.is_empty() {
        return check_all(global, &args.files, printer);
    }
    let policy = match Policy::find(global.config.as_deref()) {
        Ok(Some(policy)) => policy,
        Ok(None) => {
            if global.json {
                tell(
                    &Checked { file: None, sound: true, rules: 0, backends: 0, findings: Vec::new() },
                    printer,
                );
            }
            printer.note("there is no configuration; every lock is in the default directory of this host");
            return Exit::OK;
        }
        Err(error) => return unreadable(global, &error, printer),
    };
    let mut differences = Vec::new();
    for other in policy.others() {
        match other {
            Ok(other) => differences.extend(policy.differences(&other)),
            Err(error) => differences.extend(error.findings().iter().cloned().map(Finding::as_warning)),
        }
    }
    check_one(global, &policy, differences, printer)
}

/// Checks each, and what they put in different places.
fn check_all(global: &Global, files: &[PathBuf], printer: Printer) -> Exit {
    let (mut exit, mut others) = (Exit::OK, Vec::<Policy>::new());
    for file in files {
        let checked = match Policy::find(Some(file)) {
            Ok(policy) => policy.map_or(Exit::OK, |policy| {
                let differences = others.iter().flat_map(|other| policy.differences(other)).collect();
                let checked = check_one(global, &policy, differences, printer);
                others.push(policy);
                checked
            }),
            Err(error) => unreadable(global, &error, printer),
        };
        exit = if exit == Exit::OK { checked } else { exit };
    }
    exit
}

/// A file that cannot be read to its end is not sound either.
fn unreadable(global: &Global, error: &ConfigError, printer: Printer) -> Exit {
    if !global.json {
        return misconfigured(error, printer);
    }
    let findings: Vec<_> = error.findings().iter().map(Found::new).collect();
    let file = error.findings().first().map(|finding| finding.path().display().to_string());
    tell(&Checked { file, sound: false, rules: 0, backends: 0, findings }, printer);
    Exit::CONFIG
}

fn tell(checked: &Checked, printer: Printer) {
    printer.data(&serde_json::to_string(checked).expect("an answer is plain data"));
}

fn check_one(global: &Global, policy: &Policy, differences: Vec<Finding>, printer: Printer) -> Exit {
    let mut findings = policy.check();
    findings.extend(differences);
    let in_this_build = beyond_the_file(policy);
    let mut found: Vec<_> = findings.iter().map(Found::new).collect();
    found.extend(in_this_build.iter().map(|message| Found::error(message)));
    let sound = found.iter().all(|found| found.severity != "error");
    if global.json {
        let file = Some(policy.path().display().to_string());
        let (rules, backends) = (policy.rules().len(), policy.backends().len());
        tell(&Checked { file, sound, rules, backends, findings: found }, printer);
    } else {
        say(policy, &findings, &in_this_build, sound, printer);
    }
    if sound { Exit::OK } else { Exit::CONFIG }
}

fn say(policy: &Policy, findings: &[Finding], in_this_build: &[String], sound: bool, printer: Printer) {
    for finding in findings {
        printer.finding(finding);
    }
    for message in in_this_build {
        printer.error(format_args!("{}: {message}", policy.path().display()));
    }
    if sound {
        let (rules, backends) =
            (counted(policy.rules().len(), "rule"), counted(policy.backends().len(), "backend"));
        printer.data(&format!("{}: sound ({rules}, {backends})", policy.path().display()));
    }
}

/// What the file cannot know: whether this build has the backends and the fences, and whether they promise what the rules
/// require. Nothing is connected. A URL whose secrets are not there is left to the run.
fn beyond_the_file(policy: &Policy) -> Vec<String> {
    policy.rules().iter().flat_map(|rule| beyond_the_rule(policy, rule)).collect()
}

fn beyond_the_rule(policy: &Policy, rule: &Rule) -> Vec<String> {
    let at = format!("line {}, the rule {:?}", rule.line, rule.glob);
    let locks = policy.url_of(rule).ok().map(|url| fencepost::connect_url(&url, &Clock::system()));
    let places = policy.places_of(rule).into_iter();
    let fences = places.filter(|place| place.is_fence).filter_map(|place| place.url.ok());
    let mut wrong = Vec::new();
    match locks {
        Some(Err(error)) => wrong.push(format!("{at}: {error}")),
        Some(Ok(locks)) if rule.require_durable && locks.profile().tokens != Tokens::Durable => {
            let what = format!("the tokens of {locks} could go back after a loss of data");
            wrong.push(format!("{at} requires durable ones: {what}"));
        }
        _ => {}
    }
    wrong.extend(fences.filter_map(|url| Some(format!("{at}: {}", fencepost::fence(&url).err()?))));
    wrong
}

impl Found {
    fn new(finding: &Finding) -> Self {
        Self {
            severity: match finding.severity() {
                Severity::Error => "error",
                Severity::Warning => "warning",
                Severity::Note => "note",
            },
            line: finding.position().map(|position| position.line),
            column: finding.position().map(|position| position.column),
            message: finding.message().to_owned(),
            advice: finding.advice().map(ToOwned::to_owned),
        }
    }

    fn error(message: &str) -> Self {
        Self { severity: "error", line: None, column: None, message: message.to_owned(), advice: None }
    }
}
