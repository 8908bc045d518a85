//! What happened in a run, and what of it may not have happened.

use std::fmt;

/// An attempt that succeeded, in true time.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) holder: u32,
    pub(crate) token: u64,
    pub(crate) began: u64,
    pub(crate) returned: u64,
    /// When a check of the lease would have passed, from and to.
    pub(crate) claims: Vec<(u64, u64)>,
}

/// Everything that the check looks at.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) holds: Vec<Hold>,
    /// What was seen to be wrong while it happened.
    pub(crate) wrong: Vec<Violation>,
}

/// What a run broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// R1.
    SameToken { token: u64, holders: [u32; 2] },
    /// R2.
    TokenNotGreater { earlier: (u32, u64), later: (u32, u64) },
    /// R3 (i).
    TwoHolders { holders: [u32; 2], from: u64, to: u64 },
    /// R3 (ii).
    TokenAgainstLockOrder { earlier: (u32, u64), later: (u32, u64) },
    /// A node granted to a holder that it had cancelled no longer ago than the longest ttl. What is on its way for longer
    /// may leave a lock with nobody, for its ttl.
    GrantedAfterCancel { node: usize, holder: u32 },
    /// Somebody was left out although nothing went wrong any more.
    NotLive { client: usize },
    /// A lock that nobody holds.
    LeftBehind { node: usize, holder: u32 },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl History {
    pub(crate) fn violations(&self) -> Vec<Violation> {
        let mut found = self.wrong.clone();
        found.extend(self.same_tokens());
        found.extend(self.tokens_against_real_time());
        found.extend(self.overlaps());
        found.extend(self.tokens_against_lock_order());
        found
    }

    fn same_tokens(&self) -> Option<Violation> {
        let mut tokens: Vec<_> = self.holds.iter().map(|hold| (hold.token, hold.holder)).collect();
        tokens.sort_unstable();
        let pair = tokens.windows(2).find(|pair| pair[0].0 == pair[1].0)?;
        Some(Violation::SameToken { token: pair[0].0, holders: [pair[0].1, pair[1].1] })
    }

    fn tokens_against_real_time(&self) -> Option<Violation> {
        let mut by_return: Vec<&Hold> = self.holds.iter().collect();
        let mut by_begin = by_return.clone();
        by_return.sort_unstable_by_key(|hold| hold.returned);
        by_begin.sort_unstable_by_key(|hold| hold.began);
        let mut returned = by_return.into_iter().peekable();
        let mut greatest: Option<&Hold> = None;
        for later in by_begin {
            while let Some(earlier) = returned.next_if(|hold| hold.returned <= later.began) {
                greatest = greatest.filter(|hold| hold.token > earlier.token).or(Some(earlier));
            }
            if let Some(earlier) = greatest.filter(|earlier| earlier.token >= later.token) {
                return Some(Violation::TokenNotGreater {
                    earlier: (earlier.holder, earlier.token),
                    later: (later.holder, later.token),
                });
            }
        }
        None
    }

    fn overlaps(&self) -> Option<Violation> {
        let mut claims: Vec<_> = self
            .holds
            .iter()
            .flat_map(|hold| hold.claims.iter().map(|(from, to)| (*from, *to, hold.holder)))
            .filter(|(from, to, _)| from < to)
            .collect();
        claims.sort_unstable();
        let mut last: Option<(u64, u32)> = None;
        for (from, to, holder) in claims {
            if let Some((end, other)) = last.filter(|(end, other)| from < *end && *other != holder) {
                return Some(Violation::TwoHolders { holders: [other, holder], from, to: end.min(to) });
            }
            last = last.filter(|(end, _)| *end > to).or(Some((to, holder)));
        }
        None
    }

    /// Whoever's hold ended before another's began has the smaller token, also if their attempts overlapped.
    fn tokens_against_lock_order(&self) -> Option<Violation> {
        let mut holds: Vec<_> =
            self.holds.iter().filter_map(|hold| Some((hold.claims.first()?.0, hold))).collect();
        holds.sort_unstable_by_key(|(from, _)| *from);
        let pair = holds.windows(2).find(|pair| pair[0].1.token >= pair[1].1.token)?;
        let [earlier, later] = [pair[0].1, pair[1].1].map(|hold| (hold.holder, hold.token));
        Some(Violation::TokenAgainstLockOrder { earlier, later })
    }
}
