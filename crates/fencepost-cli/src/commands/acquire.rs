//! `fencepost acquire`, `renew` and `release`: the three steps apart, each in a process of its own.

use std::io;
use std::pin::pin;
use std::time::Duration;

use fencepost::{
    BackendUrl, Clock, DEFAULT_TTL, Deadline, Error, ErrorKind, FencingToken, HolderId, Lock, LockName,
    Locks, Result, Wait, block_on, until,
};
use serde::Serialize;

use super::lease_id::{LeaseId, NotALease};
use super::patience::{explain_contention, explained, persistently};
use super::place::{Place, fail};
use super::state::milliseconds;
use super::warn_of_fences;
use crate::args::{self, Global};
use crate::child::{Asks, Heard, Inbox, Signals, meaning, stop_this_process};
use crate::exit::Exit;
use crate::printer::Printer;

/// How long the end of a wait that was interrupted takes to be told to the backend.
const SETTLE_MOST: Duration = Duration::from_millis(500);

/// A lease with less than this share of its ttl left when it is to be handed out is renewed first.
const FRESH_SHARE: f64 = 0.75;

/// What is printed of a lease.
#[derive(Debug, Serialize)]
struct Leased<'a> {
    lock: &'a str,
    token: FencingToken,
    holder: HolderId,
    lease: String,
    ttl_ms: u64,
    remaining_ms: u64,
    backend: &'static str,
}

/// A lease that nobody keeps, and until when it may be believed in.
#[derive(Debug)]
struct Loose {
    id: LeaseId,
    deadline: Deadline,
}

/// Acquires a lock and leaves it to whoever has its id.
pub(crate) fn acquire(global: &Global, args: &args::Acquire, printer: Printer) -> Exit {
    let (place, locks) = match detachable(global, &args.lock, "acquire the lock", printer) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    let flagged = match flagged(args, printer) {
        Ok(flagged) => flagged,
        Err(error) => return fail(&error, printer),
    };
    let job = Job { args, place, locks, printer };
    match job.lock(&flagged) {
        Ok(lock) => job.run(&lock).unwrap_or_else(|error| {
            printer.error(format_args!("the system refuses what a wait needs: {error}"));
            Exit::UNAVAILABLE
        }),
        Err(error) => job.fail(&error),
    }
}

/// Renews a lease of [`acquire`].
pub(crate) fn renew(global: &Global, args: &args::Leased, printer: Printer) -> Exit {
    let (place, locks) = match detachable(global, &args.lock, "renew the lease", printer) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    let id = match lease_id(args, "renew", printer) {
        Ok(id) => id,
        Err(exit) => return exit,
    };
    match block_on(renewed(&locks, &args.lock, id)) {
        // Whoever has not read it has the lease all the same.
        Ok(loose) => {
            let _ = say(&args.lock, &loose, &place, printer);
            Exit::OK
        }
        Err(error) => fail(&error, printer),
    }
}

/// Releases a lease of [`acquire`].
pub(crate) fn release(global: &Global, args: &args::Leased, printer: Printer) -> Exit {
    let (_, locks) = match detachable(global, &args.lock, "release the lock", printer) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    let id = match lease_id(args, "release", printer) {
        Ok(id) => id,
        Err(exit) => return exit,
    };
    match block_on(locks.give_back(&id.handover(&args.lock))) {
        Ok(()) => {
            printer.detail(format_args!("{} is free", args.lock));
            Exit::OK
        }
        Err(error) => fail(&error, printer),
    }
}

/// What `--lease` says.
fn lease_id(args: &args::Leased, command: &str, printer: Printer) -> Result<LeaseId, Exit> {
    args.lease.parse().map_err(|error: NotALease| {
        printer.error(format_args!("--lease: {error}"));
        printer.hint(format_args!("fencepost {command} --help tells more"));
        Exit::USAGE
    })
}

async fn renewed(locks: &Locks, lock: &LockName, id: LeaseId) -> Result<Loose> {
    let renewal = locks.renew(&id.handover(lock), id.ttl()).await?;
    Ok(Loose { id, deadline: Deadline::of(renewal.counted_from, renewal.ttl) })
}

fn detachable(
    global: &Global,
    lock: &LockName,
    operation: &'static str,
    printer: Printer,
) -> Result<(Place, Locks), Exit> {
    let place = Place::of(global, std::slice::from_ref(lock), printer)?.remove(0);
    let locks = place.connect().and_then(|locks| {
        if locks.profile().detach {
            return Ok(locks);
        }
        Err(locks.profile().not_detachable().during(operation).on(lock))
    });
    locks.map(|locks| (place, locks)).map_err(|error| fail(&error, printer))
}

fn flagged(args: &args::Acquire, printer: Printer) -> Result<Vec<BackendUrl>> {
    let fences = args.fences()?;
    warn_of_fences(&fences, printer);
    Ok(fences)
}

/// One acquisition.
struct Job<'a> {
    args: &'a args::Acquire,
    place: Place,
    locks: Locks,
    printer: Printer,
}

impl Job<'_> {
    /// The lock with what its rule and the command line say.
    fn lock(&self, flagged: &[BackendUrl]) -> Result<Lock> {
        let mut lock = self.locks.lock(self.args.lock.as_str())?.label(crate::label::of_the_caller());
        lock = lock.ttl(self.args.ttl.or_else(|| self.place.ttl()).unwrap_or(DEFAULT_TTL));
        if self.place.choice.as_ref().is_some_and(|choice| choice.rule.require_durable) {
            lock = lock.require_durable();
        }
        for fence in self.place.fences().chain(flagged) {
            lock = lock.fence(fencepost::fence(fence)?);
        }
        Ok(lock)
    }

    /// Waits for the lock, which a signal ends, and hands the lease out.
    fn run(&self, lock: &Lock) -> io::Result<Exit> {
        let signals = Signals::block()?;
        let inbox = Inbox::alone(&signals)?;
        let patience = self.patience();
        let acquire = async || self.leased(lock, patience).await;
        let target = [(self.locks.clone(), self.args.lock.clone())];
        let acquiring = persistently(true, patience, self.printer, acquire);
        let acquired = wait(&inbox, explained(&target, patience, false, self.printer, acquiring))?;
        settle(self.printer);
        Ok(match acquired {
            Ok(Ok(loose)) => self.hand_out(&loose),
            Ok(Err(error)) if error.kind() == ErrorKind::Contended => {
                explain_contention(&target, &error, self.printer);
                Exit::NOT_ACQUIRED
            }
            Ok(Err(error)) => self.fail(&error),
            Err(signal) => Exit::signalled(signal),
        })
    }

    /// A lease whose id nobody can read is nobody's, and given back.
    fn hand_out(&self, loose: &Loose) -> Exit {
        let Err(error) = say(&self.args.lock, loose, &self.place, self.printer) else { return Exit::OK };
        self.printer.error(format_args!("cannot print the lease, which is given back: {error}"));
        if let Err(error) = block_on(self.locks.give_back(&loose.id.handover(&self.args.lock))) {
            fail(&error, self.printer);
        }
        Exit::UNAVAILABLE
    }

    /// Prints `error`; its exit code, which is that of the configuration where its rule is to blame.
    fn fail(&self, error: &Error) -> Exit {
        let exit = fail(error, self.printer);
        let is_refused = matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::InvalidArgument);
        if is_refused && self.place.is_by_rule() { Exit::CONFIG } else { exit }
    }

    fn patience(&self) -> Wait {
        let wait = self.args.wait.or_else(|| self.place.choice.as_ref()?.wait);
        match (self.args.no_wait, wait) {
            (true, _) => Wait::No,
            (false, Some(wait)) => Wait::Until(Clock::system().now().after(wait)),
            (false, None) => Wait::Forever,
        }
    }

    /// One lease that nobody keeps, with most of its ttl left: its fences may have taken long to be sealed.
    async fn leased(&self, lock: &Lock, wait: Wait) -> Result<Loose> {
        let lease = Lock::acquire_all(std::slice::from_ref(lock), wait).await?.remove(0);
        let (ttl, deadline) = (lease.ttl().unwrap_or_default(), lease.deadline());
        let id = LeaseId::new(&lease.detach().await?, ttl);
        let left = deadline.remaining(Clock::system().now()).unwrap_or_default();
        if left < ttl.mul_f64(FRESH_SHARE) {
            return renewed(&self.locks, lock.name(), id).await;
        }
        Ok(Loose { id, deadline })
    }
}

/// Waits for `acquiring`, or for a signal that ends the wait.
fn wait<T>(inbox: &Inbox, acquiring: impl Future<Output = T>) -> io::Result<Result<T, i32>> {
    let mut acquiring = pin!(acquiring);
    loop {
        match inbox.next(None, acquiring.as_mut())? {
            Heard::Done(outcome) => return Ok(Ok(outcome)),
            Heard::Signal(signal) => match meaning(signal) {
                Asks::ToEnd => return Ok(Err(signal)),
                Asks::ToStop => stop_this_process(),
                _ => {}
            },
            _ => {}
        }
    }
}

/// Waits until what was dropped on the way has been given back, but not for a backend that does not answer.
fn settle(printer: Printer) {
    let clock = Clock::system();
    let give_up_at = Some(clock.now().after(SETTLE_MOST));
    if block_on(until(&clock, give_up_at, clock.settled())).is_none() {
        printer.warn("the backend did not confirm that all was given back; the ttl bounds what is left");
    }
}

fn say(lock: &LockName, loose: &Loose, place: &Place, printer: Printer) -> io::Result<()> {
    let handover = loose.id.handover(lock);
    let leased = Leased {
        lock: lock.as_str(),
        token: handover.token,
        holder: handover.holder,
        lease: loose.id.to_string(),
        ttl_ms: milliseconds(loose.id.ttl()),
        remaining_ms: milliseconds(loose.deadline.remaining(Clock::system().now()).unwrap_or_default()),
        backend: place.url.kind(),
    };
    printer.whole(&serde_json::to_string(&leased).expect("a lease is plain data"))
}
