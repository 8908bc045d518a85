//! Small numbers packed side by side, and quick hashes of them. What is hashed comes from nobody hostile.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// Small numbers side by side.
#[derive(Default)]
pub(crate) struct Bits(pub(crate) u128);

impl Bits {
    pub(crate) fn push(&mut self, width: u32, value: u64) {
        debug_assert!(value < 1 << width, "{value} has more than {width} bits");
        self.0 = self.0 << width | u128::from(value);
    }
}

/// A quick hash: multiply and fold, a word at a time.
#[derive(Default)]
pub(crate) struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
        self.0 = low(product) ^ low(product >> 64) ^ word.rotate_left(29);
    }

    fn write_u128(&mut self, word: u128) {
        self.write_u64(low(word));
        self.write_u64(low(word >> 64));
    }

    fn finish(&self) -> u64 {
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^ (z >> 31)
    }
}

fn low(word: u128) -> u64 {
    u64::try_from(word & u128::from(u64::MAX)).expect("the lower half")
}

/// Hashes of states.
pub(crate) type Keys = HashSet<u64, BuildHasherDefault<Given>>;

/// What is kept is a hash already.
#[derive(Default)]
pub(crate) struct Given(u64);

impl Hasher for Given {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only hashes are kept");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
