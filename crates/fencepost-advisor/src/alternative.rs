//! The next lighter choice and the next stronger one, and what each would change.
//!
//! What changes is read off the profiles.

use fencepost_core::{Profile, Scope, Timing, Tokens};

use crate::advice::{candidates, lightest};
use crate::answers::{Answers, Overlap, Reach};
use crate::judgement::shortfalls;
use crate::pattern::Pattern;

/// In which direction an alternative lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It costs less.
    Cheaper,
    /// It costs and promises the same.
    Equal,
    /// It promises more.
    Stronger,
}

impl Direction {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cheaper => "cheaper",
            Self::Equal => "equal",
            Self::Stronger => "stronger",
        }
    }
}

/// Another choice.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Alternative {
    /// In which direction it lies.
    pub direction: Direction,
    /// The kind of lock; `None` for no lock at all.
    pub pattern: Option<Pattern>,
    /// Whether with a fence.
    pub fence: bool,
    /// What it would change.
    pub change: String,
}

/// What else could be chosen in place of `pattern`.
pub(crate) fn alternatives(
    answers: Answers,
    pattern: Pattern,
    fence: bool,
    profiles: &[Profile],
) -> Vec<Alternative> {
    let chosen = Chosen { answers, pattern, fence, profiles };
    [chosen.cheaper(), chosen.equal(), chosen.fenced(), chosen.stronger()].into_iter().flatten().collect()
}

struct Chosen<'a> {
    answers: Answers,
    pattern: Pattern,
    fence: bool,
    profiles: &'a [Profile],
}

impl Chosen<'_> {
    fn cheaper(&self) -> Option<Alternative> {
        if self.answers.on_overlap == Some(Overlap::Absorbed) {
            let change = "each partition may be processed twice, which is absorbed; it costs the work alone"
                .to_owned();
            return Some(Alternative { direction: Direction::Cheaper, pattern: None, fence: false, change });
        }
        let Some(lighter) = self.lighter() else { return self.without_protection() };
        let mut change = difference(self.pattern, lighter, self.answers, self.profiles);
        let weak = shortfalls(&self.answers, &lighter.profile(self.profiles), self.fence);
        if lighter == Pattern::Redlock && self.fence {
            change.push("it will do, since the fence decides what is written".to_owned());
        }
        let why: Vec<&str> = weak.iter().map(|shortfall| shortfall.describe()).collect();
        if !why.is_empty() {
            change.push(format!("too weak for these answers: {}", why.join(", and ")));
        }
        Some(self.alternative(Direction::Cheaper, lighter, self.fence, &change))
    }

    /// Of the locks with fewer servers, or of a shorter reach, the strongest; before them what needs as many, but no disks,
    /// where a fence makes up for its clocks.
    fn lighter(&self) -> Option<Pattern> {
        let plainer = Pattern::Redlock.profile(self.profiles);
        let is_cluster = matches!(self.pattern, Pattern::Etcd | Pattern::Zookeeper);
        if is_cluster && self.fence && shortfalls(&self.answers, &plainer, true).is_empty() {
            return Some(Pattern::Redlock);
        }
        let own = self.pattern.servers(&self.answers).0;
        let lighter = candidates(self.answers)
            .filter(|other| other.servers(&self.answers).0 < own || *other == Pattern::File)
            .filter(|other| *other != self.pattern);
        lighter.max()
    }

    /// What is left to save on one host.
    fn without_protection(&self) -> Option<Alternative> {
        if self.fence {
            let change = ["the lock alone, which a job that is started without it does not see".to_owned()];
            return Some(self.alternative(Direction::Cheaper, self.pattern, false, &change));
        }
        let change = "each partition may be processed twice, at the cost of the work".to_owned();
        (!self.answers.corrupts()).then_some(Alternative {
            direction: Direction::Cheaper,
            pattern: None,
            fence: false,
            change,
        })
    }

    fn equal(&self) -> Option<Alternative> {
        let other = match self.pattern {
            Pattern::Etcd => Pattern::Zookeeper,
            Pattern::Zookeeper => Pattern::Etcd,
            _ => return None,
        };
        let change = ["does as well; take the one that runs already".to_owned()];
        Some(self.alternative(Direction::Equal, other, self.fence, &change))
    }

    /// The same lock with a fence: where the sink can check tokens at once, elsewhere once it can.
    fn fenced(&self) -> Option<Alternative> {
        let is_strongest = matches!(self.pattern, Pattern::Etcd | Pattern::Zookeeper);
        let can = self.answers.sink_checks == Some(true);
        if self.fence || !(can || is_strongest || self.answers.is_exposed_to_pauses()) {
            return None;
        }
        let when = if can { "" } else { "once something can check tokens, " };
        let change =
            [format!("{when}a holder that was overtaken is refused whatever has happened to the lock")];
        Some(self.alternative(Direction::Stronger, self.pattern, true, &change))
    }

    fn stronger(&self) -> Option<Alternative> {
        let stronger = self.next_stronger()?;
        let mut change = difference(self.pattern, stronger, self.answers, self.profiles);
        if self.pattern == Pattern::File {
            change.insert(0, "what it takes as soon as workers run on a second host".to_owned());
        }
        Some(self.alternative(Direction::Stronger, stronger, self.fence, &change))
    }

    fn next_stronger(&self) -> Option<Pattern> {
        match self.pattern {
            Pattern::File => {
                let on_many = Answers { hosts: Some(Reach::Many), ..self.answers };
                Some(lightest(on_many, self.profiles).0)
            }
            Pattern::Redis => Some(Pattern::Redlock),
            Pattern::Redlock | Pattern::Postgres => Some(Pattern::Etcd),
            Pattern::Etcd | Pattern::Zookeeper => None,
        }
    }

    fn alternative(
        &self,
        direction: Direction,
        pattern: Pattern,
        fence: bool,
        change: &[String],
    ) -> Alternative {
        let built = self.profiles.iter().any(|profile| profile.backend == pattern.name());
        let lacks = if built { "" } else { " (not in this build)" };
        Alternative { direction, pattern: Some(pattern), fence, change: change.join("; ") + lacks }
    }
}

/// What changes from one pattern to another.
fn difference(from: Pattern, to: Pattern, answers: Answers, profiles: &[Profile]) -> Vec<String> {
    let (before, after) = (from.profile(profiles), to.profile(profiles));
    let mut found = Vec::new();
    let (servers, services) = to.servers(&answers);
    match servers {
        0 if from.servers(&answers).0 > 0 => found.push("no further server to run".to_owned()),
        0 => {}
        _ => found.push(format!("to run: {services}")),
    }
    if before.scope != after.scope {
        found.push(reach(after.scope).to_owned());
    }
    if before.timing != after.timing && after.timing != Timing::Untimed {
        found.push(timing(after.timing).to_owned());
    }
    if before.tokens != after.tokens {
        found.push(match after.tokens {
            Tokens::Durable => "tokens outlive every crash".to_owned(),
            _ => "tokens grow only as long as data survive or the wall clock is right".to_owned(),
        });
    }
    found
}

fn reach(scope: Scope) -> &'static str {
    match scope {
        Scope::Process => "seen by one process only",
        Scope::Host => "seen on one host only",
        Scope::Server => "kept by one server, and free for nobody while that is down",
        _ => "one of the servers may fail",
    }
}

fn timing(timing: Timing) -> &'static str {
    match timing {
        Timing::WallClock => "ends early if the server's clock is set forward",
        Timing::WallClocks => "ends early only if the clocks of a majority are set forward",
        _ => "no clock that somebody sets ends it",
    }
}
