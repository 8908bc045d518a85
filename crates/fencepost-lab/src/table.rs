//! The outcome as a table of 80 columns for a terminal: patterns down, faults across, and below it what the dashes mean.

use std::fmt::Write;

use crate::fault::Fault;
use crate::pattern::Pattern;
use crate::report::{Cell, Report, Verdict};
use crate::words::{short, shown, summary};

/// The table.
pub fn table(report: &Report) -> String {
    let (patterns, faults) = axes(report);
    let mut text = format!("{:16}", "");
    for fault in &faults {
        push(&mut text, &heading(*fault));
    }
    text = format!("{}\n", text.trim_end());
    for pattern in patterns {
        let mut line = format!("{:16}", pattern.to_string());
        for fault in &faults {
            push(&mut line, &report.cell(pattern, *fault).map_or_else(String::new, short));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push_str(&below(report));
    text
}

/// The patterns and the faults, each once, in their order.
pub(crate) fn axes(report: &Report) -> (Vec<Pattern>, Vec<Fault>) {
    let (mut patterns, mut faults): (Vec<Pattern>, Vec<Fault>) = (Vec::new(), Vec::new());
    for cell in &report.cells {
        if !patterns.contains(&cell.pattern) {
            patterns.push(cell.pattern);
        }
        if !faults.contains(&cell.fault) {
            faults.push(cell.fault);
        }
    }
    (patterns, faults)
}

impl Report {
    /// The cell of a pattern under a fault.
    pub fn cell(&self, pattern: Pattern, fault: Fault) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.pattern == pattern && cell.fault == fault)
    }
}

fn push(line: &mut String, text: &str) {
    write!(line, "{text:<8} ").expect("a string takes everything");
}

fn heading(fault: Fault) -> String {
    match fault {
        Fault::Partition => "cut off".to_owned(),
        Fault::ServerRestart => "restart".to_owned(),
        Fault::DataLoss => "loss".to_owned(),
        fault => fault.to_string(),
    }
}

fn below(report: &Report) -> String {
    let mut text = format!("\n{LEGEND}\n\n");
    for cell in report.cells.iter().filter(|cell| matches!(cell.verdict(), Verdict::Weak | Verdict::Broken)) {
        text.push_str(&entry(&format!("{} under {}", cell.pattern, cell.fault), &said(cell)));
    }
    for (why, names) in reasons(report) {
        text.push_str(&entry(&format!("- {}", names.join("; ")), &why));
    }
    write!(text, "\nseed {}, writes to {}, {}", report.seed, report.sink, shown(report.took))
        .expect("a string takes everything");
    text
}

fn said(cell: &Cell) -> String {
    if cell.broken.is_empty() {
        return summary(cell);
    }
    format!("BROKEN: {}; {}", cell.broken.join("; "), summary(cell))
}

/// Why cells say nothing, each reason once, with the cells in a few words.
pub(crate) fn reasons(report: &Report) -> Vec<(String, Vec<String>)> {
    let mut reasons: Vec<(String, Vec<(Pattern, Fault)>)> = Vec::new();
    for cell in &report.cells {
        let Some(why) = &cell.vacuous else { continue };
        match reasons.iter_mut().find(|(other, _)| other == why) {
            Some((_, cells)) => cells.push((cell.pattern, cell.fault)),
            None => reasons.push((why.clone(), vec![(cell.pattern, cell.fault)])),
        }
    }
    reasons.into_iter().map(|(why, cells)| (why, grouped(&cells))).collect()
}

/// Patterns under the same faults stand together.
fn grouped(cells: &[(Pattern, Fault)]) -> Vec<String> {
    let mut groups: Vec<(Vec<Fault>, Vec<Pattern>)> = Vec::new();
    for (pattern, _) in cells {
        if groups.iter().any(|(_, patterns)| patterns.contains(pattern)) {
            continue;
        }
        let faults = cells.iter().filter(|(other, _)| other == pattern).map(|(_, fault)| *fault).collect();
        match groups.iter_mut().find(|(others, _)| *others == faults) {
            Some((_, patterns)) => patterns.push(*pattern),
            None => groups.push((faults, vec![*pattern])),
        }
    }
    let names = |faults: &[Fault]| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let shown = |(faults, patterns): &(Vec<Fault>, Vec<Pattern>)| {
        let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
        format!("{} under {}", patterns.join(", "), names(faults))
    };
    groups.iter().map(shown).collect()
}

/// A heading, and what is said about it, in lines that fit.
fn entry(heading: &str, text: &str) -> String {
    let mut lines = folded(heading, 80);
    lines.extend(folded(text, 76).into_iter().map(|line| format!("    {line}")));
    lines.join("\n") + "\n"
}

/// The words in lines of at most so many letters.
pub(crate) fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

const LEGEND: &str = "ok: nothing wrong was written; refused: the fence has refused stale writes;\n\
    N stale: so many stale writes were accepted; N lost: so many updates were lost;\n\
    -: the cell says nothing";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::check::Tally;

    /// Every pattern under every fault, of which nothing could be run but one cell.
    fn report(cell: &Cell) -> Report {
        let places = Pattern::all().into_iter().flat_map(|pattern| Fault::ALL.map(|fault| (pattern, fault)));
        let of_place = |(pattern, fault)| {
            if (pattern, fault) == (cell.pattern, cell.fault) {
                return cell.clone();
            }
            Cell::vacuous(
                pattern,
                fault,
                "a reason of many words that has to be folded when it is shown below",
            )
        };
        let (cells, sink) = (places.map(of_place).collect(), "Postgres".to_owned());
        Report { seed: 7, cells, sink, took: Duration::from_secs(139) }
    }

    fn cell(pattern: &str, mut tally: Tally) -> Cell {
        tally.acknowledged = 6;
        Cell { tally, ..Cell::vacuous(pattern.parse().unwrap(), Fault::Pause, "") }
    }

    fn told(pattern: &str, tally: Tally) -> String {
        table(&report(&Cell { vacuous: None, ..cell(pattern, tally) }))
    }

    #[test]
    fn table_fits_in_eighty_columns() {
        let told = told("zookeeper+fence", Tally { total: 6, stale_refused: 12, ..Tally::default() });
        for line in told.lines() {
            assert!(line.chars().count() <= 80, "{line:?}");
        }
        assert!(told.contains("zookeeper+fence -        refused"), "{told}");
    }

    #[test]
    fn each_reason_stands_once_below_the_table() {
        let told = told("redis", Tally { total: 6, ..Tally::default() });
        assert_eq!(told.matches("a reason of many words").count(), 1, "{told}");
        let words = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("; redis under none, crash, partition"), "{told}");
    }

    #[test]
    fn what_got_through_is_counted_and_what_is_broken_cries() {
        let tally = Tally { total: 5, stale_accepted: 2, lost_updates: 3, ..Tally::default() };
        assert!(told("redis", tally.clone()).contains("2 stale writes accepted, 3 updates lost"));
        let broken = cell("redis+fence", tally).judge();
        let told = table(&report(&broken));
        assert!(told.contains("BROKEN: a stale write was accepted (2 times)"), "{told}");
        assert!(!report(&broken).is_kept());
    }
}
