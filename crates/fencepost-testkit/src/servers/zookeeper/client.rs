//! A client of `ZooKeeper`'s own protocol, which knows nothing of fencepost's: one request at a time, and no heartbeat by itself.
//!
//! Tests look at nodes with it, make and delete them, and hold sessions that behave badly.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A session on one connection. Dropped, it is left to its time-out.
#[derive(Debug)]
pub struct ZooKeeperClient {
    stream: TcpStream,
    session: i64,
    timeout: Duration,
    number: i32,
}

/// A node as a look at it shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZooKeeperNode {
    /// What it holds.
    pub data: Vec<u8>,
    /// By which transaction it was made.
    pub made_by: i64,
    /// How often its data has changed.
    pub version: i32,
    /// The session that it ends with; 0 where it stays.
    pub session: i64,
}

/// How long a node stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZooKeeperStay {
    /// Until it is deleted.
    Persistent,
    /// As long as the session.
    Session,
    /// The same, with the next number of its parent behind its name.
    SessionInOrder,
}

impl ZooKeeperClient {
    /// A new session, which asks for this time-out. An answer may take `limit`.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn connect(address: SocketAddr, timeout: Duration, limit: Duration) -> io::Result<Self> {
        let mut stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_nodelay(true)?;
        let mut hello = Vec::new();
        hello.extend(0_i32.to_be_bytes());
        hello.extend(0_i64.to_be_bytes());
        hello.extend(i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX).to_be_bytes());
        // No session before, and so no password of one.
        hello.extend(0_i64.to_be_bytes());
        put(&mut hello, &[0; 16]);
        hello.push(0);
        send(&mut stream, &hello)?;
        let welcome = receive(&mut stream)?;
        let mut rest = &welcome[4..];
        let timeout = int(&mut rest)?;
        let session = long(&mut rest)?;
        if timeout <= 0 {
            return Err(io::Error::other("there is no session"));
        }
        let timeout = Duration::from_millis(u64::from(timeout.unsigned_abs()));
        Ok(Self { stream, session, timeout, number: 1 })
    }

    /// The session's number.
    pub fn session(&self) -> i64 {
        self.session
    }

    /// The time-out that was granted.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Logs in, as `name:password`.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn log_in(&mut self, login: &str) -> io::Result<()> {
        let mut body = 0_i32.to_be_bytes().to_vec();
        put(&mut body, b"digest");
        put(&mut body, login.as_bytes());
        self.exchange(LOGIN, AUTH, &body).map(drop)
    }

    /// Makes a node for everybody. Its path, with the number if it has one.
    ///
    /// # Errors
    /// Those of the connection, and what the server refuses.
    pub fn create(&mut self, path: &str, data: &[u8], stay: ZooKeeperStay) -> io::Result<String> {
        let answer = self.request(CREATE, &creation(path, data, stay))?;
        text(&mut &answer[..])
    }

    /// Deletes a node.
    ///
    /// # Errors
    /// Those of the connection, and what the server refuses.
    pub fn delete(&mut self, path: &str) -> io::Result<()> {
        self.request(DELETE, &deletion(path)).map(drop)
    }

    /// Deletes a node and all below it.
    ///
    /// # Errors
    /// As [`delete`](Self::delete).
    pub fn delete_all(&mut self, path: &str) -> io::Result<()> {
        for child in self.children(path)? {
            self.delete_all(&format!("{path}/{child}"))?;
        }
        self.delete(path)
    }

    /// Changes what a node holds.
    ///
    /// # Errors
    /// As [`delete`](Self::delete).
    pub fn set(&mut self, path: &str, data: &[u8]) -> io::Result<()> {
        let mut body = Vec::new();
        put(&mut body, path.as_bytes());
        put(&mut body, data);
        body.extend((-1_i32).to_be_bytes());
        self.request(SET_DATA, &body).map(drop)
    }

    /// Looks at a node; `None` where there is none.
    ///
    /// # Errors
    /// As [`delete`](Self::delete).
    pub fn node(&mut self, path: &str) -> io::Result<Option<ZooKeeperNode>> {
        let mut body = Vec::new();
        put(&mut body, path.as_bytes());
        body.push(0);
        let answer = match self.request(GET_DATA, &body) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            answer => answer?,
        };
        let mut rest = &answer[..];
        let data = buffer(&mut rest)?;
        let made_by = long(&mut rest)?;
        let mut rest = &rest[24..];
        let version = int(&mut rest)?;
        let session = long(&mut &rest[8..])?;
        Ok(Some(ZooKeeperNode { data, made_by, version, session }))
    }

    /// The names of a node's children, in no order.
    ///
    /// # Errors
    /// As [`delete`](Self::delete).
    pub fn children(&mut self, path: &str) -> io::Result<Vec<String>> {
        let mut body = Vec::new();
        put(&mut body, path.as_bytes());
        body.push(0);
        let answer = self.request(GET_CHILDREN, &body)?;
        let mut rest = &answer[..];
        (0..int(&mut rest)?).map(|_| text(&mut rest)).collect()
    }

    /// Makes nodes of the session and deletes them, each pair behind the other and all at once.
    ///
    /// # Errors
    /// As [`delete`](Self::delete).
    pub fn make_and_delete(&mut self, paths: &[String]) -> io::Result<()> {
        let pairs = paths.iter().flat_map(|path| {
            [(CREATE, creation(path, b"", ZooKeeperStay::Session)), (DELETE, deletion(path))]
        });
        self.exchange_all(&pairs.collect::<Vec<_>>()).map(drop)
    }

    /// Deletes the first node of a queue, and makes one more at its end, which watches the one that was last: the fewest requests
    /// with which a lock is passed on. The path of the new one.
    ///
    /// # Errors
    /// As [`delete`](Self::delete).
    pub fn pass_on(&mut self, first: &str, last: &str, stem: &str) -> io::Result<String> {
        let mut watching = Vec::new();
        put(&mut watching, last.as_bytes());
        watching.push(1);
        let made = creation(stem, b"", ZooKeeperStay::SessionInOrder);
        let answers =
            self.exchange_all(&[(DELETE, deletion(first)), (CREATE, made), (GET_DATA, watching)])?;
        text(&mut &answers[1][..])
    }

    /// Shows that the session lives, to the member that it is connected to.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn ping(&mut self) -> io::Result<()> {
        self.exchange(PINGED, PING, &[]).map(drop)
    }

    /// Ends the session.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn close(mut self) -> io::Result<()> {
        self.request(CLOSE, &[]).map(drop)
    }

    fn request(&mut self, operation: i32, body: &[u8]) -> io::Result<Vec<u8>> {
        self.number += 1;
        self.exchange(self.number, operation, body)
    }

    fn exchange(&mut self, number: i32, operation: i32, body: &[u8]) -> io::Result<Vec<u8>> {
        send(&mut self.stream, &framed(number, operation, body))?;
        self.answer(number)
    }

    fn exchange_all(&mut self, requests: &[(i32, Vec<u8>)]) -> io::Result<Vec<Vec<u8>>> {
        let first = self.number + 1;
        let mut frames = Vec::new();
        for (operation, body) in requests {
            self.number += 1;
            put(&mut frames, &framed(self.number, *operation, body));
        }
        self.stream.write_all(&frames)?;
        (first..=self.number).map(|number| self.answer(number)).collect()
    }

    fn answer(&mut self, number: i32) -> io::Result<Vec<u8>> {
        loop {
            let answer = receive(&mut self.stream)?;
            let mut rest = &answer[..];
            let (answered, _, code) = (int(&mut rest)?, long(&mut rest)?, int(&mut rest)?);
            if answered != number {
                // One that came too late for whoever asked.
                continue;
            }
            return match code {
                0 => Ok(rest.to_vec()),
                NO_NODE => Err(io::ErrorKind::NotFound.into()),
                code => Err(io::Error::other(format!("ZooKeeper says {code}"))),
            };
        }
    }
}

fn creation(path: &str, data: &[u8], stay: ZooKeeperStay) -> Vec<u8> {
    let mut body = Vec::new();
    put(&mut body, path.as_bytes());
    put(&mut body, data);
    body.extend(1_i32.to_be_bytes());
    body.extend(31_i32.to_be_bytes());
    put(&mut body, b"world");
    put(&mut body, b"anyone");
    let stay = match stay {
        ZooKeeperStay::Persistent => 0_i32,
        ZooKeeperStay::Session => 1,
        ZooKeeperStay::SessionInOrder => 3,
    };
    body.extend(stay.to_be_bytes());
    body
}

fn deletion(path: &str) -> Vec<u8> {
    let mut body = Vec::new();
    put(&mut body, path.as_bytes());
    body.extend((-1_i32).to_be_bytes());
    body
}

fn framed(number: i32, operation: i32, body: &[u8]) -> Vec<u8> {
    let mut request = number.to_be_bytes().to_vec();
    request.extend(operation.to_be_bytes());
    request.extend(body);
    request
}

fn send(stream: &mut TcpStream, frame: &[u8]) -> io::Result<()> {
    let length = i32::try_from(frame.len()).expect("a test sends little");
    stream.write_all(&[&length.to_be_bytes()[..], frame].concat())
}

fn receive(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(i32::from_be_bytes(length)).map_err(io::Error::other)?;
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame)?;
    Ok(frame)
}

fn put(frame: &mut Vec<u8>, bytes: &[u8]) {
    frame.extend(i32::try_from(bytes.len()).expect("a test sends little").to_be_bytes());
    frame.extend(bytes);
}

fn int(rest: &mut &[u8]) -> io::Result<i32> {
    take(rest, 4).and_then(|bytes| bytes.try_into().map_err(io::Error::other)).map(i32::from_be_bytes)
}

fn long(rest: &mut &[u8]) -> io::Result<i64> {
    take(rest, 8).and_then(|bytes| bytes.try_into().map_err(io::Error::other)).map(i64::from_be_bytes)
}

fn buffer(rest: &mut &[u8]) -> io::Result<Vec<u8>> {
    let length = usize::try_from(int(rest)?.max(0)).map_err(io::Error::other)?;
    take(rest, length).map(<[u8]>::to_vec)
}

fn text(rest: &mut &[u8]) -> io::Result<String> {
    String::from_utf8(buffer(rest)?).map_err(io::Error::other)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> io::Result<&'a [u8]> {
    let (taken, others) = rest.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
    *rest = others;
    Ok(taken)
}

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const GET_CHILDREN: i32 = 8;
const PING: i32 = 11;
const AUTH: i32 = 100;
const CLOSE: i32 = -11;

const PINGED: i32 = -2;
const LOGIN: i32 = -4;
const NO_NODE: i32 = -101;
