//! One connection to a server: the client library over a socket that fencepost's own thread watches.
//!
//! Invariant: a connection whose handle is dropped is closed, whatever is under way on it, with the last duplicate of its
//! descriptor, so that nothing of its session outlives whoever could end it.

use std::error::Error as _;
use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencepost_core::{Clock, Descriptor, Error, ErrorKind, Raced, Result, lock, race, until};
use fencepost_net::{KeepAlive, Socket, resolve};
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::Shared;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::error::Severity;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::endpoint::{Endpoint, Host};
use crate::failure::{failure, unavailable};
use crate::tls::Transport;

/// How long one host may take to be connected to and to let us in, unless the user says otherwise.
const CONNECT_MOST: Duration = Duration::from_secs(2);

/// How long a request to cancel may take.
const CANCEL_MOST: Duration = Duration::from_secs(1);

/// Finds a server's host that is gone; a lease ends at its own deadline long before.
const KEEP_ALIVE: KeepAlive = KeepAlive {
    after: Duration::from_secs(30),
    each: Duration::from_secs(10),
    times: 3,
    unacknowledged: None,
};

/// A connection that is logged in.
pub(crate) struct Connection {
    client: Client,
    clock: Clock,
    at: At,
    tls: Transport,
    descriptor: Descriptor,
    gone: Gone,
    has_ended: Arc<AtomicBool>,
    warnings: Arc<AtomicU64>,
    is_to_standby: bool,
    /// Closes the connection when it is dropped.
    open: Mutex<Option<oneshot::Sender<()>>>,
}

/// The news that a connection has ended.
pub(crate) type Gone = Shared<oneshot::Receiver<Ended>>;

/// How a connection has ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) why: Error,
    /// Whether it was the server that ended it, as far as is known, and not the network, or this process.
    pub(crate) by_server: bool,
}

/// Where a connection goes.
#[derive(Clone, Debug)]
enum At {
    Tcp(SocketAddr),
    Unix(std::path::PathBuf),
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({:?})", self.at)
    }
}

impl Connection {
    /// Connects to a host and logs in, with `options` for the session.
    ///
    /// # Cancel safety
    /// Dropping it closes what was opened.
    pub(crate) async fn open(clock: &Clock, endpoint: &Endpoint, host: &Host, options: &str) -> Result<Self> {
        let most = endpoint.connect_timeout.unwrap_or(CONNECT_MOST);
        let give_up_at = Some(clock.now().after(most));
        let opened = until(clock, give_up_at, Self::log_in(clock, endpoint, host, options)).await;
        opened.unwrap_or_else(|| Err(unavailable(format!("{host} has not answered for {most:?}"))))
    }

    async fn log_in(clock: &Clock, endpoint: &Endpoint, host: &Host, options: &str) -> Result<Self> {
        let tls = Transport::to(endpoint, host).await?;
        let mut config = tokio_postgres::Config::new();
        config.user(&endpoint.user).dbname(&endpoint.database).application_name("fencepost");
        tls.apply_to(&mut config);
        let answer = endpoint.password_for(host);
        if let Some(password) = &answer.password {
            config.password(password.expose());
        }
        if !options.is_empty() {
            config.options(options);
        }
        let (socket, at) = reach(clock, host).await?;
        // Where there is no password, the reason may be a file that was not used.
        let failed = |error| match &answer.warning {
            Some(warning) if answer.password.is_none() => failure(&error).hint(warning.clone()),
            _ => failure(&error),
        };
        if let Some(connector) = tls.connector() {
            let (client, connection) = config.connect_raw(socket.clone(), connector).await.map_err(failed)?;
            return Self::start(clock, at, tls, &socket, client, connection);
        }
        let opened = config.connect_raw(socket.clone(), NoTls).await;
        let (client, connection) = opened.map_err(failed)?;
        Self::start(clock, at, tls, &socket, client, connection)
    }

    fn start<T>(
        clock: &Clock,
        at: At,
        tls: Transport,
        socket: &Socket,
        client: Client,
        connection: tokio_postgres::Connection<Socket, T>,
    ) -> Result<Self>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let duplicate =
            socket.duplicate().map_err(|error| unavailable("no descriptor is left").caused_by(error))?;
        let descriptor = Descriptor { fd: Arc::new(duplicate), inheritable: false };
        let warnings = Arc::<AtomicU64>::default();
        let (open, closed) = oneshot::channel::<()>();
        let (ended, gone) = oneshot::channel();
        let has_ended = Arc::<AtomicBool>::default();
        let note_end = Arc::clone(&has_ended);
        let is_to_standby = connection.parameter("in_hot_standby") == Some("on");
        let driving = drive(connection, Arc::clone(&warnings));
        clock.serve(async move {
            let why = match race(driving, closed).await {
                Raced::First(why) => why,
                Raced::Second(_) => Ended { why: unavailable("the connection was closed"), by_server: false },
            };
            note_end.store(true, Ordering::Release);
            // Whoever would want to know may be gone.
            drop(ended.send(why));
        });
        let (clock, gone, open) = (clock.clone(), gone.shared(), Mutex::new(Some(open)));
        Ok(Self { client, clock, at, tls, descriptor, gone, has_ended, warnings, is_to_standby, open })
    }

    /// The client, for statements.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The socket's descriptor, which the session lasts as long as.
    pub(crate) fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Ends when the connection does, and says why.
    pub(crate) fn gone(&self) -> Gone {
        self.gone.clone()
    }

    /// Whether the connection is still there, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        !self.has_ended.load(Ordering::Acquire)
    }

    /// Uses it no more, whatever is under way. The server hears of it when the last duplicate of the descriptor is closed: where a
    /// lock is held that is when its holder has let go of it.
    pub(crate) fn close(&self) {
        self.has_ended.store(true, Ordering::Release);
        lock(&self.open).take();
    }

    /// Whether the server was a standby when it let us in, as far as it has said so.
    pub(crate) fn is_to_standby(&self) -> bool {
        self.is_to_standby
    }

    /// How many warnings the server has sent.
    pub(crate) fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::Acquire)
    }

    /// Has the server cancel the statement that runs, and waits until it has been told.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have cancelled it.
    pub(crate) async fn cancel(&self) -> Result<()> {
        let give_up_at = Some(self.clock.now().after(CANCEL_MOST));
        let cancelled = until(&self.clock, give_up_at, self.send_cancel()).await;
        cancelled.unwrap_or_else(|| Err(unavailable("the server has not answered a request to cancel")))
    }

    async fn send_cancel(&self) -> Result<()> {
        let failed = |error| unavailable("to cancel a statement").caused_by(error);
        let socket = self.at.connect(&self.clock).await.map_err(failed)?;
        let token = self.client.cancel_token();
        let sent = match self.tls.connector() {
            Some(connector) => token.cancel_query_raw(socket.clone(), connector).await,
            None => token.cancel_query_raw(socket.clone(), NoTls).await,
        };
        sent.map_err(|error| failure(&error))?;
        // The server closes when it has signalled the process of the session: what is sent there later is not cancelled.
        socket.ended().await.map_err(failed)
    }
}

impl At {
    async fn connect(&self, clock: &Clock) -> std::io::Result<Socket> {
        match self {
            Self::Tcp(address) => Socket::tcp(clock, *address, &KEEP_ALIVE).await,
            Self::Unix(path) => Socket::unix(clock, path).await,
        }
    }
}

/// Connects to the first of the host's addresses that answers.
async fn reach(clock: &Clock, host: &Host) -> Result<(Socket, At)> {
    let failed = |error| unavailable(host.to_string()).caused_by(error);
    let addresses = match host {
        Host::Socket { .. } => host.socket_path().map(At::Unix).into_iter().collect(),
        Host::Network { address: Some(address), port, .. } => vec![At::Tcp((*address, *port).into())],
        Host::Network { name, port, .. } => {
            let found = resolve(name, *port).await.map_err(failed)?;
            found.into_iter().map(At::Tcp).collect::<Vec<_>>()
        }
    };
    let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
    for at in addresses {
        match at.connect(clock).await {
            Ok(socket) => return Ok((socket, at)),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

/// Works for a connection to its end, and says why it has ended.
async fn drive<T>(mut connection: tokio_postgres::Connection<Socket, T>, warnings: Arc<AtomicU64>) -> Ended
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match poll_fn(|context| connection.poll_message(context)).await {
            // It comes after the row and before the end of the answer, which comes with the commit. The other name of the severity
            // is in the server's own language.
            Some(Ok(AsyncMessage::Notice(notice))) if notice.parsed_severity() == Some(Severity::Warning) => {
                warnings.fetch_add(1, Ordering::Release);
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                let of_network = error.source().is_some_and(<dyn std::error::Error>::is::<std::io::Error>);
                return Ended { why: failure(&error), by_server: !of_network };
            }
            None => {
                let why =
                    Error::new(ErrorKind::Unavailable, "talk to the server", "the connection was closed");
                return Ended { why, by_server: false };
            }
        }
    }
}
