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

/// How long the set-up of a session waits for that of another one, or for the schema to be made.
const SET_UP_WAIT_MOST: Duration = Duration::from_secs(2);

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
            // While the session is set up; the wait for a lock is bounded more closely afterwards.
            ("lock_timeout", millis(SET_UP_WAIT_MOST)),
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
        let is_of_the_network = name.starts_with("tcp_");
        if found == wanted || (is_of_the_network && found == "0") {
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
