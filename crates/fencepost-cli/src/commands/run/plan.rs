//! What a run is going to do: flag over rule over defaults, checked before anything is started.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use fencepost::{
    BackendUrl, Clock, DEFAULT_TTL, Error, ErrorKind, Lock, LockName, Locks, Observer, Result, Scope, Wait,
};

use super::slots;
use super::stamps::{self, Stamps};
use crate::args::{Global, Run};
use crate::commands::place::{Place, Source, fail};
use crate::commands::warn_of_fences;
use crate::exit::Exit;
use crate::printer::Printer;

/// The locks of a run and the times that go for all of them.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) targets: Vec<Target>,
    /// What a fence in Postgres is to find, where there is one.
    pub(super) stamps: Option<Stamps>,
    /// Whether nobody wants to be told of a wait: others do the same job at the same time as a matter of course, and what is said on
    /// no terminal may become a mail.
    pub(super) is_unattended: bool,
    wait: Option<Duration>,
    grace: Option<Duration>,
}

/// One lock, and where it is.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) name: LockName,
    pub(super) place: Place,
    pub(super) locks: Locks,
    ttl: Duration,
    fences: Vec<BackendUrl>,
    durable: bool,
    history: u64,
    /// What may be held: the lock, or else one of its slots.
    names: Vec<LockName>,
}

impl Plan {
    /// The plan of a command line.
    ///
    /// # Errors
    /// The exit code; the reason has been printed.
    pub(super) fn new(global: &Global, args: &Run, printer: Printer) -> Result<Self, Exit> {
        refuse_many(&args.locks)
            .and_then(|()| refuse_twice(&args.locks))
            .and_then(|()| refuse_several(args))
            .and_then(|()| refuse_fenced_readers(args))
            .map_err(|error| fail(&error, printer))?;
        let places = Place::of(global, &args.locks, printer)?;
        places.iter().try_for_each(|place| place.refuse_wrong_fences(printer))?;
        let waits = places.iter().filter_map(|place| place.choice.as_ref()?.wait);
        let wait = args.wait.or_else(|| waits.min()).filter(|_| !args.no_wait);
        let ttl = |place: &Place| args.ttl.or_else(|| place.ttl()).unwrap_or(DEFAULT_TTL);
        let shortest = places.iter().map(ttl).min().unwrap_or(DEFAULT_TTL);
        let graces = places.iter().filter_map(|place| place.choice.as_ref()?.grace);
        let grace = args.grace.or_else(|| graces.min());
        refuse_long_grace(grace, shortest, "of the ttl").map_err(|error| fail(&error, printer))?;
        let fences = args.fences().map_err(|error| fail(&error, printer))?;
        warn_of_fences(&fences, printer);
        let mut targets: Vec<Target> = Vec::new();
        for (name, place) in args.locks.iter().cloned().zip(places) {
            let misconfigured = place.is_by_rule();
            let target = Target::new(name, ttl(&place), place, args, &fences, &targets).map_err(|error| {
                let exit = fail(&error, printer);
                if misconfigured { Exit::CONFIG } else { exit }
            })?;
            target.refuse_slots_elsewhere(global, printer)?;
            targets.push(target);
        }
        let fences = targets.iter().flat_map(|target| &target.fences);
        let longest: Vec<_> = targets.iter().filter_map(|target| target.names.last().cloned()).collect();
        let stamps = Stamps::of_run(fences, &longest, std::env::var_os(stamps::VARIABLE));
        let stamps = stamps.map_err(|error| fail(&error, printer))?;
        let is_unattended = args.once_per.is_some() && !std::io::stderr().is_terminal();
        Ok(Self { targets, stamps, is_unattended, wait, grace })
    }

    /// The time between SIGTERM and SIGKILL that was asked for, by flag or rule.
    pub(super) fn explicit_grace(&self) -> Option<Duration> {
        self.grace
    }

    /// The time between SIGTERM and SIGKILL for the shortest lease, by what is left of it for certain after a renewal.
    ///
    /// # Errors
    /// When the one that was asked for is more than half of it.
    pub(super) fn grace(&self, assured: Option<Duration>) -> Result<Duration> {
        let ttl = assured
            .unwrap_or_else(|| self.targets.iter().map(|target| target.ttl).min().unwrap_or(DEFAULT_TTL));
        refuse_long_grace(self.grace, ttl, "that are left of the lease for certain after a renewal")?;
        Ok(self.grace.unwrap_or_else(|| fencepost::default_grace(ttl)))
    }

    /// Whether `error` comes from what a rule says, and not from the command line.
    pub(super) fn is_misconfigured(&self, error: &Error) -> bool {
        let by_rule = |lock: &LockName| {
            let mut targets = self.targets.iter().filter(|target| target.place.is_by_rule());
            targets.any(|target| target.name == *lock || target.names.contains(lock))
        };
        matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::InvalidArgument)
            && error.lock().is_some_and(by_rule)
    }

    /// The locks that may be held, each with its place.
    pub(super) fn locks(&self) -> Vec<(Locks, LockName)> {
        let named = |target: &'_ Target| {
            let locks = target.locks.clone();
            target.names.clone().into_iter().map(move |name| (locks.clone(), name))
        };
        self.targets.iter().flat_map(named).collect()
    }

    /// Says where the locks are, always where the user may not expect it: a directory that is about to be made.
    pub(super) fn announce(&self, printer: Printer) {
        let mut told = Vec::new();
        for target in &self.targets {
            let place = target.locks.to_string();
            if !told.contains(&place) {
                target.announce(printer);
                told.push(place);
            }
        }
    }

    /// How long to wait, from now.
    pub(super) fn patience(&self, no_wait: bool, clock: &Clock) -> Wait {
        match (no_wait, self.wait) {
            (true, _) => Wait::No,
            (false, Some(wait)) => Wait::Until(clock.now().after(wait)),
            (false, None) => Wait::Forever,
        }
    }
}

impl Target {
    /// The lock at `place`, by way of the connection of another target that is kept there too.
    fn new(
        name: LockName,
        ttl: Duration,
        place: Place,
        args: &Run,
        fences: &[BackendUrl],
        others: &[Self],
    ) -> Result<Self> {
        let beside = others.iter().find(|other| other.place.url == place.url);
        let locks = beside.map_or_else(|| place.connect(), |other| Ok(other.locks.clone()))?;
        let names = args.slots.map_or_else(|| Ok(vec![name.clone()]), |count| slots::names(&name, count))?;
        let rule = place.choice.as_ref().map(|choice| &choice.rule);
        let durable = rule.is_some_and(|rule| rule.require_durable);
        let (mut fences, mut history): (Vec<_>, _) =
            (place.fences().chain(fences).cloned().collect(), rule.map_or(0, |rule| rule.history));
        if args.shared {
            // A reader changes nothing: neither what a fence protects nor what stands beside the token.
            (fences, history) = (Vec::new(), 0);
        }
        Ok(Self { name, place, locks, ttl, fences, durable, history, names })
    }

    /// Refuses slots for which another rule than the lock's is the first: whoever looks at one by its name would look elsewhere.
    fn refuse_slots_elsewhere(&self, global: &Global, printer: Printer) -> Result<(), Exit> {
        if self.names == [self.name.clone()] {
            return Ok(());
        }
        let rule =
            |place: &Place| place.choice.as_ref().map(|choice| (choice.rule.line, choice.rule.glob.clone()));
        let ours = rule(&self.place);
        let places = Place::of(global, &self.names, printer)?;
        let mut others = self.names.iter().zip(places.iter().map(rule)).filter(|(_, other)| *other != ours);
        let Some((slot, Some((line, glob)))) = others.next() else { return Ok(()) };
        printer.error(format_args!(
            "the slot {slot} is matched by another rule than its lock: {glob:?} on line {line}"
        ));
        printer.hint(format_args!("put the rule for {} before it", self.name));
        Err(Exit::CONFIG)
    }

    /// The lock with all its options.
    pub(super) fn lock(
        &self,
        args: &Run,
        grace: Option<Duration>,
        observer: Arc<dyn Observer>,
    ) -> Result<Lock> {
        let label = crate::label::of(&args.command);
        let mut lock = self.locks.lock(self.name.as_str())?.ttl(self.ttl).label(label).observer(observer);
        if let Some(grace) = grace {
            lock = lock.grace(grace);
        }
        if let Some(at_least) = args.at_least {
            lock = lock.at_least(at_least);
        }
        if self.durable {
            lock = lock.require_durable();
        }
        if self.history > 0 {
            lock = lock.history(self.history);
        }
        if args.shared {
            lock = lock.shared();
        }
        if let Some(count) = args.slots {
            lock = lock.slots(count);
        }
        if let Some(slot) = &args.once_per {
            lock = lock.once_per(slot.clone(), args.slot_on.into());
        }
        for fence in &self.fences {
            lock = lock.fence(fencepost::fence(fence)?);
        }
        Ok(lock)
    }

    /// How far it reaches, in words.
    pub(super) fn reach(&self) -> &'static str {
        self.locks.profile().scope.describe()
    }

    /// Whether a fence protects what other hosts use too, and nobody has said where the lock is.
    fn is_for_others(&self) -> bool {
        let is_shared = |fence: &BackendUrl| !matches!(fence.kind(), "file" | "sqlite");
        self.place.source == Source::Default && self.fences.iter().any(is_shared)
    }

    fn announce(&self, printer: Printer) {
        let (place, reach) = (&self.locks, self.reach());
        if self.locks.profile().scope == Scope::Process {
            printer.warn(format_args!("{place} keeps locks in {reach}: two runs do not see each other"));
        } else if self.locks.profile().scope == Scope::Host && self.is_for_others() {
            printer.warn(format_args!(
                "{} is kept in {place} and holds for {reach}, though what the fence protects is shared: name its place by --backend",
                self.name
            ));
        } else if self.place.directory().is_some_and(|directory| !directory.exists()) {
            printer.note(format_args!("locks are kept in a new directory, {place}, and hold for {reach}"));
        } else {
            printer.detail(format_args!("{} is kept in {place} and holds for {reach}", self.name));
        }
    }
}

/// The guardian gets two descriptors a lock in one message, and the command one variable with all names.
const MOST_LOCKS: usize = 100;

/// What a grant takes in that variable, beside the lock's name.
const ONE_GRANT: usize = 100;

/// The longest value of a variable that Linux passes on is 128 KiB, with its name.
const LONGEST_VARIABLE: usize = 127 * 1024;

fn refuse_many(locks: &[LockName]) -> Result<()> {
    if locks.len() > MOST_LOCKS {
        return Err(wrong(format!(
            "{} locks are more than the {MOST_LOCKS} that one run can hold",
            locks.len()
        )));
    }
    let written =
        locks.iter().map(|lock| serde_json::to_string(lock).map_or(0, |text| text.len()) + ONE_GRANT);
    if written.sum::<usize>() > LONGEST_VARIABLE {
        return Err(wrong("the names are longer than what one environment variable can hold".to_owned()));
    }
    Ok(())
}

fn refuse_twice(locks: &[LockName]) -> Result<()> {
    let twice = locks.iter().enumerate().find(|(index, lock)| locks[..*index].contains(lock));
    match twice {
        Some((_, lock)) => Err(wrong("the lock is named twice".to_owned()).on(lock)),
        None => Ok(()),
    }
}

/// A slot is done, or taken, for one lock.
fn refuse_several(args: &Run) -> Result<()> {
    let flag = match (&args.once_per, args.slots) {
        (Some(_), _) => "--once-per",
        (_, Some(_)) => "--slots",
        _ => return Ok(()),
    };
    if args.locks.len() == 1 {
        return Ok(());
    }
    let what = format!("{flag} is for one lock, and {} are named", args.locks.len());
    Err(wrong(what).hint("run the one inside the other: fencepost run A -- fencepost run ... B -- COMMAND"))
}

fn refuse_fenced_readers(args: &Run) -> Result<()> {
    if !args.shared || args.fences()?.is_empty() {
        return Ok(());
    }
    let what = "a lock that is --shared is only read under, and --fence seals for one who writes".to_owned();
    Err(wrong(what).hint("leave out --shared where the command writes, and --fence where it does not"))
}

fn refuse_long_grace(grace: Option<Duration>, ttl: Duration, of_what: &str) -> Result<()> {
    match grace.filter(|grace| *grace > ttl / 2) {
        Some(grace) => {
            let what = format!("a grace of {grace:?} is more than half of the {ttl:?} {of_what}");
            Err(wrong(what).hint("the command must have ended before the lease has; ask for a longer --ttl"))
        }
        None => Ok(()),
    }
}

fn wrong(what: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "run the command", what)
}
