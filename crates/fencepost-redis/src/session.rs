//! A server, kept in touch with: connecting, logging in, learning its incarnation, and doing all that again.
//!
//! Invariant: what an incarnation has been learned on a connection is used on that connection alone, so a server that lost its
//! data and came back is never taken for the one before.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use fencepost_core::{Clock, Error, ErrorKind, Moment, Result, lock, until};
use fencepost_net::{Address, Login};
use futures_channel::oneshot;
use futures_util::future::join;

use crate::connection::{Broken, Call, Connection, Listener};
use crate::endpoint::{Endpoint, Options, Whereabouts};
use crate::failure::{lost_touch, refuse, refused, unavailable, unexpected};
use crate::keys;
use crate::resp::Reply;
use crate::script;

/// How long connecting, logging in and learning may take.
const CONNECT_MOST: Duration = Duration::from_secs(2);

/// The longest pause between two tries to connect.
const PAUSE_MOST: Duration = Duration::from_millis(300);

/// The first pause, which is doubled from try to try.
const PAUSE_LEAST: Duration = Duration::from_millis(20);

/// What a connection has learned of the server behind it.
#[derive(Debug, Default)]
pub(crate) struct Incarnation {
    /// The record, as every script that grants compares it.
    pub(crate) record: String,
    /// From when on the server grants, in milliseconds of its clock.
    pub(crate) ready_at_ms: i64,
    /// Why it does not grant before.
    pub(crate) why: String,
    /// What people should know.
    pub(crate) warning: Option<String>,
}

/// A connection that is logged in, and what it has learned.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) connection: Connection,
    pub(crate) incarnation: Arc<Incarnation>,
}

/// The pause before a server is asked again for what it has refused for the moment.
pub(crate) const REFUSED_PAUSE: Duration = Duration::from_millis(100);

impl Session {
    /// Gives the connection up where the server has become a replica: the next session is with whoever is a primary now.
    pub(crate) fn give_up_on_a_replica(&self, refusal: &str) {
        if refusal.contains("READONLY") {
            self.connection.close("the server has become a replica");
        }
    }
}

/// Keeps a session with one server.
pub(crate) struct Link {
    clock: Clock,
    endpoint: Endpoint,
    options: Options,
    /// The channel that this process is told on.
    channel: Option<String>,
    listener: Mutex<Option<Weak<dyn Listener>>>,
    state: Mutex<State>,
    /// The sentinel that is asked first.
    sentinel: AtomicUsize,
}

enum State {
    /// Nobody has tried since then, or the tries have failed so often.
    Down {
        failures: u32,
        again_at: Option<Moment>,
    },
    Connecting {
        failures: u32,
        waiting: Vec<oneshot::Sender<Result<Session>>>,
    },
    Up(Session),
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Incarnation {
    /// What the server calls itself, as long as it runs.
    pub(crate) fn run_id(&self) -> &str {
        self.record.split('|').next().unwrap_or_default()
    }

    /// Whether the server is a node of a quorum that may have lost its data, and waits for a floor of its tokens.
    pub(crate) fn is_unseeded(&self) -> bool {
        self.record.ends_with("|unseeded")
    }
}

impl Link {
    /// A link to `endpoint` that listens to `channel`, if there is one. Connects nothing yet.
    pub(crate) fn new(
        clock: Clock,
        endpoint: Endpoint,
        options: Options,
        channel: Option<String>,
    ) -> Arc<Self> {
        let state = Mutex::new(State::Down { failures: 0, again_at: None });
        Arc::new(Self {
            clock,
            endpoint,
            options,
            channel,
            listener: Mutex::default(),
            state,
            sentinel: AtomicUsize::new(0),
        })
    }

    /// Has `listener` told what the server says.
    pub(crate) fn listen(&self, listener: Weak<dyn Listener>) {
        *lock(&self.listener) = Some(listener);
    }

    /// The session, made where there is none. All who ask meanwhile get the outcome of the same try.
    ///
    /// # Cancel safety
    /// Dropping it does not stop the try.
    pub(crate) async fn session(self: &Arc<Self>) -> Result<Session> {
        let outcome = {
            let mut state = lock(&self.state);
            match &mut *state {
                State::Up(session) if session.connection.is_open() => return Ok(session.clone()),
                State::Connecting { waiting, .. } => {
                    let (sender, outcome) = oneshot::channel();
                    waiting.push(sender);
                    outcome
                }
                State::Up(_) => self.begin(&mut state, 0, None),
                State::Down { failures, again_at } => {
                    let (failures, again_at) = (*failures, *again_at);
                    self.begin(&mut state, failures, again_at)
                }
            }
        };
        outcome.await.unwrap_or_else(|_| Err(unavailable("the try to connect has ended")))
    }

    /// The session, if there is one now.
    pub(crate) fn open_session(&self) -> Option<Session> {
        match &*lock(&self.state) {
            State::Up(session) if session.connection.is_open() => Some(session.clone()),
            State::Up(_) | State::Connecting { .. } | State::Down { .. } => None,
        }
    }

    /// Whether an answer may come soon: there is a session, or making one has not failed yet.
    pub(crate) fn is_promising(&self) -> bool {
        match &*lock(&self.state) {
            State::Up(session) => session.connection.is_open(),
            State::Connecting { failures, .. } | State::Down { failures, .. } => *failures == 0,
        }
    }

    fn begin(
        self: &Arc<Self>,
        state: &mut State,
        failures: u32,
        again_at: Option<Moment>,
    ) -> oneshot::Receiver<Result<Session>> {
        let (sender, outcome) = oneshot::channel();
        *state = State::Connecting { failures, waiting: vec![sender] };
        let link = Arc::clone(self);
        self.clock.serve(async move {
            if let Some(at) = again_at {
                link.clock.sleep_until(at).await;
            }
            let give_up_at = Some(link.clock.now().after(CONNECT_MOST));
            let outcome = until(&link.clock, give_up_at, link.establish()).await;
            link.finish(&outcome.unwrap_or_else(|| {
                let what = format!("{} has not answered for {CONNECT_MOST:?}", link.endpoint.whereabouts);
                Err(unavailable(what))
            }));
        });
        outcome
    }

    fn finish(&self, outcome: &Result<Session>) {
        let mut state = lock(&self.state);
        let failed_before = match &*state {
            State::Connecting { failures, .. } => *failures,
            State::Down { .. } | State::Up(_) => 0,
        };
        let next = match outcome {
            Ok(session) => State::Up(session.clone()),
            Err(_) => self.down(failed_before + 1),
        };
        let before = std::mem::replace(&mut *state, next);
        drop(state);
        if let State::Connecting { waiting, .. } = before {
            for asking in waiting {
                // Whoever asked may have gone.
                drop(asking.send(outcome.clone()));
            }
        }
    }

    fn down(&self, failures: u32) -> State {
        let pause = PAUSE_MOST.min(PAUSE_LEAST * 2_u32.saturating_pow(failures.min(10) - 1));
        let pause = pause / 2 + self.clock.jitter(pause);
        State::Down { failures, again_at: Some(self.clock.now().after(pause)) }
    }

    /// Learns anew, on the same connection, what incarnation the server is: its record is not what it was.
    ///
    /// # Cancel safety
    /// A dropped call may have begun a quarantine; the next one finds it.
    pub(crate) async fn learn_anew(&self, session: &Session) -> Result<Session> {
        let reply = self.learning(&session.connection, true).await.map_err(|broken| lost_touch(&broken))?;
        let session = Session {
            connection: session.connection.clone(),
            incarnation: Arc::new(read_incarnation(&reply)?),
        };
        // Where the connection has broken meanwhile, somebody may be waiting for the next one already.
        if let State::Up(current) = &mut *lock(&self.state)
            && current.connection.is(&session.connection)
        {
            current.clone_from(&session);
        }
        Ok(session)
    }

    /// A connection of its own, on which `listener` is told which keys of locks were touched, by anybody; `None` where the server
    /// refuses that.
    pub(crate) async fn watch(&self, listener: Arc<dyn Listener>) -> Result<Option<Connection>> {
        let address = self.whereabouts().await?;
        let connection = Connection::open(&self.clock, &address, self.endpoint.is_tls, listener).await?;
        let hello = hello(&connection, &self.endpoint.login);
        check_hello(&hello.await.map_err(|broken| lost_touch(&broken))?, &address)?;
        let database = self.endpoint.database.to_string();
        let select = connection.call(&[b"SELECT", database.as_bytes()]);
        refuse(select.await.map_err(|broken| lost_touch(&broken))?)?;
        let track = connection.call(&[b"CLIENT", b"TRACKING", b"ON", b"BCAST", b"PREFIX", b"fencepost:{"]);
        match track.await.map_err(|broken| lost_touch(&broken))? {
            Reply::Refused(_) => Ok(None),
            _ => Ok(Some(connection)),
        }
    }

    async fn whereabouts(&self) -> Result<Address> {
        match &self.endpoint.whereabouts {
            Whereabouts::At(address) => Ok(address.clone()),
            Whereabouts::Sentinels { sentinels, name } => self.ask_sentinels(sentinels, name).await,
        }
    }

    async fn establish(&self) -> Result<Session> {
        let address = self.whereabouts().await?;
        let listener: Arc<dyn Listener> = Arc::new(Relay(lock(&self.listener).clone()));
        let connection = Connection::open(&self.clock, &address, self.endpoint.is_tls, listener).await?;
        // All at once: one round trip.
        let hello = hello(&connection, &self.endpoint.login);
        let database = self.endpoint.database.to_string();
        let select =
            (self.endpoint.database != 0).then(|| connection.call(&[b"SELECT", database.as_bytes()]));
        if let Some(channel) = &self.channel {
            connection.tell(&[b"SUBSCRIBE", channel.as_bytes()]);
        }
        let (hello, learned) = join(hello, self.learn(&connection)).await;
        check_hello(&hello.map_err(|broken| lost_touch(&broken))?, &address)?;
        if let Some(select) = select {
            refuse(select.await.map_err(|broken| lost_touch(&broken))?)?;
        }
        Ok(Session { connection, incarnation: Arc::new(learned?) })
    }

    /// A fence learns nothing: it leaves no record among the user's data, and is one during a quarantine as well.
    async fn learn(&self, connection: &Connection) -> Result<Incarnation> {
        if self.options.is_fence {
            return Ok(Incarnation::default());
        }
        let learned = self.learning(connection, false).await;
        read_incarnation(&learned.map_err(|broken| lost_touch(&broken))?)
    }

    async fn learning(&self, connection: &Connection, is_forgotten: bool) -> Result<Reply, Broken> {
        let max_ttl = self.options.max_ttl.as_millis().to_string();
        let switch = |on| if on { "1" } else { "0" };
        let arguments = [max_ttl.as_str(), switch(is_forgotten), switch(self.options.is_node)];
        connection.run(&script::LEARN, &[keys::INCARNATION, keys::SETTINGS], &arguments).await
    }

    async fn ask_sentinels(&self, sentinels: &[Address], name: &str) -> Result<Address> {
        let mut last = unavailable("no sentinel is named");
        // From the one that has answered last; after failures from another one, since the time is not enough for many silent ones.
        let first = self.sentinel.load(Ordering::Relaxed);
        for index in (0..sentinels.len()).map(|next| (first + next) % sentinels.len()) {
            let sentinel = &sentinels[index];
            let asked = self.ask_sentinel(sentinel, name);
            self.sentinel.store(index + 1, Ordering::Relaxed);
            let give_up_at = Some(self.clock.now().after(CONNECT_MOST / 4));
            match until(&self.clock, give_up_at, asked).await {
                Some(Ok(address)) => {
                    self.sentinel.store(index, Ordering::Relaxed);
                    return Ok(address);
                }
                Some(Err(error)) => last = error,
                None => last = unavailable(format!("the sentinel {sentinel} does not answer")),
            }
        }
        Err(last)
    }

    async fn ask_sentinel(&self, sentinel: &Address, name: &str) -> Result<Address> {
        let deaf: Arc<dyn Listener> = Arc::new(Relay(None));
        let connection = Connection::open(&self.clock, sentinel, self.endpoint.is_tls, deaf).await?;
        let reply = connection.call(&[b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", name.as_bytes()]).await;
        let reply = refuse(reply.map_err(|broken| lost_touch(&broken))?)?;
        match reply.list() {
            [host, port] => {
                let host = host.text().map(ToOwned::to_owned);
                let port = port.number().and_then(|port| u16::try_from(port).ok());
                let address = host.zip(port).map(|(host, port)| Address { host, port });
                address.ok_or_else(|| unexpected("SENTINEL", &reply))
            }
            _ => Err(unavailable(format!("the sentinel {sentinel} knows no server named {name:?}"))),
        }
    }
}

/// Logs in, and says what we speak and who we are.
pub(crate) fn hello(connection: &Connection, login: &Login) -> Call {
    let mut words: Vec<&[u8]> = vec![b"HELLO", b"3"];
    if let Some(password) = &login.password {
        let user = login.user.as_deref().unwrap_or("default");
        words.extend([b"AUTH", user.as_bytes(), password.as_bytes()]);
    }
    words.extend([b"SETNAME", &b"fencepost"[..]]);
    connection.call(&words)
}

/// Passes on what a connection hears, to a listener that may be gone.
struct Relay(Option<Weak<dyn Listener>>);

impl Listener for Relay {
    fn hear(&self, message: &str) {
        if let Some(listener) = self.0.as_ref().and_then(Weak::upgrade) {
            listener.hear(message);
        }
    }

    fn broken(&self) {
        if let Some(listener) = self.0.as_ref().and_then(Weak::upgrade) {
            listener.broken();
        }
    }
}

fn check_hello(reply: &Reply, address: &Address) -> Result<()> {
    if let Reply::Refused(what) = reply {
        let is_old = what.contains("unknown command") || what.starts_with("NOPROTO");
        return Err(if is_old { too_old("too old to know RESP3") } else { refused(what) });
    }
    let text = |key| reply.value(key).and_then(Reply::text).unwrap_or_default();
    let major: u32 =
        text("version").split('.').next().and_then(|major| major.parse().ok()).unwrap_or_default();
    if major < 7 {
        return Err(too_old(text("version")));
    }
    if text("mode") == "cluster" {
        let what = format!("{address} is part of a Redis Cluster");
        return Err(Error::new(ErrorKind::Unsupported, "connect", what).hint("use a Redis that stands alone"));
    }
    if text("role") != "master" {
        return Err(
            unavailable(format!("{address} is a replica")).hint("name the primary, or use redis+sentinel://")
        );
    }
    Ok(())
}

fn too_old(version: &str) -> Error {
    let what = format!("it needs Redis 7.0 or newer, and this one is {version}");
    Error::new(ErrorKind::Unsupported, "connect", what)
}

fn read_incarnation(reply: &Reply) -> Result<Incarnation> {
    if let Reply::Refused(what) = reply {
        return Err(refused(what));
    }
    match reply.list() {
        [record, ready_at, _, why, rest @ ..] => {
            let (Some(record), Some(ready_at_ms), Some(why)) = (record.text(), ready_at.number(), why.text())
            else {
                return Err(unexpected("learn.lua", reply));
            };
            let warning = rest.first().and_then(Reply::text).map(ToOwned::to_owned);
            let why = why.trim_end_matches("|unseeded").to_owned();
            Ok(Incarnation { record: record.to_owned(), ready_at_ms, why, warning })
        }
        _ => Err(unexpected("learn.lua", reply)),
    }
}
