//! The members of a cluster, one of which is asked until it fails: then another one is, before the caller hears of it.
//!
//! A member that was stopped looks healthy to TCP, so every try has a deadline of its own. Invariant: a member that has answered
//! nothing since a request that is overdue keeps no connection, so that nobody waits for it on another stream either. One that is
//! merely busy keeps it, since all others that are under way would begin anew: what is overdue is asked elsewhere, where there is
//! another member, and is in doubt as ever. Watches are only where requests go to, since nobody would notice elsewhere that a member
//! stands still.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fencepost_core::{Clock, Error, ErrorKind, Moment, Result, lock, until};
use fencepost_net::Transport;
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::Shared as Joined;
use prost::Message;

use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::failure::{Failure, Next, unavailable};
use crate::login::{LoggedIn, Token};
use crate::watch::{Hub, Subject, Watch};

/// A cluster. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Members(Arc<Shared>);

struct Shared {
    clock: Clock,
    endpoint: Endpoint,
    slots: Vec<Mutex<Slot>>,
    /// The member that is asked.
    current: AtomicUsize,
    login: LoggedIn,
    /// The watches on the connection to the current member.
    hub: Mutex<Option<Arc<Hub>>>,
}

#[derive(Clone)]
enum Slot {
    Down,
    Connecting(Joined<oneshot::Receiver<Result<Connection>>>),
    Up(Connection),
}

/// How long to try.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// How long one member may take; in later rounds longer, since all may be slow.
    pub(crate) each: Duration,
    /// How long all tries together go on, after one round.
    pub(crate) most: Duration,
}

/// What a member has answered.
#[derive(Debug)]
pub(crate) struct Answer<A> {
    pub(crate) message: A,
    /// Which member.
    pub(crate) member: usize,
    /// When the request that was answered was sent.
    pub(crate) sent: Moment,
    /// Whether an earlier try may have been carried out, or may be later.
    pub(crate) is_late: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) failure: Failure,
    /// Whether a try may have been carried out, or may be later.
    pub(crate) is_late: bool,
}

impl Failed {
    /// The failure in fencepost's words.
    pub(crate) fn error(self) -> Error {
        self.failure.error()
    }

    /// The same of a change that may have been made.
    pub(crate) fn doubtful(self, operation: &'static str) -> Error {
        let is_late = self.is_late;
        let error = self.error();
        if !is_late {
            return error.during(operation);
        }
        Error::new(ErrorKind::Indeterminate, operation, format!("{error}; etcd may have done it"))
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members").field("endpoint", &self.0.endpoint).finish_non_exhaustive()
    }
}

impl Members {
    /// The members that a URL names. Connects nothing yet.
    pub(crate) fn new(clock: Clock, endpoint: Endpoint) -> Self {
        let slots = endpoint.addresses.iter().map(|_| Mutex::new(Slot::Down)).collect();
        let login = LoggedIn::new(endpoint.login.clone());
        let (current, hub) = Default::default();
        Self(Arc::new(Shared { clock, endpoint, slots, current, login, hub }))
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.0.clock
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.0.endpoint
    }

    pub(crate) fn count(&self) -> usize {
        self.0.slots.len()
    }

    /// Asks one member after the other until one has answered. `frame` makes the request for each try.
    ///
    /// # Cancel safety
    /// A dropped call may or may not be carried out, also much later.
    pub(crate) async fn call<A: Message + Default>(
        &self,
        method: &'static str,
        frame: impl Fn() -> Bytes,
        patience: Patience,
    ) -> Result<Answer<A>, Failed> {
        let Answer { mut message, member, sent, is_late } =
            self.call_all(method, (frame, 1), patience).await?;
        Ok(Answer { message: message.pop().unwrap_or_default(), member, sent, is_late })
    }

    /// The same for several requests in one call, each of which has an answer, in their order.
    ///
    /// # Cancel safety
    /// A dropped call may or may not be carried out, or a part of it, also much later.
    pub(crate) async fn call_all<A: Message + Default>(
        &self,
        method: &'static str,
        (frames, count): (impl Fn() -> Bytes, usize),
        patience: Patience,
    ) -> Result<Answer<Vec<A>>, Failed> {
        let began = self.clock().now();
        let (mut tries, mut logins, mut spared, mut is_late) = (0, 0, 0, false);
        loop {
            let index = self.current();
            let mut attempt = Attempt::default();
            let round = u32::try_from(tries / self.count()).unwrap_or(u32::MAX);
            let each = patience.each * 2_u32.pow(round.min(MOST_DOUBLED));
            let failure = match self.ask(index, method, (frames(), count), each, &mut attempt).await {
                Ok(message) => {
                    let sent = attempt.sent.unwrap_or(began);
                    return Ok(Answer { message, member: index, sent, is_late });
                }
                Err(failure) => failure,
            };
            is_late |= failure.is_doubtful();
            match failure.next() {
                Next::LogIn if logins < MOST_LOGINS => {
                    logins += 1;
                    self.0.login.forget(attempt.token.as_ref());
                    continue;
                }
                // Another call has given the member up, whose time was over; that of this one may not be.
                Next::Elsewhere if spared < MOST_SPARED && attempt.was_given_up() => {
                    spared += 1;
                    continue;
                }
                Next::LogIn | Next::GiveUp => return Err(Failed { failure, is_late }),
                Next::Elsewhere => self.move_on(index, attempt.given_up()),
            }
            tries += 1;
            if tries % self.count() == 0 {
                if self.clock().now().since(began) >= patience.most {
                    return Err(Failed { failure, is_late });
                }
                self.clock().sleep(PAUSE + self.clock().jitter(PAUSE)).await;
            }
        }
    }

    async fn ask<A: Message + Default>(
        &self,
        index: usize,
        method: &'static str,
        (frames, count): (Bytes, usize),
        most: Duration,
        attempt: &mut Attempt,
    ) -> Result<Vec<A>, Failure> {
        let unanswered = || format!("{} has not answered for {most:?}", self.address(index));
        let connection = if let Some(connection) = self.open_connection(index) {
            connection
        } else {
            let soon = Some(self.clock().now().after(most));
            let connected = until(self.clock(), soon, Box::pin(self.connection(index))).await;
            connected.unwrap_or_else(|| Err(Failure::Unsent(unanswered())))?
        };
        attempt.connection = Some(connection.clone());
        // It takes as long as it takes, however short the time for a request is: it would never end otherwise.
        attempt.token = self.0.login.token(self.clock(), &connection).await?;
        let sent = self.clock().now();
        attempt.sent = Some(sent);
        let token = attempt.token.as_ref().map(Token::text);
        let asking = connection.ask(method, (frames, count), token);
        let answer = until(self.clock(), Some(sent.after(most)), asking).await;
        answer.unwrap_or_else(|| {
            attempt.is_overdue = true;
            Err(Failure::Broken(unanswered()))
        })
    }

    /// Asks one certain member, once.
    ///
    /// # Cancel safety
    /// As [`call`](Self::call).
    pub(crate) async fn ask_one<A: Message + Default>(
        &self,
        index: usize,
        method: &'static str,
        frame: Bytes,
        most: Duration,
    ) -> Result<A, Failure> {
        let mut answers = self.ask(index, method, (frame, 1), most, &mut Attempt::default()).await?;
        Ok(answers.pop().unwrap_or_default())
    }

    /// Watches one key from `revision` on, or from now on with 0, for its end.
    ///
    /// # Cancel safety
    /// Dropping it ends the watch.
    pub(crate) async fn watch(&self, key: &[u8], revision: i64) -> Result<Watch, Failure> {
        self.watch_for(Subject::Key { key: key.to_vec(), revision }).await
    }

    /// Watches.
    ///
    /// # Cancel safety
    /// Dropping it ends the watch.
    pub(crate) async fn watch_for(&self, subject: Subject) -> Result<Watch, Failure> {
        let index = self.current();
        let connection = self.connection(index).await?;
        self.forget_refused();
        let token = self.0.login.token(self.clock(), &connection).await?;
        let hub = {
            let mut current = lock(&self.0.hub);
            if self.current() != index {
                return Err(Failure::Unsent(format!("{} is not asked any more", self.address(index))));
            }
            match current.as_ref().filter(|hub| hub.serves(&connection)) {
                Some(hub) => Arc::clone(hub),
                None => Arc::clone(current.insert(Hub::start(self.clock(), connection, token))),
            }
        };
        Ok(hub.watch(subject))
    }

    /// Forgets a login that a watch was refused with.
    fn forget_refused(&self) {
        let refused = lock(&self.0.hub).take_if(|hub| hub.was_refused());
        if let Some(hub) = refused {
            self.0.login.forget(hub.token());
        }
    }

    /// Whether requests go without a login, since there is none or the server asks for none.
    pub(crate) fn is_without_login(&self) -> bool {
        self.0.login.is_without()
    }

    /// The member that is asked now.
    pub(crate) fn current(&self) -> usize {
        self.0.current.load(Ordering::Acquire)
    }

    /// Gives up a member. Where another one is asked by now, that stays so.
    pub(crate) fn leave(&self, member: usize) {
        let slot = lock(&self.0.slots[member]).clone();
        let connection = if let Slot::Up(connection) = slot { Some(connection) } else { None };
        self.move_on(member, connection.as_ref());
    }

    pub(crate) fn address(&self, index: usize) -> String {
        self.0.endpoint.addresses[index].to_string()
    }

    /// Ends a connection that has failed, and asks the next member from now on; once, where many fail together.
    fn move_on(&self, index: usize, failed: Option<&Connection>) {
        let next = (index + 1) % self.count();
        // Somebody else may have moved on already.
        let moved = self.0.current.compare_exchange(index, next, Ordering::AcqRel, Ordering::Acquire);
        if moved.is_ok() && next != index {
            // None begins there from now on.
            lock(&self.0.hub).take().inspect(|hub| hub.end());
        }
        let Some(failed) = failed else { return };
        failed.close();
        let mut slot = lock(&self.0.slots[index]);
        if matches!(&*slot, Slot::Up(connection) if connection.is(failed)) {
            *slot = Slot::Down;
        }
    }

    /// The connection to a member, where there is one.
    fn open_connection(&self, index: usize) -> Option<Connection> {
        match &*lock(&self.0.slots[index]) {
            Slot::Up(connection) if connection.is_open() => Some(connection.clone()),
            _ => None,
        }
    }

    /// The connection to a member. All who ask meanwhile get the outcome of the same try, which goes on when they do not wait for it.
    async fn connection(&self, index: usize) -> Result<Connection, Failure> {
        let connecting = {
            let mut slot = lock(&self.0.slots[index]);
            match &*slot {
                Slot::Up(connection) if connection.is_open() => return Ok(connection.clone()),
                Slot::Connecting(connecting) => connecting.clone(),
                Slot::Up(_) | Slot::Down => {
                    let (sender, outcome) = oneshot::channel();
                    let outcome = outcome.shared();
                    *slot = Slot::Connecting(outcome.clone());
                    let members = self.clone();
                    self.clock().serve(async move { members.connect(index, sender).await });
                    outcome
                }
            }
        };
        let outcome = connecting.await;
        let outcome = outcome.unwrap_or_else(|_| Err(unavailable("the try to connect has ended")));
        outcome.map_err(|error| match error.kind() {
            ErrorKind::Unavailable => Failure::Unsent(error.to_string()),
            _ => Failure::Final(error),
        })
    }

    async fn connect(&self, index: usize, told: oneshot::Sender<Result<Connection>>) {
        let give_up_at = Some(self.clock().now().after(CONNECT_MOST));
        let outcome = until(self.clock(), give_up_at, Box::pin(self.open(index))).await;
        let outcome = outcome.unwrap_or_else(|| {
            Err(unavailable(format!("{} has not answered for {CONNECT_MOST:?}", self.address(index))))
        });
        let next = outcome.as_ref().map_or(Slot::Down, |connection| Slot::Up(connection.clone()));
        *lock(&self.0.slots[index]) = next;
        // Whoever asked may have gone.
        drop(told.send(outcome));
    }

    async fn open(&self, index: usize) -> Result<Connection> {
        let Endpoint { addresses, trust, .. } = &self.0.endpoint;
        let transport = match trust {
            None => Transport::Plain,
            Some(trust) => Transport::encrypted(trust, &["h2"]).await?,
        };
        Connection::open(self.clock(), &addresses[index], &transport, CONNECT_MOST).await
    }
}

/// What one try has come to before it ended.
#[derive(Default)]
struct Attempt {
    connection: Option<Connection>,
    token: Option<Token>,
    sent: Option<Moment>,
    is_overdue: bool,
}

impl Attempt {
    /// The connection, where it has failed with it: not where others have had answers since.
    fn given_up(&self) -> Option<&Connection> {
        let connection = self.connection.as_ref()?;
        let is_busy = self.is_overdue && self.sent.is_some_and(|sent| connection.has_answered_since(sent));
        (!is_busy).then_some(connection)
    }

    /// Whether somebody else has ended its connection.
    fn was_given_up(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::was_given_up)
    }
}

/// How long connecting may take.
const CONNECT_MOST: Duration = Duration::from_secs(2);

/// The pause after a round in which every member has failed, and as much again at random.
const PAUSE: Duration = Duration::from_millis(25);

/// How often the time of one try is doubled.
const MOST_DOUBLED: u32 = 2;

/// How often a try does not count that others have ended.
const MOST_SPARED: usize = 2;

/// How often one call logs in anew.
const MOST_LOGINS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::{AuthenticateRequest, AuthenticateResponse, StatusRequest, StatusResponse};
    use crate::grpc::framed;
    use crate::watch::Heard;
    use fencepost_core::{block_on, race};
    use fencepost_testkit::proxy::Proxy;
    use fencepost_testkit::servers::{EtcdServer, EtcdSetup};

    const STATUS: &str = "/etcdserverpb.Maintenance/Status";
    const EACH: Duration = Duration::from_millis(100);

    /// A server that takes longer than [`EACH`] for a login, and for nothing else.
    fn slow_at_logins() -> EtcdServer {
        let mut server = EtcdSetup::default().arguments(&["--bcrypt-cost", "13"]).start();
        server.require_login("s3cret");
        server
    }

    async fn log_in_once(members: &Members) -> Result<Answer<AuthenticateResponse>, Failed> {
        let login = AuthenticateRequest { name: "root".to_owned(), password: "s3cret".to_owned() };
        let patience = Patience { each: EACH, most: Duration::ZERO };
        members.call("/etcdserverpb.Auth/Authenticate", || framed(&login), patience).await
    }

    /// Whether the connection is open still after a request that took too long, and was there for another one meanwhile.
    fn outlives_a_slow_request(is_frozen: bool) -> bool {
        let server = slow_at_logins();
        let members = Members::new(Clock::system(), Endpoint::of(&server.url().parse().unwrap()).unwrap());
        let most = Duration::from_secs(5);
        let status = || members.ask_one::<StatusResponse>(0, STATUS, framed(&StatusRequest {}), most);
        let slow = log_in_once(&members);
        let asking = async {
            // Those of a server that is stopped end with its connection.
            while status().await.is_ok() {
                members.clock().sleep(EACH / 10).await;
            }
            members.clock().sleep(EACH * 2).await;
        };
        block_on(async {
            status().await.unwrap();
            let connection = members.open_connection(0).unwrap();
            if is_frozen {
                server.stop();
            }
            let fencepost_core::Raced::First(outcome) = race(slow, asking).await else { panic!("it waits") };
            assert!(outcome.unwrap_err().is_late, "it may be carried out");
            let is_open = connection.is_open();
            assert_eq!(members.open_connection(0).is_some_and(|open| open.is(&connection)), is_open);
            server.go_on();
            status().await.unwrap();
            is_open
        })
    }

    #[test]
    #[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
    fn member_that_has_answered_others_keeps_its_connection() {
        assert!(outlives_a_slow_request(false));
    }

    /// Nobody would notice that it stands still later on.
    #[test]
    #[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
    fn watches_leave_a_busy_member_with_the_requests_and_its_connection_stays() {
        let busy = slow_at_logins();
        let other = Proxy::start(busy.address());
        let url = format!("etcd://root:s3cret@{},{}", busy.address(), other.address());
        let members = Members::new(Clock::system(), Endpoint::of(&url.parse().unwrap()).unwrap());
        let most = Duration::from_secs(5);
        let status = || members.ask_one::<StatusResponse>(0, STATUS, framed(&StatusRequest {}), most);
        let slow = log_in_once(&members);
        let asking = async {
            while status().await.is_ok() {
                members.clock().sleep(EACH / 10).await;
            }
        };
        block_on(async {
            let mut watch = members.watch(b"a", 0).await.unwrap();
            assert_eq!(watch.next().await, Some(Heard::Begun));
            race(Box::pin(slow), Box::pin(asking)).await;
            assert!(members.open_connection(0).is_some(), "others are under way on it");
            let soon = Some(members.clock().now().after(most));
            assert_eq!(until(members.clock(), soon, watch.next()).await, Some(None), "it goes on");
            let mut again = members.watch(b"a", 0).await.unwrap();
            assert_eq!(again.next().await, Some(Heard::Begun));
        });
    }

    #[test]
    #[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
    fn member_that_stands_still_loses_its_connection_by_the_first_request_that_is_overdue() {
        assert!(!outlives_a_slow_request(true));
    }
}
