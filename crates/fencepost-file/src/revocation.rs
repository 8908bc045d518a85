//! Taking leases away: a file says whose, and why, and their holders obey. The kernel's locks stay until they have.
//!
//! Invariant: a holder heeds only its own token, so that one who comes later is never hit, whatever is left lying.

use std::io::{self, Read};

use fencepost_core::{Error, FencingToken, LossReason};
use serde::{Deserialize, Serialize};

use crate::directory::{Directory, Paths};
use crate::record::open_carefully;

/// What is read of the file at most: whoever may write the directory may have put anything there.
const LONGEST: u64 = 1 << 20;

/// What is kept of a reason at most.
const MOST_LETTERS: usize = 500;

/// One line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    token: FencingToken,
    reason: String,
}

/// Why the lease with this token was taken away, if it was.
pub(crate) fn of(paths: &Paths, token: FencingToken) -> Option<Error> {
    let line = lines(paths).into_iter().find(|line| line.token == token)?;
    Some(Error::lost(LossReason::Revoked, format!("it was taken away: {}", line.reason)))
}

/// Tells the holder with this token that its lease is taken away. Lines of those for whom `is_held` says so stay. Only one at a
/// time may do so.
pub(crate) fn write(
    directory: &Directory,
    paths: &Paths,
    token: FencingToken,
    reason: &str,
    is_held: impl Fn(FencingToken) -> bool,
) -> io::Result<()> {
    let reason = reason.chars().filter(|letter| !letter.is_control()).take(MOST_LETTERS).collect();
    let mut lines = lines(paths);
    lines.retain(|line| line.token != token && is_held(line.token));
    lines.push(Line { token, reason });
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, &line)?;
        text.push(b'\n');
    }
    directory.replace(&paths.revoke(), &text)
}

fn lines(paths: &Paths) -> Vec<Line> {
    let mut text = Vec::new();
    let read = open_carefully(&paths.revoke()).map(|file| file.take(LONGEST).read_to_end(&mut text));
    if !matches!(read, Some(Ok(_))) {
        return Vec::new();
    }
    text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}
