//! Where a lock is weaker than the answers demand.
//!
//! Invariant: this is the only judgement. `advise` takes the lightest lock without a shortfall, and a configuration is
//! refused for the same shortfalls, so that the two cannot disagree.

use fencepost_core::{BackendUrl, Profile, Scope, Tie, Timing, Tokens};

use crate::answers::{Answers, Overlap, Reach};
use crate::pattern::promised;

/// A way in which a lock is weaker than the answers demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shortfall {
    /// It is not seen on the other hosts.
    Reach,
    /// One server decides, though it must not.
    OneServer,
    /// A lease ends when the clock of one server is set.
    OneClock,
    /// A lease ends when the clocks of a majority are set, and no fence refuses its holder then.
    ManyClocks,
    /// What the store has forgotten is granted again at once.
    Forgets,
    /// A holder that was paused writes on, although a fence could refuse it.
    Unfenced,
}

/// Where a lock with this profile is weaker than the answers demand. A question that was not answered demands nothing:
/// ask with [`Answers::assuming_the_worse`] to have it count.
pub fn shortfalls(answers: &Answers, profile: &Profile, fenced: bool) -> Vec<Shortfall> {
    let mut found = lock_shortfalls(*answers, profile, fenced);
    if is_unfenced(*answers, fenced) {
        found.push(Shortfall::Unfenced);
    }
    found
}

fn lock_shortfalls(answers: Answers, profile: &Profile, fenced: bool) -> Vec<Shortfall> {
    let corrupts = answers.corrupts();
    let checks = [
        (Shortfall::Reach, answers.hosts == Some(Reach::Many) && profile.scope <= Scope::Host),
        (Shortfall::OneServer, is_too_alone(answers, profile)),
        (Shortfall::OneClock, corrupts && profile.timing == Timing::WallClock),
        (Shortfall::ManyClocks, corrupts && !fenced && profile.timing == Timing::WallClocks),
        (Shortfall::Forgets, corrupts && forgets(profile)),
    ];
    checks.into_iter().filter(|(_, falls_short)| *falls_short).map(|(shortfall, _)| shortfall).collect()
}

/// A lock on one host has no store that could forget it. Elsewhere the store keeps its leases over a crash, or waits until
/// those are over that it may have forgotten; tokens that it keeps are not enough where the lock ends with its session.
fn forgets(profile: &Profile) -> bool {
    let keeps = profile.tokens == Tokens::Durable && profile.tie == Tie::Lease;
    profile.scope >= Scope::Server && !profile.quarantine && !keeps
}

/// Where work is only wasted, one server will do that never forgets a lock. Workers that share a host share its fate
/// anyway.
fn is_too_alone(answers: Answers, profile: &Profile) -> bool {
    profile.scope == Scope::Server
        && answers.databases == Some(Reach::Many)
        && answers.hosts != Some(Reach::One)
        && match answers.on_overlap {
            Some(Overlap::Corrupts) => true,
            Some(Overlap::Wasteful) => profile.tokens != Tokens::Durable,
            _ => false,
        }
}

fn is_unfenced(answers: Answers, fenced: bool) -> bool {
    !fenced && answers.is_exposed_to_pauses() && answers.sink_checks == Some(true)
}

/// What holds the locks of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held<'a> {
    /// The backend, whose options may weaken what its kind promises; `None` where it is not known.
    pub backend: Option<&'a BackendUrl>,
    /// Whether a fence checks the tokens.
    pub fenced: bool,
}

/// A shortfall of a rule whose overlap corrupts, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Weakness {
    /// What is weak, as the end of a sentence that begins "an overlap corrupts, but".
    pub message: &'static str,
    /// What would be strong enough.
    pub hint: &'static str,
}

/// Where `held` is weaker than `answers` demand, if an overlap corrupts; nothing is refused where it does not.
pub fn weaknesses(answers: &Answers, held: Held<'_>) -> Vec<Weakness> {
    if !answers.corrupts() {
        return Vec::new();
    }
    let found = match held.backend.and_then(promised) {
        Some(profile) => shortfalls(answers, &profile, held.fenced),
        None if is_unfenced(*answers, held.fenced) => vec![Shortfall::Unfenced],
        None => Vec::new(),
    };
    found.into_iter().map(weakness).collect()
}

fn weakness(shortfall: Shortfall) -> Weakness {
    let (message, hint) = match shortfall {
        Shortfall::Reach => (
            "this lock does not reach beyond one host, and the workers run on many",
            "use etcd, zookeeper or postgres",
        ),
        Shortfall::OneServer => {
            ("one server decides, and the lock must reach across several databases", "use etcd or zookeeper")
        }
        Shortfall::OneClock => (
            "the clock of one server, where it is set forward, ends its leases early",
            "use etcd, zookeeper, postgres with `on_pause=hold`, or redlock with a fence",
        ),
        Shortfall::ManyClocks => (
            "clocks that are set end leases of Redlock early, and no fence refuses the holder then",
            "use etcd, zookeeper or postgres, or add `fence = [\"...\"]`",
        ),
        Shortfall::Forgets => (
            "its quarantine is off: a server that has lost its locks grants them again at once",
            "remove `quarantine=off` from its URL",
        ),
        Shortfall::Unfenced => (
            "a paused worker can write after its lease has ended, and no fence refuses it",
            "add `fence = [\"...\"]`: the sink can check tokens",
        ),
    };
    Weakness { message, hint }
}

impl Shortfall {
    /// Why a lock is too weak, as a sentence without its end.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Reach => "the workers on other hosts would not see it",
            Self::OneServer => "one server would decide alone",
            Self::OneClock => "a server's clock that is set, or its failover, lets two hold it",
            Self::ManyClocks => "clocks that are set let two hold it",
            Self::Forgets => "what the server has forgotten is granted again at once",
            Self::Unfenced => "a paused holder would write on unnoticed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORRUPTS: Answers = Answers {
        on_overlap: Some(Overlap::Corrupts),
        can_pause: None,
        postgres: None,
        sink_checks: None,
        databases: None,
        hosts: None,
    };

    /// On a backend of this kind, with these options of its URL.
    fn count(answers: Answers, backend: &str, fenced: bool) -> usize {
        let (kind, options) = backend.split_once('?').unwrap_or((backend, ""));
        let url: Option<BackendUrl> = format!("{kind}:x?{options}").parse().ok();
        weaknesses(&answers, Held { backend: url.as_ref(), fenced }).len()
    }

    #[test]
    fn option_that_weakens_the_promise_weakens_the_lock() {
        let one = Answers { databases: Some(Reach::One), ..CORRUPTS };
        for (strong, weak) in [
            ("postgres", "postgres?on_pause=expire"),
            ("postgres", "postgres?max_ttl=5m&quarantine=off"),
            ("redlock", "redlock?quarantine=off"),
        ] {
            for fenced in [true, false] {
                assert_eq!(count(one, weak, fenced), count(one, strong, fenced) + 1, "{weak} {fenced}");
            }
            assert_eq!(count(Answers { on_overlap: Some(Overlap::Wasteful), ..one }, weak, true), 0);
        }
        for kind in
            ["file", "memory", "etcd", "zookeeper", "postgres?quarantine=on", "postgres?on_pause=hold"]
        {
            assert_eq!(count(one, kind, true), 0, "{kind}");
        }
    }

    #[test]
    fn harmless_overlap_demands_nothing() {
        let many = Answers { hosts: Some(Reach::Many), can_pause: Some(true), ..Answers::default() };
        for on_overlap in [None, Some(Overlap::Absorbed), Some(Overlap::Wasteful)] {
            assert_eq!(count(Answers { on_overlap, ..many }, "redis", false), 0);
        }
    }

    #[test]
    fn corrupting_overlap_is_too_much_for_one_redis() {
        assert_eq!(count(CORRUPTS, "redis", true), 1);
        assert_eq!(count(CORRUPTS, "etcd", false), 0);
    }

    #[test]
    fn corrupting_overlap_is_too_much_for_redlock_without_a_fence() {
        assert_eq!(count(CORRUPTS, "redlock", false), 1);
        assert_eq!(count(CORRUPTS, "redlock", true), 0);
    }

    #[test]
    fn one_server_is_too_little_for_several_databases() {
        let many = Answers { databases: Some(Reach::Many), ..CORRUPTS };
        assert_eq!(count(many, "postgres", true), 1);
        assert_eq!(count(many, "etcd", false), 0);
        assert_eq!(count(CORRUPTS, "postgres", false), 0);
    }

    #[test]
    fn lock_on_one_host_is_too_little_for_many() {
        for kind in ["file", "memory"] {
            assert_eq!(count(Answers { hosts: Some(Reach::Many), ..CORRUPTS }, kind, false), 1);
            assert_eq!(count(Answers { hosts: Some(Reach::One), ..CORRUPTS }, kind, false), 0);
            assert_eq!(count(CORRUPTS, kind, false), 0);
        }
    }

    #[test]
    fn pause_demands_a_fence_where_the_sink_can_check() {
        let pauses = Answers { can_pause: Some(true), sink_checks: Some(true), ..CORRUPTS };
        for kind in ["etcd", ""] {
            assert_eq!(count(pauses, kind, false), 1);
            assert_eq!(count(pauses, kind, true), 0);
            assert_eq!(count(Answers { sink_checks: None, ..pauses }, kind, false), 0);
            assert_eq!(count(Answers { can_pause: Some(false), ..pauses }, kind, false), 0);
        }
    }

    #[test]
    fn weaknesses_add_up() {
        let pauses = Answers { can_pause: Some(true), sink_checks: Some(true), ..CORRUPTS };
        assert_eq!(count(pauses, "redis", false), 2);
    }
}
