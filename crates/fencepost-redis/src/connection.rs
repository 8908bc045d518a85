//! One connection to one server: commands go out in order, their replies come back in that order.
//!
//! A caller that finds the connection idle writes to the socket itself; one that finds it busy leaves its command to the task
//! that reads, which sends all that has gathered at once. Invariant: every command gets its reply or the news that the
//! connection is broken, at the latest when it has been silent for [`SILENT_MOST`].

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fencepost_core::{Clock, Error, ErrorKind, Moment, Result, Sleep, lock};
use fencepost_net::{Address, KeepAlive, Socket};
use futures_channel::oneshot;

use crate::resp::{self, Reply};
use crate::script::Script;
use crate::transport::Transport;

/// How long the server may leave the oldest command without its reply.
pub(crate) const SILENT_MOST: Duration = Duration::from_secs(2);

/// How long all addresses of a host together may take.
const CONNECT_MOST: Duration = Duration::from_millis(1_500);

const KEEP_ALIVE: KeepAlive = KeepAlive {
    after: Duration::from_secs(5),
    each: Duration::from_secs(2),
    times: 2,
    unacknowledged: Some(Duration::from_secs(5)),
};

/// The connection broke before the reply came.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    /// Why.
    pub(crate) why: String,
    /// Whether the server may have carried the command out.
    pub(crate) was_sent: bool,
}

/// Takes what the server says without being asked.
pub(crate) trait Listener: Send + Sync {
    /// A message has arrived, or the name of a key that was touched. Must not block.
    fn hear(&self, message: &str);
    /// The connection is gone.
    fn broken(&self);
}

/// A connection. It is closed when the last clone is dropped or it breaks.
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
    wire: Mutex<Wire>,
}

struct Wire {
    transport: Transport,
    output: Vec<u8>,
    input: Vec<u8>,
    /// The commands without a reply, the oldest first.
    unanswered: VecDeque<Unanswered>,
    /// The task that reads.
    driver: Option<Waker>,
    /// Whether that task will look at the age of the oldest command by itself.
    is_watched: bool,
    broken: Option<String>,
}

struct Unanswered {
    since: Moment,
    reply: oneshot::Sender<Reply>,
}

impl Connection {
    /// Connects, and starts to read on fencepost's own thread.
    pub(crate) async fn open(
        clock: &Clock,
        address: &Address,
        is_tls: bool,
        listener: Arc<dyn Listener>,
    ) -> Result<Self> {
        let transport = Transport::to(&address.host, is_tls).await?;
        let socket = Socket::connect(clock, address, &KEEP_ALIVE, CONNECT_MOST).await.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "connect", address.to_string()).caused_by(error)
        })?;
        let wire = Wire {
            transport,
            output: Vec::new(),
            input: Vec::new(),
            unanswered: VecDeque::new(),
            driver: None,
            is_watched: false,
            broken: None,
        };
        let shared = Arc::new(Shared { clock: clock.clone(), socket, wire: Mutex::new(wire) });
        let connection = Self { shared: Arc::clone(&shared) };
        let weak = Arc::downgrade(&shared);
        drop(shared);
        let mut driver = Driver { listener, alarm: None, shared: Weak::clone(&weak), arrived: Vec::new() };
        clock.serve(poll_fn(move |context| match weak.upgrade() {
            Some(shared) => driver.poll(&shared, context),
            None => Poll::Ready(()),
        }));
        Ok(connection)
    }

    /// Sends a command; the reply, once it is there. The command is on its way when this returns, and stays so when the
    /// future is dropped.
    pub(crate) fn call(&self, words: &[&[u8]]) -> Call {
        self.ask(|output| resp::write_command(output, words))
    }

    fn ask(&self, write: impl FnOnce(&mut Vec<u8>)) -> Call {
        let mut wire = self.wire();
        if let Some(why) = &wire.broken {
            return Call::Broken(Some(Broken { why: why.clone(), was_sent: false }));
        }
        let (sender, reply) = oneshot::channel();
        write(&mut wire.output);
        wire.unanswered.push_back(Unanswered { since: self.shared.clock.now(), reply: sender });
        self.send(wire);
        Call::Waiting(self.clone(), reply)
    }

    /// Sends a command that is answered by messages.
    pub(crate) fn tell(&self, words: &[&[u8]]) {
        let mut wire = self.wire();
        resp::write_command(&mut wire.output, words);
        self.send(wire);
    }

    /// Runs a script. The reply is that of [`call`](Self::call).
    pub(crate) async fn run(
        &self,
        script: &'static Script,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<Reply, Broken> {
        self.run_known(script.text, script.hash(), keys, arguments).await
    }

    /// Runs a script with this text and hash. The keys are the first of its words.
    pub(crate) async fn run_text(
        &self,
        text: &str,
        hash: &str,
        keys: usize,
        words: &[&[u8]],
    ) -> Result<Reply, Broken> {
        let (keys, arguments) = words.split_at(keys);
        self.run_known(text, hash, keys, arguments).await
    }

    async fn run_known<W: AsRef<[u8]> + Sync>(
        &self,
        text: &str,
        hash: &str,
        keys: &[W],
        arguments: &[W],
    ) -> Result<Reply, Broken> {
        match self.evaluate("EVALSHA", hash, keys, arguments).await? {
            // The cache of scripts is empty after a restart, a failover and SCRIPT FLUSH.
            Reply::Refused(what) if what.starts_with("NOSCRIPT") => {
                self.evaluate("EVAL", text, keys, arguments).await
            }
            reply => Ok(reply),
        }
    }

    /// Runs a script that is sent in full: it is carried out even if no reply comes back.
    pub(crate) fn run_in_full(&self, script: &'static Script, keys: &[&str], arguments: &[&str]) -> Call {
        self.evaluate("EVAL", script.text, keys, arguments)
    }

    fn evaluate<W: AsRef<[u8]>>(&self, how: &str, script: &str, keys: &[W], arguments: &[W]) -> Call {
        self.ask(|output| {
            resp::write_count(output, 3 + keys.len() + arguments.len());
            resp::write_word(output, how.as_bytes());
            resp::write_word(output, script.as_bytes());
            resp::write_number(output, keys.len());
            for word in keys.iter().chain(arguments) {
                resp::write_word(output, word.as_ref());
            }
        })
    }

    /// Whether `other` is this connection.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Whether it can still be used.
    pub(crate) fn is_open(&self) -> bool {
        self.wire().broken.is_none()
    }

    /// Gives the connection up.
    pub(crate) fn close(&self, why: &str) {
        self.shared.break_off(why.to_owned());
    }

    fn send(&self, mut wire: MutexGuard<'_, Wire>) {
        if wire.unanswered.len() == 1 && wire.is_watched {
            let Wire { transport, output, .. } = &mut *wire;
            // What does not go now is the driver's, and so is an error.
            if transport.send(self.shared.socket.watched().inner(), output).is_ok() {
                return;
            }
        }
        let driver = wire.driver.take();
        drop(wire);
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.shared.wire()
    }
}

/// A command on its way.
#[must_use = "the reply is only seen by whoever awaits it"]
pub(crate) enum Call {
    Waiting(Connection, oneshot::Receiver<Reply>),
    Broken(Option<Broken>),
}

impl Future for Call {
    type Output = Result<Reply, Broken>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Waiting(connection, reply) => match Pin::new(reply).poll(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Ok(reply)) => Poll::Ready(Ok(reply)),
                Poll::Ready(Err(_)) => {
                    let why = connection.wire().broken.clone().unwrap_or_default();
                    Poll::Ready(Err(Broken { why, was_sent: true }))
                }
            },
            Self::Broken(broken) => {
                Poll::Ready(Err(broken.take().expect("a future is not polled after its end")))
            }
        }
    }
}

impl Shared {
    fn wire(&self) -> MutexGuard<'_, Wire> {
        lock(&self.wire)
    }

    /// Lets everybody know that no reply will come.
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

/// The task that reads, sends what has gathered, and watches the age of the oldest command.
struct Driver {
    listener: Arc<dyn Listener>,
    alarm: Option<Sleep>,
    shared: Weak<Shared>,
    arrived: Vec<Arrived>,
}

/// For how many replies at once the room is kept.
const ARRIVED_KEPT: usize = 64;

/// A reply and who asked for it, or a message and nobody.
type Arrived = (Option<oneshot::Sender<Reply>>, Reply);

impl Drop for Driver {
    /// If a bug ends it, no reply will come.
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade().filter(|_| std::thread::panicking()) {
            shared.break_off("what reads it has ended by a bug".to_owned());
        }
    }
}

impl Driver {
    fn poll(&mut self, shared: &Shared, context: &mut Context<'_>) -> Poll<()> {
        let mut arrived = std::mem::take(&mut self.arrived);
        let outcome = self.work(shared, context, &mut arrived);
        for (reply, message) in arrived.drain(..) {
            match reply {
                // Whoever asked may have gone.
                Some(reply) => drop(reply.send(message)),
                None => self.tell(&message),
            }
        }
        // What a burst has taken is given back.
        arrived.shrink_to(ARRIVED_KEPT);
        self.arrived = arrived;
        match outcome {
            Ok(()) => Poll::Pending,
            Err(why) => {
                shared.break_off(why);
                self.listener.broken();
                Poll::Ready(())
            }
        }
    }

    fn tell(&self, message: &Reply) {
        let told = match message.list() {
            [kind, _, text] if kind.text() == Some("message") => std::slice::from_ref(text),
            [kind, keys] if kind.text() == Some("invalidate") => keys.list(),
            _ => &[],
        };
        for text in told.iter().filter_map(Reply::text) {
            self.listener.hear(text);
        }
    }

    /// Sends and reads until neither can go on; what has arrived is handed out by the caller, without the lock.
    fn work(
        &mut self,
        shared: &Shared,
        context: &mut Context<'_>,
        arrived: &mut Vec<Arrived>,
    ) -> Result<(), String> {
        let mut wire = shared.wire();
        let wire = &mut *wire;
        if let Some(why) = &wire.broken {
            return Err(why.clone());
        }
        match &mut wire.driver {
            Some(driver) => driver.clone_from(context.waker()),
            driver => *driver = Some(context.waker().clone()),
        }
        let Wire { transport, output, input, .. } = wire;
        let sent = shared.socket.watched().poll_write(context, |socket| transport.send(socket, output));
        if let Poll::Ready(Err(error)) = sent {
            return Err(error.to_string());
        }
        let end = loop {
            match shared.socket.watched().poll_read(context, |socket| transport.receive(socket, input)) {
                Poll::Ready(Ok(0)) => break Some("the server has closed the connection".to_owned()),
                Poll::Ready(Err(error)) => break Some(error.to_string()),
                Poll::Ready(Ok(length))
                    if transport.may_have_more(length) || shared.socket.watched().has_ended() => {}
                Poll::Ready(Ok(_)) | Poll::Pending => break None,
            }
        };
        // Also what has come right before the end.
        wire.take_replies(arrived)?;
        if let Some(why) = end {
            return Err(why);
        }
        self.watch(shared, wire, context)
    }

    fn watch(&mut self, shared: &Shared, wire: &mut Wire, context: &mut Context<'_>) -> Result<(), String> {
        loop {
            let now = shared.clock.now();
            let overdue = wire.unanswered.front().map(|oldest| oldest.since.after(SILENT_MOST));
            if overdue.is_some_and(|at| now >= at) {
                return Err(format!("the server has not answered for {SILENT_MOST:?}"));
            }
            // An idle connection is looked at once more, and then only after it has been used again.
            let alarm = match (&mut self.alarm, overdue) {
                (Some(alarm), _) => alarm,
                (None, None) => {
                    wire.is_watched = false;
                    return Ok(());
                }
                (alarm, Some(at)) => alarm.insert(shared.clock.sleep_until(at)),
            };
            wire.is_watched = true;
            if Pin::new(alarm).poll(context).is_pending() {
                return Ok(());
            }
            self.alarm = None;
        }
    }
}

impl Wire {
    fn take_replies(&mut self, arrived: &mut Vec<Arrived>) -> Result<(), String> {
        let mut at = 0;
        loop {
            let read = resp::read(&self.input[at..]);
            let read =
                read.map_err(|_| "what answers there does not speak the protocol of Redis".to_owned())?;
            let Some((reply, length)) = read else { break };
            at += length;
            if matches!(reply, Reply::Push(_)) {
                arrived.push((None, reply));
                continue;
            }
            let Some(unanswered) = self.unanswered.pop_front() else {
                return Err("the server answers what nobody has asked".to_owned());
            };
            arrived.push((Some(unanswered.reply), reply));
        }
        self.input.drain(..at);
        Ok(())
    }
}
