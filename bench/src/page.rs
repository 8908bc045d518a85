//! The figures as one HTML page that needs nothing else: a bar with its range for each contestant, and curves of what grows.
//!
//! Bars are lengths in multiples of the floor, on a logarithmic scale, since peers are apart by factors. Longer is slower where the
//! unit is a time, and faster where it is a rate; each heading says which.

use std::fmt::Write;

use crate::Results;
use crate::held::Held;
use crate::measure::{Bar, Figure};

const WIDTH: f64 = 860.0;
const LABELS: f64 = 190.0;
const NUMBERS: f64 = 150.0;
const ROW: f64 = 22.0;

/// The page.
pub(crate) fn page(results: &Results) -> String {
    let figures = joined(results.figures.iter().map(bars));
    let recovery = joined(results.recovery.iter().map(|recovery| format!("<li>{recovery}</li>\n")));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>fencepost beside its peers</title>\n<style>\n{}</style></head><body>\n\
         <h1>fencepost beside its peers and the floor</h1>\n\
         <p>The floor (dashed) is the fewest commands that any client must send. All contestants take turns on one server in one run, \
         so only the ratios mean something. Each bar is the median of the rounds, and the line on it their range.</p>\n\
         {figures}{}{}</body></html>\n",
        include_str!("page.css"),
        curves(&results.held),
        if recovery.is_empty() {
            String::new()
        } else {
            format!("<h2>After a kill</h2>\n<ul>{recovery}</ul>\n")
        },
    )
}

fn bars(figure: &Figure) -> String {
    let bars = figure.bars();
    let greatest = bars.iter().map(|bar| bar.ratio[2]).fold(1.0, f64::max);
    let least = bars.iter().map(|bar| bar.ratio[0]).fold(1.0, f64::min);
    let (low, high) = (least.min(0.5).log10(), greatest.max(2.0).log10());
    let at = |ratio: f64| LABELS + (WIDTH - LABELS - NUMBERS) * (ratio.log10() - low) / (high - low);
    let height = ROW * as_float(bars.len()) + 22.0;
    let mut svg =
        format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n", figure.name());
    let row = |(index, bar): (usize, &Bar)| drawn(bar, ROW * as_float(index), &at, low);
    svg.extend(bars.iter().enumerate().map(row));
    let (floor, bottom) = (at(1.0), height - 18.0);
    let better = if figure.is_time() { "shorter is better" } else { "longer is better" };
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        "<line class=\"floor\" x1=\"{floor:.1}\" y1=\"0\" x2=\"{floor:.1}\" y2=\"{bottom}\"/>\
         <text class=\"faint\" x=\"{floor:.1}\" y=\"{}\" text-anchor=\"middle\">floor</text></svg>",
        height - 5.0
    );
    format!("<h2>{} <span class=\"faint\">({}; {better})</span></h2>\n{svg}", figure.name(), figure.unit())
}

fn drawn(bar: &Bar, top: f64, at: &impl Fn(f64) -> f64, low: f64) -> String {
    let [least, median, greatest] = bar.ratio.map(at);
    let (left, middle, class) =
        (at(10_f64.powf(low)), top + ROW / 2.0, if bar.is_ours { "bar ours" } else { "bar" });
    format!(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
         <rect class=\"{class}\" x=\"{left:.1}\" y=\"{}\" width=\"{:.1}\" height=\"{}\"/>\
         <line class=\"range\" x1=\"{least:.1}\" y1=\"{middle}\" x2=\"{greatest:.1}\" y2=\"{middle}\"/>\
         <text x=\"{}\" y=\"{}\">{:.2} × floor, {:.0}</text>\n",
        LABELS - 8.0,
        middle + 4.0,
        bar.name,
        top + 4.0,
        (median - left).max(1.0),
        ROW - 8.0,
        WIDTH - NUMBERS + 8.0,
        middle + 4.0,
        bar.ratio[1],
        bar.value,
    )
}

/// What each of many locks costs, by how many there are: one curve a backend for memory, with the numbers in a table.
fn curves(held: &[Held]) -> String {
    if held.is_empty() {
        return String::new();
    }
    let rows: String = held.iter().map(Held::row).collect();
    let mut backends: Vec<&str> = held.iter().map(Held::backend).collect();
    backends.dedup();
    let curve = |backend: &&str| {
        let points: Vec<(f64, f64)> =
            held.iter().filter(|held| held.backend() == *backend).map(Held::point).collect();
        format!("<p>{backend}: memory by the number of locks held</p>\n{}", curve(&points))
    };
    let curves: String = backends.iter().map(curve).collect();
    format!(
        "<h2>Many locks held and renewed by one process</h2>\n<table><tr><th></th><th>locks</th><th>KiB each</th><th>sockets</th>\
         <th>% of a core</th><th>acquired in s</th><th>a pair beside them, µs</th></tr>\n{rows}</table>\n{curves}"
    )
}

fn curve(points: &[(f64, f64)]) -> String {
    let (width, height) = (WIDTH, 120.0);
    let right = points.iter().map(|(locks, _)| *locks).fold(1.0, f64::max);
    let top = points.iter().map(|(_, kib)| *kib).fold(1.0, f64::max);
    let place = |(locks, kib): &(f64, f64)| (60.0 + (width - 130.0) * locks / right, 95.0 - 80.0 * kib / top);
    let line = joined(points.iter().map(place).map(|(x, y)| format!("{x:.1},{y:.1} ")));
    let dots = joined(points.iter().map(|point| {
        let ((x, y), (locks, kib)) = (place(point), point);
        format!(
            "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/><text x=\"{x:.1}\" y=\"{:.1}\">{kib:.0} KiB</text>\
             <text class=\"faint\" x=\"{x:.1}\" y=\"112\" text-anchor=\"middle\">{locks}</text>",
            y - 6.0
        )
    }));
    format!(
        "<svg viewBox=\"0 0 {width} {height}\"><line class=\"axis\" x1=\"60\" y1=\"95\" x2=\"{width}\" y2=\"95\"/>\
         <polyline class=\"curve\" points=\"60,95 {line}\"/>{dots}</svg>\n"
    )
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().concat()
}

fn as_float(count: usize) -> f64 {
    f64::from(u32::try_from(count).expect("a small number"))
}
