//! A change in words.
//!
//! Invariant: what a holder says of itself ends no line and moves no cursor.

use fencepost::{Change, ChangeKind, LockState, Reader, Waiter};

use crate::commands::layout::{counted, harmless};
use crate::commands::state::milliseconds;

/// What has become of the lock `name`.
pub(super) fn sentence(name: &str, change: &Change) -> String {
    let state = &change.state;
    let text = match change.kind {
        ChangeKind::Waiters => format!("{name} {}", waiters(&state.waiters)),
        _ if !state.readers.is_empty() => format!("{name} held by {}", readers(&state.readers)),
        _ => format!("{name} {}{}", state.status, grant(state)),
    };
    harmless(&text)
}

/// The token and the holder, or for how long the store waits.
fn grant(state: &LockState) -> String {
    let parts = [
        state.token.map(|token| format!(" token {token}")),
        state.label.as_ref().map(|label| format!(" by {label}")),
        state.remaining.filter(|_| state.holder.is_none()).map(|left| format!(", {} left", time(left))),
    ];
    parts.into_iter().flatten().collect()
}

fn readers(readers: &[Reader]) -> String {
    let one = |reader: &Reader| format!("token {} by {}", reader.token, label(reader.label.as_deref()));
    let each: Vec<String> = readers.iter().map(one).collect();
    format!("{}: {}", counted(readers.len(), "reader"), each.join("; "))
}

fn waiters(waiters: &[Waiter]) -> String {
    let labels: Vec<&str> = waiters.iter().map(|waiter| label(waiter.label.as_deref())).collect();
    match labels.len() {
        0 => "has no waiters any more".to_owned(),
        count => format!("has {}: {}", counted(count, "waiter"), labels.join("; ")),
    }
}

pub(super) fn label(label: Option<&str>) -> &str {
    label.unwrap_or("somebody")
}

/// A length of time in six letters at most, as long as it is less than a hundred days.
pub(super) fn time(duration: std::time::Duration) -> String {
    let seconds = milliseconds(duration) / 1_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{minutes}m{:02}s", seconds % 60),
        3_600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lengths_of_time_are_short() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (60, "1m00s"), (3_599, "59m59s"), (3_600, "1h00m")] {
            assert_eq!(time(Duration::from_secs(seconds)), text);
        }
        assert_eq!(time(Duration::from_hours(24 * 3 + 4)), "3d04h");
    }

    #[test]
    fn label_of_a_holder_ends_no_line() {
        let mut state = LockState::free("a".parse().unwrap());
        state.label = Some("x\n\u{1b}[2Jy".to_owned());
        let said = sentence("a", &Change { at_micros: 0, kind: ChangeKind::Held, state });
        assert!(!said.contains(char::is_control), "{said:?}");
    }
}
