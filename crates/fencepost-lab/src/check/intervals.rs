//! Overlaps of intervals, found in one sweep.

use std::time::Duration;

/// A time from one moment to another, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// How often intervals overlap, and for how long altogether.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Overlaps {
    pub(super) count: usize,
    pub(super) length: Duration,
}

/// An overlap is counted where an interval begins before one that began earlier has ended.
pub(super) fn overlaps(intervals: impl Iterator<Item = Interval>) -> Overlaps {
    let mut sorted: Vec<Interval> = intervals.collect();
    sorted.sort_by_key(|interval| (interval.start, interval.end));
    let (mut found, mut greatest_end) = (Overlaps::default(), 0);
    for interval in sorted {
        if interval.start < greatest_end && interval.start < interval.end {
            found.count += 1;
            found.length += Duration::from_nanos(interval.end.min(greatest_end) - interval.start);
        }
        greatest_end = greatest_end.max(interval.end);
    }
    found
}
