//! A socket to a server, over TCP or of the same host.
//!
//! It is watched by fencepost's own thread, so whoever reads it needs no runtime. Invariant: the socket is closed when the last clone
//! of it is, so that a lock ends with whoever holds a duplicate of its descriptor.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fencepost_core::{Clock, Watched, until};
use futures_channel::oneshot;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::Address;

/// How the kernel notices a peer that is gone without a word.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive {
    /// How long a connection may be silent before the kernel asks the peer.
    pub after: Duration,
    /// The pause between such questions.
    pub each: Duration,
    /// How many of them may be in vain.
    pub times: u32,
    /// How long what was sent may stay without an acknowledgement of the peer's kernel; `None` for the system's own bound.
    pub unacknowledged: Option<Duration>,
}

/// A connected socket. Clones are the same socket; one of them reads at a time, and one writes.
#[derive(Clone, Debug)]
pub struct Socket(Arc<Watched<OwnedFd>>);

impl Socket {
    /// Connects to the first of a host's addresses that answers; `most` is for all of them together.
    ///
    /// # Cancel safety
    /// Dropping it closes what was opened.
    pub async fn connect(
        clock: &Clock,
        address: &Address,
        keep_alive: &KeepAlive,
        most: Duration,
    ) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let candidates = resolve(&address.host, address.port).await?;
        // One that swallows everything leaves time for the others.
        let each = most / u32::try_from(candidates.len().max(1)).unwrap_or(1);
        for candidate in candidates {
            let give_up_at = Some(clock.now().after(each));
            match until(clock, give_up_at, Self::tcp(clock, candidate, keep_alive)).await {
                Some(Ok(socket)) => return Ok(socket),
                Some(Err(error)) => last = error,
                None => {
                    last = io::Error::new(io::ErrorKind::TimedOut, format!("{candidate} does not answer"));
                }
            }
        }
        Err(last)
    }

    /// Connects to an address.
    ///
    /// # Cancel safety
    /// Dropping it closes what was opened.
    pub async fn tcp(clock: &Clock, address: SocketAddr, keep_alive: &KeepAlive) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = new_socket(family)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, keep_alive.after)?;
        sockopt::set_tcp_keepintvl(&socket, keep_alive.each)?;
        sockopt::set_tcp_keepcnt(&socket, keep_alive.times)?;
        if let Some(most) = keep_alive.unacknowledged {
            sockopt::set_tcp_user_timeout(&socket, u32::try_from(most.as_millis()).unwrap_or(u32::MAX))?;
        }
        let begun = rustix::net::connect(&socket, &address);
        Self::connected(clock, socket, begun).await
    }

    /// Connects to a socket of this host.
    ///
    /// # Cancel safety
    /// Dropping it closes what was opened.
    pub async fn unix(clock: &Clock, path: &Path) -> io::Result<Self> {
        let socket = new_socket(AddressFamily::UNIX)?;
        let begun = rustix::net::connect(&socket, &SocketAddrUnix::new(path)?);
        Self::connected(clock, socket, begun).await
    }

    async fn connected(clock: &Clock, socket: OwnedFd, begun: Result<(), Errno>) -> io::Result<Self> {
        match begun {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let watched = Watched::new(clock, socket).map_err(io::Error::other)?;
        poll_fn(|context| watched.poll_write(context, is_connected)).await?;
        Ok(Self(Arc::new(watched)))
    }

    /// A duplicate of the descriptor, which keeps the connection open.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(self.0.inner(), 3)?)
    }

    /// Ends both directions at once, for all clones.
    pub fn shut(&self) {
        // A connection that has ended already is as good.
        let _ = rustix::net::shutdown(self.0.inner(), Shutdown::Both);
    }

    /// Waits until the peer has closed its side.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing but that what had arrived may be gone.
    pub async fn ended(&self) -> io::Result<()> {
        let mut rest = [0; 256];
        while poll_fn(|context| self.poll_receive(context, &mut rest)).await? > 0 {}
        Ok(())
    }

    /// The descriptor with those who wait for it, for a client that reads and writes as far as it can at once.
    pub fn watched(&self) -> &Watched<OwnedFd> {
        &self.0
    }

    fn poll_receive(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.poll_fill(context, buffer, |socket, buffer| Ok(rustix::io::read(socket, buffer)?))
    }
}

fn new_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)
}

fn is_connected(socket: &OwnedFd) -> io::Result<()> {
    sockopt::socket_error(socket)??;
    match rustix::net::getpeername(socket) {
        Err(Errno::NOTCONN) => Err(io::ErrorKind::WouldBlock.into()),
        outcome => Ok(outcome.map(drop)?),
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let length = ready!(self.poll_receive(context, buffer.initialize_unfilled()))?;
        buffer.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(context, |socket| send(socket, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match rustix::net::shutdown(self.0.inner(), Shutdown::Write) {
            Ok(()) | Err(Errno::NOTCONN) => Ok(()),
            Err(error) => Err(error.into()),
        })
    }
}

fn send(socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?)
}

/// A socket's descriptor, to be read and written without waiting.
#[derive(Debug)]
pub struct Raw<'a>(pub &'a OwnedFd);

impl Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.0, buffer)?)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        send(self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The addresses of a host.
///
/// # Cancel safety
/// Dropping it leaves a thread that looks the name up to its end.
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let host = host.to_owned();
    beside(move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect)).await?
}

/// Does what blocks on a thread of its own.
///
/// # Cancel safety
/// Dropping it leaves the work to go on to its end.
pub async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (sender, done) = oneshot::channel();
    std::thread::Builder::new().name("fencepost-slow".to_owned()).spawn(move || {
        // Whoever asked may have given up.
        drop(sender.send(work()));
    })?;
    done.await.map_err(|_| io::Error::other("a thread has ended"))
}
