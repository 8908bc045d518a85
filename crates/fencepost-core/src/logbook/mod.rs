//! What the holders of a lock leave for those to come: the last grants, and the last period that was done.
//!
//! It stands beside the lock's token, and only who holds the lock exclusively writes it, in one step with the check that the lease
//! is still held. So no other lock is needed to change it, and a holder that was paused changes nothing.

mod booked;
mod period;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::token::{FencingToken, HolderId};

pub(crate) use booked::Entries;
pub use period::{MarkOn, Period};

/// How many grants a logbook keeps at most, whatever is asked for.
pub(crate) const MOST_GRANTS: u64 = 1000;

/// What is written beside a lock's token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Logbook {
    /// The last period that counts as done.
    #[serde(default)]
    pub last_period: Option<String>,
    /// The last grants, the oldest first, where they are kept.
    #[serde(default)]
    pub grants: Vec<PastGrant>,
}

/// One grant of the past, or the present one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PastGrant {
    /// Its token.
    pub token: FencingToken,
    /// Who held the lock.
    pub holder: HolderId,
    /// The holder in words.
    pub label: String,
    /// When it was granted, by the holder's wall clock: microseconds since 1970.
    pub from_micros: u64,
    /// When it was given back, by the same clock; `None` while it is held, and where the holder could not say: its lease was lost or
    /// taken away, or it crashed.
    pub to_micros: Option<u64>,
    /// How it ended, where the holder could say.
    pub ended: Option<Ended>,
}

/// How a grant ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ended {
    /// The holder gave it back.
    Released,
    /// The holder gave it back, and its work for the period was done.
    Completed,
}

impl Logbook {
    /// Reads what a store keeps; nothing is an empty one.
    pub(crate) fn read(content: Option<&[u8]>) -> Result<Self> {
        let Some(content) = content else { return Ok(Self::default()) };
        serde_json::from_slice(content).map_err(|error| {
            Error::new(ErrorKind::Unexpected, "read the logbook", "it is not as fencepost writes it")
                .caused_by(error)
        })
    }

    pub(crate) fn written(&self) -> Vec<u8> {
        // Nothing in it can fail to be written.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Refuses work whose period, or a later one, counts as done.
    pub(crate) fn refuse_done(&self, period: &Period) -> Result<()> {
        let Some(last) = &self.last_period else { return Ok(()) };
        let is_new = last.parse::<Period>().is_ok_and(|last| last.is_before(period));
        if is_new {
            return Ok(());
        }
        let what = if last == period.as_str() {
            format!("{period} is done already")
        } else {
            format!("{period} is not after {last}, which is done already")
        };
        Err(Error::new(ErrorKind::AlreadyDone, "acquire the lock", what))
    }

    fn note(&mut self, grant: PastGrant, most: usize) {
        self.grants.push(grant);
        let surplus = self.grants.len().saturating_sub(most);
        self.grants.drain(..surplus);
    }

    fn note_end(&mut self, token: FencingToken, at_micros: u64, ended: Ended) {
        if let Some(grant) = self.grants.iter_mut().rfind(|grant| grant.token == token) {
            (grant.to_micros, grant.ended) = (Some(at_micros), Some(ended));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(number: u64) -> PastGrant {
        let (token, holder) = (number.try_into().unwrap(), HolderId::from_bytes([1; 16]));
        let label = "me".to_owned();
        PastGrant { token, holder, label, from_micros: number, to_micros: None, ended: None }
    }

    #[test]
    fn logbook_keeps_the_newest_grants_and_reads_back() {
        let mut book = Logbook::default();
        (1..=5).for_each(|number| book.note(grant(number), 3));
        book.note_end(4.try_into().unwrap(), 40, Ended::Released);
        assert_eq!(book.grants.iter().map(|grant| grant.token.get()).collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!(book.grants[1].ended, Some(Ended::Released));
        assert_eq!(Logbook::read(Some(&book.written())).unwrap(), book);
    }

    #[test]
    fn logbook_that_is_none_is_an_error_and_not_an_empty_one() {
        assert_eq!(Logbook::read(Some(b"{")).unwrap_err().kind(), ErrorKind::Unexpected);
    }

    #[test]
    fn period_is_refused_when_it_or_a_later_one_is_done() {
        let book = Logbook { last_period: Some("tick-9".to_owned()), grants: Vec::new() };
        for (period, is_done) in [("tick-8", true), ("tick-9", true), ("tick-09", true), ("tick-10", false)] {
            let refused = book.refuse_done(&period.parse().unwrap());
            assert_eq!(refused.is_err(), is_done, "{period}: {refused:?}");
        }
    }
}
