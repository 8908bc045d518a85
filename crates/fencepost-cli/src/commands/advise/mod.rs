//! `fencepost advise`: the lightest lock that is strong enough, and its rule.
//!
//! Invariant: nothing is written but what was read again and found to mean what it is to mean.

mod ask;
mod many;
mod page;
mod write;

use std::io::IsTerminal;
use std::path::Path;

use fencepost::{BackendUrl, Error, ErrorKind, Result};
use fencepost_advisor::{Advice, Answers, Choice, Details, FILL_IN, Held, Question, weaknesses, wrapped};
use fencepost_policy::{Policy, spells_out_password};
use serde_json::{Value, json};

use super::place::{fail, misconfigured};
use crate::args::{self, Global};
use crate::exit::Exit;
use crate::printer::Printer;

/// The widest that text is set: longer lines are hard to read.
const WIDEST: usize = 80;

/// Advises, and writes the rule down if that is wanted.
pub(crate) fn advise(global: &Global, args: &args::Advise, printer: Printer) -> Exit {
    if let Some(file) = &args.from {
        return many::advise(global, args, file, printer);
    }
    match advised(global, args, printer) {
        Ok(()) => Exit::OK,
        Err(exit) => exit,
    }
}

fn advised(global: &Global, args: &args::Advise, printer: Printer) -> Result<(), Exit> {
    refuse_passwords(global, args).map_err(|error| fail(&error, printer))?;
    let answers = answers(args, printer)?;
    let advice = fencepost_advisor::advise(&answers, &fencepost::profiles());
    let backend = global.backend().map_err(|error| fail(&error, printer))?;
    if let Some(url) = &backend {
        refuse_other(url, &advice, args.fence.is_some()).map_err(|error| fail(&error, printer))?;
    }
    let is_one =
        |glob: &str| readable(&advice, &Details { glob: Some(glob), ..Details::default() }, printer).is_ok();
    let asked = (args.write && args.glob.is_none()).then(|| ask::glob(printer, is_one)).transpose()?;
    let details = Details {
        glob: args.glob.as_deref().or(asked.as_deref()),
        backend: backend.as_ref().map(BackendUrl::expose),
        fence: args.fence.as_deref(),
        because: args.because.as_deref(),
    };
    readable(&advice, &details, printer)?;
    let rule = advice.rule_for(&details);
    if global.json {
        printer.data(&data(&advice, &rule).to_string());
    } else {
        say(&advice, &rule, args.write, printer);
    }
    if !args.write {
        return Ok(());
    }
    write::write(global, &[rule], printer)
}

/// What is advised is shown, and written where everybody may read it.
fn refuse_passwords(global: &Global, args: &args::Advise) -> Result<()> {
    let backend = global.backend()?;
    let flags = [("--backend", backend.as_ref().map(BackendUrl::expose)), ("--fence", args.fence.as_deref())];
    let found = flags.into_iter().find(|(_, url)| url.is_some_and(spells_out_password));
    let Some((flag, _)) = found else { return Ok(()) };
    let what = format!("the password in {flag} would be shown, and written down");
    Err(Error::new(ErrorKind::InvalidArgument, "write the rule", what)
        .hint("write '${VAR}' or '${file:/path}' in its place, in single quotes"))
}

/// The answers of the flags, and of whoever sits at the terminal.
fn answers(args: &args::Advise, printer: Printer) -> Result<Answers, Exit> {
    let open = args.open();
    if open.is_empty() {
        return Ok(args.answers());
    }
    if !can_ask() {
        return Err(missing(&open, printer));
    }
    let answers = ask::questions(args.answers(), &open, printer)?;
    let flags = Question::ALL
        .map(|question| format!("{} {}", question.flag(), answers.to(question).unwrap_or(args::UNKNOWN)));
    printer.note(format_args!("the same without questions: fencepost advise {}", flags.join(" ")));
    Ok(answers)
}

/// Questions need somebody who reads them and somebody who answers.
fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

fn missing(open: &[Question], printer: Printer) -> Exit {
    let flag = |question: &Question| {
        let answers: Vec<&str> = question.choices().iter().map(|choice: &Choice| choice.answer).collect();
        format!("{} {}", question.flag(), answers.join("|"))
    };
    let flags: Vec<String> = open.iter().map(flag).collect();
    printer.error(format_args!("these answers are missing: {}", flags.join(", ")));
    printer.hint("`unknown` is an answer as well; on a terminal the questions are asked one by one");
    Exit::USAGE
}

/// A server of another kind, or one that its options weaken, would be another lock than the advised one.
fn refuse_other(url: &BackendUrl, advice: &Advice, has_fence: bool) -> Result<()> {
    let refused = |what: String| Error::new(ErrorKind::InvalidArgument, "write the rule", what);
    if url.kind() != advice.pattern.name() {
        let what = format!("--backend is {}, and the advice is {}", url.kind(), advice.pattern.name());
        return Err(refused(what).hint("leave --backend out to see why, or write the rule by hand"));
    }
    let held = Held { backend: Some(url), fenced: advice.fence || has_fence };
    match weaknesses(&advice.answers.assuming_the_worse(), held).first() {
        Some(weak) => Err(refused(format!("--backend is too weak: {}", weak.message)).hint(weak.hint)),
        None => Ok(()),
    }
}

/// The glob and the URL of the fence come from the command line; a name of a fence is looked up where the rule is written.
fn readable(advice: &Advice, details: &Details<'_>, printer: Printer) -> Result<(), Exit> {
    let fence = details.fence.filter(|fence| fence.contains(':'));
    let rule = advice.rule_for(&Details { fence, ..*details });
    Policy::parse(Path::new("the rule"), &rule).map(drop).map_err(|error| {
        misconfigured(&error, printer);
        Exit::USAGE
    })
}

fn say(advice: &Advice, rule: &str, writes: bool, printer: Printer) {
    let width = width();
    printer.data(advice.text(width).trim_end());
    if writes {
        return;
    }
    let how = "The rule, for fencepost.toml (--match names the locks, --write puts it there)";
    printer.data(&format!("\n{}\n{}", wrapped(how, 0, width), rule.trim_end()));
    if rule.contains(FILL_IN) {
        printer.data(&format!(
            "\n{}",
            wrapped(&format!("Write your own in place of {FILL_IN}."), 0, width).trim_end()
        ));
    }
}

/// How wide the text may be.
fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout());
    size.map_or(WIDEST, |size| usize::from(size.ws_col).clamp(20, WIDEST))
}

/// The answer for machines.
fn data(advice: &Advice, rule: &str) -> Value {
    let reason = |(question, reason): &(Question, String)| match advice.answers.to(*question) {
        Some(answer) => format!("{} = {answer}: {reason}", question.key()),
        None => format!("{}: {reason}", question.key()),
    };
    let reasons: Vec<String> = advice.reasons.iter().map(reason).collect();
    let risk = |risk: &fencepost_advisor::Risk| {
        let shown = json!({
            "two_may_overlap": if risk.two_may_overlap { "yes" } else { "no" },
            "what_happens": risk.what_happens,
            "older_write": risk.older_write,
        });
        (risk.fault.key().to_owned(), shown)
    };
    let risks: serde_json::Map<String, Value> = advice.risks.iter().map(risk).collect();
    let alternative = |other: &fencepost_advisor::Alternative| {
        json!({
            "direction": other.direction.name(),
            "pattern": other.pattern.map(fencepost_advisor::Pattern::name),
            "fence": other.fence,
            "change": other.change,
        })
    };
    let alternatives: Vec<Value> = advice.alternatives.iter().map(alternative).collect();
    json!({
        "pattern": advice.pattern.name(),
        "fence": advice.fence,
        "reasons": reasons,
        "risks": risks,
        "alternatives": alternatives,
        "warnings": advice.warnings,
        "rule": rule,
    })
}
