//! Fencing tokens and holder ids: what a grant is known by.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::error::{Error, ErrorKind};

/// The number that a protected system checks; it grows with every grant of a lock.
///
/// It is 1 to 2^63-1, so that a signed 64-bit column holds it. On every backend it is on the scale of microseconds since
/// 1970, but it is not a time: only the order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct FencingToken(NonZeroU64);

impl FencingToken {
    /// The smallest token.
    pub const MIN: Self = Self(NonZeroU64::MIN);

    /// The greatest token, 2^63-1.
    pub const MAX: u64 = i64::MAX as u64;

    /// The number itself.
    pub fn get(self) -> u64 {
        self.0.get()
    }

    /// The token of the grant after the one with token `last`: one more, lifted to the wall clock in microseconds.
    ///
    /// # Errors
    /// [`ErrorKind::Unexpected`] when no greater token exists.
    pub fn following(last: Option<Self>, wall_micros: u64) -> Result<Self, Error> {
        let next = last.map_or(1, |last| last.get() + 1);
        Self::try_from(next.max(wall_micros.min(Self::MAX))).map_err(|_| {
            let what = format!("the last one was {}, and there is none above it", Self::MAX);
            Error::new(ErrorKind::Unexpected, "draw a fencing token", what)
        })
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = Error;

    fn try_from(number: u64) -> Result<Self, Error> {
        NonZeroU64::new(number).filter(|number| number.get() <= Self::MAX).map(Self).ok_or_else(|| {
            let what = format!("{number} is not in 1..={}", Self::MAX);
            Error::new(ErrorKind::InvalidArgument, "read a fencing token", what)
        })
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.get()
    }
}

impl FromStr for FencingToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let number: u64 = text.parse().map_err(|_| {
            let what = format!("{text:?} is not a whole number in 1..={}", Self::MAX);
            Error::new(ErrorKind::InvalidArgument, "read a fencing token", what)
        })?;
        Self::try_from(number)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who holds or waits: 128 random bits, fresh for each attempt to acquire, so that no two attempts are ever taken for
/// one another. Prints as 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HolderId(u128);

impl HolderId {
    /// A new id, of random bits.
    pub fn draw(clock: &Clock) -> Self {
        Self(clock.wide_random())
    }

    /// The id with these bytes, most significant first.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// Its bytes, most significant first.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

impl fmt::Display for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each attempt prints it, and what formats numbers takes ten times as long.
        let mut digits = [0; 32];
        for (index, byte) in self.to_bytes().into_iter().enumerate() {
            digits[index * 2] = HEX[usize::from(byte >> 4)];
            digits[index * 2 + 1] = HEX[usize::from(byte & 15)];
        }
        f.write_str(std::str::from_utf8(&digits).expect("digits are text"))
    }
}

impl fmt::Debug for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HolderId({self})")
    }
}

impl From<HolderId> for String {
    fn from(holder: HolderId) -> Self {
        holder.to_string()
    }
}

impl TryFrom<String> for HolderId {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl FromStr for HolderId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let digits = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        u128::from_str_radix(text, 16).ok().filter(|_| digits).map(Self).ok_or_else(|| {
            let what = format!("{text:?} is not 32 lower-case hexadecimal digits");
            Error::new(ErrorKind::InvalidArgument, "read a holder id", what)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tokens_fit_a_signed_column() {
        assert!(FencingToken::try_from(0).is_err());
        assert!(FencingToken::try_from(1 << 63).is_err());
        assert_eq!(FencingToken::try_from((1 << 63) - 1).unwrap().to_string(), "9223372036854775807");
        assert!("1e3".parse::<FencingToken>().is_err());
    }

    #[test]
    fn last_token_is_an_error_not_a_repeat() {
        let last = FencingToken::try_from(FencingToken::MAX).unwrap();
        assert!(FencingToken::following(Some(last), 5).is_err());
    }

    proptest! {
        #[test]
        fn tokens_grow_whatever_the_clock_does(clocks in prop::collection::vec(any::<u64>(), 1..20)) {
            let mut last = None;
            for wall in clocks {
                let Ok(next) = FencingToken::following(last, wall / 2) else { return Ok(()) };
                prop_assert!(Some(next) > last);
                last = Some(next);
            }
        }

        #[test]
        fn holder_ids_read_back(bits in any::<u128>()) {
            let holder = HolderId::from_bytes(bits.to_be_bytes());
            prop_assert_eq!(holder.to_string().parse::<HolderId>().unwrap(), holder);
        }
    }
}
