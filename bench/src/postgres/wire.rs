//! The bare floor on Postgres: a session over a socket that blocks. Statements are prepared once, and the messages that run
//! them are written once.

use std::io::{Read, Write};
use std::net::TcpStream;

use fencepost_testkit::servers::PostgresServer;
use rustix::fd::{AsFd, BorrowedFd};

/// A session without any care.
pub(crate) struct Session {
    stream: TcpStream,
    reply: Vec<u8>,
    length: usize,
}

impl Session {
    /// Connects as the superuser, whom the server trusts.
    pub(crate) fn new(server: &PostgresServer) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("the server listens");
        stream.set_nodelay(true).expect("a socket sends at once");
        let mut session = Self { stream, reply: vec![0; 1 << 16], length: 0 };
        let parameters = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";
        let mut start = size_of(parameters.len()).to_vec();
        start.extend(parameters);
        session.run(&start);
        session
    }

    /// Runs SQL whose answer nobody wants.
    pub(crate) fn execute(&mut self, sql: &str) {
        self.run(&message(b'Q', format!("{sql}\0").as_bytes()));
    }

    /// Prepares a statement, and gives the message that runs it with these values.
    pub(crate) fn prepare(&mut self, name: &str, sql: &str, values: &[i32]) -> Vec<u8> {
        let mut parse = message(b'P', format!("{name}\0{sql}\0\0\0").as_bytes());
        parse.extend(message(b'S', &[]));
        self.run(&parse);
        let mut bind = format!("\0{name}\0").into_bytes();
        // All values are binary.
        bind.extend([0, 1, 0, 1]);
        bind.extend(u16::try_from(values.len()).expect("a few values").to_be_bytes());
        for value in values {
            bind.extend([0, 0, 0, 4]);
            bind.extend(value.to_be_bytes());
        }
        // So is what is answered.
        bind.extend([0, 1, 0, 1]);
        let mut run = message(b'B', &bind);
        run.extend(message(b'E', &[0; 5]));
        run.extend(message(b'S', &[]));
        run
    }

    /// Sends a message and waits for the whole answer.
    pub(crate) fn run(&mut self, message: &[u8]) {
        self.send(message);
        while !self.receive() {}
    }

    /// The same for a statement that answers whether it has done something, and must have.
    pub(crate) fn run_and_check(&mut self, message: &[u8]) {
        self.run(message);
        assert_eq!(self.reply[VALUE_AT], 1, "the server says no");
    }

    pub(crate) fn send(&mut self, message: &[u8]) {
        self.length = 0;
        self.stream.write_all(message).expect("the server listens");
    }

    /// Reads what is there; whether the answer is whole.
    pub(crate) fn receive(&mut self) -> bool {
        let length = self.stream.read(&mut self.reply[self.length..]).expect("the server answers");
        assert!(length > 0 && self.reply[0] != b'E', "the server has not refused it");
        self.length += length;
        let reply = &self.reply[..self.length];
        reply.len() >= READY && reply[reply.len() - READY..].starts_with(b"Z\0\0\0\x05")
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// How long the message is that ends each answer.
const READY: usize = 6;

/// Where the first byte of the first value is: behind `BindComplete`, and the head of a row and of its value.
const VALUE_AT: usize = 5 + 7 + 4;

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend(size_of(body.len()));
    message.extend(body);
    message
}

fn size_of(length: usize) -> [u8; 4] {
    u32::try_from(length + 4).expect("a short message").to_be_bytes()
}
