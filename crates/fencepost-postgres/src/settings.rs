//! What a session must have set, whatever the role or the database has by default.
//!
//! Each setting is read back at the beginning: a lease may only be believed in where the server really works by these.

use std::fmt::Write;
use std::time::Duration;

use fencepost_core::{Error, ErrorKind, Result};

use crate::endpoint::PausePolicy;

/// The longest that one statement waits for the door of a lock, for its row, and for the lock, each. Below half of the server's `deadlock_timeout` (1 s), so that
/// a holder that builds an index concurrently waits for no waiter's transaction for long, and no detector is ever run.
const WAIT_MOST: Duration = Duration::from_millis(300);

/// The server's `deadlock_timeout`, unless it says otherwise.
pub(crate) const DEADLOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the set-up of a session waits for that of another one, or for the schema to be made, where it has to.
pub(crate) const SET_UP_WAIT_MOST: Duration = Duration::from_secs(2);

/// How often a waiting session looks whether its client is still there.
const CHECK_CLIENT_EVERY: Duration = Duration::from_millis(100);

/// What depends on the length of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    pub(crate) on_pause: PausePolicy,
}

/// Settings with the values that they must have, in the unit that the server keeps them in.
type Values = Vec<(&'static str, String)>;

impl Terms {
    /// How long one statement may wait for a lock: short beside the ttl, since nothing else can be sent on the session meanwhile.
    pub(crate) fn lock_timeout(self, deadlock_timeout: Duration) -> Duration {
        let most = WAIT_MOST.min(self.ttl / 32).min(deadlock_timeout / 2);
        most.max(Duration::from_millis(1))
    }

    /// How long the session may be idle, for one that only waits if `waits`: zero is without limit. A waiter that is stopped
    /// would be granted the lock and keep it, so that one is limited under both policies.
    pub(crate) fn idle_most(self, waits: bool) -> Duration {
        if waits || self.on_pause == PausePolicy::Expire { self.ttl } else { Duration::ZERO }
    }

    /// The settings of a session with these terms. The network's are at least the ttl: the server must not drop a holder that
    /// still believes in its lease.
    fn values(self) -> Values {
        vec![
            ("idle_session_timeout", millis(self.idle_most(false))),
            // Shorter afterwards where the server's deadlock_timeout is.
            ("lock_timeout", millis(self.lock_timeout(DEADLOCK_TIMEOUT))),
            ("tcp_user_timeout", millis(self.ttl)),
            ("tcp_keepalives_idle", seconds_of(self.ttl, 2)),
            ("tcp_keepalives_interval", seconds_of(self.ttl, 8)),
            ("tcp_keepalives_count", "4".to_owned()),
        ]
    }

    /// The same as SQL, for a session that had other terms.
    pub(crate) fn sql(self) -> String {
        as_sql(&self.values())
    }
}

/// A part of a duration in whole seconds, rounded up, and at least one.
fn seconds_of(duration: Duration, parts: u32) -> String {
    let part = duration / parts;
    (part.as_secs() + u64::from(part.subsec_nanos() > 0)).max(1).to_string()
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

/// The milliseconds in a length of time as the server shows it, in the greatest unit in which it is whole.
pub(crate) fn millis_in(shown: &str) -> Option<u64> {
    let digits = shown.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &shown[digits.len()..] {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// What every session has set.
fn common() -> Values {
    let fixed = [
        ("search_path", "pg_catalog"),
        ("statement_timeout", "0"),
        ("idle_in_transaction_session_timeout", "0"),
        ("synchronous_commit", "on"),
        ("default_transaction_isolation", "read committed"),
        ("default_transaction_read_only", "off"),
        ("default_transaction_deferrable", "off"),
        // A warning at a commit says that it is not where it should be.
        ("client_min_messages", "warning"),
    ];
    let mut values: Values = fixed.map(|(name, value)| (name, value.to_owned())).to_vec();
    values.push(("client_connection_check_interval", millis(CHECK_CLIENT_EVERY)));
    values
}

/// All settings of a session with `terms`, as options for the start of a connection.
pub(crate) fn as_options(terms: Terms) -> String {
    let mut options = String::new();
    for (name, value) in common().into_iter().chain(terms.values()) {
        let value = value.replace('\\', "\\\\").replace(' ', "\\ ");
        // Writing to a string cannot fail.
        let _ = write!(options, " -c {name}={value}");
    }
    options
}

/// All settings of a session with `terms`, as SQL.
pub(crate) fn all_as_sql(terms: Terms) -> String {
    let mut values = common();
    values.extend(terms.values());
    as_sql(&values)
}

fn as_sql(values: &Values) -> String {
    let mut sql = String::new();
    for (name, value) in values {
        let _ = write!(sql, "set {name} = '{value}';");
    }
    sql
}

/// The names of all settings that are read back.
pub(crate) fn names() -> Vec<&'static str> {
    let terms = Terms { ttl: Duration::ZERO, on_pause: PausePolicy::Hold };
    let mut names: Vec<_> = common().into_iter().chain(terms.values()).map(|(name, _)| name).collect();
    names.push("deadlock_timeout");
    names
}

/// Sees that the server has taken the settings. Those of the network mean nothing on a socket of one host.
///
/// # Errors
/// `Unsupported` that names the setting.
pub(crate) fn check(terms: Terms, found: impl Fn(&str) -> Option<String>) -> Result<()> {
    for (name, wanted) in common().into_iter().chain(terms.values()) {
        let found = found(name).unwrap_or_default();
        // Those of the network come as numbers without a unit.
        let is_of_the_network = name.starts_with("tcp_");
        let is_same_length = || wanted.parse().is_ok_and(|millis: u64| millis_in(&found) == Some(millis));
        if found == wanted || (is_of_the_network && found == "0") || (!is_of_the_network && is_same_length())
        {
            continue;
        }
        let what = format!("the server works with {name} = {found:?} although {wanted:?} was asked for");
        return Err(Error::new(ErrorKind::Unsupported, "connect", what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_keeps_a_session_at_least_as_long_as_the_lease() {
        for ms in [100, 999, 1_000, 1_001, 5_000, 30_000, 60_000, 86_400_000] {
            let terms = Terms { ttl: Duration::from_millis(ms), on_pause: PausePolicy::Hold };
            let value = |wanted| {
                let values = terms.values();
                let (_, value) = values.iter().find(|(name, _)| *name == wanted).unwrap();
                value.parse::<u64>().unwrap()
            };
            let kept = value("tcp_keepalives_idle")
                + value("tcp_keepalives_interval") * value("tcp_keepalives_count");
            assert!(kept * 1_000 >= ms, "{kept} s for {ms} ms");
            assert!(value("tcp_user_timeout") >= ms);
            let wait = terms.lock_timeout(Duration::from_secs(1)).as_millis();
            assert!((1..=300).contains(&wait) && (ms < 64 || u64::try_from(wait).unwrap() <= ms / 32));
        }
    }

    #[test]
    fn length_of_time_is_read_as_the_server_shows_it() {
        let shown = ["0", "300ms", "2s", "90min", "24h", "1d", "7"];
        assert_eq!(shown.map(millis_in), [0, 300, 2_000, 5_400_000, 86_400_000, 86_400_000, 7].map(Some));
        assert_eq!(["", "ms", "1.5s", "-1", "1 s", "5us", "on"].map(millis_in), [None; 7]);
    }

    #[test]
    fn setting_that_the_server_has_not_taken_is_named() {
        let terms = Terms { ttl: Duration::from_secs(30), on_pause: PausePolicy::Expire };
        let with = |wrong: &'static str, value: &'static str| {
            check(terms, move |name| {
                let shown = match name {
                    "lock_timeout" => "300ms",
                    "client_connection_check_interval" => "100ms",
                    "idle_session_timeout" => "30s",
                    "tcp_user_timeout" => "30000",
                    "tcp_keepalives_idle" => "15",
                    "tcp_keepalives_interval" | "tcp_keepalives_count" => "4",
                    "search_path" => "pg_catalog",
                    "statement_timeout" | "idle_in_transaction_session_timeout" => "0",
                    "synchronous_commit" => "on",
                    "default_transaction_isolation" => "read committed",
                    "client_min_messages" => "warning",
                    _ => "off",
                };
                Some(if name == wrong { value } else { shown }.to_owned())
            })
        };
        with("", "").unwrap();
        for (name, value) in [
            ("idle_session_timeout", "30min"),
            ("idle_session_timeout", "0"),
            ("lock_timeout", "300s"),
            ("tcp_user_timeout", "30s"),
            ("tcp_keepalives_idle", "15000"),
            ("synchronous_commit", "off"),
            ("statement_timeout", ""),
        ] {
            let error = with(name, value).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn waiter_is_limited_under_both_policies() {
        let ttl = Duration::from_secs(30);
        let idle = |on_pause, waits| Terms { ttl, on_pause }.idle_most(waits);
        assert_eq!(idle(PausePolicy::Hold, false), Duration::ZERO);
        assert_eq!(idle(PausePolicy::Hold, true), ttl);
        assert_eq!(idle(PausePolicy::Expire, false), ttl);
        assert_eq!(idle(PausePolicy::Expire, true), ttl);
    }

    #[test]
    fn options_need_no_quotes() {
        let options = as_options(Terms { ttl: Duration::from_secs(1), on_pause: PausePolicy::Expire });
        assert!(options.contains(" -c default_transaction_isolation=read\\ committed"));
        assert!(options.contains(" -c idle_session_timeout=1000"));
    }
}
