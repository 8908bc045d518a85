//! A lock as an onlooker sees it: as JSON, and in words.

use std::time::{Duration, UNIX_EPOCH};

use fencepost::{FencingToken, LockState, Reader, Status, Waiter};
use serde::Serialize;

use super::layout::counted;

/// The JSON form of a lock's state. What is unknown is null, never absent.
#[derive(Debug, Serialize)]
pub(crate) struct StateView {
    lock: String,
    state: Status,
    holder: Option<String>,
    label: Option<String>,
    token: Option<FencingToken>,
    since: Option<String>,
    remaining_ms: Option<u64>,
    /// Only where a quorum decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    slack: Option<usize>,
    backend: &'static str,
    /// All who hold it, where it is shared.
    readers: Vec<ReaderView>,
    waiters: Vec<WaiterView>,
}

#[derive(Debug, Serialize)]
struct ReaderView {
    holder: String,
    label: Option<String>,
    token: FencingToken,
    since: Option<String>,
    remaining_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct WaiterView {
    holder: Option<String>,
    label: Option<String>,
    since: Option<String>,
}

impl StateView {
    pub(crate) fn new(state: &LockState, backend: &'static str) -> Self {
        Self {
            lock: state.name.to_string(),
            state: state.status,
            holder: state.holder.map(|holder| holder.to_string()),
            label: state.label.clone(),
            token: state.token,
            since: state.since_micros.map(time),
            remaining_ms: state.remaining.map(milliseconds),
            slack: state.slack,
            backend,
            readers: state.readers.iter().map(ReaderView::new).collect(),
            waiters: state.waiters.iter().map(WaiterView::new).collect(),
        }
    }
}

impl ReaderView {
    fn new(reader: &Reader) -> Self {
        Self {
            holder: reader.holder.to_string(),
            label: reader.label.clone(),
            token: reader.token,
            since: reader.since_micros.map(time),
            remaining_ms: reader.remaining.map(milliseconds),
        }
    }
}

impl WaiterView {
    fn new(waiter: &Waiter) -> Self {
        Self {
            holder: waiter.holder.map(|holder| holder.to_string()),
            label: waiter.label.clone(),
            since: waiter.since_micros.map(time),
        }
    }
}

/// A time: RFC 3339, UTC, microseconds.
pub(crate) fn time(micros: u64) -> String {
    // The year 9999 is the last one that the format has.
    let last = Duration::from_secs(253_402_300_799);
    humantime::format_rfc3339_micros(UNIX_EPOCH + Duration::from_micros(micros).min(last)).to_string()
}

/// Whole milliseconds, rounded down.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// How many readers a line names.
const MOST_READERS: usize = 3;

/// Who has the lock, in one line.
pub(crate) fn sentence(state: &LockState) -> String {
    if !state.readers.is_empty() {
        return shared(state);
    }
    let parts = [
        Some(format!("{} is {}", state.name, state.status)),
        state.label.as_ref().map(|label| format!(" by {label}")),
        state.since_micros.map(|since| format!(" since {}", time(since))),
        state.token.map(|token| format!(", token {token}")),
        state.remaining.map(|remaining| format!(", {} left", left(remaining))),
        state.slack.map(|slack| format!(", slack {slack}")),
    ];
    parts.into_iter().flatten().collect()
}

/// How many hold it together, and who the first of them are.
fn shared(state: &LockState) -> String {
    let count = state.readers.len();
    let name = |reader: &Reader| reader.label.clone().unwrap_or_else(|| "somebody".to_owned());
    let mut names: Vec<String> = state.readers.iter().take(MOST_READERS).map(name).collect();
    if count > MOST_READERS {
        names.push(format!("{} more", count - MOST_READERS));
    }
    format!("{} is {} by {}: {}", state.name, state.status, counted(count, "reader"), names.join(", "))
}

/// The readers, a line each.
pub(crate) fn readers(state: &LockState) -> Vec<String> {
    state.readers.iter().map(|reader| format!("  reads: {}", described(reader))).collect()
}

/// One of those who share a lock.
pub(crate) fn described(reader: &Reader) -> String {
    let parts = [
        Some(reader.label.clone().unwrap_or_else(|| "somebody".to_owned())),
        reader.since_micros.map(|since| format!(" since {}", time(since))),
        Some(format!(", token {}", reader.token)),
        reader.remaining.map(|remaining| format!(", {} left", left(remaining))),
    ];
    parts.into_iter().flatten().collect()
}

fn left(remaining: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_millis(milliseconds(remaining)))
}

/// The waiters, a line each.
pub(crate) fn waiters(state: &LockState) -> Vec<String> {
    let line = |waiter: &Waiter| format!("  waits: {}", waiter.label.as_deref().unwrap_or("somebody"));
    state.waiters.iter().map(line).collect()
}
