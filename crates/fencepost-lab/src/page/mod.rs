//! The outcome as one HTML page that needs nothing else: the matrix, and a picture of what happened in each cell.
//!
//! It works without scripts and without a network, in the light and in the dark, and on paper. Invariant: every text from outside
//! is escaped, and nothing is told by a colour alone.

mod lanes;
mod markup;
mod matrix;

use crate::report::{Cell, Report};
use crate::table::{axes, reasons};
use crate::words::{shown, told};
use markup::{escaped, id};

/// The page.
pub fn page(report: &Report) -> String {
    let shown_cells: String = report.cells.iter().filter(|cell| cell.has_run()).map(section).collect();
    let head = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>fencepost lab, seed {}</title>\n<style>\n{}</style></head><body>\n",
        report.seed,
        include_str!("page.css")
    );
    let (patterns, faults) = axes(report);
    let body = [
        lanes::definitions().to_owned(),
        intro(report),
        matrix::matrix(report, &patterns, &faults),
        legend(),
        shown_cells,
        silent(report),
    ];
    format!("{head}{}</body></html>\n", body.concat())
}

fn intro(report: &Report) -> String {
    let seed = report.seed;
    format!(
        "<h1>What gets through</h1>\n\
         <p>Several worker processes add to one running total: each takes the lock, reads the total, computes, looks whether it \
         still holds the lock, and writes. Then something goes wrong. A row is what protects the workers, a column is what goes \
         wrong, and each cell leads to its picture.</p>\n\
         <p class=\"faint\">Seed {seed} (<code>fencepost lab --seed {seed}</code> repeats the schedule of faults) · writes go to {} \
         · {} altogether.</p>\n",
        escaped(&report.sink),
        shown(report.took)
    )
}

fn legend() -> String {
    let item = |shape: &str, text: &str| {
        format!(
            "<li><svg width=\"22\" height=\"16\" viewBox=\"0 0 22 16\" aria-hidden=\"true\">{shape}</svg>{text}</li>"
        )
    };
    let items = [
        item("<line class=\"wait\" x1=\"0\" y1=\"8\" x2=\"22\" y2=\"8\"/>", "waits"),
        item(
            "<rect class=\"hold\" x=\"1\" y=\"3\" width=\"20\" height=\"10\"/>",
            "holds the lock, T1 &lt; T2 &lt; … its token",
        ),
        item(
            "<rect class=\"after\" x=\"1\" y=\"3\" width=\"20\" height=\"10\"/>",
            "goes on after its lease has ended",
        ),
        item("<rect class=\"pause\" x=\"1\" y=\"3\" width=\"20\" height=\"10\"/>", "stopped"),
        item("<rect class=\"band\" x=\"1\" y=\"0\" width=\"20\" height=\"16\"/>", "the fault lasts"),
        item(&lanes::shape(crate::traces::Fate::Accepted, 11.0, 8.0), "write accepted"),
        item(
            &lanes::shape(crate::traces::Fate::Stale, 11.0, 8.0),
            "accepted, and wrong: stale, or wipes out another",
        ),
        item(&lanes::shape(crate::traces::Fate::Refused, 11.0, 8.0), "refused by the fence"),
        item(&lanes::shape(crate::traces::Fate::Unknown, 11.0, 8.0), "outcome not known"),
        item(&lanes::cross(11.0, 8.0), "killed"),
    ];
    format!("<ul class=\"legend\">{}</ul>\n", items.concat())
}

fn section(cell: &Cell) -> String {
    let sentences: Vec<String> = told(cell).iter().map(|sentence| escaped(sentence)).collect();
    format!(
        "<section class=\"cell\" id=\"{}\"><h2>{} under {}</h2>\n<p>{}</p>\n<div class=\"wide\">{}</div></section>\n",
        id(cell.pattern, cell.fault),
        escaped(&cell.pattern.to_string()),
        escaped(cell.fault.name()),
        sentences.join(" "),
        lanes::picture(cell)
    )
}

/// The cells without a picture, and why they have none.
fn silent(report: &Report) -> String {
    let item = |(why, names): (String, Vec<String>)| {
        format!("<li>{}: {}</li>\n", escaped(&names.join("; ")), escaped(&why))
    };
    let items: String = reasons(report).into_iter().map(item).collect();
    if items.is_empty() {
        return String::new();
    }
    format!(
        "<section class=\"cell\" id=\"silent\"><h2>Cells that say nothing</h2>\n<ul>{items}</ul></section>\n"
    )
}

#[cfg(test)]
mod tests;
