//! How long to wait: for a node that says nothing, and before trying again.
//!
//! Invariant: a silent node costs an attempt a small part of its ttl and no more.

use std::time::Duration;

/// How long a node may keep silent, as a part of the ttl.
const PATIENCE_DIVISOR: u32 = 20;

/// Less would take a busy node for a dead one.
const LEAST_PATIENCE: Duration = Duration::from_millis(50);

/// More would let one dead node delay everybody, however long the leases.
const MOST_PATIENCE: Duration = Duration::from_millis(200);

/// How long the answer to a request of a lease of `ttl` is waited for.
pub(super) fn patience(ttl: Duration) -> Duration {
    (ttl / PATIENCE_DIVISOR).clamp(LEAST_PATIENCE, MOST_PATIENCE)
}

/// How long to stay away after a split vote: from one to three times `longest_exchange`, the time that the slowest
/// node took to answer; where in between says the random number `random`.
///
/// Two who split the vote are thereby apart by more than an exchange, more often than not.
pub fn back_off(longest_exchange: Duration, random: u64) -> Duration {
    let nanos = u64::try_from(longest_exchange.as_nanos()).unwrap_or(u64::MAX);
    let more = (u128::from(nanos) * 2 * u128::from(random)) >> 64;
    longest_exchange.saturating_add(Duration::from_nanos(u64::try_from(more).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_is_between_one_and_three_exchanges() {
        let exchange = Duration::from_millis(4);
        assert_eq!(back_off(exchange, 0), exchange);
        assert_eq!(back_off(exchange, 1 << 63), exchange * 2);
        assert!(back_off(exchange, u64::MAX) < exchange * 3);
    }

    #[test]
    fn patience_is_a_twentieth_of_the_ttl_within_bounds() {
        let patience = |ms| patience(Duration::from_millis(ms)).as_millis();
        assert_eq!([100, 2_000, 60_000].map(patience), [50, 100, 200]);
    }
}
