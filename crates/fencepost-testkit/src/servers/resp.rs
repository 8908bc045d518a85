//! As much of a Redis client as tests need to look at a server past the client library: one command, one reply.
//!
//! Nothing here waits without a limit.

use std::io::{self, BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// What Redis answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// There is no such thing.
    Nil,
    /// A number.
    Integer(i64),
    /// A status or a value; bytes that are no text are replaced.
    Text(String),
    /// The command was refused.
    Error(String),
    /// Several replies.
    Array(Vec<Self>),
}

impl Reply {
    /// The text.
    ///
    /// # Panics
    /// When the reply is none.
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            other => panic!("a text was expected, and the reply is {other:?}"),
        }
    }

    /// The number.
    ///
    /// # Panics
    /// When the reply is none.
    pub fn integer(&self) -> i64 {
        match self {
            Self::Integer(number) => *number,
            other => panic!("a number was expected, and the reply is {other:?}"),
        }
    }

    /// The replies of an array.
    ///
    /// # Panics
    /// When the reply is none.
    pub fn array(&self) -> &[Self] {
        match self {
            Self::Array(replies) => replies,
            other => panic!("an array was expected, and the reply is {other:?}"),
        }
    }
}

/// One connection to a Redis server.
#[derive(Debug)]
pub struct RedisClient(BufReader<TcpStream>);

impl RedisClient {
    /// Connects, and waits for nothing longer than `limit`, now and later.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn connect(address: SocketAddr, limit: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a command and receives its reply.
    ///
    /// # Errors
    /// Those of the connection, `WouldBlock` when no reply comes in time, and `InvalidData` when it is none. What the
    /// server refuses is a [`Reply::Error`].
    pub fn command<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<Reply> {
        self.send(arguments)?;
        self.receive()
    }

    /// Sends a command.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments.iter().map(AsRef::as_ref) {
            request.extend(format!("${}\r\n", argument.len()).into_bytes());
            request.extend(argument);
            request.extend(b"\r\n");
        }
        self.0.get_mut().write_all(&request)
    }

    /// Receives the next reply.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn receive(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| odd(&line))?;
        match kind {
            "+" => Ok(Reply::Text(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => number(rest).map(Reply::Integer),
            "$" => self.bulk(number(rest)?),
            "*" => self.several(number(rest)?),
            _ => Err(odd(&line)),
        }
    }

    fn bulk(&mut self, length: i64) -> io::Result<Reply> {
        // A negative length says that there is nothing.
        let Ok(length) = usize::try_from(length) else { return Ok(Reply::Nil) };
        let mut bytes = vec![0; length + LINE_END.len()];
        self.0.read_exact(&mut bytes)?;
        Ok(Reply::Text(String::from_utf8_lossy(&bytes[..length]).into_owned()))
    }

    fn several(&mut self, length: i64) -> io::Result<Reply> {
        let Ok(length) = usize::try_from(length) else { return Ok(Reply::Nil) };
        (0..length).map(|_| self.receive()).collect::<io::Result<_>>().map(Reply::Array)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        match line.strip_suffix(LINE_END) {
            Some(line) => Ok(line.to_owned()),
            None if line.is_empty() => Err(ErrorKind::UnexpectedEof.into()),
            None => Err(odd(&line)),
        }
    }
}

fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(|_| odd(text))
}

fn odd(text: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("{text:?} is nothing that Redis says"))
}

const LINE_END: &str = "\r\n";
