//! `advise --from`: many partitions at once, as a table and a whole configuration.

use std::path::Path;

use fencepost_advisor::{Advice, Details};
use fencepost_policy::{Partition, amended, partitions};
use serde_json::{Value, json};

use super::{data, write};
use crate::args::{self, Global};
use crate::commands::place::{fail, misconfigured};
use crate::exit::Exit;
use crate::printer::Printer;

/// Advises on every partition of `file`.
pub(super) fn advise(global: &Global, args: &args::Advise, file: &Path, printer: Printer) -> Exit {
    match advised(global, args, file, printer) {
        Ok(()) => Exit::OK,
        Err(exit) => exit,
    }
}

/// One partition and what was advised.
struct Advised {
    partition: Partition,
    advice: Advice,
    rule: String,
}

fn advised(global: &Global, args: &args::Advise, file: &Path, printer: Printer) -> Result<(), Exit> {
    if global.backend().map_err(|error| fail(&error, printer))?.is_some() {
        printer.error("--backend names one server, and --from may need several");
        printer.hint("write them into the configuration, under [backends.NAME]");
        return Err(Exit::USAGE);
    }
    let text = std::fs::read_to_string(file).map_err(|error| {
        printer.error(format_args!("cannot read the list of partitions: {}: {error}", file.display()));
        Exit::USAGE
    })?;
    let partitions = partitions(file, &text).map_err(|error| misconfigured(&error, printer))?;
    let profiles = fencepost::profiles();
    let one = |partition: Partition| {
        let advice = fencepost_advisor::advise(&partition.answers.or(args.answers()), &profiles);
        let details = Details {
            glob: Some(&partition.glob),
            backend: None,
            fence: partition.fence.as_deref(),
            because: partition.because.as_deref(),
        };
        let rule = advice.rule_for(&details);
        Advised { partition, advice, rule }
    };
    let all: Vec<Advised> = partitions.into_iter().map(one).collect();
    let configuration = whole(&all, printer)?;
    if global.json {
        printer.data(&json(&all, &configuration).to_string());
    } else {
        say(&all, &configuration, args.write, printer);
    }
    if !args.write {
        return Ok(());
    }
    let rules: Vec<String> = all.into_iter().map(|one| one.rule).collect();
    write::write(global, &rules, printer)
}

/// The configuration that has these rules and no others.
fn whole(all: &[Advised], printer: Printer) -> Result<String, Exit> {
    let mut text = String::new();
    for one in all {
        let step = amended(Path::new("the configuration"), &text, &one.rule);
        text = step.map_err(|error| misconfigured(&error, printer))?.text;
    }
    Ok(text)
}

fn json(all: &[Advised], configuration: &str) -> Value {
    let one = |one: &Advised| {
        let mut shown = data(&one.advice, &one.rule);
        shown["match"] = json!(one.partition.glob);
        shown
    };
    let partitions: Vec<Value> = all.iter().map(one).collect();
    json!({ "partitions": partitions, "configuration": configuration })
}

fn say(all: &[Advised], configuration: &str, writes: bool, printer: Printer) {
    let longest =
        |of: fn(&Advised) -> String| all.iter().map(|one| of(one).chars().count()).max().unwrap_or(0);
    let glob: fn(&Advised) -> String = |one| one.partition.glob.clone();
    let (left, middle) = (longest(glob), longest(|one| one.advice.title()));
    for one in all {
        let remark = one.advice.warnings.first().map(|_| "see below").unwrap_or_default();
        let line = format!("{:left$}  {:middle$}  {remark}", one.partition.glob, one.advice.title());
        printer.data(line.trim_end());
    }
    for one in all {
        for warning in &one.advice.warnings {
            let text = format!("{}: {warning}", one.partition.glob);
            printer.data(&format!("\n{}", fencepost_advisor::wrapped(&text, 0, super::width()).trim_end()));
        }
    }
    if !writes {
        printer.data(&format!("\nThe configuration\n\n{}", configuration.trim_end()));
    }
}
