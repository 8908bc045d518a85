//! Kernel locks of open file descriptions on ranges of a file (`fcntl(2)`): independent of `flock(2)`, and gone with the last
//! descriptor.

use std::fs::File;
use std::io;
use std::ops::Range;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

/// Whether a range is shared with others that read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Whether to wait for a kernel lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocking {
    No,
    Yes,
}

/// The end of every file.
pub(crate) const END: i64 = i64::MAX;

/// The whole of a file.
pub(crate) const WHOLE: Range<i64> = 0..END;

/// Locks a range.
///
/// # Errors
/// `WouldBlock` when somebody has it who does not go together with this.
pub(crate) fn lock(file: &File, access: Access, range: Range<i64>, blocking: Blocking) -> io::Result<()> {
    let request = request(access, range);
    let argument = match blocking {
        Blocking::No => FcntlArg::F_OFD_SETLK(&request),
        Blocking::Yes => FcntlArg::F_OFD_SETLKW(&request),
    };
    fcntl(file, argument).map(drop).map_err(io::Error::from)
}

/// Where a lock begins that would keep this one out, if there is one. Takes none itself.
pub(crate) fn held(file: &File, access: Access, range: Range<i64>) -> io::Result<Option<i64>> {
    let mut request = request(access, range);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut request))?;
    Ok((request.l_type != short(libc::F_UNLCK)).then_some(request.l_start))
}

/// How somebody else has a part of the file locked, if anybody has. Takes no lock itself.
pub(crate) fn held_as(file: &File) -> io::Result<Option<Access>> {
    let mut request = request(Access::Write, WHOLE);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut request))?;
    Ok(match i32::from(request.l_type) {
        libc::F_UNLCK => None,
        libc::F_RDLCK => Some(Access::Read),
        _ => Some(Access::Write),
    })
}

fn request(access: Access, range: Range<i64>) -> libc::flock {
    let kind = match access {
        Access::Read => libc::F_RDLCK,
        Access::Write => libc::F_WRLCK,
    };
    // A length of zero is all that follows.
    let l_len = if range.end == END { 0 } else { range.end - range.start };
    libc::flock {
        l_type: short(kind),
        l_whence: short(libc::SEEK_SET),
        l_start: range.start,
        l_len,
        l_pid: 0,
    }
}

/// The kernel's structure has these as shorts, and the constants are ints.
#[expect(clippy::cast_possible_truncation, reason = "they are small numbers of the kernel's interface")]
fn short(constant: libc::c_int) -> libc::c_short {
    constant as libc::c_short
}
