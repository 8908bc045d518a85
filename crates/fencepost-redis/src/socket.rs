//! A socket to a server: finding the address, connecting without blocking, and TLS.
//!
//! Keep-alive and the user time-out make the kernel notice a peer that is gone without a word.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use fencepost_core::{Clock, Error, ErrorKind, Result, Watched, until};
use futures_channel::oneshot;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::endpoint::Address;

/// How long all addresses of a host together may take.
const CONNECT_MOST: Duration = Duration::from_millis(1_500);

/// How long a connection may be silent before the kernel asks the peer.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(5);

/// The pause between such questions, of which [`KEEP_ALIVE_TIMES`] may be in vain.
const KEEP_ALIVE_EACH: Duration = Duration::from_secs(2);

const KEEP_ALIVE_TIMES: u32 = 2;

/// How long what was sent may stay without an acknowledgement of the peer's kernel.
const UNACKNOWLEDGED_MOST: Duration = Duration::from_secs(5);

/// Connects to the first of the host's addresses that answers.
pub(crate) async fn connect(clock: &Clock, address: &Address) -> Result<Watched<TcpStream>> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let candidates = resolve(address).await.map_err(|error| unreachable(address, error))?;
    // One that swallows everything leaves time for the others.
    let each = CONNECT_MOST / u32::try_from(candidates.len().max(1)).unwrap_or(1);
    for candidate in candidates {
        match until(clock, Some(clock.now().after(each)), connect_to(clock, candidate)).await {
            Some(Ok(socket)) => return Ok(socket),
            Some(Err(error)) => last = error,
            None => last = io::Error::new(io::ErrorKind::TimedOut, format!("{candidate} does not answer")),
        }
    }
    Err(unreachable(address, last))
}

fn unreachable(address: &Address, error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "connect", address.to_string()).caused_by(error)
}

/// The addresses of a host.
async fn resolve(address: &Address) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = address.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, address.port)]);
    }
    let (host, port) = (address.host.clone(), address.port);
    beside(move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect)).await?
}

/// Does what blocks on a thread of its own.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (sender, done) = oneshot::channel();
    std::thread::Builder::new().name("fencepost-slow".to_owned()).spawn(move || {
        // Whoever asked may have given up.
        drop(sender.send(work()));
    })?;
    done.await.map_err(|_| io::Error::other("a thread has ended"))
}

async fn connect_to(clock: &Clock, address: SocketAddr) -> io::Result<Watched<TcpStream>> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, KEEP_ALIVE_AFTER)?;
    sockopt::set_tcp_keepintvl(&socket, KEEP_ALIVE_EACH)?;
    sockopt::set_tcp_keepcnt(&socket, KEEP_ALIVE_TIMES)?;
    let unacknowledged = u32::try_from(UNACKNOWLEDGED_MOST.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(&socket, unacknowledged)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let watched = Watched::new(clock, TcpStream::from(socket)).map_err(io::Error::other)?;
    poll_fn(|context| watched.poll_write(context, is_connected)).await?;
    Ok(watched)
}

fn is_connected(socket: &TcpStream) -> io::Result<()> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    match socket.peer_addr() {
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Err(io::ErrorKind::WouldBlock.into()),
        outcome => outcome.map(drop),
    }
}

/// What lies between the bytes of a protocol and those on the wire.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain,
    #[cfg(feature = "tls")]
    Tls(Box<rustls::ClientConnection>),
}

impl Transport {
    /// The transport to `host`.
    ///
    /// # Errors
    /// `Unsupported` where this build has no TLS, `InvalidArgument` where the host can have no certificate.
    #[cfg_attr(not(feature = "tls"), expect(clippy::unused_async, reason = "TLS has to wait"))]
    pub(crate) async fn to(host: &str, is_tls: bool) -> Result<Self> {
        if !is_tls {
            return Ok(Self::Plain);
        }
        #[cfg(feature = "tls")]
        {
            let name = host.to_owned();
            // The first client reads all certificates of the system.
            let client = beside(move || crate::tls::client(&name)).await;
            let client = client.map_err(|error| crate::session::unavailable(error.to_string()))?;
            client.map(|client| Self::Tls(Box::new(client)))
        }
        #[cfg(not(feature = "tls"))]
        {
            let what = format!("this build of fencepost has no TLS to talk to {host}");
            Err(Error::new(ErrorKind::Unsupported, "connect", what))
        }
    }

    /// Sends what it can of `output`; what is left stands at its beginning.
    pub(crate) fn send(&mut self, mut socket: &TcpStream, output: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Plain => {
                while !output.is_empty() {
                    let written = socket.write(output)?;
                    output.drain(..written);
                }
            }
            #[cfg(feature = "tls")]
            Self::Tls(client) => {
                while !output.is_empty() || client.wants_write() {
                    let taken = client.writer().write(output)?;
                    output.drain(..taken);
                    client.write_tls(&mut socket)?;
                }
            }
        }
        Ok(())
    }

    /// Appends what has arrived to `input`; 0 at the end of the stream.
    pub(crate) fn receive(&mut self, mut socket: &TcpStream, input: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Plain => read_into(input, |buffer| socket.read(buffer)),
            #[cfg(feature = "tls")]
            Self::Tls(client) => loop {
                match read_into(input, |buffer| client.reader().read(buffer)) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    outcome => return outcome,
                }
                if client.read_tls(&mut socket)? == 0 {
                    return Ok(0);
                }
                client.process_new_packets().map_err(io::Error::other)?;
                while client.wants_write() {
                    client.write_tls(&mut socket)?;
                }
            },
        }
    }
}

impl Transport {
    /// Whether more may have arrived than the `length` that was received. A socket that fills no buffer is empty, and says so
    /// when that changes.
    pub(crate) fn may_have_more(&self, length: usize) -> bool {
        match self {
            Self::Plain => length == CHUNK,
            #[cfg(feature = "tls")]
            Self::Tls(_) => true,
        }
    }
}

/// How much is read at once.
const CHUNK: usize = 8 << 10;

fn read_into(input: &mut Vec<u8>, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
    let before = input.len();
    input.resize(before + CHUNK, 0);
    let outcome = read(&mut input[before..]);
    input.truncate(before + outcome.as_ref().copied().unwrap_or_default());
    outcome
}
