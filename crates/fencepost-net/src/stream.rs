//! A connection, plain or encrypted, as a client library reads and writes it.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fencepost_core::{BackendUrl, Clock, Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{Address, KeepAlive, Socket, decoded};

/// Whom we believe to be the server, and who we are to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Trust {
    /// The file with the certificates of the authorities; those of the system where none is named.
    pub authorities: Option<PathBuf>,
    /// The files with our own certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Trust {
    /// The files that the options `ca`, `cert` and `key` of a URL name.
    ///
    /// # Errors
    /// `InvalidArgument` where a certificate stands without its key, or the other way round.
    pub fn of(url: &BackendUrl) -> Result<Self> {
        let file = |name| url.option(name).map(|path| decoded(url, path).map(PathBuf::from)).transpose();
        let identity = match (file("cert")?, file("key")?) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => return Err(url.wrong("cert and key go together: name both files, or neither")),
        };
        Ok(Self { authorities: file("ca")?, identity })
    }
}

/// How connections to one server are made.
#[derive(Clone, Debug)]
pub enum Transport {
    /// As they are.
    Plain,
    /// Encrypted.
    #[cfg(feature = "tls")]
    Tls(Arc<rustls::ClientConfig>),
}

impl Transport {
    /// Encrypted connections that speak one of `protocols`, where some are named.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Errors
    /// `Unsupported` where this build has no TLS, `InvalidArgument` where a file cannot be read.
    #[cfg_attr(not(feature = "tls"), expect(clippy::unused_async, reason = "with TLS it has to wait"))]
    pub async fn encrypted(trust: &Trust, protocols: &[&str]) -> Result<Self> {
        #[cfg(feature = "tls")]
        {
            let trust = trust.clone();
            let protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
            let config = crate::beside(move || crate::tls::config(&trust, protocols)).await;
            let config = config.map_err(|error| {
                Error::new(ErrorKind::Unavailable, "connect", "no thread is left").caused_by(error)
            })?;
            config.map(Self::Tls)
        }
        #[cfg(not(feature = "tls"))]
        {
            let _ = (trust, protocols);
            Err(Error::new(ErrorKind::Unsupported, "connect", "this build of fencepost has no TLS"))
        }
    }
}

/// A connection to a server.
#[derive(Debug)]
pub enum Stream {
    /// One that is as it is.
    Plain(Socket),
    /// An encrypted one.
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::client::TlsStream<Socket>>),
}

impl Stream {
    /// Connects, and encrypts where the transport says so; `most` is for finding and reaching the host. Gives the socket below as
    /// well.
    ///
    /// # Cancel safety
    /// Dropping it closes what was opened.
    ///
    /// # Errors
    /// `Unavailable` when the host cannot be reached, `Denied` when it is not whom we trust.
    pub async fn open(
        clock: &Clock,
        address: &Address,
        transport: &Transport,
        keep_alive: &KeepAlive,
        most: Duration,
    ) -> Result<(Self, Socket)> {
        let connected = Socket::connect(clock, address, keep_alive, most).await;
        let socket = connected.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "connect", address.to_string()).caused_by(error)
        })?;
        let stream = match transport {
            Transport::Plain => Self::Plain(socket.clone()),
            #[cfg(feature = "tls")]
            Transport::Tls(config) => {
                let encrypted = crate::tls::encrypt(socket.clone(), address, Arc::clone(config)).await?;
                Self::Tls(Box::new(encrypted))
            }
        };
        Ok((stream, socket))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_read(context, buffer),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write(context, bytes),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_flush(context),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
