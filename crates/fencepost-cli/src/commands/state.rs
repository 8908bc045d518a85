//! A lock as an onlooker sees it: as JSON, and in words.

use std::time::{Duration, UNIX_EPOCH};

use fencepost::{FencingToken, LockState, Status, Waiter};
use serde::Serialize;

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
    waiters: Vec<WaiterView>,
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
            waiters: state.waiters.iter().map(WaiterView::new).collect(),
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

/// Who has the lock, in one line.
pub(crate) fn sentence(state: &LockState) -> String {
    let left = |remaining| humantime::format_duration(Duration::from_millis(milliseconds(remaining)));
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

/// The waiters, a line each.
pub(crate) fn waiters(state: &LockState) -> Vec<String> {
    let line = |waiter: &Waiter| format!("  waits: {}", waiter.label.as_deref().unwrap_or("somebody"));
    state.waiters.iter().map(line).collect()
}
