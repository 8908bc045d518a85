//! What a rule says about its locks, and whether what holds them is strong enough for that.
//!
//! Apart because it is a pure function over data: the question "may two overlap here, and who would notice" has nothing
//! to do with files.

/// What happens if two workers have the same lock at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// Nothing: the duplicate is absorbed.
    Absorbed,
    /// Work is wasted, nothing else.
    Wasteful,
    /// Data are corrupted.
    Corrupts,
}

/// Whether something is in one place or in several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// In one.
    One,
    /// In several.
    Many,
}

/// The answers that stand with a rule; `None` for a question that was not answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answers {
    /// What happens if two workers have the same lock at once.
    pub on_overlap: Option<Overlap>,
    /// Whether a paused worker can keep writing after its lease has ended.
    pub can_pause: Option<bool>,
    /// Whether the pipeline writes to Postgres already.
    pub postgres: Option<bool>,
    /// Whether the protected system can check a fencing token.
    pub sink_checks: Option<bool>,
    /// Over how many databases the lock must reach.
    pub databases: Option<Reach>,
    /// On how many hosts the workers run.
    pub hosts: Option<Reach>,
}

/// What holds the locks of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held<'a> {
    /// The backend's kind: `file`, `redis`, …
    pub kind: &'a str,
    /// Whether a fence checks the tokens.
    pub fenced: bool,
}

/// A way in which a rule is weaker than its own answers demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weakness {
    /// What is weak, as the end of a sentence that begins "an overlap corrupts, but".
    pub message: &'static str,
    /// What would be strong enough.
    pub hint: &'static str,
}

/// Where `held` is weaker than `answers` demand.
pub fn weaknesses(answers: &Answers, held: Held<'_>) -> Vec<Weakness> {
    if answers.on_overlap != Some(Overlap::Corrupts) {
        return Vec::new();
    }
    let mut found = Vec::new();
    if held.kind == "redis" {
        found.push(Weakness {
            message: "one Redis loses its locks when it fails over or loses its memory",
            hint: "use etcd, zookeeper, postgres or redlock",
        });
    }
    if matches!(held.kind, "file" | "memory") && answers.hosts == Some(Reach::Many) {
        found.push(Weakness {
            message: "this lock does not reach beyond one host, and the workers run on many",
            hint: "use etcd, zookeeper or postgres",
        });
    }
    if answers.can_pause == Some(true) && answers.sink_checks == Some(true) && !held.fenced {
        found.push(Weakness {
            message: "a paused worker can write after its lease has ended, and no fence refuses it",
            hint: "add `fence = [\"…\"]`: the sink can check tokens",
        });
    }
    found
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

    fn count(answers: Answers, kind: &str, fenced: bool) -> usize {
        weaknesses(&answers, Held { kind, fenced }).len()
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
        assert_eq!(count(CORRUPTS, "redlock", false), 0);
        assert_eq!(count(CORRUPTS, "etcd", false), 0);
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
        assert_eq!(count(pauses, "etcd", false), 1);
        assert_eq!(count(pauses, "etcd", true), 0);
        assert_eq!(count(Answers { sink_checks: None, ..pauses }, "etcd", false), 0);
        assert_eq!(count(Answers { can_pause: Some(false), ..pauses }, "etcd", false), 0);
    }

    #[test]
    fn weaknesses_add_up() {
        let pauses = Answers { can_pause: Some(true), sink_checks: Some(true), ..CORRUPTS };
        assert_eq!(count(pauses, "redis", false), 2);
    }
}
