//! What lies between the bytes of the protocol and those on the wire: nothing, or TLS.
//!
//! It reads and writes as far as it can at once, under the lock of its connection, which client libraries for TLS cannot.

#[cfg(feature = "tls")]
use std::io::Read;
use std::io::{self, Write};

use fencepost_core::{Error, ErrorKind, Result};
use fencepost_net::Raw;
use rustix::fd::OwnedFd;

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
            let name = rustls::pki_types::ServerName::try_from(host.to_owned())
                .map_err(|_| wrong(format!("{host:?} is no name that a certificate can have")))?;
            // The first client reads all certificates of the system.
            let config = fencepost_net::beside(|| {
                fencepost_net::tls::config(&fencepost_net::Trust::default(), Vec::new())
            })
            .await;
            let config = config.map_err(|error| crate::failure::unavailable(error.to_string()))??;
            let client = rustls::ClientConnection::new(config, name);
            client.map(|client| Self::Tls(Box::new(client))).map_err(|error| wrong(error.to_string()))
        }
        #[cfg(not(feature = "tls"))]
        {
            let what = format!("this build of fencepost has no TLS to talk to {host}");
            Err(Error::new(ErrorKind::Unsupported, "connect", what))
        }
    }

    /// Sends what it can of `output`; what is left stands at its beginning.
    pub(crate) fn send(&mut self, socket: &OwnedFd, output: &mut Vec<u8>) -> io::Result<()> {
        let mut socket = Raw(socket);
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
    pub(crate) fn receive(&mut self, socket: &OwnedFd, input: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Plain => {
                input.reserve(CHUNK);
                Ok(rustix::io::read(socket, rustix::buffer::spare_capacity(input))?)
            }
            #[cfg(feature = "tls")]
            Self::Tls(client) => loop {
                let mut socket = Raw(socket);
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
            Self::Plain => length >= CHUNK,
            #[cfg(feature = "tls")]
            Self::Tls(_) => true,
        }
    }
}

/// How much is read at once at least.
const CHUNK: usize = 8 << 10;

#[cfg(feature = "tls")]
fn read_into(input: &mut Vec<u8>, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
    let before = input.len();
    input.resize(before + CHUNK, 0);
    let outcome = read(&mut input[before..]);
    input.truncate(before + outcome.as_ref().copied().unwrap_or_default());
    outcome
}

#[cfg(feature = "tls")]
fn wrong(what: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "connect", what)
}
