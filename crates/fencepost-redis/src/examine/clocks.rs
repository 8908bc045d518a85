//! How far clocks are apart. Each is known between two bounds only: what came in between is the way there and back.

use fencepost_core::Finding;

use super::facts::Facts;

/// What is odd about one server's clock beside ours.
pub(super) fn of_server(facts: &Facts) -> Option<Finding> {
    let apart = facts.ahead.apart()?;
    Some(
        Finding::warning(&facts.address, format!("its clock is {apart} this host's"))
            .means("leases end by that clock: if somebody sets it forward to mend this, they end early, and two may hold a lock; tokens after a loss of data follow it too")
            .remedy("keep the clocks of all hosts by NTP, and let it slew them, not step"),
    )
}

/// The two nodes whose clocks are most certainly apart. What each is beside ours is said of it already.
pub(super) fn between(nodes: &[&Facts]) -> Option<Finding> {
    // The surest bounds: those of a slow node say little of its clock, and must not hide what others say.
    let (earliest, latest) =
        (nodes.iter().min_by_key(|node| node.ahead.most)?, nodes.iter().max_by_key(|node| node.ahead.least)?);
    let apart = latest.ahead.beside(earliest.ahead).apart()?;
    let evidence = format!("the clock of {} is {apart} that of {}", latest.address, earliest.address);
    Some(
        Finding::warning("the nodes", evidence)
            .means("a clock that is put right is a step: of a majority of the nodes at once, it ends leases early")
            .remedy("keep the clocks of all nodes by NTP, and let it slew them, not step"),
    )
}

#[cfg(test)]
mod tests {
    use fencepost_core::Ahead;

    use super::*;

    #[test]
    fn slow_node_hides_no_clocks_that_are_apart() {
        let node = |host: &str, least: i64, most: i64| {
            let mut facts = Facts::at(host, &[]);
            facts.ahead = Ahead { least, most };
            facts
        };
        let (slow, early, late) = (
            node("slow", -4_000_000, 4_000_000),
            node("early", -2_001_000, -1_999_000),
            node("late", -1_000, 1_000),
        );
        for nodes in [[&slow, &early, &late], [&late, &early, &slow]] {
            let evidence = between(&nodes).unwrap().evidence;
            assert_eq!(
                evidence,
                "the clock of late:6379 is 2.000 s (to within 2.0 ms) ahead of that of early:6379"
            );
        }
        assert_eq!(between(&[&slow, &late]), None);
        assert_eq!(between(&[&late]), None);
    }
}
