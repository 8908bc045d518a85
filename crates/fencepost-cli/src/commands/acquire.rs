//! `fencepost acquire`, `renew` and `release`: the three steps apart, each in a process of its own.

use std::io;
use std::pin::pin;
use std::time::Duration;

use fencepost::{
    BackendUrl, Clock, DEFAULT_TTL, Error, ErrorKind, FencingToken, HolderId, Lock, LockName, Locks, Result,
    Wait, block_on, until,
};
use serde::Serialize;

use super::lease_id::LeaseId;
use super::patience::{explained, persistently};
use super::place::{Place, fail};
use super::state::milliseconds;
use super::warn_of_password;
use crate::args::{self, Global};
use crate::child::{Asks, Heard, Inbox, Signals, meaning, stop_this_process};
use crate::exit::Exit;
use crate::printer::Printer;

/// How long the end of a wait that was interrupted takes to be told to the backend.
const SETTLE_MOST: Duration = Duration::from_millis(500);

/// What is printed of a lease.
#[derive(Debug, Serialize)]
struct Leased<'a> {
    lock: &'a str,
    token: FencingToken,
    holder: HolderId,
    lease: String,
    ttl_ms: u64,
    backend: &'static str,
}

/// Acquires a lock and leaves it to whoever has its id.
pub(crate) fn acquire(global: &Global, args: &args::Acquire, printer: Printer) -> Exit {
    let place = match place(global, &args.lock, printer) {
        Ok(place) => place,
        Err(exit) => return exit,
    };
    match prepare(args, &place, printer) {
        Ok((locks, lock)) => granted(args, &place, &locks, &lock, printer).unwrap_or_else(|error| {
            printer.error(format_args!("the system refuses what a wait needs: {error}"));
            Exit::UNAVAILABLE
        }),
        Err(error) if place.is_by_rule() => {
            fail(&error, printer);
            Exit::CONFIG
        }
        Err(error) => fail(&error, printer),
    }
}

/// Renews a lease of [`acquire`].
pub(crate) fn renew(global: &Global, args: &args::Leased, printer: Printer) -> Exit {
    let (place, locks) = match detachable(global, &args.lock, printer) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    let handover = args.lease.handover(&args.lock);
    match block_on(locks.renew(&handover, args.lease.ttl())) {
        Ok(_) => {
            say(&args.lock, &args.lease, &place, printer);
            Exit::OK
        }
        Err(error) => fail(&error, printer),
    }
}

/// Releases a lease of [`acquire`].
pub(crate) fn release(global: &Global, args: &args::Leased, printer: Printer) -> Exit {
    let (_, locks) = match detachable(global, &args.lock, printer) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    match block_on(locks.give_back(&args.lease.handover(&args.lock))) {
        Ok(()) => {
            printer.detail(format_args!("{} is free", args.lock));
            Exit::OK
        }
        Err(error) => fail(&error, printer),
    }
}

fn place(global: &Global, lock: &LockName, printer: Printer) -> Result<Place, Exit> {
    Place::of(global, std::slice::from_ref(lock), printer).map(|mut places| places.remove(0))
}

fn detachable(global: &Global, lock: &LockName, printer: Printer) -> Result<(Place, Locks), Exit> {
    let place = place(global, lock, printer)?;
    let locks = place.connect().and_then(|locks| refuse_what_cannot_be_detached(&locks).map(|()| locks));
    locks.map(|locks| (place, locks)).map_err(|error| fail(&error, printer))
}

fn refuse_what_cannot_be_detached(locks: &Locks) -> Result<()> {
    let profile = locks.profile();
    if profile.detach {
        return Ok(());
    }
    let what = format!(
        "a lease of {} {}, so no other process can have it",
        profile.backend,
        profile.expiry.describe()
    );
    let error = Error::new(ErrorKind::Unsupported, "acquire the lock", what);
    Err(error.hint("run the job under the lock: fencepost run LOCK -- COMMAND"))
}

/// The lock with what its rule and the command line say.
fn prepare(args: &args::Acquire, place: &Place, printer: Printer) -> Result<(Locks, Lock)> {
    let locks = place.connect()?;
    refuse_what_cannot_be_detached(&locks)?;
    let mut lock = locks.lock(args.lock.as_str())?.label(crate::label::of_the_caller());
    lock = lock.ttl(args.ttl.or_else(|| place.ttl()).unwrap_or(DEFAULT_TTL));
    if place.choice.as_ref().is_some_and(|choice| choice.rule.require_durable) {
        lock = lock.require_durable();
    }
    for fence in place.fences().chain(&flagged(args, printer)?) {
        lock = lock.fence(fencepost::fence(fence)?);
    }
    Ok((locks, lock))
}

fn flagged(args: &args::Acquire, printer: Printer) -> Result<Vec<BackendUrl>> {
    let fences = args.fences()?;
    for fence in &fences {
        warn_of_password(fence, "--fence", "use the rule's fence in the configuration", printer);
    }
    Ok(fences)
}

/// Waits for the lock, which a signal ends, and hands the lease out.
fn granted(
    args: &args::Acquire,
    place: &Place,
    locks: &Locks,
    lock: &Lock,
    printer: Printer,
) -> io::Result<Exit> {
    let signals = Signals::block()?;
    let inbox = Inbox::alone(&signals)?;
    let patience = patience(args, place);
    let acquire = async || leased(lock, patience).await;
    let target = [(locks.clone(), args.lock.clone())];
    let acquiring = explained(&target, patience, printer, persistently(true, patience, printer, acquire));
    let acquired = wait(&inbox, acquiring)?;
    settle(printer);
    Ok(match acquired {
        Ok(Ok(id)) => {
            say(&args.lock, &id, place, printer);
            Exit::OK
        }
        Ok(Err(error)) => fail(&error, printer),
        Err(signal) => Exit::signalled(signal),
    })
}

fn patience(args: &args::Acquire, place: &Place) -> Wait {
    let wait = args.wait.or_else(|| place.choice.as_ref()?.wait);
    match (args.no_wait, wait) {
        (true, _) => Wait::No,
        (false, Some(wait)) => Wait::Until(Clock::system().now().after(wait)),
        (false, None) => Wait::Forever,
    }
}

/// One lease that nobody keeps.
async fn leased(lock: &Lock, wait: Wait) -> Result<LeaseId> {
    let lease = match wait {
        Wait::No => lock.try_acquire().await?.ok_or_else(|| {
            Error::new(ErrorKind::Contended, "acquire the lock", "it is held").on(lock.name())
        })?,
        Wait::Until(at) => lock.clone().wait(at.since(Clock::system().now())).acquire().await?,
        Wait::Forever => lock.acquire().await?,
    };
    let ttl = lease.ttl().unwrap_or_default();
    Ok(LeaseId::new(&lease.detach().await?, ttl))
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

fn say(lock: &LockName, id: &LeaseId, place: &Place, printer: Printer) {
    let handover = id.handover(lock);
    let leased = Leased {
        lock: lock.as_str(),
        token: handover.token,
        holder: handover.holder,
        lease: id.to_string(),
        ttl_ms: milliseconds(id.ttl()),
        backend: place.url.kind(),
    };
    printer.data(&serde_json::to_string(&leased).expect("a lease is plain data"));
}
