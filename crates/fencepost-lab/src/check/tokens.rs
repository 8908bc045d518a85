//! The rules of tokens: no two holders have the same one, none is smaller than one that was given before it was asked for, and no
//! holder shows two.

use std::collections::{BTreeMap, BTreeSet};

use super::{Hold, Tally};

/// Counts what breaks the rules.
pub(super) fn count(holds: &[Hold], tally: &mut Tally) {
    tally.tokens_repeated = repeated(holds);
    tally.tokens_fallen = fallen(holds);
    tally.tokens_changed = changed(holds);
}

fn repeated(holds: &[Hold]) -> usize {
    let tokens: Vec<u64> = holds.iter().filter_map(|hold| hold.token).collect();
    tokens.len() - tokens.iter().collect::<BTreeSet<_>>().len()
}

/// A number that is given after it was asked for has to be greater than all that were given before: that is all of
/// linearizability there is for numbers that are given once and in order.
fn fallen(holds: &[Hold]) -> usize {
    let granted = holds.iter().filter_map(|hold| Some((hold.granted?, hold.token?)));
    let mut granted: Vec<(u64, u64)> = granted.collect();
    granted.sort_unstable();
    let is_fallen = |hold: &&Hold| {
        let before = granted.iter().take_while(|(at, _)| *at < hold.asked);
        before.map(|(_, token)| *token).max() >= hold.token && hold.token.is_some()
    };
    holds.iter().filter(is_fallen).count()
}

fn changed(holds: &[Hold]) -> usize {
    let mut shown: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for hold in holds {
        if let (Some(holder), Some(token)) = (&hold.holder, hold.token) {
            shown.entry(holder).or_default().insert(token);
        }
    }
    shown.values().filter(|tokens| tokens.len() > 1).count()
}
