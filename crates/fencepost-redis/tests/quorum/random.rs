//! Random numbers that follow from a seed.

/// `SplitMix64` (Steele, Lea and Flood 2014).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed);
        // Neighbouring seeds would begin alike in the low bits of the state.
        let first = random.next();
        Self(first ^ seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `least` to below `most`.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least)
    }

    pub(crate) fn below(&mut self, most: usize) -> usize {
        let most = u64::try_from(most).expect("a small number");
        usize::try_from(self.next() % most).expect("below a small number")
    }

    pub(crate) fn per_mille(&mut self, chance: u64) -> bool {
        self.next() % 1_000 < chance
    }

    /// A clock's rate error within `bound` parts in a million.
    pub(crate) fn rate(&mut self, bound: i64) -> i64 {
        let width = u64::try_from(2 * bound + 1).expect("a positive bound");
        i64::try_from(self.next() % width).expect("a small number") - bound
    }
}
