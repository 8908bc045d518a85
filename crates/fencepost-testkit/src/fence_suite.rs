//! The suite that every fence runs unchanged; the list of its cases stands here once.
//!
//! Invariant: nothing here knows where the marks are kept.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use fencepost_core::{
    Clock, Error, ErrorKind, Fence, FencingToken, Mark, NamePrefix, Result, Stamp, StampHolder, block_on,
};
use futures_util::future::BoxFuture;

use crate::conformance::awkward_names;

/// A protected system of one case.
pub trait FenceHarness: Send + Sync + 'static {
    /// A new system, in which nothing was ever sealed.
    fn start() -> Self
    where
        Self: Sized;

    /// A client of this system; each call gives another one, as another process would be.
    fn fence(&self) -> Arc<dyn Fence>;

    /// Drives a future to its end, inside whatever runtime the fence needs.
    fn block_on(&self, future: BoxFuture<'_, ()>) {
        block_on(future);
    }
}

/// The list of all cases. Hands it to the macro `$then`.
#[doc(hidden)]
#[macro_export]
macro_rules! __fence_cases {
    ($then:ident $($with:tt)*) => {
        $crate::$then! { ($($with)*)
            unknown_lock_has_no_mark
            seal_raises_the_mark
            same_stamp_may_be_sealed_again
            lower_token_is_stale_and_the_mark_is_named
            equal_token_of_another_holder_is_stale
            check_accepts_the_sealed_stamp_alone
            stamp_that_was_not_sealed_is_told_to_seal_first
            check_never_raises_the_mark
            great_tokens_are_exact
            holders_of_every_shape_come_back
            locks_have_marks_of_their_own
            marks_are_those_of_the_system_and_not_of_a_client
            racing_seals_never_lower_the_mark
            marks_come_in_the_order_of_their_names
            forgotten_mark_is_gone_and_the_others_stay
            forgotten_lock_begins_anew
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __fence_table {
    (() $($case:ident)*) => { &[$((stringify!($case), $case)),*] };
}

type Case = fn(&dyn FenceHarness);

const CASES: &[(&str, Case)] = crate::__fence_cases!(__fence_table);

/// Makes the suite's tests for one [`FenceHarness`], which is named from the place of the call, in a module
/// `fence_conformance` or of the given name. `if redis_server` at its end is as in [`conformance!`](crate::conformance!).
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use fencepost_core::{Fence, MemoryFence};
/// use fencepost_testkit::FenceHarness;
///
/// struct Memory(Arc<MemoryFence>);
///
/// impl FenceHarness for Memory {
///     fn start() -> Self {
///         Self(Arc::default())
///     }
///
///     fn fence(&self) -> Arc<dyn Fence> {
///         Arc::clone(&self.0) as _
///     }
/// }
///
/// fencepost_testkit::fence_conformance!(Memory);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! fence_conformance {
    ($harness:ident $(, if $installed:ident)?) => {
        $crate::fence_conformance!(fence_conformance: $harness $(, if $installed)?);
    };
    ($module:ident: $harness:ident $(, if $installed:ident)?) => {
        mod $module {
            $crate::__fence_cases!(__fence_tests $harness [$($installed)?]);
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __fence_tests {
    (($harness:ident $installed:tt) $($case:ident)*) => {
        $(
            $crate::__test! { $installed
                fn $case() {
                    $crate::fence_suite::run::<super::$harness>(stringify!($case));
                }
            }
        )*
    };
}

/// The names of all cases.
pub fn cases() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|(name, _)| *name)
}

/// Runs one case on a new system.
///
/// # Panics
/// When the fence fails it.
pub fn run<H: FenceHarness>(case: &str) {
    find(case)(&H::start());
}

/// What is wrong with a fence that should fail a case: the case's message, or `None` if it passes.
pub fn failure(case: &str, harness: &dyn FenceHarness) -> Option<String> {
    crate::message_of(AssertUnwindSafe(|| find(case)(harness)))
}

fn find(name: &str) -> Case {
    let case = CASES.iter().find(|(case, _)| *case == name);
    case.unwrap_or_else(|| panic!("there is no case {name:?}")).1
}

/// A client that is called without any `await`, so that the cases read as what they say.
struct Client<'a> {
    harness: &'a dyn FenceHarness,
    fence: Arc<dyn Fence>,
}

impl<'a> Client<'a> {
    fn of(harness: &'a dyn FenceHarness) -> Self {
        Self { harness, fence: harness.fence() }
    }

    fn run<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        let mut output = None;
        self.harness.block_on(Box::pin(async { output = Some(future.await) }));
        output.expect("the harness drives the future to its end")
    }

    fn seal(&self, stamp: &Stamp) -> Result<()> {
        self.run(self.fence.seal(stamp))
    }

    fn check(&self, stamp: &Stamp) -> Result<()> {
        self.run(self.fence.check(stamp))
    }

    fn mark(&self, lock: &str) -> Option<Mark> {
        let lock = lock.parse().expect("the suite's names are valid");
        self.run(self.fence.mark(&lock)).expect("a mark can be read")
    }

    fn assert_mark(&self, stamp: &Stamp) {
        assert_eq!(self.mark(stamp.lock.as_str()), Some(mark_of(stamp)), "the mark of {}", stamp.lock);
    }

    /// The marks of locks with this prefix are those of `stamps`, which are in the order of the names.
    fn assert_marks(&self, prefix: &str, stamps: &[&Stamp]) {
        let prefix = NamePrefix::new(prefix);
        let marks = self.run(self.fence.marks(&prefix)).expect("the marks can be read");
        let sealed: Vec<_> = stamps.iter().map(|stamp| (stamp.lock.clone(), mark_of(stamp))).collect();
        assert_eq!(marks, sealed, "the marks of {prefix:?}");
    }

    fn forget(&self, lock: &str) -> bool {
        let lock = lock.parse().expect("the suite's names are valid");
        self.run(self.fence.forget(&lock)).expect("a mark can be forgotten")
    }
}

fn mark_of(stamp: &Stamp) -> Mark {
    Mark { token: stamp.token, holder: stamp.holder.clone() }
}

fn stamp(lock: &str, token: u64, holder: &str) -> Stamp {
    Stamp {
        lock: lock.parse().expect("the suite's names are valid"),
        token: FencingToken::try_from(token).expect("the suite's tokens are valid"),
        holder: StampHolder::new(holder).expect("the suite's holders are valid"),
    }
}

fn assert_stale(answer: Result<()>, what: &str) -> Error {
    let Err(error) = answer else { panic!("{what} was accepted") };
    assert_eq!(error.kind(), ErrorKind::Stale, "{what}: {error:?}");
    error
}

fn unknown_lock_has_no_mark(harness: &dyn FenceHarness) {
    let client = Client::of(harness);
    assert_eq!(client.mark("ledger"), None, "nothing was sealed");
    assert_stale(client.check(&stamp("ledger", 1, "a")), "a stamp that was never sealed");
    assert_eq!(client.mark("ledger"), None, "a check made a mark");
}

/// In steps that have one more digit each, so that tokens are compared as numbers.
fn seal_raises_the_mark(harness: &dyn FenceHarness) {
    let client = Client::of(harness);
    for token in [9, 10, 100, 999, 1_700_000_000_000_000] {
        let stamp = stamp("ledger", token, "a");
        client.seal(&stamp).unwrap_or_else(|error| panic!("{token} is the greatest token: {error:?}"));
        client.assert_mark(&stamp);
        client.check(&stamp).expect("it is the sealed stamp");
    }
}

fn same_stamp_may_be_sealed_again(harness: &dyn FenceHarness) {
    let (client, stamp) = (Client::of(harness), stamp("ledger", 7, "a"));
    for _ in 0..3 {
        client.seal(&stamp).expect("the same holder may seal again");
        client.check(&stamp).expect("the same holder may write more than once");
    }
    client.assert_mark(&stamp);
}

fn lower_token_is_stale_and_the_mark_is_named(harness: &dyn FenceHarness) {
    let (client, sealed) = (Client::of(harness), stamp("ledger", 1_000, "a"));
    client.seal(&sealed).expect("nothing was sealed before");
    for token in [1, 2, 999] {
        for holder in ["a", "b"] {
            let lower = stamp("ledger", token, holder);
            for answer in [client.seal(&lower), client.check(&lower)] {
                let error = assert_stale(answer, "a lower token");
                assert!(format!("{error:?}").contains("1000"), "the mark is not named: {error:?}");
            }
        }
    }
    client.assert_mark(&sealed);
    client.check(&sealed).expect("what was refused changed nothing");
}

fn equal_token_of_another_holder_is_stale(harness: &dyn FenceHarness) {
    let (client, sealed) = (Client::of(harness), stamp("ledger", 7, "a"));
    client.seal(&sealed).expect("nothing was sealed before");
    for holder in ["b", "", "aa", "A"] {
        let other = stamp("ledger", 7, holder);
        assert_stale(client.seal(&other), "another holder with the same token");
        assert_stale(client.check(&other), "another holder with the same token");
    }
    client.assert_mark(&sealed);
}

fn check_accepts_the_sealed_stamp_alone(harness: &dyn FenceHarness) {
    let (client, sealed) = (Client::of(harness), stamp("ledger", 7, "a"));
    client.seal(&sealed).expect("nothing was sealed before");
    client.check(&sealed).expect("it is the sealed stamp");
    for other in [stamp("ledger", 6, "a"), stamp("ledger", 8, "a"), stamp("ledger", 7, "b")] {
        assert_stale(client.check(&other), "a stamp that is not the sealed one");
    }
    assert_stale(client.check(&stamp("other", 7, "a")), "the stamp of another lock");
}

fn stamp_that_was_not_sealed_is_told_to_seal_first(harness: &dyn FenceHarness) {
    let client = Client::of(harness);
    let check = || client.check(&stamp("ledger", 8, "a"));
    let before = assert_stale(check(), "a stamp that was never sealed");
    client.seal(&stamp("ledger", 7, "a")).expect("nothing was sealed before");
    let after = assert_stale(check(), "a greater token that was never sealed");
    for error in [before, after] {
        assert!(format!("{error:?}").contains("seal first"), "it is not said what to do: {error:?}");
    }
}

fn check_never_raises_the_mark(harness: &dyn FenceHarness) {
    let (client, sealed) = (Client::of(harness), stamp("ledger", 7, "a"));
    client.seal(&sealed).expect("nothing was sealed before");
    assert_stale(client.check(&stamp("ledger", 9, "b")), "a greater token that was never sealed");
    client.assert_mark(&sealed);
    client.check(&sealed).expect("a check of another stamp changed nothing");
    client.seal(&stamp("ledger", 8, "c")).expect("the mark was not raised above it");
}

/// Around what a floating-point number holds, and up to what a signed column holds.
fn great_tokens_are_exact(harness: &dyn FenceHarness) {
    let client = Client::of(harness);
    let (exact, most) = (1_u64 << 53, FencingToken::MAX);
    for token in [exact - 1, exact, exact + 1, exact + 2, most - 1, most] {
        let stamp = stamp("ledger", token, "a");
        client.seal(&stamp).unwrap_or_else(|error| panic!("{token} is the greatest token: {error:?}"));
        client.assert_mark(&stamp);
        client.check(&stamp).expect("it is the sealed stamp");
        let below = self::stamp("ledger", token - 1, "a");
        assert_stale(client.check(&below), "the token below");
        assert_stale(client.seal(&below), "the token below");
    }
}

fn holders_of_every_shape_come_back(harness: &dyn FenceHarness) {
    let client = Client::of(harness);
    let long = "0123456789abcdef".repeat(4);
    let other_long = format!("{}X", &long[..63]);
    let id = "f".repeat(32);
    let holders = ["", "-", "0", "null", "Job-7", &id, &long, &other_long];
    for (token, holder) in (1..).zip(holders) {
        let sealed = stamp("ledger", token, holder);
        client.seal(&sealed).expect("it is the greatest token");
        client.assert_mark(&sealed);
        for other in holders.iter().filter(|other| **other != holder) {
            assert_stale(client.check(&stamp("ledger", token, other)), "another holder with the same token");
        }
        client.check(&sealed).expect("it is the sealed stamp");
    }
}

fn locks_have_marks_of_their_own(harness: &dyn FenceHarness) {
    let client = Client::of(harness);
    let names = awkward_names();
    let stamps: Vec<Stamp> =
        names.iter().zip((1..=1_000).rev()).map(|(name, token)| stamp(name, token, "a")).collect();
    for stamp in &stamps {
        client.seal(stamp).unwrap_or_else(|error| panic!("{:?} was not sealed: {error:?}", stamp.lock));
    }
    for stamp in &stamps {
        client.assert_mark(stamp);
        client.check(stamp).expect("it is the sealed stamp");
    }
}

fn marks_are_those_of_the_system_and_not_of_a_client(harness: &dyn FenceHarness) {
    let (one, sealed) = (Client::of(harness), stamp("ledger", 7, "a"));
    one.seal(&sealed).expect("nothing was sealed before");
    let other = Client::of(harness);
    other.assert_mark(&sealed);
    other.check(&sealed).expect("it is the sealed stamp");
    other.seal(&stamp("ledger", 8, "b")).expect("it is the greatest token");
    assert_stale(one.check(&sealed), "what another client has passed");
}

const THREADS: u64 = 6;
const SEALS: u64 = 60;

fn racing_seals_never_lower_the_mark(harness: &dyn FenceHarness) {
    let greatest = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || race(harness, thread))).collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(greatest) => greatest,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.max().expect("there are threads")
    });
    let mark = Client::of(harness).mark("ledger").expect("something was sealed");
    assert_eq!(mark.token, greatest, "the greatest token that was shown is the mark");
}

/// Seals random tokens, and looks after each whether the mark is where it must be; gives the greatest.
fn race(harness: &dyn FenceHarness, thread: u64) -> FencingToken {
    let (client, holder) = (Client::of(harness), format!("thread-{thread}"));
    let mut seen = FencingToken::MIN;
    let mut greatest = FencingToken::MIN;
    for step in 0..SEALS {
        // The tokens rise all the time, so that each seal competes with others that are close to it.
        let shown = stamp("ledger", 1 + step * 1_000 + Clock::system().random() % 5_000, &holder);
        let answer = client.seal(&shown);
        if let Err(error) = answer {
            assert_eq!(error.kind(), ErrorKind::Stale, "a seal failed in another way: {error:?}");
        }
        let mark = client.mark("ledger").expect("something was sealed").token;
        assert!(mark >= shown.token && mark >= seen, "the mark went back to {mark}");
        (seen, greatest) = (mark, greatest.max(shown.token));
    }
    greatest
}

fn marks_come_in_the_order_of_their_names(harness: &dyn FenceHarness) {
    let client = Client::of(harness);
    client.assert_marks("", &[]);
    let names = awkward_names();
    let mut stamps: Vec<Stamp> =
        names.iter().zip(1..).map(|(name, token)| stamp(name, token, &format!("holder-{token}"))).collect();
    stamps.extend([
        stamp("ledger/2", FencingToken::MAX, ""),
        stamp("ledger/10", 1, "a"),
        stamp("ledge", 1, "a"),
    ]);
    for stamp in &stamps {
        client.seal(stamp).unwrap_or_else(|error| panic!("{:?} was not sealed: {error:?}", stamp.lock));
    }
    stamps.sort_by(|one, other| one.lock.cmp(&other.lock));
    for prefix in ["", "ledger/", "ledger/1", "ledger%", "nobody/", "a", "%", "_", "\\"] {
        let matching: Vec<_> =
            stamps.iter().filter(|stamp| stamp.lock.as_str().starts_with(prefix)).collect();
        client.assert_marks(prefix, &matching);
    }
}

fn forgotten_mark_is_gone_and_the_others_stay(harness: &dyn FenceHarness) {
    let client = Client::of(harness);
    assert!(!client.forget("ledger"), "a mark was forgotten that never was");
    let stamps = awkward_names().iter().map(|name| stamp(name, 7, "a")).collect::<Vec<_>>();
    for stamp in &stamps {
        client.seal(stamp).unwrap_or_else(|error| panic!("{:?} was not sealed: {error:?}", stamp.lock));
    }
    for (index, stamp) in stamps.iter().enumerate() {
        assert!(!client.forget("nobody"), "a mark was forgotten that never was");
        assert!(client.forget(stamp.lock.as_str()), "the mark of {:?} was not there", stamp.lock);
        assert!(!client.forget(stamp.lock.as_str()), "the mark of {:?} was forgotten twice", stamp.lock);
        assert_eq!(client.mark(stamp.lock.as_str()), None, "the mark of {:?} was forgotten", stamp.lock);
        for other in &stamps[index + 1..] {
            client.assert_mark(other);
        }
    }
    client.assert_marks("", &[]);
}

/// Whatever the mark was: that is the danger of it.
fn forgotten_lock_begins_anew(harness: &dyn FenceHarness) {
    let (client, greater, lower) = (Client::of(harness), stamp("ledger", 9, "b"), stamp("ledger", 7, "a"));
    client.seal(&greater).expect("nothing was sealed before");
    assert_stale(client.seal(&lower), "a lower token");
    assert!(Client::of(harness).forget("ledger"), "the mark of ledger was not there");
    assert_stale(client.check(&greater), "a stamp whose mark was forgotten");
    assert_stale(client.check(&lower), "a stamp that was never sealed");
    client.seal(&lower).expect("a lock without a mark takes any token");
    client.check(&lower).expect("it is the sealed stamp");
    client.assert_mark(&lower);
}
