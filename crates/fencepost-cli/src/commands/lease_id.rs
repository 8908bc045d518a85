//! The id by which a script knows its lease: enough to renew and release it in another process.
//!
//! The holder in it is 128 random bits, so it cannot be guessed. Who may look at the lock can see that, and can revoke the lease
//! as well.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use fencepost::{FencingToken, Handover, HolderId, LockName};
use sha2::{Digest, Sha256};

/// What `acquire` prints, and `renew` and `release` want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseId {
    holder: HolderId,
    token: FencingToken,
    ttl_ms: u64,
    detail: Option<String>,
}

impl LeaseId {
    pub(crate) fn new(handover: &Handover, ttl: Duration) -> Self {
        let (holder, token, detail) = (handover.holder, handover.token, handover.detail.clone());
        Self { holder, token, ttl_ms: super::state::milliseconds(ttl), detail }
    }

    /// What the backend needs to find the lease of `lock`.
    pub(crate) fn handover(&self, lock: &LockName) -> Handover {
        Handover { lock: lock.clone(), holder: self.holder, token: self.token, detail: self.detail.clone() }
    }

    /// The length of lease that was granted.
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    fn bytes(&self) -> Vec<u8> {
        let (token, ttl) = (self.token.get().to_be_bytes(), self.ttl_ms.to_be_bytes());
        [&self.holder.to_bytes(), &token[..], &ttl[..], self.detail.as_deref().unwrap_or_default().as_bytes()]
            .concat()
    }
}

/// So that a part that was lost in copying is noticed.
fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let hash = Sha256::digest(bytes);
    std::array::from_fn(|index| hash[index])
}

const CHECKSUM: usize = 4;

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes();
        bytes.iter().chain(&checksum(&bytes)).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The text is none that `acquire` has printed.
#[derive(Debug)]
pub(crate) struct NotALease;

impl std::error::Error for NotALease {}

impl fmt::Display for NotALease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is not, or not in full, what `fencepost acquire` has printed as \"lease\"")
    }
}

impl FromStr for LeaseId {
    type Err = NotALease;

    fn from_str(text: &str) -> Result<Self, NotALease> {
        let bytes = unhex(text).ok_or(NotALease)?;
        let (bytes, sum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(NotALease)?;
        if *sum != checksum(bytes) {
            return Err(NotALease);
        }
        let (holder, rest) = bytes.split_first_chunk::<16>().ok_or(NotALease)?;
        let (token, rest) = rest.split_first_chunk::<8>().ok_or(NotALease)?;
        let (ttl, detail) = rest.split_first_chunk::<8>().ok_or(NotALease)?;
        Ok(Self {
            holder: HolderId::from_bytes(*holder),
            token: u64::from_be_bytes(*token).try_into().map_err(|_| NotALease)?,
            ttl_ms: u64::from_be_bytes(*ttl),
            detail: (!detail.is_empty())
                .then(|| String::from_utf8(detail.to_vec()).map_err(|_| NotALease))
                .transpose()?,
        })
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(detail: Option<&str>) -> LeaseId {
        let (holder, token) =
            (HolderId::from_bytes([7; 16]), FencingToken::try_from(1_764_420_000_123_457).unwrap());
        let (lock, detail) = ("orders".parse().unwrap(), detail.map(ToOwned::to_owned));
        LeaseId::new(&Handover { lock, holder, token, detail }, Duration::from_secs(30))
    }

    #[test]
    fn id_says_all_that_another_process_needs() {
        for detail in [None, Some("7587a3b1")] {
            assert_eq!(id(detail).to_string().parse::<LeaseId>().unwrap(), id(detail));
        }
    }

    #[test]
    fn text_that_was_cut_or_changed_is_no_id() {
        let whole = id(None).to_string();
        for wrong in [
            "",
            "x",
            "00",
            &whole[2..],
            &whole[..whole.len() - 2],
            &format!("{whole}0"),
            &whole.replace(&whole[..2], "gg"),
        ] {
            assert!(wrong.parse::<LeaseId>().is_err(), "{wrong}");
        }
    }
}
