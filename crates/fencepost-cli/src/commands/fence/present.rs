//! `fence seal`, `fence check` and `fence publish`: a stamp is shown to the fence.

use fencepost::{ErrorKind, Fence, FencingToken, Finding, Mark, Result, Stamp, block_on};
use serde::Serialize;

use super::inherited::{Given, stamp};
use super::{Desk, fail};
use crate::args::{FencePublish, Stamped};
use crate::exit::Exit;

/// What the fence said, for machines. What does not exist is null.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    lock: &'a str,
    token: FencingToken,
    holder: &'a str,
    fence: &'static str,
    outcome: &'static str,
    mark: Option<MarkView<'a>>,
    /// What weakens the fence.
    findings: &'a [Finding],
}

#[derive(Debug, Serialize)]
struct MarkView<'a> {
    token: FencingToken,
    holder: &'a str,
}

/// Raises the mark; exit 79 when the stamp is stale.
pub(super) fn seal(desk: &Desk, args: &Stamped) -> Result<Exit> {
    let (stamp, fence) = (stamp(args)?, fencepost::fence(&desk.url)?);
    let answer = block_on(fence.seal(&stamp));
    desk.pass_on(&stamp, answer, "sealed", &*fence)
}

/// Asks whether the stamp is the sealed one; exit 79 when it is not.
pub(super) fn check(desk: &Desk, args: &Stamped) -> Result<Exit> {
    let (stamp, fence) = (stamp(args)?, fencepost::fence(&desk.url)?);
    desk.note_missing_directory();
    let answer = block_on(fence.check(&stamp));
    desk.pass_on(&stamp, answer, "accepted", &*fence)
}

/// Makes a result current; exit 79 when the stamp is stale.
pub(super) fn publish(desk: &Desk, args: &FencePublish) -> Result<Exit> {
    let given = Given { lock: args.lock()?, token: args.token, holder: args.holder.clone() };
    let (stamp, fence) = (stamp(given)?, fencepost::fence(&desk.url)?);
    let answer = block_on(fencepost::publish(&desk.url, &stamp, args.path()));
    desk.pass_on(&stamp, answer.map(drop), "published", &*fence)
}

impl Desk {
    /// Says what became of the stamp. A refusal is an answer too, so that it has its JSON.
    fn pass_on(
        &self,
        stamp: &Stamp,
        answer: Result<()>,
        done: &'static str,
        fence: &dyn Fence,
    ) -> Result<Exit> {
        let (lock, token) = (&stamp.lock, stamp.token);
        match answer {
            Ok(()) => {
                let findings = block_on(fence.findings(lock))?;
                self.say_answer(stamp, done, Some(&Mark { token, holder: stamp.holder.clone() }), &findings);
                for finding in &findings {
                    self.printer.warn(format_args!("{lock}: {finding}"));
                    self.printer.hint(&finding.remedy);
                }
                self.printer.detail(format_args!("{lock}: token {token} is {done} at {fence}"));
                Ok(Exit::OK)
            }
            Err(error) if error.kind() == ErrorKind::Stale => {
                if self.json {
                    // Where it cannot be read any more, it is unknown; that the stamp is refused stays.
                    self.say_answer(stamp, "stale", block_on(fence.mark(lock)).ok().flatten().as_ref(), &[]);
                }
                Ok(fail(&error, self.printer))
            }
            Err(error) => Err(error),
        }
    }

    fn say_answer(&self, stamp: &Stamp, outcome: &'static str, mark: Option<&Mark>, findings: &[Finding]) {
        if self.json {
            let mark = mark.map(|mark| MarkView { token: mark.token, holder: mark.holder.as_str() });
            let (lock, token, holder) = (stamp.lock.as_str(), stamp.token, stamp.holder.as_str());
            let answer = Answer { lock, token, holder, fence: self.url.kind(), outcome, mark, findings };
            self.say_json(&answer);
        }
    }
}
