//! A period in which something is to be done once: a tick of cron, a day, a run of a schedule.
//!
//! Invariant: periods are in one total order, in which numbers count as numbers, so that `run-10` is later than `run-9` and any
//! fixed spelling of a date is later than that of an earlier one.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};

/// The longest period, in bytes.
const LONGEST: usize = 256;

/// The period that work is for, such as `2026-11-29T12:00`. No clock is read: whoever plans the work says what it is for, so it does
/// not matter whose clock is late.
///
/// # Examples
/// ```
/// use fencepost_core::Period;
///
/// let (ninth, tenth): (Period, Period) = ("run-9".parse()?, "run-10".parse()?);
/// assert!(ninth.is_before(&tenth));
/// # Ok::<(), fencepost_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Period(String);

/// When a period counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MarkOn {
    /// When the lease is granted: work that fails or crashes is not done again in the period (at most once).
    #[default]
    Start,
    /// When the holder [says so](crate::Lease::complete): work that fails or crashes may be done again in it.
    Success,
}

impl Period {
    /// The period as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it comes before `other`: where they first differ, the smaller number, or else the smaller byte.
    pub fn is_before(&self, other: &Self) -> bool {
        in_order(self.0.as_bytes(), other.0.as_bytes()) == Ordering::Less
    }
}

fn in_order(mut one: &[u8], mut other: &[u8]) -> Ordering {
    loop {
        let (Some(left), Some(right)) = (one.first(), other.first()) else {
            return one.len().cmp(&other.len());
        };
        let order = if left.is_ascii_digit() && right.is_ascii_digit() {
            number(&mut one).cmp(&number(&mut other))
        } else {
            (one, other) = (&one[1..], &other[1..]);
            left.cmp(right)
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// Takes the number that `text` begins with: its length and digits without zeros in front, which are in the order of the numbers.
fn number<'a>(text: &mut &'a [u8]) -> (usize, &'a [u8]) {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(digits);
    *text = rest;
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    (digits.len() - zeros, &digits[zeros..])
}

impl FromStr for Period {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |what: String| Err(Error::new(ErrorKind::InvalidArgument, "read the period", what));
        if text.is_empty() {
            return wrong("it is empty".to_owned());
        }
        if text.len() > LONGEST {
            return wrong(format!("it has {} bytes, and {LONGEST} is the most", text.len()));
        }
        if let Some(control) = text.chars().find(|letter| letter.is_control()) {
            return wrong(format!("it contains the control character {control:?}"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(text: &str) -> Period {
        text.parse().unwrap()
    }

    #[test]
    fn periods_come_in_the_order_of_their_numbers() {
        let ordered =
            ["", "2026-11-29T09:59", "2026-11-29T10:00", "2026-11-30", "run-9", "run-10", "run-10b"];
        for (index, one) in ordered.iter().enumerate().skip(1) {
            for (other_index, other) in ordered.iter().enumerate().skip(1) {
                assert_eq!(period(one).is_before(&period(other)), index < other_index, "{one} {other}");
            }
        }
    }

    #[test]
    fn zeros_in_front_make_no_other_period() {
        assert!(!period("7").is_before(&period("007")) && !period("007").is_before(&period("7")));
        let huge = "9".repeat(100);
        assert!(period(&huge).is_before(&period(&format!("1{}", "0".repeat(100)))));
    }

    #[test]
    fn what_is_no_period_is_refused() {
        for text in ["", "a\nb", &"x".repeat(257)] {
            assert_eq!(text.parse::<Period>().unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    }
}
