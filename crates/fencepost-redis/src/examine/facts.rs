//! What one server says of itself, asked for on a connection of its own.
//!
//! Invariant: only commands that change nothing are sent. What a user may not ask is a fact as well; any other refusal is one that a
//! lock would meet too, and is never taken for an answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use fencepost_core::{Ahead, Clock, Error, ErrorKind, Result};
use fencepost_net::Address;
use futures_util::future::join_all;

use crate::connection::{Connection, Listener};
use crate::endpoint::{Endpoint, Options};
use crate::failure::{lost_touch, refuse, refused};
use crate::keys;
use crate::resp::Reply;
use crate::script;
use crate::session::hello;

/// One server.
#[derive(Debug)]
pub(super) struct Facts {
    /// Where it is.
    pub(super) address: Address,
    /// Who we are there.
    pub(super) user: String,
    pub(super) has_password: bool,
    pub(super) is_tls: bool,
    /// The fields of `INFO`.
    info: BTreeMap<String, String>,
    /// The settings that were asked for, where it tells them.
    settings: Option<BTreeMap<String, String>>,
    /// By how much its clock is ahead of ours.
    pub(super) ahead: Ahead,
    /// Its clock, in milliseconds.
    pub(super) now_ms: i64,
    /// The record of its incarnation.
    pub(super) incarnation: Option<String>,
    /// Whether it has said whether it has such a record.
    pub(super) tells_incarnation: bool,
    /// The longest `max_ttl` that anybody has used there.
    pub(super) longest_ttl_ms: Option<u64>,
    /// Commands that this user may not run.
    pub(super) forbidden: Vec<String>,
    /// Keys that should expire, and do not.
    pub(super) lasting: Vec<String>,
    /// Why it refuses what everybody may ask, where it does: it is busy, loads its data, has no primary, ….
    pub(super) refusal: Option<Error>,
}

/// Nothing that is said unasked is for us.
struct Deaf;

impl Listener for Deaf {
    fn hear(&self, _: &str) {}

    fn broken(&self) {}
}

/// A connection on which nobody has logged in.
pub(super) async fn connect(clock: &Clock, address: &Address, is_tls: bool) -> Result<Connection> {
    Connection::open(clock, address, is_tls, Arc::new(Deaf)).await
}

/// The reply to a command, which may be a refusal.
pub(super) async fn ask(connection: &Connection, words: &[&str]) -> Result<Reply> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    connection.call(&words).await.map_err(|broken| lost_touch(&broken))
}

/// The questions to one server, and the first of its refusals that is not about who asks.
struct Questions<'a> {
    connection: &'a Connection,
    refusal: Option<Error>,
}

impl Questions<'_> {
    /// The answer; `None` where there is none.
    async fn ask(&mut self, words: &[&str]) -> Result<Option<Reply>> {
        let reply = ask(self.connection, words).await?;
        Ok(self.answer(reply))
    }

    fn answer(&mut self, reply: Reply) -> Option<Reply> {
        let Reply::Refused(what) = reply else { return Some(reply) };
        if !what.starts_with("NOPERM") {
            self.refusal.get_or_insert_with(|| refused(&what));
        }
        None
    }
}

impl Facts {
    /// Asks a server for everything.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Errors
    /// `Unavailable` when it cannot be reached, or refuses to say what it is.
    pub(super) async fn read(
        clock: &Clock,
        endpoint: &Endpoint,
        address: &Address,
        options: &Options,
    ) -> Result<Self> {
        let connection = connect(clock, address, endpoint.is_tls).await?;
        log_in(&connection, endpoint).await?;
        let mut questions = Questions { connection: &connection, refusal: None };
        let info = questions.ask(&["INFO"]).await?;
        if let Some(refusal) = questions.refusal {
            return Err(refusal);
        }
        // Where the command has another name the server does not know it.
        let settings = ask(&connection, &SETTINGS).await?;
        let (ahead, now_ms) = clock_of(clock, &mut questions).await?;
        let record = questions.ask(&["GET", keys::INCARNATION]).await?;
        let longest = questions.ask(&["HGET", keys::SETTINGS, "max_ttl"]).await?;
        let forbidden = forbidden(&mut questions, options).await?;
        let lasting = if options.is_fence { Vec::new() } else { lasting(&mut questions).await? };
        let login = &endpoint.login;
        Ok(Self {
            address: address.clone(),
            user: login.user.clone().unwrap_or_else(|| "default".to_owned()),
            has_password: login.password.is_some(),
            is_tls: endpoint.is_tls,
            info: fields(info.as_ref().and_then(Reply::text).unwrap_or_default()),
            settings: (!settings.list().is_empty()).then(|| pairs(&settings)),
            ahead,
            now_ms,
            incarnation: record.as_ref().and_then(Reply::text).map(ToOwned::to_owned),
            tells_incarnation: record.is_some(),
            longest_ttl_ms: longest.and_then(|longest| u64::try_from(longest.number()?).ok()),
            forbidden,
            lasting,
            refusal: questions.refusal,
        })
    }

    /// A server at `host` that tells these fields, and lets us in with a password.
    #[cfg(test)]
    pub(super) fn at(host: &str, info: &[(&str, &str)]) -> Self {
        let field = |(field, value): &(&str, &str)| ((*field).to_owned(), (*value).to_owned());
        Self {
            address: Address { host: host.to_owned(), port: 6379 },
            user: "default".to_owned(),
            has_password: true,
            is_tls: false,
            info: info.iter().map(field).collect(),
            settings: None,
            ahead: Ahead::default(),
            now_ms: 0,
            incarnation: None,
            tells_incarnation: true,
            longest_ttl_ms: None,
            forbidden: Vec::new(),
            lasting: Vec::new(),
            refusal: None,
        }
    }

    /// A field of `INFO`; empty where it is not told.
    pub(super) fn info(&self, field: &str) -> &str {
        self.info.get(field).map(String::as_str).unwrap_or_default()
    }

    /// A field of `INFO` that is a number.
    pub(super) fn number(&self, field: &str) -> Option<i64> {
        self.info(field).parse().ok()
    }

    /// A setting, where the server tells its settings.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.as_ref()?.get(name).map(String::as_str)
    }

    /// Whether the server tells its settings.
    pub(super) fn tells_settings(&self) -> bool {
        self.settings.is_some()
    }

    /// The replicas that are connected: what is told of each.
    pub(super) fn replicas(&self) -> Vec<BTreeMap<String, String>> {
        let is_replica =
            |field: &str| field.strip_prefix("slave").is_some_and(|number| number.parse::<u32>().is_ok());
        let told = self.info.iter().filter(|(field, _)| is_replica(field));
        told.map(|(_, text)| {
            let parts = text.split(',').filter_map(|part| part.split_once('='));
            parts.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        })
        .collect()
    }

    /// The server in words.
    pub(super) fn server(&self) -> String {
        match self.info("redis_version") {
            "" => format!("Redis at {}", self.address),
            version => format!("Redis {version} at {}", self.address),
        }
    }
}

/// Logs in; whether the server can be used for locks is looked at later.
async fn log_in(connection: &Connection, endpoint: &Endpoint) -> Result<()> {
    match hello(connection, &endpoint.login).await.map_err(|broken| lost_touch(&broken))? {
        Reply::Refused(what) if what.contains("unknown command") || what.starts_with("NOPROTO") => {
            let what = "it is too old to know RESP3, and Redis 7.0 or newer is needed";
            return Err(Error::new(ErrorKind::Unsupported, "connect", what));
        }
        Reply::Refused(what) => return Err(refused(&what)),
        _ => {}
    }
    match endpoint.database {
        0 => Ok(()),
        database => refuse(ask(connection, &["SELECT", &database.to_string()]).await?).map(drop),
    }
}

/// How far its clock is ahead, between two bounds, and what it shows.
async fn clock_of(clock: &Clock, questions: &mut Questions<'_>) -> Result<(Ahead, i64)> {
    let (mut ahead, mut now_ms) = (Ahead { least: i64::MIN, most: i64::MAX }, 0);
    for _ in 0..CLOCK_LOOKS {
        let sent = clock.wall_micros().cast_signed();
        let reply = questions.ask(&["TIME"]).await?;
        let received = clock.wall_micros().cast_signed();
        let Some([seconds, micros]) = reply.as_ref().map(Reply::list) else { continue };
        let (seconds, micros) = (seconds.number().unwrap_or_default(), micros.number().unwrap_or_default());
        let there = seconds.saturating_mul(1_000_000).saturating_add(micros);
        ahead.least = ahead.least.max(there.saturating_sub(received));
        ahead.most = ahead.most.min(there.saturating_sub(sent));
        now_ms = there / 1_000;
    }
    // A user who may not ask is told nothing.
    if ahead.least == i64::MIN {
        return Ok((Ahead::default(), clock.wall_micros().cast_signed() / 1_000));
    }
    Ok((ahead, now_ms))
}

/// The commands that this user may not run, of those that a lock or a fence needs.
async fn forbidden(questions: &mut Questions<'_>, options: &Options) -> Result<Vec<String>> {
    let mut commands = if options.is_fence { FENCE_COMMANDS } else { LOCK_COMMANDS }.to_vec();
    commands.extend((options.replicas > 0).then_some("WAIT 1 1"));
    let run = questions.connection.run(&script::EXAMINE, &[], &commands).await;
    match run.map_err(|broken| lost_touch(&broken))? {
        Reply::Refused(what) if what.starts_with("NOPERM") => Ok(vec!["EVALSHA".to_owned()]),
        // A Redis before 7.0 does not have it. That it is too old is a finding of its own.
        Reply::Refused(what) if what.contains("acl_check_cmd") => Ok(Vec::new()),
        reply => {
            let reply = questions.answer(reply);
            let names = reply.iter().flat_map(Reply::list).filter_map(Reply::text);
            Ok(names.map(ToOwned::to_owned).collect())
        }
    }
}

/// The keys of locks that have no expiry and should have one, as far as a few looks find them.
async fn lasting(questions: &mut Questions<'_>) -> Result<Vec<String>> {
    let connection = questions.connection;
    let mut lasting = Vec::new();
    let mut cursor = "0".to_owned();
    for _ in 0..SCANS {
        let scan = ["SCAN", &cursor, "MATCH", "fencepost:{*", "COUNT", "1000"];
        let reply = questions.ask(&scan).await?;
        let Some([next, found]) = reply.as_ref().map(Reply::list) else { break };
        let found = found.list().iter().filter_map(Reply::text).filter(|key| should_expire(key));
        let looks = found.map(|key| async move { (key, ask(connection, &["PTTL", key]).await) });
        for (key, left) in join_all(looks).await {
            if left?.number() == Some(-1) {
                lasting.push(key.to_owned());
            }
        }
        next.text().unwrap_or("0").clone_into(&mut cursor);
        if cursor == "0" {
            break;
        }
    }
    Ok(lasting)
}

/// Whether a key of ours always has an expiry: that of a lock, its waiters, or an attempt that is over.
fn should_expire(key: &str) -> bool {
    [":l", ":q", ":w"].iter().any(|end| key.ends_with(&format!("}}{end}"))) || key.contains("}:x:")
}

fn fields(info: &str) -> BTreeMap<String, String> {
    let fields = info.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(field, value)| (field.to_owned(), value.to_owned())).collect()
}

fn pairs(reply: &Reply) -> BTreeMap<String, String> {
    let pairs = reply.list().chunks_exact(2);
    pairs.filter_map(|pair| Some((pair[0].text()?.to_owned(), pair[1].text()?.to_owned()))).collect()
}

/// How often the server's clock is read; the narrowest bounds of all count.
const CLOCK_LOOKS: usize = 3;

/// How many parts of the keys are looked at: enough for twenty thousand keys.
const SCANS: usize = 20;

/// What is asked for of the server's settings.
const SETTINGS: [&str; 9] = [
    "CONFIG",
    "GET",
    "maxmemory",
    "maxmemory-policy",
    "save",
    "appendonly",
    "appendfsync",
    "min-replicas-to-write",
    "stop-writes-on-bgsave-error",
];

/// What the scripts of a lock run, and what is sent beside them.
const LOCK_COMMANDS: &[&str] = &[
    "EVAL x 0",
    "EVALSHA x 0",
    "GET fencepost:{x}:l",
    "SET fencepost:{x}:l x",
    "DEL fencepost:{x}:l",
    "EXISTS fencepost:{x}:l",
    "MGET fencepost:{x}:l",
    "PTTL fencepost:{x}:l",
    "EXPIRE fencepost:{x}:s 1",
    "PEXPIRE fencepost:{x}:q 1",
    "PEXPIREAT fencepost:{x}:l 1",
    "PERSIST fencepost:{x}:s",
    "HGET fencepost:{x}:s t",
    "HSET fencepost:{x}:s t 1",
    "HMGET fencepost:{x}:s t",
    "HDEL fencepost:{x}:w x",
    "HVALS fencepost:{x}:d",
    "INCR fencepost:{x}:n",
    "ZADD fencepost:{x}:q 1 x",
    "ZCARD fencepost:{x}:r",
    "ZRANGE fencepost:{x}:q 0 -1",
    "ZRANGEBYSCORE fencepost:{x}:r 0 1",
    "ZRANK fencepost:{x}:q x",
    "ZREM fencepost:{x}:q x",
    "ZREMRANGEBYSCORE fencepost:{x}:r 0 1",
    "ZREVRANGE fencepost:{x}:q 0 0",
    "ZSCORE fencepost:{x}:q x",
    "PUBLISH fencepost:p:x x",
    "PUBSUB NUMSUB fencepost:p:x",
    "SUBSCRIBE fencepost:p:x",
    "SCAN 0",
    "TIME",
    "INFO",
];

/// What a fence sends.
const FENCE_COMMANDS: &[&str] = &[
    "EVAL x 0",
    "EVALSHA x 0",
    "HMGET fencepost:{x}:f t",
    "HSET fencepost:{x}:f t 1",
    "DEL fencepost:{x}:f",
    "SCAN 0",
    "INFO",
];
