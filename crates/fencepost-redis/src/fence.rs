//! The fence in one Redis: the mark beside the data, checked in the script that writes them.
//!
//! It is no lock, so it learns no incarnation and works during a quarantine. Invariant: a mark has no expiry, and one command writes
//! all of it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use fencepost_core::{
    BackendUrl, Clock, Error, ErrorKind, Examination, Fence, Finding, LockName, Mark, NamePrefix, Result,
    Stamp, StampHolder,
};
use percent_encoding::percent_decode_str;

use crate::connection::Broken;
use crate::endpoint::{Endpoint, Options};
use crate::examine;
use crate::failure::{lost_touch, refuse, refused, unexpected};
use crate::fenced::FencedScript;
use crate::functions;
use crate::keys;
use crate::resp::Reply;
use crate::script;
use crate::session::Link;

/// A fence in one Redis. Clones share a connection.
#[derive(Clone)]
pub struct RedisFence {
    link: Arc<Link>,
    clock: Clock,
    endpoint: Endpoint,
    options: Options,
    shown: String,
}

impl fmt::Debug for RedisFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisFence({self})")
    }
}

impl fmt::Display for RedisFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl RedisFence {
    /// The fence of `redis://`, `rediss://` and `redis+sentinel://`. Connects when it is first needed.
    ///
    /// # Errors
    /// `InvalidArgument` when the URL or an option is wrong; `Unsupported` for `redlock://`.
    pub fn from_url(url: &BackendUrl, clock: Clock) -> Result<Self> {
        if url.kind() == "redlock" {
            let what =
                format!("{url} names several servers, and a mark must lie in the one that the data lie in");
            return Err(Error::new(ErrorKind::Unsupported, "use the fence", what)
                .hint("name the server that is written to: redis://host"));
        }
        // Those of a lock may stand in the URL of a fence too, but for the one that would promise more than a fence does.
        url.accept_options(&["max_ttl", "quarantine"])?;
        let options = Options { is_fence: true, ..Options::of(url)? };
        let endpoint = Endpoint::one(url)?;
        let link = Link::new(clock.clone(), endpoint.clone(), options, None);
        Ok(Self { link, clock, endpoint, options, shown: url.to_string() })
    }

    /// The key `{NAME}:suffix`, which lies in the hash slot of the lock's mark. One server needs no such names; data that bear them
    /// could move to a cluster.
    ///
    /// # Examples
    /// ```
    /// use fencepost_core::{Clock, LockName};
    /// use fencepost_redis::RedisFence;
    ///
    /// let lock: LockName = "ledger/2026".parse()?;
    /// assert_eq!(RedisFence::key(&lock, "total"), "{ledger%2F2026}:total");
    /// assert_eq!(RedisFence::mark_key(&lock), "fencepost:{ledger%2F2026}:f");
    /// # Ok::<(), fencepost_core::Error>(())
    /// ```
    pub fn key(lock: &LockName, suffix: &str) -> String {
        format!("{{{}}}:{suffix}", lock.canonical())
    }

    /// The key of the lock's mark, for clients that call the functions.
    pub fn mark_key(lock: &LockName) -> String {
        keys::mark(lock)
    }

    /// A script of the user's, in Lua, that runs only where the stamp is the sealed one: the check and all that it does are one
    /// atomic step. Its `KEYS` and `ARGV` are those that are given to [`run`](FencedScript::run). It is not undone where it fails in
    /// the middle, so let it look before it writes.
    ///
    /// # Errors
    /// `InvalidArgument` when it begins with `#!`: the flags of a script are not its own here.
    ///
    /// # Examples
    /// ```no_run
    /// use fencepost_core::{Clock, Lease, Result};
    /// use fencepost_redis::RedisFence;
    ///
    /// async fn add(lease: &Lease, amount: &str) -> Result<()> {
    ///     let fence = RedisFence::from_url(&"redis://cache".parse()?, Clock::system())?;
    ///     let add = fence.script("return redis.call('INCRBY', KEYS[1], ARGV[1])")?;
    ///     add.run(lease, &["total"], &[amount]).await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn script(&self, source: &str) -> Result<FencedScript> {
        FencedScript::new(self.clone(), source)
    }

    /// Puts the functions `fencepost_seal`, `fencepost_check` and `fencepost_write` on the server, for clients in any language.
    /// Says what was done.
    ///
    /// # Cancel safety
    /// A dropped call may have put them there.
    ///
    /// # Errors
    /// `Unsupported` where a library of that name is somebody else's; `Denied` where the user may not.
    pub async fn install(&self) -> Result<Vec<String>> {
        functions::install(self).await
    }

    /// The text that [`install`](Self::install) loads, for somebody who may: `redis-cli -x FUNCTION LOAD`.
    pub fn installation(&self) -> &'static str {
        script::FUNCTIONS
    }

    /// What [`uninstall`](Self::uninstall) asks the server, as a line for `redis-cli`.
    pub fn uninstallation(&self) -> &'static str {
        "FUNCTION DELETE fencepost"
    }

    /// Takes the functions away; says what was done. The marks stay.
    ///
    /// # Cancel safety
    /// A dropped call may have taken them away.
    ///
    /// # Errors
    /// Those of [`install`](Self::install).
    pub async fn uninstall(&self) -> Result<Vec<String>> {
        functions::uninstall(self).await
    }

    /// Sends what changes nothing.
    pub(crate) async fn ask(&self, words: &[&[u8]]) -> Result<Reply> {
        let reply = self.send_twice(&Asked::Command(words)).await?;
        reply.map_err(|broken| lost_touch(&broken)).and_then(refuse)
    }

    /// Sends what changes nothing more the second time.
    pub(crate) async fn change(&self, operation: &'static str, asked: &Asked<'_>) -> Result<Reply> {
        self.send_twice(asked).await?.map_err(|broken| in_doubt(operation, &broken))
    }

    /// Sends it again where the connection breaks: it may have been broken before, and nobody has noticed.
    async fn send_twice(&self, asked: &Asked<'_>) -> Result<Result<Reply, Broken>> {
        match self.send(asked).await? {
            Ok(reply) => Ok(Ok(reply)),
            Err(_) => self.send(asked).await,
        }
    }

    /// Sends it once. The outer error is that of connecting.
    pub(crate) async fn send(&self, asked: &Asked<'_>) -> Result<Result<Reply, Broken>> {
        let session = self.link.session().await?;
        let reply = match asked {
            Asked::Command(words) => session.connection.call(words).await,
            Asked::Script { text, hash, keys, words } => {
                session.connection.run_text(text, hash, *keys, words).await
            }
        };
        if let Ok(Reply::Refused(what)) = &reply {
            session.give_up_on_a_replica(what);
        }
        Ok(reply)
    }

    /// What a refusal means that may be about the stamp; that one in the words of every fence.
    pub(crate) async fn refusal(&self, operation: &'static str, stamp: &Stamp, what: &str) -> Error {
        if !what.starts_with("FP002") {
            return refused(what).during(operation).on(&stamp.lock);
        }
        let mark = self.mark(&stamp.lock).await.unwrap_or_default();
        let stale = Mark::sealed(mark.as_ref(), stamp).and_then(|_| Mark::checked(mark.as_ref(), stamp));
        // The mark may have changed since.
        let said =
            || Error::new(ErrorKind::Stale, operation, what.trim_start_matches("FP002 ")).on(&stamp.lock);
        stale.err().map_or_else(said, |error| error.during(operation))
    }
}

/// What is asked of the server.
pub(crate) enum Asked<'a> {
    Command(&'a [&'a [u8]]),
    /// The keys are the first of the words.
    Script {
        text: &'a str,
        hash: &'a str,
        keys: usize,
        words: &'a [&'a [u8]],
    },
}

/// The connection broke before the reply to a change came.
pub(crate) fn in_doubt(operation: &'static str, broken: &Broken) -> Error {
    if broken.was_sent {
        let what = format!("{}; the server may have done it", broken.why);
        return Error::new(ErrorKind::Indeterminate, operation, what);
    }
    lost_touch(broken).during(operation)
}

fn damaged(key: &str) -> Error {
    Error::new(ErrorKind::Unexpected, "read the fence's mark", format!("the mark in {key} is damaged"))
}

/// The mark that a hash says, where there is one, and the name of its lock. A client that calls the functions may have left out a
/// name that the key spells.
fn read_mark(key: &str, reply: &Reply) -> Result<Option<(LockName, Mark)>> {
    let [token, holder, name] = reply.list() else { return Err(unexpected("HMGET", reply)) };
    if (token, holder) == (&Reply::Null, &Reply::Null) {
        return Ok(None);
    }
    let token = token.text().and_then(|token| token.parse().ok());
    let holder = holder.text().and_then(|holder| StampHolder::new(holder).ok());
    let spelled = || Some(percent_decode_str(keys::spelled_in_mark(key)?).decode_utf8().ok()?.into_owned());
    let name = name.text().map(ToOwned::to_owned).or_else(spelled);
    let name = name.and_then(|name| name.parse().ok()).filter(|name| keys::mark(name) == key);
    match (name, token, holder) {
        (Some(name), Some(token), Some(holder)) => Ok(Some((name, Mark { token, holder }))),
        _ => Err(damaged(key)),
    }
}

#[async_trait]
impl Fence for RedisFence {
    async fn seal(&self, stamp: &Stamp) -> Result<()> {
        let (key, token) = (keys::mark(&stamp.lock), stamp.token.to_string());
        let words = [key.as_str(), &token, stamp.holder.as_str(), stamp.lock.as_str()].map(str::as_bytes);
        let script = &script::FENCE_SEAL;
        let asked = Asked::Script { text: script.text, hash: script.hash(), keys: 1, words: &words };
        match self.change("seal the fence", &asked).await.map_err(|error| error.on(&stamp.lock))? {
            Reply::Refused(what) => Err(self.refusal("seal the fence", stamp, &what).await),
            _ => Ok(()),
        }
    }

    async fn check(&self, stamp: &Stamp) -> Result<()> {
        Mark::checked(self.mark(&stamp.lock).await?.as_ref(), stamp)
    }

    async fn mark(&self, lock: &LockName) -> Result<Option<Mark>> {
        let key = keys::mark(lock);
        let reply = self.ask(&[b"HMGET", key.as_bytes(), b"t", b"h", b"n"]).await?;
        Ok(read_mark(&key, &reply)?.map(|(_, mark)| mark))
    }

    async fn marks(&self, prefix: &NamePrefix) -> Result<Vec<(LockName, Mark)>> {
        let mut marks = BTreeMap::new();
        let mut cursor = "0".to_owned();
        loop {
            let scan: [&[u8]; 6] =
                [b"SCAN", cursor.as_bytes(), b"MATCH", keys::ALL_MARKS.as_bytes(), b"COUNT", b"1000"];
            let reply = self.ask(&scan).await?;
            let [next, found] = reply.list() else { return Err(unexpected("SCAN", &reply)) };
            for key in found.list().iter().filter_map(Reply::text) {
                let reply = self.ask(&[b"HMGET", key.as_bytes(), b"t", b"h", b"n"]).await?;
                marks.extend(read_mark(key, &reply)?.filter(|(lock, _)| prefix.matches(lock)));
            }
            next.text().unwrap_or("0").clone_into(&mut cursor);
            if cursor == "0" {
                return Ok(marks.into_iter().collect());
            }
        }
    }

    async fn forget(&self, lock: &LockName) -> Result<bool> {
        let key = keys::mark(lock);
        let words: [&[u8]; 2] = [b"DEL", key.as_bytes()];
        let reply = self.send(&Asked::Command(&words)).await?;
        let reply = reply.map_err(|broken| in_doubt("forget the fence's mark", &broken)).and_then(refuse)?;
        Ok(reply == Reply::Integer(1))
    }

    async fn findings(&self, _: &LockName) -> Result<Vec<Finding>> {
        let reply = self.ask(&[b"INFO", b"memory"]).await?;
        let found = examine::drops_marks(reply.text().unwrap_or_default(), &self.shown);
        Ok(found.into_iter().collect())
    }

    async fn examine(&self) -> Result<Examination> {
        examine::examine(&self.clock, &self.endpoint, &self.options).await
    }
}
