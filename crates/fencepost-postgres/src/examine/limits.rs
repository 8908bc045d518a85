//! How many more may connect, whether they are overheard, how the clocks are, and what a role's sessions begin with.

use fencepost_core::Finding;

use super::facts::Facts;
use crate::endpoint::Endpoint;

pub(super) fn findings(facts: &Facts, endpoint: &Endpoint) -> Vec<Finding> {
    let found = [
        connections(facts),
        encryption(facts),
        verification(facts, endpoint.tls.warning.as_deref()),
        triggers(facts),
        transactions(facts),
        settings(facts),
    ];
    found.into_iter().flatten().collect()
}

/// So few are left that a burst of waiters takes them.
const FEW: i64 = 10;

/// The tightest of the bounds: of the server, of the database, of the role.
fn connections(facts: &Facts) -> Option<Finding> {
    let setting = |name| facts.setting(name).parse::<i64>().unwrap_or_default();
    let reserved = setting("superuser_reserved_connections") + setting("reserved_connections");
    let of_server = ("max_connections", setting("max_connections"), reserved, facts.number("clients"));
    let limit = |column| facts.number(column).filter(|limit| *limit >= 0);
    let of_database = limit("most_of_database")
        .map(|most| ("the database's CONNECTION LIMIT", most, 0, facts.number("clients_of_database")));
    let of_role = limit("most_of_role")
        .map(|most| ("the role's CONNECTION LIMIT", most, 0, facts.number("clients_of_role")));
    let bounds = [Some(of_server), of_database, of_role].into_iter().flatten();
    let free =
        |(_, most, reserved, used): &(_, i64, i64, Option<i64>)| most - reserved - used.unwrap_or_default();
    let tightest = bounds.min_by_key(free)?;
    let (free, (name, most, reserved, used)) = (free(&tightest).max(0), tightest);
    if free >= FEW {
        return None;
    }
    let evidence =
        format!("{name} is {most}: {} are used, {reserved} reserved, {free} left", used.unwrap_or_default());
    let found = if free <= 1 {
        Finding::serious(&facts.host, evidence)
    } else {
        Finding::warning(&facts.host, evidence)
    };
    Some(
        found
            .means("each lock that is held or waited for takes a connection; whoever comes when none is left gets no lock (exit 69)")
            .remedy(format!("raise {name}, or let fewer jobs run at once")),
    )
}

/// What is odd about the server's clock beside ours.
pub(super) fn clock(facts: &Facts) -> Option<Finding> {
    let apart = facts.ahead.apart()?;
    Some(
        Finding::warning(&facts.host, format!("its clock is {apart} this host's"))
            .means("a quarantine, a rest and on_pause=expire end by that clock: if somebody sets it forward to mend this, they end early")
            .remedy("keep the clocks of all hosts by NTP, and let it slew them, not step"),
    )
}

fn encryption(facts: &Facts) -> Option<Finding> {
    (!facts.is_near && !facts.is("is_encrypted")).then(|| {
        Finding::warning(&facts.host, "the connection there is not encrypted")
            .means("whoever listens on the network sees the tokens, and, by md5 or password authentication, enough to log in")
            .remedy("?sslmode=verify-full, with ssl = on at the server")
    })
}

/// What connecting warns of.
fn verification(facts: &Facts, warning: Option<&str>) -> Option<Finding> {
    let warning = warning.filter(|_| !facts.is_near)?;
    Some(
        Finding::warning(&facts.host, warning)
            .means("a server whose certificate was withdrawn is still believed")
            .remedy("replace the authority in root.crt by one that has signed no such certificate"),
    )
}

fn triggers(facts: &Facts) -> Option<Finding> {
    (facts.setting("session_replication_role") == "replica").then(|| {
        let evidence = format!(
            "session_replication_role is replica for the role {} (set by: {})",
            facts.text("role"),
            facts.source("session_replication_role")
        );
        Finding::warning(&facts.host, evidence)
            .means("foreign keys and plain triggers do not fire for it; a guard does as long as it is enabled ALWAYS, as it was made, and not after ENABLE TRIGGER")
            .remedy(format!("ALTER ROLE {} RESET session_replication_role", facts.text("role")))
    })
}

/// A request for a lock waits for up to a second, in a transaction.
const SHORTEST_TRANSACTION_MS: i64 = 2_000;

fn transactions(facts: &Facts) -> Option<Finding> {
    let most: i64 = facts.setting("transaction_timeout").parse().ok()?;
    (most > 0 && most < SHORTEST_TRANSACTION_MS).then(|| {
        Finding::warning(&facts.host, format!("transaction_timeout is {most} ms"))
            .means("it ends the sessions that wait for a lock, so that they lose their places, and seals that wait for writers")
            .remedy(format!("ALTER ROLE {} SET transaction_timeout = 0", facts.text("role")))
    })
}

/// What would be in the way of a lock if its sessions did not set it themselves.
fn settings(facts: &Facts) -> Option<Finding> {
    let is_set = |(name, harmless): &&(&str, &str)| {
        let value = facts.setting(name);
        !value.is_empty() && value != *harmless
    };
    let set: Vec<String> = OVERRIDDEN.iter().filter(is_set).map(|(name, _)| facts.shown(name)).collect();
    (!set.is_empty()).then(|| {
        Finding::note(&facts.host, format!("sessions of {} begin with {}", facts.text("role"), set.join(", ")))
            .means("fencepost's own sessions set these for themselves, and read them back; the jobs under the lock work by them")
            .remedy(format!("nothing for the locks; for the jobs, ALTER ROLE {} SET ... as they need it", facts.text("role")))
    })
}

/// Settings that each session of ours has its own values for, and the values that would not be in its way.
const OVERRIDDEN: [(&str, &str); 6] = [
    ("idle_session_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("default_transaction_read_only", "off"),
    ("default_transaction_isolation", "read committed"),
];

#[cfg(test)]
mod tests {
    use super::super::facts::Setting;
    use super::*;

    fn facts(settings: &[(&str, &str)]) -> Facts {
        let setting = |(name, value): &(&str, &str)| {
            ((*name).to_owned(), Setting { value: (*value).to_owned(), ..Setting::default() })
        };
        Facts {
            host: "db:5432".to_owned(),
            settings: settings.iter().map(setting).collect(),
            ..Facts::default()
        }
    }

    #[test]
    fn far_server_without_encryption_is_found() {
        assert!(encryption(&facts(&[])).is_some());
        assert_eq!(encryption(&Facts { is_near: true, ..facts(&[]) }), None);
        let told = [("is_encrypted".to_owned(), "true".to_owned())].into();
        assert_eq!(encryption(&Facts { told, ..facts(&[]) }), None);
    }

    #[test]
    fn list_of_revoked_certificates_that_is_not_read_is_found() {
        assert!(verification(&facts(&[]), Some("it is not read")).is_some());
        assert_eq!(verification(&facts(&[]), None), None);
    }

    #[test]
    fn short_transactions_are_found() {
        assert!(transactions(&facts(&[("transaction_timeout", "500")])).is_some());
        for harmless in ["0", "60000"] {
            assert_eq!(transactions(&facts(&[("transaction_timeout", harmless)])), None);
        }
        assert_eq!(transactions(&facts(&[])), None, "Postgres before 17 has no such setting");
    }
}
