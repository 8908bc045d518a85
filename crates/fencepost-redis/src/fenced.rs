//! A script of the user's that runs only under the sealed stamp: the check goes before it in one text, so nobody can forget it.

use std::fmt;

use fencepost_core::Fence;
use fencepost_core::{Error, ErrorKind, Lease, Mark, Result, Stamp};

use crate::fence::{Asked, RedisFence, in_doubt};
use crate::keys;
use crate::resp::Reply;
use crate::script::{CHECK, hash_of};
use crate::session::refused;

/// A script that runs only where the stamp is the sealed one. Made by [`RedisFence::script`].
#[derive(Clone)]
pub struct FencedScript {
    fence: RedisFence,
    text: String,
    hash: String,
}

impl fmt::Debug for FencedScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedScript")
            .field("fence", &self.fence)
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

/// What a script has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// Nothing.
    Null,
    /// A whole number.
    Integer(i64),
    /// Bytes, or a status.
    Bytes(Vec<u8>),
    /// Several answers.
    List(Vec<Self>),
}

impl Value {
    /// The text, where it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

impl FencedScript {
    pub(crate) fn new(fence: RedisFence, source: &str) -> Result<Self> {
        if source.starts_with("#!") {
            let what = "it begins with #!, and the check has to come first";
            return Err(Error::new(ErrorKind::InvalidArgument, "use the script", what)
                .hint("leave its first line out"));
        }
        // As a function it may return wherever it likes; the names of the check are not its own.
        let text = format!("do\n{CHECK}end\nreturn (function()\n{source}\nend)()\n");
        let hash = hash_of(&text);
        Ok(Self { fence, text, hash })
    }

    /// Runs the script under a lease. Once a fence has refused its stamp, the lease is lost.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have run the script.
    ///
    /// # Errors
    /// `Lost` when the lease is lost, and then nothing is sent; `Stale` when another stamp is sealed: stop, and read again before you
    /// write under a new lease. A stamp that was never sealed is `Stale` too, and its lease goes on. `Indeterminate` when no answer
    /// came: read what is there before anything is repeated or cleaned up. Any other kind is the server's, or the script's own.
    pub async fn run(
        &self,
        lease: &Lease,
        keys: &[impl AsRef<[u8]> + Sync],
        arguments: &[impl AsRef<[u8]> + Sync],
    ) -> Result<Value> {
        lease.check()?;
        let stamp = lease.stamp();
        match self.send(&stamp, keys, arguments).await? {
            Ok(value) => Ok(value),
            Err(Refusal { error, is_passed: true }) => lease.heed(Err(error)),
            Err(Refusal { error, .. }) => Err(error),
        }
    }

    /// Runs the script under a stamp that came from elsewhere, such as the environment of `fencepost run`.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have run the script.
    ///
    /// # Errors
    /// Those of [`run`](Self::run), but for `Lost`: whether the lease is still held is not known here.
    pub async fn run_stamped(
        &self,
        stamp: &Stamp,
        keys: &[impl AsRef<[u8]> + Sync],
        arguments: &[impl AsRef<[u8]> + Sync],
    ) -> Result<Value> {
        self.send(stamp, keys, arguments).await?.map_err(|refusal| refusal.error)
    }

    async fn send(
        &self,
        stamp: &Stamp,
        keys: &[impl AsRef<[u8]> + Sync],
        arguments: &[impl AsRef<[u8]> + Sync],
    ) -> Result<Result<Value, Refusal>> {
        let (mark, token) = (keys::mark(&stamp.lock), stamp.token.to_string());
        let mut words = vec![mark.as_bytes()];
        words.extend(keys.iter().map(AsRef::as_ref));
        words.extend([token.as_bytes(), stamp.holder.as_str().as_bytes()]);
        words.extend(arguments.iter().map(AsRef::as_ref));
        let asked = Asked::Script { text: &self.text, hash: &self.hash, keys: 1 + keys.len(), words: &words };
        // Never a second time: the script may have run.
        let reply = self.fence.send(&asked).await?;
        match reply.map_err(|broken| in_doubt(RUN, &broken).on(&stamp.lock))? {
            Reply::Refused(what) if what.starts_with("FP002") => {
                Ok(Err(Refusal::of(&self.fence, stamp, &what).await))
            }
            Reply::Refused(what) => Err(refused(&what).during(RUN).on(&stamp.lock)),
            reply => read(reply).map(Ok),
        }
    }
}

const RUN: &str = "run the script";

/// A stamp that was not accepted.
struct Refusal {
    error: Error,
    /// Whether another stamp was sealed since, and not merely this one never.
    is_passed: bool,
}

impl Refusal {
    async fn of(fence: &RedisFence, stamp: &Stamp, what: &str) -> Self {
        let error = fence.refusal(RUN, stamp, what).await;
        let is_passed = match fence.mark(&stamp.lock).await {
            Ok(mark) => Mark::sealed(mark.as_ref(), stamp).is_err(),
            Err(_) => !what.contains("never sealed"),
        };
        Self { error, is_passed }
    }
}

fn read(reply: Reply) -> Result<Value> {
    Ok(match reply {
        Reply::Null => Value::Null,
        Reply::Integer(number) => Value::Integer(number),
        Reply::Text(bytes) => Value::Bytes(bytes),
        Reply::List(replies) | Reply::Push(replies) => {
            Value::List(replies.into_iter().map(read).collect::<Result<_>>()?)
        }
        Reply::Refused(what) => return Err(refused(&what).during(RUN)),
    })
}
