//! A socket to a server, over TCP or of the same host, as the client library reads and writes it.
//!
//! It is watched by fencepost's own thread, so the library needs no runtime. Invariant: the socket is closed when the last clone
//! of it is, so that a lock ends with whoever holds a duplicate of its descriptor.

use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fencepost_core::{Clock, Watched};
use futures_channel::oneshot;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How long a connection may be silent before the kernel asks the peer, and the pause between such questions. They find a
/// server's host that is gone; a lease ends at its own deadline long before.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEP_ALIVE_EACH: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIMES: u32 = 3;

/// A connected socket. Clones are the same socket; one of them reads at a time, and one writes.
#[derive(Clone, Debug)]
pub(crate) struct Socket(Arc<Watched<OwnedFd>>);

impl Socket {
    /// Connects to an address.
    pub(crate) async fn tcp(clock: &Clock, address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = new_socket(family)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, KEEP_ALIVE_AFTER)?;
        sockopt::set_tcp_keepintvl(&socket, KEEP_ALIVE_EACH)?;
        sockopt::set_tcp_keepcnt(&socket, KEEP_ALIVE_TIMES)?;
        let begun = rustix::net::connect(&socket, &address);
        Self::connected(clock, socket, begun).await
    }

    /// Connects to a socket of this host.
    pub(crate) async fn unix(clock: &Clock, path: &Path) -> io::Result<Self> {
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
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(self.0.inner(), 3)?)
    }

    /// Waits until the peer has closed its side.
    pub(crate) async fn ended(&self) -> io::Result<()> {
        let mut rest = [0; 256];
        while poll_fn(|context| self.poll_receive(context, &mut rest)).await? > 0 {}
        Ok(())
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
        self.0.poll_write(context, |socket| Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?))
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

/// The addresses of a host.
pub(crate) async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let host = host.to_owned();
    beside(move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect)).await?
}

/// Does what blocks on a thread of its own.
pub(crate) async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (sender, done) = oneshot::channel();
    std::thread::Builder::new().name("fencepost-slow".to_owned()).spawn(move || {
        // Whoever asked may have given up.
        drop(sender.send(work()));
    })?;
    done.await.map_err(|_| io::Error::other("a thread has ended"))
}
