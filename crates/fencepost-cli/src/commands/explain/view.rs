//! The explanation: as data for machines, and in lines for people.

use std::time::Duration;

use fencepost::{Cost, Error, Examination, Expiry, LockName, Locks, Profile, Result, Severity, TtlRange};
use fencepost_policy::{Answers, Overlap, Reach};
use serde::Serialize;

use super::promises::{Promise, promises};
use crate::commands::layout::{counted, wrapped};
use crate::commands::place::{Place, Source};
use crate::commands::state::milliseconds;

/// What the look at the server has shown.
pub(super) enum Seen {
    NotLooked,
    Away(Error),
    Examined(Examination),
}

impl From<Result<Examination>> for Seen {
    fn from(outcome: Result<Examination>) -> Self {
        outcome.map_or_else(Self::Away, Self::Examined)
    }
}

/// What is said, for machines. What does not exist or is not known is null.
#[derive(Debug, Serialize)]
pub(super) struct Explanation<'a> {
    lock: &'a str,
    backend: &'static str,
    place: String,
    /// As found; null where nobody looked, or nobody answered.
    servers: Option<Vec<String>>,
    /// Why the server was not seen.
    unseen: Option<String>,
    /// How many serious findings `doctor` would have there.
    serious: Option<usize>,
    chosen_by: String,
    answers: Option<AnswersView>,
    because: Option<&'a str>,
    accept_risk: Option<&'a str>,
    scope: &'static str,
    ttl_ms: Option<u64>,
    /// What the server makes of it, where that is another one.
    given_ttl_ms: Option<u64>,
    fences: Vec<String>,
    recovery: Option<Recovery>,
    cost: Option<CostView>,
    promises: Vec<Promise>,
    #[serde(skip)]
    profile: Profile,
    #[serde(skip)]
    range: Option<TtlRange>,
}

/// The answers that stand with the rule.
#[derive(Debug, Serialize)]
struct AnswersView {
    on_overlap: Option<&'static str>,
    can_pause: Option<bool>,
    postgres: Option<bool>,
    sink_checks: Option<bool>,
    databases: Option<&'static str>,
    hosts: Option<&'static str>,
}

/// How long at most until others can go on.
#[derive(Debug, Serialize)]
struct Recovery {
    /// After the holder's host is gone; null where only its reboot ends the lock.
    host_ms: Option<u64>,
    /// After the server lost its locks; null where it grants at once, or there is none.
    server_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct CostView {
    acquire_round_trips: u32,
    release_round_trips: u32,
    connections: &'static str,
}

impl<'a> Explanation<'a> {
    pub(super) fn new(lock: &'a LockName, place: &'a Place, locks: &Locks, seen: Seen) -> Self {
        let (choice, profile) = (place.choice.as_ref(), *locks.profile());
        let ttl = place.ttl().unwrap_or(fencepost::DEFAULT_TTL);
        let ttl = (profile.expiry != Expiry::WithProcess).then_some(ttl);
        let (examination, unseen) = match seen {
            Seen::NotLooked => (None, Some("not looked at, as --offline says".to_owned())),
            Seen::Away(error) => (None, Some(error.to_string())),
            Seen::Examined(examination) => (Some(examination), None),
        };
        let range = examination.as_ref().and_then(|examination| examination.ttl);
        let given = ttl.zip(range).map(|(ttl, range)| range.given(ttl)).filter(|given| Some(*given) != ttl);
        let fences: Vec<String> =
            choice.iter().flat_map(|choice| &choice.fences).map(ToString::to_string).collect();
        Self {
            lock: lock.as_str(),
            backend: place.url.kind(),
            place: locks.to_string(),
            unseen,
            serious: examination.as_ref().map(serious),
            servers: examination.map(|examination| examination.servers),
            chosen_by: chosen_by(&place.source),
            answers: choice.map(|choice| AnswersView::new(choice.rule.answers)),
            because: choice.and_then(|choice| choice.rule.because.as_deref()),
            accept_risk: choice.and_then(|choice| choice.rule.accept_risk.as_deref()),
            scope: profile.scope.describe(),
            ttl_ms: ttl.map(milliseconds),
            given_ttl_ms: given.map(milliseconds),
            promises: told(&profile, !fences.is_empty(), &place.source),
            fences,
            recovery: Some(Recovery::new(&profile, given.or(ttl))),
            cost: profile.cost.map(CostView::new),
            profile,
            range,
        }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = wrapped("lock       ", self.lock);
        let mut say = |head: &str, text: &str| lines.extend(wrapped(&format!("{head:<11}"), text));
        say("kept in", &self.place);
        for server in self.servers.iter().flatten() {
            say("", server);
        }
        if let Some(unseen) = &self.unseen {
            say("", &format!("its version is not known: {unseen}"));
        }
        if let Some(serious) = self.serious.filter(|serious| *serious > 0) {
            let findings = counted(serious, "serious finding");
            say("", &format!("{findings} there: fencepost doctor says which"));
        }
        say("chosen by", &self.chosen_by);
        if let Some(answers) = self.answers.as_ref().map(AnswersView::words).filter(|words| !words.is_empty())
        {
            say("answers", &answers);
        }
        for (head, text) in [("because", self.because), ("risk taken", self.accept_risk)] {
            if let Some(text) = text {
                say(head, text);
            }
        }
        say("reaches", self.scope);
        say("lease", &self.lease());
        say("tokens", self.profile.tokens.describe());
        say("waiting", self.profile.waiting.describe());
        say("loss", self.profile.loss.describe());
        say("fence", &self.fence());
        say("crash", &self.recovery());
        say("costs", &self.cost.as_ref().map_or_else(|| NOT_COUNTED.to_owned(), CostView::words));
        lines.push(String::new());
        lines.push("Could two holders overlap?".to_owned());
        for promise in &self.promises {
            let head = format!("  {:<15} {:<4} ", promise.fault, promise.two_may_overlap);
            lines.extend(wrapped(&head, &promise.what_happens));
        }
        lines
    }

    fn lease(&self) -> String {
        let expiry = self.profile.expiry.describe();
        let Some(ttl) = self.ttl_ms else { return format!("{expiry}; --ttl is ignored") };
        let asked = words(ttl);
        if let (Some(given), Some(range)) = (self.given_ttl_ms, self.range) {
            let bounds = [range.shortest, range.longest].map(|bound| words(milliseconds(bound)));
            let [shortest, longest] = bounds;
            return format!(
                "{asked} is asked for, and the server makes it {} (it gives {shortest} to {longest}); {expiry}",
                words(given)
            );
        }
        match self.profile.longest_ttl.map(milliseconds).filter(|longest| *longest < ttl) {
            Some(longest) => {
                format!("{asked} is refused: the URL gives {} at most (max_ttl)", words(longest))
            }
            None => format!("{asked}; {expiry}"),
        }
    }

    fn fence(&self) -> String {
        match self.fences[..] {
            [] => "none: where two overlap, nothing refuses the one that does not know that it lost the lock"
                .to_owned(),
            _ => format!("{}: a write under an older token is refused there", self.fences.join(", ")),
        }
    }

    fn recovery(&self) -> String {
        let Some(recovery) = &self.recovery else { return String::new() };
        let mut text = match (self.profile.expiry, recovery.host_ms) {
            (Expiry::WithProcess, _) | (_, None) => {
                "others go on at once, when the last process of the command has ended".to_owned()
            }
            (Expiry::WithSession, Some(host)) => {
                format!(
                    "others go on at once, when its connection is closed; {} and some seconds after its host is gone",
                    words(host)
                )
            }
            (_, Some(host)) => {
                format!(
                    "others go on when the guardian has given it back, and {} after its host is gone, at most",
                    words(host)
                )
            }
        };
        if let Some(server) = recovery.server_ms {
            let server = format!("; {} after the server lost its locks (quarantine)", words(server));
            text.push_str(&server);
        }
        text
    }
}

const NOT_COUNTED: &str = "nobody has counted them";

/// How many findings are serious.
fn serious(examination: &Examination) -> usize {
    examination.findings.iter().filter(|finding| finding.severity == Severity::Serious).count()
}

fn words(milliseconds: u64) -> String {
    humantime::format_duration(Duration::from_millis(milliseconds)).to_string()
}

fn told(profile: &Profile, is_fenced: bool, source: &Source) -> Vec<Promise> {
    let mut promises = promises(profile, is_fenced);
    if *source == Source::Default {
        let what = "each user has a default directory; share one: --backend file:/var/lib/fencepost";
        let (fault, two_may_overlap, what_happens) = ("other users", "yes", what.to_owned());
        promises.push(Promise { fault, two_may_overlap, what_happens });
    }
    promises
}

fn chosen_by(source: &Source) -> String {
    match source {
        Source::Flag => "--backend".to_owned(),
        Source::Variable => "FENCEPOST_BACKEND".to_owned(),
        Source::Default => "the default, since there is no configuration".to_owned(),
        Source::Configuration(file) => file.display().to_string(),
        Source::Rule { file, line, glob } => {
            format!("{}:{line}, the rule {glob:?}", file.display())
        }
    }
}

impl Recovery {
    fn new(profile: &Profile, ttl: Option<Duration>) -> Self {
        let longest = profile.longest_ttl.filter(|_| profile.quarantine);
        Self { host_ms: ttl.map(milliseconds), server_ms: longest.map(milliseconds) }
    }
}

impl CostView {
    fn new(cost: Cost) -> Self {
        Self {
            acquire_round_trips: cost.acquire_trips,
            release_round_trips: cost.release_trips,
            connections: cost.connections.describe(),
        }
    }

    fn words(&self) -> String {
        if self.acquire_round_trips == 0 {
            return format!("no round trip, {}", self.connections);
        }
        let acquire = counted(self.acquire_round_trips as usize, "round trip");
        format!("{acquire} to acquire, {} to give back; {}", self.release_round_trips, self.connections)
    }
}

impl AnswersView {
    fn new(answers: Answers) -> Self {
        Self {
            on_overlap: answers.on_overlap.map(Overlap::name),
            can_pause: answers.can_pause,
            postgres: answers.postgres,
            sink_checks: answers.sink_checks,
            databases: answers.databases.map(Reach::name),
            hosts: answers.hosts.map(Reach::name),
        }
    }

    /// As they stand in the file.
    fn words(&self) -> String {
        let text = |name, answer: Option<&str>| Some(format!("{name} = {:?}", answer?));
        let switch = |name, answer: Option<bool>| Some(format!("{name} = {}", answer?));
        let answers = [
            text("on_overlap", self.on_overlap),
            switch("can_pause", self.can_pause),
            switch("postgres", self.postgres),
            switch("sink_checks", self.sink_checks),
            text("databases", self.databases),
            text("hosts", self.hosts),
        ];
        answers.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost::{Clock, ErrorKind};

    fn explained(seen: Seen) -> Vec<String> {
        let url = "memory:".parse().unwrap();
        let locks = fencepost::connect_url(&url, &Clock::system()).unwrap();
        let place = Place { url, source: Source::Flag, choice: None };
        Explanation::new(&"a".parse().unwrap(), &place, &locks, seen).lines()
    }

    #[test]
    fn lease_that_the_server_makes_longer_is_told() {
        let told_from = |shortest| {
            let mut seen = Examination::default();
            seen.ttl = Some(TtlRange { shortest, longest: Duration::from_mins(10) });
            explained(Seen::Examined(seen)).join("\n")
        };
        let told = told_from(Duration::from_secs(40));
        assert!(told.contains("lease      30s is asked for, and the server makes it 40s"), "{told}");
        let told = told_from(Duration::from_secs(1));
        assert!(told.contains("lease      30s; runs out"), "{told}");
    }

    #[test]
    fn server_that_was_not_seen_is_told() {
        let away = Error::new(ErrorKind::Unavailable, "connect", "nobody is there");
        let told = explained(Seen::Away(away)).join("\n");
        assert!(told.contains("its version is not known: cannot connect: nobody is there"), "{told}");
        assert!(explained(Seen::NotLooked).join("\n").contains("--offline"));
    }
}
