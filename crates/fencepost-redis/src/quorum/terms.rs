//! What an attempt asks for: how long, of how many, and with which floor of its token.
//!
//! Invariant: no token is above what a script of Redis can compare exactly.

use std::time::Duration;

use fencepost_core::{Deadline, Error, ErrorKind, FencingToken, Moment, Result};

use super::nodes::Quorum;

/// The greatest token on a quorum: numbers in Lua are doubles, exact up to 2^53 - 1. In microseconds since 1970 that is
/// the year 2255.
pub const GREATEST_TOKEN: u64 = (1 << 53) - 1;

/// What every machine of one lease knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    quorum: Quorum,
    ttl: Duration,
    floor: u64,
}

impl Terms {
    /// Terms for a lease of `ttl` whose token is at least `floor`: the wall clock in microseconds, or what the lock was
    /// lifted to if that is more.
    ///
    /// The floor is the second line behind the counters: where a majority lost theirs, tokens still grow as far as the
    /// clocks that give the floor agree to within the quarantine.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when the floor is above [`GREATEST_TOKEN`]: written once, it would be the last
    /// token.
    pub fn new(quorum: Quorum, ttl: Duration, floor: u64) -> Result<Self> {
        if floor <= GREATEST_TOKEN {
            return Ok(Self { quorum, ttl, floor });
        }
        let what = format!("the floor of the token is {floor}, and the greatest token is {GREATEST_TOKEN}");
        Err(Error::new(ErrorKind::InvalidArgument, "ask for a lease", what))
    }

    /// The quorum.
    pub fn quorum(self) -> Quorum {
        self.quorum
    }

    /// The ttl that each node is asked for.
    pub fn ttl(self) -> Duration {
        self.ttl
    }

    /// When a term that was asked for at `sent` ends for its holder.
    pub(super) fn deadline(self, sent: Moment) -> Deadline {
        Deadline::of(sent, Some(self.ttl))
    }

    /// The token above `seen` and not below the floor; `None` if there is none.
    pub(super) fn token_above(self, seen: Option<FencingToken>) -> Option<FencingToken> {
        FencingToken::following(seen, self.floor).ok().filter(|token| token.get() <= GREATEST_TOKEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(floor: u64) -> Terms {
        Terms::new(Quorum::of(3).unwrap(), Duration::from_secs(1), floor).unwrap()
    }

    #[test]
    fn floor_above_what_redis_can_compare_is_refused() {
        assert!(Terms::new(Quorum::of(3).unwrap(), Duration::from_secs(1), GREATEST_TOKEN + 1).is_err());
    }

    #[test]
    fn token_is_above_what_was_seen_and_not_below_the_floor() {
        let seen = FencingToken::try_from(9).ok();
        assert_eq!(terms(0).token_above(seen).unwrap().get(), 10);
        assert_eq!(terms(70).token_above(seen).unwrap().get(), 70);
        assert_eq!(terms(0).token_above(None).unwrap().get(), 1);
    }

    #[test]
    fn no_token_follows_the_greatest() {
        assert_eq!(terms(0).token_above(FencingToken::try_from(GREATEST_TOKEN).ok()), None);
    }
}
