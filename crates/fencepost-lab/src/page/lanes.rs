//! The picture of one cell: a lane for each worker on one axis of time.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::markup::escaped;
use crate::check::Hold;
use crate::history::Step;
use crate::report::Cell;
use crate::traces::{Fate, Mark, Traces};
use crate::words::told;

/// Where moments lie on the axis.
struct Axis {
    start: u64,
    end: u64,
}

impl Axis {
    /// From shortly before the first grant to the end of the last hold.
    fn of(traces: &Traces) -> Self {
        let first = traces.holds.iter().filter_map(|hold| hold.granted).min().unwrap_or(0);
        let last = traces.holds.iter().map(|hold| hold.last).max().unwrap_or(first);
        let margin = last.saturating_sub(first) / 50 + 1;
        Self { start: first.saturating_sub(margin), end: last + margin }
    }

    #[expect(clippy::cast_precision_loss, reason = "a picture is a few thousand points wide")]
    fn x(&self, at: u64) -> f64 {
        let share = at.clamp(self.start, self.end) - self.start;
        LEFT + (RIGHT - LEFT) * share as f64 / (self.end - self.start) as f64
    }
}

/// The picture.
pub(super) fn picture(cell: &Cell) -> String {
    let traces = Traces::of(cell);
    let axis = Axis::of(&traces);
    let workers: BTreeSet<usize> = cell.history.records.iter().map(|record| record.worker).collect();
    let bottom = TOP + LANE * f64::from(u32::try_from(workers.len()).unwrap_or(1));
    let mut parts = vec![bands(cell, &axis, bottom), ticks(&axis, bottom)];
    for (place, worker) in (0_u32..).zip(workers) {
        parts.push(lane(cell, &traces, &axis, worker, TOP + LANE * f64::from(place)));
    }
    let label = escaped(&told(cell).join(" "));
    format!(
        "<svg class=\"lanes\" viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" xmlns=\"{SVG}\" aria-label=\"{label}\">\
         {}</svg>",
        bottom + 26.0,
        parts.concat()
    )
}

/// The times of the faults, over all lanes.
fn bands(cell: &Cell, axis: &Axis, bottom: f64) -> String {
    let happened = cell.effects.iter().filter(|effect| effect.failed.is_none());
    let band = |effect: &crate::strike::Effect| {
        let (left, right) = (axis.x(effect.from), axis.x(effect.until));
        let what = format!("{}: worker {}", effect.what, effect.worker + 1);
        let (at, anchor) = if left > f64::midpoint(LEFT, RIGHT) { (right, "end") } else { (left, "start") };
        format!(
            "<rect class=\"band\" x=\"{left:.1}\" y=\"{:.0}\" width=\"{:.1}\" height=\"{:.0}\"/>\
             <text class=\"small\" x=\"{at:.1}\" y=\"14\" text-anchor=\"{anchor}\">{}</text>",
            TOP - 6.0,
            (right - left).max(2.0),
            bottom - TOP + 6.0,
            escaped(&what)
        )
    };
    happened.map(band).collect()
}

/// The axis, with a line for each half second or more.
fn ticks(axis: &Axis, bottom: f64) -> String {
    let steps = [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000].map(|ms: u64| ms * 1_000_000);
    let length = axis.end - axis.start;
    let step = steps.into_iter().find(|step| length / step <= 12).unwrap_or(length / 10 + 1);
    let mut text = String::new();
    for (number, at) in
        (0_u64..).zip((axis.start..=axis.end).step_by(usize::try_from(step).unwrap_or(usize::MAX)))
    {
        let (x, time) = (axis.x(at), crate::words::shown(std::time::Duration::from_nanos(number * step)));
        write!(
            text,
            "<line class=\"axis\" x1=\"{x:.1}\" y1=\"{TOP:.0}\" x2=\"{x:.1}\" y2=\"{bottom:.0}\"/>\
             <text class=\"small\" x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{time}</text>",
            bottom + 16.0
        )
        .expect("a string takes everything");
    }
    text
}

fn lane(cell: &Cell, traces: &Traces, axis: &Axis, worker: usize, top: f64) -> String {
    let middle = top + LANE / 2.0;
    let mut text = format!("<text x=\"8\" y=\"{:.0}\">worker {}</text>", middle + 4.0, worker + 1);
    for hold in traces.holds.iter().filter(|hold| hold.worker == worker) {
        text.push_str(&hold_of(hold, traces, axis, middle));
    }
    text.push_str(&pauses(cell, axis, worker, middle));
    let marks = traces.marks.iter().filter(|mark| mark.worker == worker);
    text.extend(marks.map(|mark| mark_of(mark, traces, axis, middle)));
    text
}

fn hold_of(hold: &Hold, traces: &Traces, axis: &Axis, middle: f64) -> String {
    let begin = hold.granted.unwrap_or(hold.last);
    let (asked, granted) = (axis.x(hold.asked), axis.x(begin));
    let mut text = format!(
        "<line class=\"wait\" x1=\"{asked:.1}\" y1=\"{middle:.0}\" x2=\"{granted:.1}\" y2=\"{middle:.0}\"/>"
    );
    let Some(claimed) = hold.claimed() else { return text };
    let last_use = hold.last_use.unwrap_or(claimed.end);
    if last_use > claimed.end {
        text.push_str(&bar("after", axis.x(claimed.end), axis.x(last_use), middle, "its lease has ended"));
    }
    let label = hold.token.and_then(|token| traces.label(token));
    let title = hold.token.map_or("no lock".to_owned(), |token| format!("token {token}"));
    let (left, right) = (granted, axis.x(claimed.end));
    text.push_str(&bar("hold", left, right, middle, &title));
    if let Some(label) = label {
        let at = f64::midpoint(left, right);
        let y = middle - HALF - 3.0;
        write!(
            text,
            "<text class=\"token\" x=\"{at:.1}\" y=\"{y:.0}\" text-anchor=\"middle\">{label}</text>"
        )
        .expect("a string takes everything");
    }
    text
}

fn bar(class: &str, left: f64, right: f64, middle: f64, title: &str) -> String {
    format!(
        "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{:.0}\" width=\"{:.1}\" height=\"{:.0}\"><title>{}</title></rect>",
        middle - HALF,
        (right - left).max(1.0),
        2.0 * HALF,
        escaped(title)
    )
}

/// The times in which a worker stood still, and the moments at which it was killed.
fn pauses(cell: &Cell, axis: &Axis, worker: usize, middle: f64) -> String {
    let mut stopped = None;
    let mut text = String::new();
    for record in cell.history.records.iter().filter(|record| record.worker == worker) {
        match (&record.step, stopped) {
            (Step::Paused, _) => stopped = Some(record.at),
            (Step::Resumed | Step::Killed, Some(since)) => {
                text.push_str(&bar("pause", axis.x(since), axis.x(record.at), middle, "stopped"));
                stopped = None;
            }
            _ => {}
        }
        if record.step == Step::Killed {
            text.push_str(&cross(axis.x(record.at), middle));
        }
    }
    text
}

/// A write, with the token of its author where something is wrong with it.
fn mark_of(mark: &Mark, traces: &Traces, axis: &Axis, middle: f64) -> String {
    let x = axis.x(mark.at);
    let word = match mark.fate {
        Fate::Stale => "stale",
        Fate::Losing => "overwrites",
        Fate::Refused => "refused",
        Fate::Accepted | Fate::Unknown => return shape(mark.fate, x, middle),
    };
    // Without tokens nothing tells one such write from another.
    let Some(token) = traces.label_of((mark.worker, mark.hold)) else { return shape(mark.fate, x, middle) };
    let (at, anchor) = if x > RIGHT - 60.0 { (x - 9.0, "end") } else { (x + 9.0, "start") };
    let y = middle + HALF + 11.0;
    let mark = shape(mark.fate, x, middle);
    format!(
        "{mark}<text class=\"token\" x=\"{at:.1}\" y=\"{y:.0}\" text-anchor=\"{anchor}\">{token} {word}</text>"
    )
}

/// What pictures share.
pub(super) fn definitions() -> &'static str {
    "<svg width=\"0\" height=\"0\" style=\"position:absolute\" aria-hidden=\"true\"><defs>\
     <pattern id=\"stripes\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
     <line class=\"stripe\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"7\"/></pattern></defs></svg>\n"
}

/// What stands for a write: a circle, a triangle, a crossed square, a diamond.
pub(super) fn shape(fate: Fate, x: f64, y: f64) -> String {
    let (left, right, top, bottom) = (x - 5.5, x + 5.5, y - 5.5, y + 5.5);
    match fate {
        Fate::Accepted => format!("<circle class=\"accepted\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"),
        Fate::Stale | Fate::Losing => format!(
            "<polygon class=\"stale\" points=\"{x:.1},{:.1} {:.1},{bottom:.1} {:.1},{bottom:.1}\"/>",
            y - 7.0,
            x - 7.0,
            x + 7.0
        ),
        Fate::Refused => format!(
            "<rect class=\"refused\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"11\" height=\"11\"/>\
             <line class=\"cross\" x1=\"{left:.1}\" y1=\"{top:.1}\" x2=\"{right:.1}\" y2=\"{bottom:.1}\"/>\
             <line class=\"cross\" x1=\"{left:.1}\" y1=\"{bottom:.1}\" x2=\"{right:.1}\" y2=\"{top:.1}\"/>"
        ),
        Fate::Unknown => format!(
            "<polygon class=\"unknown\" points=\"{x:.1},{top:.1} {right:.1},{y:.1} {x:.1},{bottom:.1} {left:.1},{y:.1}\"/>"
        ),
    }
}

/// What stands for the end of a killed worker.
pub(super) fn cross(x: f64, y: f64) -> String {
    let (left, right, top, bottom) = (x - 6.0, x + 6.0, y - 6.0, y + 6.0);
    format!(
        "<line class=\"killed\" x1=\"{left:.1}\" y1=\"{top:.1}\" x2=\"{right:.1}\" y2=\"{bottom:.1}\"/>\
         <line class=\"killed\" x1=\"{left:.1}\" y1=\"{bottom:.1}\" x2=\"{right:.1}\" y2=\"{top:.1}\"/>"
    )
}

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 984.0;
const TOP: f64 = 28.0;
const LANE: f64 = 58.0;
/// Half of the height of a bar.
const HALF: f64 = 9.0;
/// The name of the vocabulary, which no browser looks up.
const SVG: &str = "http://www.w3.org/2000/svg";
