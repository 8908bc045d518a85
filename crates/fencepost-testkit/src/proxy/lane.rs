//! One direction of one connection: what was received and not yet passed on, with the end of the stream.
//!
//! Invariant: what goes out is what came in, in order and to its last byte, unless the connection is reset.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use fencepost_core::Moment;

/// Whether, and how late, a lane passes things on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    Open(Duration),
    Closed,
}

/// The connection was reset by one side, and is to be reset to the other.
#[derive(Debug)]
pub(super) struct IsReset;

#[derive(Debug, Default)]
pub(super) struct Lane {
    queue: VecDeque<(Moment, Item)>,
    held: usize,
    has_ended: bool,
    is_done: bool,
}

#[derive(Debug)]
enum Item {
    Bytes(Vec<u8>),
    /// Nothing more comes.
    End,
    Reset,
}

impl Lane {
    /// Whether more can be received; a sender that is not heard is held up in the end, as by a full network.
    pub(super) fn receives(&self) -> bool {
        !self.has_ended && self.held < MOST_HELD
    }

    /// How many bytes wait here.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Whether the end of the stream has been passed on.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// When the next thing may be passed on, if there is one and it ever may.
    pub(super) fn due(&self, gate: Gate) -> Option<Moment> {
        let Gate::Open(delay) = gate else { return None };
        self.queue.front().map(|(came, _)| came.after(delay))
    }

    /// Receives what there is without waiting.
    pub(super) fn receive(&mut self, mut from: &TcpStream, now: Moment) {
        let mut buffer = vec![0; MOST_AT_ONCE];
        while self.receives() {
            let item = match from.read(&mut buffer) {
                Ok(0) => Item::End,
                Ok(length) => Item::Bytes(buffer[..length].to_vec()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => Item::Reset,
            };
            match &item {
                Item::Bytes(bytes) => self.held += bytes.len(),
                Item::End | Item::Reset => self.has_ended = true,
            }
            self.queue.push_back((now, item));
        }
    }

    /// Passes on what is due, as far as it is taken without waiting; how many bytes that were.
    pub(super) fn pass(&mut self, to: &TcpStream, gate: Gate, now: Moment) -> Result<usize, IsReset> {
        let mut passed = 0;
        while self.due(gate).is_some_and(|due| due <= now) {
            let (_, item) = self.queue.front_mut().expect("something is due");
            match item {
                Item::Bytes(bytes) => {
                    let taken = offer(to, bytes)?;
                    bytes.drain(..taken);
                    let is_passed = bytes.is_empty();
                    self.held -= taken;
                    passed += taken;
                    if !is_passed {
                        return Ok(passed);
                    }
                }
                Item::End => {
                    to.shutdown(Shutdown::Write).map_err(|_| IsReset)?;
                    self.is_done = true;
                }
                Item::Reset => return Err(IsReset),
            }
            self.queue.pop_front();
        }
        Ok(passed)
    }
}

/// Writes as much as is taken without waiting.
fn offer(mut to: &TcpStream, bytes: &[u8]) -> Result<usize, IsReset> {
    match to.write(bytes) {
        Ok(taken) => Ok(taken),
        Err(error) if is_temporary(&error) => Ok(0),
        Err(_) => Err(IsReset),
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Enough for whatever a client sends before it must hear something.
const MOST_HELD: usize = 1 << 20;
const MOST_AT_ONCE: usize = 16 << 10;
