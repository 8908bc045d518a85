//! The task that keeps a session: it connects, looks after the leases, beats, and does all that again when a connection breaks.

use std::sync::Arc;
use std::time::Duration;

use fencepost_core::{Clock, Error, ErrorKind, LossReason, Moment, Result, until};
use fencepost_net::{Address, KeepAlive, Socket, Stream, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Session, wake};
use crate::connection::{Connection, Listener};
use crate::endpoint::Endpoint;
use crate::failure::{expired, fine, unavailable};
use crate::heartbeat::{Proof, period};
use crate::nodes;
use crate::protocol::{Answer, Code, Request, Sight, Welcome};

/// How long a session that nobody uses is kept for the next one.
const UNUSED_MOST: Duration = Duration::from_secs(5);

/// How long one member may take to be reached and to welcome us.
const CONNECT_LEAST: Duration = Duration::from_millis(250);
const CONNECT_MOST: Duration = Duration::from_secs(2);

/// What part of a session's time-out that is, where the session exists already: there has to be time for other members.
const CONNECT_PART: u32 = 16;

/// The part of a session's time-out for which a member may be silent before another one is tried, and what it is at least: a leader
/// writes to its disk before it answers.
const SILENT_PART: u32 = 10;
const SILENT_LEAST: Duration = Duration::from_millis(250);
const SILENT_MOST: Duration = Duration::from_secs(5);

/// The longest pause between two tries to connect, what part of a session's time-out it is at most, and the first one.
const PAUSE_MOST: Duration = Duration::from_millis(300);
const PAUSE_PART: u32 = 32;
const PAUSE_LEAST: Duration = Duration::from_millis(20);

/// How long the end of a session may take.
const CLOSE_MOST: Duration = Duration::from_millis(500);

/// A member that is gone without a word is noticed by its silence; this is for one whose kernel is gone as well.
const KEEP_ALIVE: KeepAlive = KeepAlive {
    after: Duration::from_secs(10),
    each: Duration::from_secs(5),
    times: 3,
    unacknowledged: Some(Duration::from_secs(20)),
};

/// Keeps a session until it has ended.
pub(super) async fn keep(session: Session) {
    let mut members = Members::new(&session);
    let mut failures = 0;
    while !session.has_ended() {
        let connected = members.connect(&session).await;
        if session.has_ended()
            && let Ok(connection) = &connected
        {
            // Nobody needs it any more.
            session.state().connection = None;
            close(session.clock(), connection.clone());
        }
        session.is_answered();
        match connected {
            Ok(_) if session.has_ended() => {}
            Ok(connection) => {
                beat(&session, &connection).await;
                // A member that welcomes us and serves nothing is no better than one that cannot be reached.
                failures = if session.state().is_served { 0 } else { failures + 1 };
                if failures > 0 && !session.has_ended() {
                    let why = session.state().failure.clone();
                    let why = why.unwrap_or_else(|| unavailable("a member welcomes us and serves nothing"));
                    note_failure(&session, &why);
                    pause(&session, failures).await;
                }
            }
            Err(error) if error.kind() == ErrorKind::Lost => session.end(&error),
            Err(error) => {
                failures += 1;
                note_failure(&session, &error);
                pause(&session, failures).await;
            }
        }
    }
}

fn note_failure(session: &Session, error: &Error) {
    let mut state = session.state();
    state.failures += 1;
    state.failure = Some(error.clone());
    // Whoever has no session yet is not helped by another try of what was refused.
    let is_hopeless = state.hello.session == 0 && error.kind() != ErrorKind::Unavailable;
    let is_unused = state.users == 0;
    wake(state);
    if is_hopeless || is_unused {
        session.end(error);
    }
}

async fn pause(session: &Session, failures: u32) {
    let clock = session.clock();
    let timeout = session.timeout();
    let most =
        if timeout.is_zero() { PAUSE_MOST } else { (timeout / PAUSE_PART).clamp(PAUSE_LEAST, PAUSE_MOST) };
    let pause = most.min(PAUSE_LEAST * 2_u32.saturating_pow(failures.min(10) - 1));
    let end = clock.now().after(pause / 2 + clock.jitter(pause));
    until(clock, Some(end), session.when(|state| state.ended.as_ref().map(drop))).await;
}

/// The members of an ensemble, in an order of one's own, so that not all clients are with the same one.
struct Members {
    addresses: Vec<Address>,
    next: usize,
    transport: Option<Transport>,
}

impl Members {
    fn new(session: &Session) -> Self {
        let mut addresses = session.endpoint().addresses.clone();
        for last in (1..addresses.len()).rev() {
            let other = usize::try_from(session.clock().random() % (last as u64 + 1)).unwrap_or_default();
            addresses.swap(last, other);
        }
        Self { addresses, next: 0, transport: None }
    }

    /// Tries each member once, beginning with the one after the last. The first one that welcomes us is used.
    async fn connect(&mut self, session: &Session) -> Result<Connection> {
        let transport = self.transport(session.endpoint()).await?;
        let mut last = unavailable("no member is named");
        for _ in 0..self.addresses.len() {
            let address = self.addresses[self.next % self.addresses.len()].clone();
            self.next += 1;
            let most = connect_most(session.state().timeout);
            let clock = session.clock();
            let give_up_at = Some(clock.now().after(most));
            session.state().is_asked_for = true;
            let welcomed =
                until(clock, give_up_at, Box::pin(greet(session, &address, &transport, most))).await;
            match welcomed.unwrap_or_else(|| Err(unavailable(format!("{address} does not answer")))) {
                Ok(connection) => return Ok(connection),
                Err(error) if error.kind() == ErrorKind::Unavailable => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    async fn transport(&mut self, endpoint: &Endpoint) -> Result<Transport> {
        if let Some(transport) = &self.transport {
            return Ok(transport.clone());
        }
        Ok(self.transport.insert(endpoint.transport().await?).clone())
    }
}

fn connect_most(timeout: Duration) -> Duration {
    if timeout.is_zero() { CONNECT_MOST } else { (timeout / CONNECT_PART).clamp(CONNECT_LEAST, CONNECT_MOST) }
}

fn silent_most(timeout: Duration) -> Duration {
    (timeout / SILENT_PART).clamp(SILENT_LEAST, SILENT_MOST)
}

/// Opens the session on a member, or goes on with it there.
async fn greet(
    session: &Session,
    address: &Address,
    transport: &Transport,
    most: Duration,
) -> Result<Connection> {
    let clock = session.clock();
    let (mut stream, socket) = Stream::open(clock, address, transport, &KEEP_ALIVE, most).await?;
    let opened_at = clock.now();
    let welcome = ask(&mut stream, &session.hello().frame())
        .await
        .map_err(|error| unavailable(format!("{address} does not welcome us")).caused_by(error))?;
    let welcome = Welcome::read(&welcome).map_err(super::garbled)?;
    if welcome.timeout_ms <= 0 {
        return Err(expired());
    }
    if Duration::from_millis(u64::from(welcome.timeout_ms.unsigned_abs())) < session.state().timeout {
        // By the leader's count it may end before those who count on more believe it to.
        let what = format!("{address} grants the session less time than it had");
        return Err(Error::lost(LossReason::SessionEnded, what));
    }
    if welcome.is_read_only {
        return Err(unavailable(format!("{address} has no quorum, and serves readers only")));
    }
    Ok(adopt(session, welcome, opened_at, stream, socket))
}

async fn ask(stream: &mut Stream, hello: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(hello).await?;
    stream.flush().await?;
    let length = stream.read_u32().await?;
    let mut welcome = vec![0; usize::try_from(length.min(LONGEST_WELCOME)).unwrap_or_default()];
    stream.read_exact(&mut welcome).await?;
    Ok(welcome)
}

/// More than any welcome has.
const LONGEST_WELCOME: u32 = 1024;

/// Uses a connection from now on: logs in, looks at the nodes of the leases, and only then beats for the first time.
fn adopt(
    session: &Session,
    welcome: Welcome,
    opened_at: Moment,
    stream: Stream,
    socket: Socket,
) -> Connection {
    let granted = Duration::from_millis(u64::from(welcome.timeout_ms.unsigned_abs()));
    let timeout =
        Some(session.timeout()).filter(|had| !had.is_zero()).map_or(granted, |had| had.min(granted));
    let listener: Arc<dyn Listener> = Arc::new(Ear(session.clone()));
    let connection = Connection::new(session.clock(), stream, socket, silent_most(timeout), listener);
    let mut state = session.state();
    state.hello.session = welcome.session;
    state.hello.password = welcome.password;
    // The time-out that it was opened with, also where this member would grant more: the next leader knows that one alone.
    state.hello.timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    state.timeout = timeout;
    state.is_served = false;
    state.forget_watches();
    state.failures = 0;
    let mut proof = Proof::new(timeout, opened_at);
    {
        let mut batch = connection.batch();
        if let Some(login) = &session.endpoint().login {
            batch.log_in(&Request::login("digest", login.proof()));
        }
        for path in state.held.keys() {
            batch.tell(&Request::data(path, true), path);
        }
        proof.sent(session.clock().now());
        batch.beat(&heartbeat(session.endpoint()));
    }
    state.proof = Some(proof);
    state.connection = Some(connection.clone());
    // Also what was on its way when the last one broke.
    state.fresh = state.unwritten();
    wake(state);
    session.settle();
    connection
}

/// A transaction that changes nothing, and that a quorum acknowledges all the same, also where it fails since there is no such node.
pub(crate) fn heartbeat(endpoint: &Endpoint) -> Request {
    Request::all(&[Request::check(&nodes::root(&endpoint.chroot), -1)])
}

/// Beats until the connection breaks, or nobody has used the session for a while.
async fn beat(session: &Session, connection: &Connection) {
    let clock = session.clock();
    loop {
        let at = clock.now().after(period(session.state().timeout));
        let gone = session.when(|state| {
            let is_used = state.open_connection().is_some_and(|current| current.is(connection));
            (!is_used).then_some(())
        });
        if until(clock, Some(at), gone).await.is_some() {
            return;
        }
        if session.leave_if_unused() {
            return;
        }
        session.give_up_what_is_not_renewed();
        let mut state = session.state();
        if let Some(proof) = &mut state.proof {
            proof.sent(clock.now());
            connection.batch().beat(&heartbeat(session.endpoint()));
        }
    }
}

impl Session {
    /// Closes it where nobody has used it for a while; whether that is so. Whoever comes meanwhile comes before or after.
    fn leave_if_unused(&self) -> bool {
        let now = self.clock().now();
        let mut state = self.state();
        let most = UNUSED_MOST.min(state.timeout);
        let is_over = state.unused_since.is_some_and(|since| now.since(since) >= most);
        if is_over {
            state.is_left = true;
            self.close_if_unused(state);
        }
        is_over
    }
}

/// Ends the session of a connection, so that nothing of it is left; a process that is about to end waits for it.
pub(super) fn close(clock: &Clock, connection: Connection) {
    let closing = connection.call(&Request::close_session());
    let give_up_at = Some(clock.now().after(CLOSE_MOST));
    let until_clock = clock.clone();
    clock.spawn(async move {
        // A session whose end was not heard ends by its time-out.
        drop(until(&until_clock, give_up_at, closing).await);
        connection.close("the session was closed");
    });
}

/// Has a process that is about to end wait for the session that a member was asked for, so that it is closed, too.
pub(super) fn close_when_it_is_there(session: Session) {
    let clock = session.clock().clone();
    session.clock().clone().spawn(async move {
        let give_up_at = Some(clock.now().after(CLOSE_MOST));
        let answered = session.when(|state| (!state.is_asked_for).then_some(()));
        until(&clock, give_up_at, answered).await;
    });
}

/// Hears for the session what comes on a connection.
struct Ear(Session);

impl Listener for Ear {
    fn sees(&self, sight: &Sight) {
        self.0.see(sight);
    }

    fn answered(&self, path: &str, code: Code) {
        if code == Code::NO_NODE {
            self.0.lose(path);
        }
    }

    fn written(&self, path: &str, code: Code) {
        match code {
            Code::OK => self.0.is_written(path),
            code => self.answered(path, code),
        }
    }

    fn logged_in(&self, code: Code) {
        if code != Code::OK {
            self.0.deny(code);
        }
    }

    fn beaten(&self, answer: &Answer) {
        if answer.code == Code::LOGIN_NEEDED {
            return self.0.deny(answer.code);
        }
        if let Some(code @ (Code::SESSION_EXPIRED | Code::SESSION_MOVED)) = answer.check() {
            return self.0.refuse(code);
        }
        let mut state = self.0.state();
        let now = self.0.clock().now();
        state.is_served |= answer.is_committed();
        match &mut state.proof {
            Some(proof) if answer.is_committed() => proof.committed(now),
            // A member that is busy refuses without asking its leader, so nothing is known of the session.
            Some(proof) => proof.refused(),
            None => {}
        }
        wake(state);
    }

    fn broken(&self, why: &str) {
        let mut state = self.0.state();
        let is_current = state.connection.as_ref().is_some_and(|connection| !connection.is_open());
        if is_current {
            let connection = state.connection.take();
            state.hello.last_seen =
                connection.map_or(0, |connection| connection.last_seen()).max(state.hello.last_seen);
            state.proof = None;
            state.failure = Some(unavailable(why));
            state.forget_watches();
        }
        wake(state);
    }
}

impl Session {
    /// Nobody is asked for the session any more, and what came of it has been dealt with.
    fn is_answered(&self) {
        let mut state = self.state();
        state.is_asked_for = false;
        wake(state);
    }

    /// The ensemble does not take this session's requests any more, or not here.
    fn refuse(&self, code: Code) {
        if code == Code::SESSION_EXPIRED {
            return self.end(&expired());
        }
        let connection = self.state().connection.clone();
        if let Some(connection) = connection {
            connection.close("the session has moved to another member");
        }
    }

    /// The member does not let us in. A session with leases goes on to the next one, where it had been let in before.
    fn deny(&self, code: Code) {
        let error = Error::new(ErrorKind::Denied, "log in", format!("ZooKeeper says {}", code.describe()))
            .hint("it asks for a login, or takes none by name and password (the scheme digest)");
        let state = self.state();
        let (has_leases, connection) = (!state.held.is_empty(), state.connection.clone());
        drop(state);
        match connection {
            Some(connection) if has_leases => connection.close(&error.to_string()),
            _ => self.end(&error),
        }
    }

    /// A request in the middle of the work of a user of the session has an outcome that says something of the session itself.
    pub(crate) fn heed(&self, answer: &Answer) {
        if matches!(answer.code, Code::SESSION_EXPIRED | Code::SESSION_MOVED) {
            self.refuse(answer.code);
        }
    }

    /// Why the leases of a lock were lost, where somebody has written that down at their lock.
    pub(super) async fn why_lost(&self, lock: &str, node: &str) -> Option<String> {
        let connection = self.connection().await.ok()?;
        let (data, _) = fine(connection.call(&Request::data(lock, false)).await).ok()?.data().ok()?;
        let revoked = crate::record::LockRecord::read(&data).revoked?;
        (revoked.node == node).then_some(revoked.reason)
    }
}
