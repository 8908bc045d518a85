//! The advice: the lightest lock that is not weaker than the answers demand, and what goes with it.

use fencepost_core::{Expiry, Profile, Scope, Tokens};

use crate::alternative::{Alternative, alternatives};
use crate::answers::{Answers, Overlap, Reach};
use crate::judgement::shortfalls;
use crate::pattern::{Cost, Pattern};
use crate::question::Question;
use crate::reason::reasons;
use crate::risk::{Risk, risks};
use crate::rule::{self, Details};

/// Which lock to use, why, and what to expect of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Advice {
    /// The answers that it is for, as they were given.
    pub answers: Answers,
    /// The kind of lock.
    pub pattern: Pattern,
    /// Whether a fence is to check its tokens.
    pub fence: bool,
    /// One reason for each question.
    pub reasons: Vec<(Question, String)>,
    /// What happens under each fault that is asked of every lock.
    pub risks: Vec<Risk>,
    /// What it costs to run.
    pub cost: Cost,
    /// The next lighter and the next stronger choice.
    pub alternatives: Vec<Alternative>,
    /// What must not be overlooked.
    pub warnings: Vec<String>,
    /// The lines of a configuration that say so; [`Advice::rule_for`] writes them with more than the answers.
    pub rule: String,
    durable: bool,
}

/// The lightest lock that is strong enough. A question that was not answered is taken at its worse answer.
///
/// `profiles` are what the backends of a build promise; the advice may name one that the build lacks, and says so.
///
/// # Examples
/// ```
/// use fencepost_advisor::{Answers, Overlap, Pattern, Reach, advise};
///
/// let mut cron = Answers::default();
/// cron.on_overlap = Some(Overlap::Absorbed);
/// cron.postgres = Some(false);
/// let advice = advise(&cron, &[]);
/// assert_eq!((advice.pattern, advice.fence), (Pattern::Redis, false));
///
/// cron.hosts = Some(Reach::One);
/// assert_eq!(advise(&cron, &[]).pattern, Pattern::File);
/// ```
pub fn advise(answers: &Answers, profiles: &[Profile]) -> Advice {
    let complete = answers.assuming_the_worse();
    let (pattern, fence) = lightest(complete, profiles);
    let profile = pattern.profile(profiles);
    let mut advice = Advice {
        answers: *answers,
        pattern,
        fence,
        reasons: reasons(*answers, complete, pattern, fence),
        risks: risks(&profile, fence).into_iter().filter(|risk| risk.fault.is_general()).collect(),
        cost: pattern.cost(&complete, &profile),
        alternatives: alternatives(complete, pattern, fence, profiles),
        warnings: warnings(*answers, complete, &profile, profiles),
        rule: String::new(),
        durable: complete.corrupts() && profile.tokens == Tokens::Durable,
    };
    advice.rule = advice.rule_for(&Details::default());
    advice
}

impl Advice {
    /// The lines of a configuration with what is known beside the answers.
    pub fn rule_for(&self, details: &Details<'_>) -> String {
        rule::written(self, self.durable, details)
    }
}

/// The lightest lock without a shortfall, and whether it wants a fence.
pub(crate) fn lightest(answers: Answers, profiles: &[Profile]) -> (Pattern, bool) {
    let fence = answers.is_exposed_to_pauses() && answers.sink_checks == Some(true);
    let strong_enough = candidates(answers)
        .filter(|pattern| shortfalls(&answers, &pattern.profile(profiles), fence).is_empty());
    let weight = |pattern: &Pattern| weight(*pattern, answers, profiles);
    (strong_enough.min_by_key(weight).unwrap_or(Pattern::Etcd), fence)
}

/// A Postgres is not set up for a lock alone.
pub(crate) fn candidates(answers: Answers) -> impl Iterator<Item = Pattern> {
    let postgres = answers.postgres == Some(true);
    Pattern::ALL.into_iter().filter(move |pattern| *pattern != Pattern::Postgres || postgres)
}

/// What a lock weighs: the servers, then how far it reaches. Of those with as many servers the strongest is taken where
/// an overlap corrupts, and the plainest where it does not; of equals the one that the build has.
fn weight(pattern: Pattern, answers: Answers, profiles: &[Profile]) -> (u8, Scope, bool, bool) {
    let profile = pattern.profile(profiles);
    let is_durable = profile.tokens == Tokens::Durable;
    let is_missing = !profiles.iter().any(|profile| profile.backend == pattern.name());
    (pattern.servers(&answers).0, profile.scope, is_durable != answers.corrupts(), is_missing)
}

fn warnings(answers: Answers, complete: Answers, profile: &Profile, profiles: &[Profile]) -> Vec<String> {
    let mut found = Vec::new();
    found.extend(unprotected(complete, profile).map(str::to_owned));
    found.extend(unanswered(answers));
    let is_missing = !profiles.iter().any(|other| other.backend == profile.backend);
    if is_missing {
        found.push(format!(
            "This build of fencepost has no {}: it cannot run with this rule.",
            profile.backend
        ));
    }
    found
}

/// What no lock can do.
fn unprotected(answers: Answers, profile: &Profile) -> Option<&'static str> {
    let pauses = answers.can_pause == Some(true);
    let checks = answers.sink_checks == Some(true);
    match (pauses, checks, profile.expiry) {
        _ if !answers.corrupts() => None,
        (true, true, _) | (false, _, Expiry::WithProcess) => None,
        (true, false, Expiry::WithProcess) => Some(ONE_HOST_ALONE),
        (true, false, _) => Some(NO_LOCK_IS_SAFE),
        (false, true, _) => Some(FENCE_ALL_THE_SAME),
        (false, false, _) => Some(NO_PAUSE_AT_ALL),
    }
}

fn unanswered(answers: Answers) -> Option<String> {
    let flags: Vec<&str> = answers.unanswered().map(Question::flag).collect();
    let costly = match (answers.hosts, answers.on_overlap) {
        (Some(Reach::One), _) | (_, Some(Overlap::Absorbed)) => "",
        _ => " An answer may spare you a server.",
    };
    (!flags.is_empty())
        .then(|| format!("Not answered, and so taken at the worse answer: {}.{costly}", flags.join(", ")))
}

const NO_LOCK_IS_SAFE: &str = "No lock makes this safe. A worker that pauses after it has looked at its lease writes when \
    it wakes up, whoever holds the lock by then, and nothing refuses that write. What would make it safe: write to a \
    system that can check a token, or put one in front; write with a condition (compare-and-set, If-Match) or under a \
    key, so that the late write changes nothing; or do all of it in one transaction of one database.";

const ONE_HOST_ALONE: &str = "This is safe because a lock on one host lasts as long as its holder, however long that \
    stands still. It ends there: as soon as one of these jobs runs on a second host, no lock makes it safe, since \
    nothing can check a token.";

const FENCE_ALL_THE_SAME: &str = "All rests on workers that never pause between a look at the lease and a write: no \
    garbage collection, no virtual machine that is moved, no slow call. If you are not sure, the answer to --can-pause is \
    yes; since the system that is written to can check tokens, a fence costs little.";

const NO_PAUSE_AT_ALL: &str = "All rests on workers that never pause between a look at the lease and a write: no garbage \
    collection, no virtual machine that is moved, no slow call. Nothing refuses the write of one that does. If you are \
    not sure, the answer to --can-pause is yes.";
