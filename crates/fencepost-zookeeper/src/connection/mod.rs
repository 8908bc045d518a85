//! One connection to one server: requests go out in order, and their answers come back in that order.
//!
//! A request is on its way when the call that makes it returns, and stays so when its future is dropped. A caller that finds the
//! connection idle writes to the socket itself; one that finds it busy leaves that to the task that reads, which sends all that has
//! gathered at once. Invariant: every request gets its answer or the news that the connection is broken, at the latest when the
//! oldest one has been without an answer for as long as the connection may be silent.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fencepost_core::{Clock, Moment, lock};
use fencepost_net::{Raw, Socket, Stream};
use futures_channel::oneshot;

use crate::protocol::{Answer, Code, Request, Sight};

mod driver;

use driver::Driver;

/// The connection broke before the answer came.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    /// Why.
    pub(crate) why: String,
    /// Whether the ensemble may have carried the request out.
    pub(crate) was_sent: bool,
}

/// Takes what comes on a connection and is for no single caller. Called on fencepost's own thread; must not block.
pub(crate) trait Listener: Send + Sync {
    /// A watch has seen something.
    fn sees(&self, sight: &Sight);
    /// A request about a node whose watch the listener has asked for is answered.
    fn answered(&self, path: &str, code: Code);
    /// What was to be written into a node is answered.
    fn written(&self, path: &str, code: Code);
    /// A login is answered.
    fn logged_in(&self, code: Code);
    /// A heartbeat is answered.
    fn beaten(&self, answer: &Answer);
    /// The connection is gone.
    fn broken(&self, why: &str);
}

/// A connection. It is closed when it breaks, or its last clone is dropped.
#[derive(Clone)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

struct Shared {
    clock: Clock,
    socket: Socket,
    is_plain: bool,
    /// How long the server may leave the oldest request without its answer.
    silent_most: Duration,
    wire: Mutex<Wire>,
}

#[derive(Default)]
struct Wire {
    output: Vec<u8>,
    /// Whether the task that reads has something left to send, which comes before the output.
    is_sending: bool,
    next_number: i32,
    /// The requests without an answer, the oldest first.
    unanswered: VecDeque<Unanswered>,
    /// The task that reads.
    driver: Option<Waker>,
    /// Whether that task will look at the age of the oldest request by itself.
    is_watched: bool,
    /// The last change that the server has told of.
    last_seen: i64,
    broken: Option<String>,
}

struct Unanswered {
    number: i32,
    since: Moment,
    to: To,
}

/// Who gets an answer.
enum To {
    Caller(oneshot::Sender<Answer>),
    /// The listener, and about which node.
    Node(String),
    /// The same, of what was to be written there.
    Written(String),
    Login,
    Heartbeat,
}

impl Connection {
    /// Begins to read, on fencepost's own thread, what comes on a stream that has been welcomed.
    pub(crate) fn new(
        clock: &Clock,
        stream: Stream,
        socket: Socket,
        silent_most: Duration,
        listener: Arc<dyn Listener>,
    ) -> Self {
        let is_plain = matches!(stream, Stream::Plain(_));
        let wire = Mutex::new(Wire { next_number: 1, ..Wire::default() });
        let shared = Arc::new(Shared { clock: clock.clone(), socket, is_plain, silent_most, wire });
        let weak = Arc::downgrade(&shared);
        let mut driver = Driver::new(stream, listener, Weak::clone(&weak));
        clock.serve(std::future::poll_fn(move |context| match weak.upgrade() {
            Some(shared) => driver.poll(&shared, context),
            None => Poll::Ready(()),
        }));
        Self { shared }
    }

    /// Several requests that are sent at once, when the result is dropped.
    pub(crate) fn batch(&self) -> Batch<'_> {
        Batch { connection: self, wire: self.shared.wire() }
    }

    /// Sends a request; its answer, once it is there.
    pub(crate) fn call(&self, request: &Request) -> Call {
        self.batch().call(request)
    }

    /// Whether `other` is this connection.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Whether it can still be used.
    pub(crate) fn is_open(&self) -> bool {
        self.shared.wire().broken.is_none()
    }

    /// The last change that the server has told of.
    pub(crate) fn last_seen(&self) -> i64 {
        self.shared.wire().last_seen
    }

    /// Gives the connection up.
    pub(crate) fn close(&self, why: &str) {
        self.shared.break_off(why.to_owned());
    }
}

/// Requests that are sent together.
pub(crate) struct Batch<'a> {
    connection: &'a Connection,
    wire: MutexGuard<'a, Wire>,
}

impl Batch<'_> {
    /// Adds a request; its answer, once it is there.
    pub(crate) fn call(&mut self, request: &Request) -> Call {
        let (sender, answer) = oneshot::channel();
        match self.add(request, To::Caller(sender)) {
            Ok(()) => Call { connection: Some(self.connection.clone()), state: State::Waiting(answer) },
            Err(broken) => Call { connection: None, state: State::Broken(broken) },
        }
    }

    /// Adds a request whose answer the listener gets, as one about `path`.
    pub(crate) fn tell(&mut self, request: &Request, path: &str) {
        // Whoever listens hears of the end of a connection by itself.
        let _ = self.add(request, To::Node(path.to_owned()));
    }

    /// The same for what is to be written there.
    pub(crate) fn write_down(&mut self, request: &Request, path: &str) {
        let _ = self.add(request, To::Written(path.to_owned()));
    }

    /// Adds a login.
    pub(crate) fn log_in(&mut self, request: &Request) {
        let _ = self.add(request, To::Login);
    }

    /// Adds a heartbeat.
    pub(crate) fn beat(&mut self, request: &Request) {
        let _ = self.add(request, To::Heartbeat);
    }

    fn add(&mut self, request: &Request, to: To) -> Result<(), Broken> {
        let wire = &mut *self.wire;
        if let Some(why) = &wire.broken {
            return Err(Broken { why: why.clone(), was_sent: false });
        }
        let number = request.own_number().unwrap_or_else(|| wire.draw_number());
        request.write(number, &mut wire.output);
        wire.unanswered.push_back(Unanswered { number, since: self.connection.shared.clock.now(), to });
        Ok(())
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let Connection { shared } = self.connection;
        if shared.is_plain && self.wire.is_idle() {
            // What does not go now is the driver's, and so is an error.
            let sent = std::io::Write::write(&mut Raw(shared.socket.watched().inner()), &self.wire.output);
            self.wire.output.drain(..sent.unwrap_or_default());
            if self.wire.output.is_empty() && self.wire.is_watched {
                return;
            }
        }
        if let Some(driver) = self.wire.driver.take() {
            driver.wake();
        }
    }
}

impl Wire {
    /// Whether nobody else has anything to send or to wait for, so that waiting for more to send along gains nothing.
    fn is_idle(&self) -> bool {
        !self.is_sending && self.broken.is_none() && self.unanswered.len() <= SENT_AT_ONCE
    }

    fn draw_number(&mut self) -> i32 {
        let number = self.next_number;
        self.next_number = number.checked_add(1).unwrap_or(1);
        number
    }
}

/// How many requests without an answer there may be for a caller to send its own itself: those of one acquisition.
const SENT_AT_ONCE: usize = 4;

/// A request on its way.
#[must_use = "the answer is only seen by whoever awaits it"]
#[derive(Debug)]
pub(crate) struct Call {
    /// Where it was sent.
    connection: Option<Connection>,
    state: State,
}

#[derive(Debug)]
enum State {
    Waiting(oneshot::Receiver<Answer>),
    Broken(Broken),
}

impl Future for Call {
    type Output = Result<Answer, Broken>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match &mut self.state {
            State::Waiting(answer) => std::task::ready!(Pin::new(answer).poll(context)),
            State::Broken(broken) => return Poll::Ready(Err(broken.clone())),
        };
        Poll::Ready(answer.map_err(|_| {
            let why = self.connection.as_ref().and_then(|at| at.shared.wire().broken.clone());
            Broken { why: why.unwrap_or_default(), was_sent: true }
        }))
    }
}

impl Shared {
    fn wire(&self) -> MutexGuard<'_, Wire> {
        lock(&self.wire)
    }

    /// Lets everybody know that no answer will come.
    fn break_off(&self, why: String) {
        let mut wire = self.wire();
        wire.broken.get_or_insert(why);
        let unanswered = std::mem::take(&mut wire.unanswered);
        let driver = wire.driver.take();
        drop(wire);
        drop(unanswered);
        self.socket.shut();
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(driver) = self.wire().driver.take() {
            driver.wake();
        }
    }
}
