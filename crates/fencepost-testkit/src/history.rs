//! The checker of what several holders say they did: who held the lock when, with which token.
//!
//! It believes nobody but the holders' own clocks, which are one clock where all of them run on one machine. Its rules
//! are those of a lock without faults: holds never overlap, and tokens grow in the order of the grants.

use std::fmt;
use std::future::Future;
use std::str::FromStr;

use fencepost_core::{Clock, FencingToken, HolderId, Lock, Moment};

/// One hold, as its holder saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// When it asked.
    pub asked: Moment,
    /// When it had the lock.
    pub granted: Moment,
    /// When it began to give the lock back; it believed in its lease until then.
    pub ended: Moment,
    /// The token of the grant.
    pub token: FencingToken,
    /// Who it was.
    pub holder: HolderId,
}

impl Hold {
    /// Acquires `lock`, does `work` under it, and gives it back.
    ///
    /// # Panics
    /// When the lock is not given, is lost meanwhile, or cannot be given back.
    pub async fn during(lock: &Lock, clock: &Clock, work: impl Future<Output = ()>) -> Self {
        let asked = clock.now();
        let lease = lock.acquire().await.expect("a lock that everybody gives back is given");
        let granted = clock.now();
        work.await;
        lease.check().expect("a short hold is not lost");
        let (ended, token, holder) = (clock.now(), lease.token(), lease.holder());
        lease.release().await.expect("a lock that is held can be given back");
        Self { asked, granted, ended, token, holder }
    }
}

/// What is wrong with the holds of one lock, in words; empty if nothing is.
pub fn faults(holds: &[Hold]) -> Vec<String> {
    overlaps(holds).into_iter().chain(repeated(holds)).chain(backward(holds)).collect()
}

/// Fails unless the holds of one lock are as they must be.
///
/// # Panics
/// When they are not.
pub fn assert_clean(holds: &[Hold]) {
    let faults = faults(holds);
    assert!(faults.is_empty(), "{} faults in {} holds: {}", faults.len(), holds.len(), faults.join("; "));
}

/// Each hold that began before another had ended.
fn overlaps(holds: &[Hold]) -> Vec<String> {
    let mut sorted: Vec<&Hold> = holds.iter().collect();
    // In virtual time a hold may end in the instant in which it begins, and the next begin then.
    sorted.sort_by_key(|hold| (hold.granted, hold.ended));
    let mut longest: Option<&Hold> = None;
    let mut found = Vec::new();
    for hold in sorted {
        if let Some(before) = longest.filter(|before| hold.granted < before.ended) {
            let overlap = before.ended.min(hold.ended).since(hold.granted);
            found.push(format!("the holds of {} and {} overlap by {overlap:?}", before.token, hold.token));
        }
        longest = longest.into_iter().chain([hold]).max_by_key(|hold| hold.ended);
    }
    found
}

fn repeated(holds: &[Hold]) -> Vec<String> {
    let mut tokens: Vec<FencingToken> = holds.iter().map(|hold| hold.token).collect();
    tokens.sort();
    let twice = tokens.windows(2).filter(|pair| pair[0] == pair[1]);
    twice.map(|pair| format!("the token {} was given twice", pair[0])).collect()
}

/// Each hold that was asked for after a greater token had been given.
fn backward(holds: &[Hold]) -> Vec<String> {
    let mut by_asking: Vec<&Hold> = holds.iter().collect();
    by_asking.sort_by_key(|hold| hold.asked);
    let mut by_grant: Vec<&Hold> = holds.iter().collect();
    by_grant.sort_by_key(|hold| hold.granted);
    let mut granted = by_grant.into_iter().peekable();
    let mut greatest: Option<FencingToken> = None;
    let mut found = Vec::new();
    for hold in by_asking {
        while let Some(before) = granted.next_if(|before| before.granted < hold.asked) {
            greatest = greatest.max(Some(before.token));
        }
        if let Some(before) = greatest.filter(|before| *before > hold.token) {
            found.push(format!("the token {} was given after {before}", hold.token));
        }
    }
    found
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [asked, granted, ended] = [self.asked, self.granted, self.ended].map(Moment::as_nanos);
        write!(f, "{asked} {granted} {ended} {} {}", self.token, self.holder)
    }
}

impl FromStr for Hold {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let wrong = || format!("{line:?} is no hold");
        let words: Vec<&str> = line.split(' ').collect();
        let [asked, granted, ended, token, holder] = words[..] else { return Err(wrong()) };
        let moment = |text: &str| text.parse().map(Moment::from_nanos).map_err(|_| wrong());
        Ok(Self {
            asked: moment(asked)?,
            granted: moment(granted)?,
            ended: moment(ended)?,
            token: token.parse().map_err(|_| wrong())?,
            holder: holder.parse().map_err(|_| wrong())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(asked: u64, granted: u64, ended: u64, token: u64) -> Hold {
        let [asked, granted, ended] = [asked, granted, ended].map(Moment::from_nanos);
        let holder = HolderId::from_bytes([7; 16]);
        Hold { asked, granted, ended, token: token.try_into().unwrap(), holder }
    }

    #[test]
    fn holds_one_after_the_other_are_clean() {
        assert_clean(&[hold(0, 10, 20, 5), hold(1, 20, 30, 6), hold(31, 32, 33, 9)]);
    }

    #[test]
    fn hold_of_no_time_does_not_overlap_with_the_next() {
        assert_clean(&[hold(0, 20, 30, 6), hold(0, 20, 20, 5), hold(0, 10, 20, 4)]);
    }

    #[test]
    fn hold_inside_another_is_an_overlap() {
        let found = faults(&[hold(0, 10, 90, 5), hold(0, 20, 30, 6), hold(0, 40, 50, 7)]);
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("5 and 6 overlap by 10ns"), "{found:?}");
    }

    #[test]
    fn repeated_token_is_found() {
        let found = faults(&[hold(0, 10, 20, 5), hold(0, 30, 40, 5)]);
        assert_eq!(found, ["the token 5 was given twice"]);
    }

    #[test]
    fn token_that_goes_back_is_found_however_the_holds_are_listed() {
        let found = faults(&[hold(25, 30, 40, 4), hold(0, 10, 20, 5)]);
        assert_eq!(found, ["the token 4 was given after 5"]);
    }

    #[test]
    fn two_that_asked_at_the_same_time_may_be_served_in_either_order() {
        assert_clean(&[hold(0, 10, 20, 5), hold(1, 30, 40, 6), hold(5, 50, 60, 8)]);
    }

    #[test]
    fn holds_read_back() {
        let hold = hold(1, 2, 3, 4);
        assert_eq!(hold.to_string().parse::<Hold>().unwrap(), hold);
        assert!("1 2 3".parse::<Hold>().is_err());
    }
}
