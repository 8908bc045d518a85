//! How far clocks are apart. Each is known between two bounds only: what came in between is the way there and back.

use std::time::Duration;

use fencepost_core::Finding;

use super::facts::Facts;

/// Clocks that are kept by NTP are nearer.
const APART_MOST: Duration = Duration::from_secs(1);

/// What is odd about one server's clock beside ours.
pub(super) fn of_server(facts: &Facts) -> Option<Finding> {
    let apart = Apart::of(facts.ahead)?;
    Some(
        Finding::warning(&facts.address, format!("its clock is {} this host's", apart.describe()))
            .means("leases end by that clock: if somebody sets it forward to mend this, they end early, and two may hold a lock; tokens after a loss of data follow it too")
            .remedy("keep the clocks of all hosts by NTP, and let it slew them, not step"),
    )
}

/// The nodes whose clocks are apart, beside that of the first one. What each is beside ours is said of it already.
pub(super) fn between(nodes: &[&Facts]) -> Option<Finding> {
    let (earliest, latest) =
        (nodes.iter().min_by_key(|node| node.ahead.0)?, nodes.iter().max_by_key(|node| node.ahead.1)?);
    let bounds = (latest.ahead.0 - earliest.ahead.1, latest.ahead.1 - earliest.ahead.0);
    let apart = Apart::of(bounds)?;
    let evidence =
        format!("the clock of {} is {} that of {}", latest.address, apart.describe(), earliest.address);
    Some(
        Finding::warning("the nodes", evidence)
            .means("a clock that is put right is a step: of a majority of the nodes at once, it ends leases early")
            .remedy("keep the clocks of all nodes by NTP, and let it slew them, not step"),
    )
}

/// That two clocks are certainly apart.
struct Apart {
    by: Duration,
    is_ahead: bool,
    /// How exactly that is known.
    within: Duration,
}

impl Apart {
    fn of((least, most): (i64, i64)) -> Option<Self> {
        let is_ahead = least > 0;
        let certain = if is_ahead { least } else { most.saturating_neg() };
        let certain = Duration::from_micros(u64::try_from(certain).ok()?);
        let by = Duration::from_micros(i64::midpoint(least, most).unsigned_abs());
        let within = Duration::from_micros(most.abs_diff(least).div_ceil(2));
        (certain >= APART_MOST).then_some(Self { by, is_ahead, within })
    }

    fn describe(&self) -> String {
        let way = if self.is_ahead { "ahead of" } else { "behind" };
        let (by, within) = (self.by.as_secs_f64(), self.within.as_secs_f64() * 1_000.0);
        format!("{by:.3} s (to within {within:.1} ms) {way}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_apart_only_where_that_is_certain() {
        let words = |bounds| Apart::of(bounds).map(|apart| apart.describe());
        assert_eq!(words((1_999_000, 2_001_000)).as_deref(), Some("2.000 s (to within 1.0 ms) ahead of"));
        assert_eq!(words((-3_000_000, -2_000_000)).as_deref(), Some("2.500 s (to within 500.0 ms) behind"));
        for near in [(0, 0), (-900_000, 900_000), (-5_000_000, 5_000_000), (900_000, 9_000_000)] {
            assert_eq!(words(near), None, "{near:?}");
        }
    }
}
