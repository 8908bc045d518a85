//! What can be wrong with a backend, one defect each: the mistakes that lock implementations are known for.

/// A deliberate defect of a [`Broken`](super::Broken) backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// It gives a lock that somebody holds.
    GrantsWhileHeld,
    /// It takes all names for one lock.
    HasOneLock,
    /// It takes a name and its spelling in the store for the same lock.
    ConfusesSpellings,
    /// Every grant has the token of the first one.
    RepeatsTokens,
    /// Now and then a token is smaller than the one before.
    LowersTokens,
    /// It counts tokens in floating point.
    RoundsTokens,
    /// It waits without end, whatever limit was given.
    WaitsForever,
    /// It does not wait, whatever limit was given.
    NeverWaits,
    /// It gives up a wait that is over before it has tried once.
    GivesUpUntried,
    /// It notices a release only at the next look, many seconds later.
    SleepsThroughReleases,
    /// It serves the waiter that came last.
    ServesTheLastFirst,
    /// It keeps the waiters that gave up or were dropped.
    KeepsWaiters,
    /// It keeps the grants of calls that were dropped meanwhile.
    KeepsDroppedGrants,
    /// It counts the lease from when its reply arrived.
    CountsFromTheReply,
    /// It counts the lease from when the wait for it began.
    CountsFromTheWait,
    /// It tells the holder of a longer lease than the store keeps.
    BelievesTooLong,
    /// The store takes the lock back before the lease is over.
    FreesTooEarly,
    /// The store never takes the lock back.
    NeverFrees,
    /// It acknowledges renewals, and renews nothing.
    NeverRenews,
    /// It acknowledges the renewal of a lease that ran out.
    RevivesLeases,
    /// It acknowledges a release, and releases nothing.
    ForgetsToRelease,
    /// A release frees the lock whoever holds it now.
    ReleasesForAnybody,
    /// It keeps no lock taken after its release.
    NeverRests,
    /// It keeps a lock taken for longer than its holder asked.
    RestsTooLong,
    /// It takes the lease away whatever its token.
    RevokesAnyToken,
    /// It says that a lease was taken away that was not.
    RevokesNothing,
    /// It tells no holder that its lease was taken away.
    RevokesSilently,
    /// It does not pass on why.
    RevokesWithoutReason,
    /// It can take leases away, against its profile.
    RevokesUnpromised,
    /// It lets nobody share a lock.
    SharesNothing,
    /// It lets everybody share a lock, also who wants it alone.
    SharesWithEverybody,
    /// It takes its time to read the logbook, which is no mistake; but it shows what is left of calls that are dropped meanwhile.
    ReadsTheLogbookSlowly,
    /// It acknowledges what is written into the logbook, and writes nothing.
    ForgetsTheLogbook,
    /// It acknowledges what a holder that is gone writes into the logbook.
    WritesForAnybody,
    /// It signals no change.
    SignalsNothing,
    /// It lifts nothing.
    NeverLifts,
    /// It lifts the next grant alone.
    LiftsOneGrant,
    /// It lowers the next token when asked to lift it to less.
    LowersByLift,
    /// A lift frees the lock.
    FreesByLift,
    /// It gives a lease back for whoever asks, if the token is right.
    GivesBackForAnyHolder,
    /// It gives a lease back that is not held any more, whoever holds the lock now.
    GivesBackForAnyToken,
    /// It says that a lease was given back that was not.
    GivesBackNothing,
    /// Its profile says that other processes see its locks; they cannot even free one.
    ReachesNobody,
    /// Looking at a lock shows something that is not so.
    Shows(Lie),
    /// A list leaves out the last lock.
    ListsTooFew,
    /// Every second list is empty.
    ListsNowAndThen,
    /// A list shows locks that are free.
    ListsFreeLocks,
    /// A list is not in the order of the names.
    ListsInDisorder,
    /// A list shows all locks, whatever the prefix.
    ListsAnyPrefix,
}

/// What a look at a lock can get wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// The name is spelled as in the store.
    Spelling,
    /// It is held by somebody else.
    AnotherHolder,
    /// The token is another one.
    AnotherToken,
    /// The holder has no label.
    NoLabel,
    /// It is not known since when it is held.
    NoSince,
    /// It is not known when the lease runs out.
    NoEnd,
    /// Nobody waits.
    NoWaiters,
    /// Somebody waits who was never there.
    AWaiter,
    /// The last holder is shown although the lock is free.
    TheLastHolder,
}
