//! The matrix at the top of the page.

use super::markup::{escaped, id};
use crate::fault::Fault;
use crate::pattern::Pattern;
use crate::report::{Cell, Report, Verdict};
use crate::words::shown;

/// The matrix: patterns down, faults across.
pub(super) fn matrix(report: &Report, patterns: &[Pattern], faults: &[Fault]) -> String {
    let names: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let headings = names.join("</th><th scope=\"col\">");
    let row = |pattern: &Pattern| {
        let cells = faults.iter().map(|fault| report.cell(*pattern, *fault).map_or_else(empty, entry));
        format!("<tr><th scope=\"row\">{pattern}</th>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = patterns.iter().map(row).collect();
    format!(
        "<div class=\"wide\"><table><thead><tr><th scope=\"col\">pattern</th><th scope=\"col\">{headings}</th></tr></thead>\n<tbody>{rows}</tbody></table></div>\n"
    )
}

fn empty() -> String {
    "<td></td>".to_owned()
}

fn entry(cell: &Cell) -> String {
    let (class, sign) = match cell.verdict() {
        Verdict::Vacuous => ("vacuous", "–"),
        Verdict::Clean => ("clean", "✓"),
        Verdict::Weak => ("weak", "✗"),
        Verdict::Broken => ("broken", "‼"),
    };
    let target = if cell.has_run() { id(cell.pattern, cell.fault) } else { "silent".to_owned() };
    let title = cell.vacuous.as_deref().map_or_else(|| crate::words::summary(cell), ToOwned::to_owned);
    format!(
        "<td class=\"{class}\"><a href=\"#{target}\" title=\"{}\"><span class=\"sign\">{sign}</span> {}</a></td>",
        escaped(&title),
        lines(cell)
    )
}

fn lines(cell: &Cell) -> String {
    let tally = &cell.tally;
    match cell.verdict() {
        Verdict::Vacuous => "says nothing".to_owned(),
        Verdict::Broken => format!("broken<small>{}</small>", escaped(&cell.broken.join(", "))),
        Verdict::Clean if tally.stale_refused > 0 => {
            format!("{} refused<small>total right{}</small>", tally.stale_refused, recovery(cell))
        }
        Verdict::Clean => format!("nothing wrong<small>{} grants</small>", tally.grants),
        Verdict::Weak => {
            let total = if tally.total_is_correct() { "" } else { ", total wrong" };
            format!("{}<small>{} lost{total}{}</small>", through(cell), tally.lost_updates, recovery(cell))
        }
    }
}

fn through(cell: &Cell) -> String {
    if cell.tally.stale_accepted > 0 {
        return format!("{} stale accepted", cell.tally.stale_accepted);
    }
    format!("{} overlaps", cell.tally.overlaps)
}

fn recovery(cell: &Cell) -> String {
    cell.recovery().map_or_else(String::new, |time| format!(", next after {}", shown(time)))
}
