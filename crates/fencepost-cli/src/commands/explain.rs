//! `fencepost explain`: where one lock lives, why there, what is promised, and when two could overlap.
//!
//! Everything that is said follows from the backend's profile.

use std::time::Duration;

use fencepost::{Expiry, LockName, Profile, Scope, Tie, Timing};
use serde::Serialize;

use super::place::{Place, Source, fail};
use crate::args::{self, Global};
use crate::exit::Exit;
use crate::printer::Printer;

/// What is said, for machines.
#[derive(Debug, Serialize)]
struct Explanation<'a> {
    lock: &'a str,
    backend: &'static str,
    place: String,
    chosen_by: String,
    scope: &'static str,
    ttl_ms: Option<u64>,
    fences: Vec<String>,
    promises: Vec<Promise>,
    because: Option<&'a str>,
}

/// What happens under one fault.
#[derive(Debug, Serialize)]
struct Promise {
    fault: &'static str,
    two_may_overlap: &'static str,
    what_happens: &'static str,
}

/// Explains one lock.
pub(crate) fn explain(global: &Global, args: &args::Explain, printer: Printer) -> Exit {
    let mut places = match Place::of(global, std::slice::from_ref(&args.lock), printer) {
        Ok(places) => places,
        Err(exit) => return exit,
    };
    let place = places.remove(0);
    let locks = match place.connect() {
        Ok(locks) => locks,
        Err(error) => return fail(&error, printer),
    };
    let explanation = Explanation::new(&args.lock, &place, &locks.to_string(), locks.profile());
    if global.json {
        printer.data(&serde_json::to_string(&explanation).expect("an explanation is plain data"));
    } else {
        for line in explanation.lines(locks.profile()) {
            printer.data(&line);
        }
    }
    Exit::OK
}

impl<'a> Explanation<'a> {
    fn new(lock: &'a LockName, place: &'a Place, kept_in: &str, profile: &Profile) -> Self {
        let choice = place.choice.as_ref();
        let ttl = choice.and_then(|choice| choice.ttl).unwrap_or(fencepost::DEFAULT_TTL);
        let ttl = (profile.expiry != Expiry::WithProcess).then_some(ttl);
        Self {
            lock: lock.as_str(),
            backend: place.url.kind(),
            place: kept_in.to_owned(),
            chosen_by: chosen_by(&place.source),
            scope: profile.scope.describe(),
            ttl_ms: ttl.map(super::state::milliseconds),
            fences: choice.iter().flat_map(|choice| &choice.fences).map(ToString::to_string).collect(),
            promises: promises(profile, &place.source),
            because: choice.and_then(|choice| choice.rule.because.as_deref()),
        }
    }

    fn lines(&self, profile: &Profile) -> Vec<String> {
        let mut lines = vec![
            format!("lock      {}", self.lock),
            format!("kept in   {}", self.place),
            format!("chosen by {}", self.chosen_by),
            format!("reaches   {}", self.scope),
            format!("lease     {}", self.lease(profile)),
            format!("tokens    {}", profile.tokens.describe()),
            format!("waiting   {}", profile.waiting.describe()),
            format!("loss      {}", profile.loss.describe()),
            format!(
                "fence     {}",
                if self.fences.is_empty() { NO_FENCE.to_owned() } else { self.fences.join(", ") }
            ),
        ];
        lines.extend(self.because.map(|because| format!("because   {because}")));
        lines.push(String::new());
        lines.push("Could two holders overlap?".to_owned());
        for promise in &self.promises {
            lines.push(format!(
                "  {:<15} {:<4} {}",
                promise.fault, promise.two_may_overlap, promise.what_happens
            ));
        }
        lines
    }

    fn lease(&self, profile: &Profile) -> String {
        match self.ttl_ms {
            None => format!("{}; --ttl is ignored", profile.expiry.describe()),
            Some(ttl) => {
                let ttl = humantime::format_duration(Duration::from_millis(ttl));
                format!("{ttl}; {}", profile.expiry.describe())
            }
        }
    }
}

fn clock_jump(timing: Timing) -> (&'static str, &'static str) {
    match timing {
        Timing::WallClock => (
            "yes",
            "if the server's clock is set forward while the lock is held; a fence refuses the older holder",
        ),
        Timing::WallClocks => (
            "yes",
            "if the clocks of a majority of the nodes are set forward; a fence refuses the older holder",
        ),
        _ => ("no", "deadlines are counted on a clock that only runs forward"),
    }
}

fn data_loss(quarantine: bool) -> (&'static str, &'static str) {
    if quarantine {
        (
            "no",
            "a server that may have lost data grants nothing until every lease it may have forgotten is over",
        )
    } else {
        (
            "yes",
            "the quarantine is off: a server that has lost its data grants at once; a fence refuses the older holder",
        )
    }
}

const NO_FENCE: &str = "none: a holder that does not know that it lost the lock is not stopped";

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

fn promises(profile: &Profile, source: &Source) -> Vec<Promise> {
    let mut promises = vec![promise("no fault", "no", "one holder at a time")];
    promises.extend(match profile.expiry {
        Expiry::WithProcess => with_process(),
        Expiry::WithSession => with_session(profile),
        _ => after_ttl(profile),
    });
    promises.extend(elsewhere(profile.scope));
    if *source == Source::Default {
        let what = "each user has a default directory; share one: --backend file:/var/lib/fencepost";
        promises.push(promise("other users", "yes", what));
    }
    promises
}

fn promise(fault: &'static str, two_may_overlap: &'static str, what_happens: &'static str) -> Promise {
    Promise { fault, two_may_overlap, what_happens }
}

fn with_process() -> Vec<Promise> {
    vec![
        promise("pause", "no", "a stopped holder keeps the lock; the others wait"),
        promise("crash", "no", "free as soon as the last process of the command has ended"),
        promise("clock jump", "no", "no lease is timed; tokens grow on even if the clock went back"),
        promise("restart", "no", "a reboot ends every holder"),
        promise(
            "data loss",
            "yes",
            "if both files of a held lock are removed: until its holder looks (1 s) and its command has stopped",
        ),
    ]
}

fn with_session(profile: &Profile) -> Vec<Promise> {
    let mut promises = vec![
        promise("pause", "no", "a stopped holder keeps the lock, without its command; the others wait"),
        promise("crash", "no", "free as soon as the last process of the command has ended"),
        promise("lost host", "no", "free when the server has not heard of it for the ttl and some seconds"),
    ];
    promises.extend(on_a_server(profile));
    promises
}

fn after_ttl(profile: &Profile) -> Vec<Promise> {
    let mut promises = vec![
        promise(
            "pause",
            "yes",
            "a holder that is paused between its check and its write; a fence refuses it",
        ),
        promise("crash", "no", "free when the guardian has given it back, at the latest after the ttl"),
    ];
    promises.extend(on_a_server(profile));
    promises
}

/// What a server does to a lock.
fn on_a_server(profile: &Profile) -> Vec<Promise> {
    let (two_may_overlap, what_happens) = clock_jump(profile.timing);
    let mut promises = vec![promise("clock jump", two_may_overlap, what_happens)];
    let (two_may_overlap, what_happens) = data_loss(profile.quarantine);
    if profile.tie == Tie::Session {
        let what = "if somebody or the network ends the session, it is free before the command has had its grace to \
                    end; a fence refuses that one";
        promises.push(promise("lost session", "yes", what));
        promises.push(promise("restart", two_may_overlap, what_happens));
    } else if matches!(profile.timing, Timing::WallClock | Timing::WallClocks) {
        promises.push(promise("data loss", two_may_overlap, what_happens));
    }
    promises
}

/// Where the lock is not seen.
fn elsewhere(scope: Scope) -> Vec<Promise> {
    let mut promises = Vec::new();
    if scope == Scope::Process {
        promises.push(promise("other runs", "yes", "another process does not see this lock at all"));
    }
    if scope <= Scope::Host {
        promises.push(promise("other hosts", "yes", "a job on another host does not see this lock at all"));
    }
    if scope == Scope::Server {
        let failover =
            "a replica that took over while the old server still grants; a fence refuses the older holder";
        promises.push(promise("failover", "yes", failover));
        let other = "the same name in another database of the server is another lock";
        promises.push(promise("other databases", "yes", other));
    }
    promises
}
