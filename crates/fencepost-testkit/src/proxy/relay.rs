//! One connection of a client and its counterpart to the server, and what passes between them.
//!
//! The counterpart is made when something may reach the server, so that a server that is down is not noticed through a
//! black hole.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use fencepost_core::Moment;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use super::Mode;
use super::lane::{Gate, IsReset, Lane};

#[derive(Debug)]
pub(super) struct Relay {
    client: TcpStream,
    target: SocketAddr,
    server: Option<TcpStream>,
    requests: Lane,
    replies: Lane,
}

/// How many bytes went each way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passed {
    pub(super) requests: usize,
    pub(super) replies: usize,
}

impl Relay {
    pub(super) fn new(client: TcpStream, target: SocketAddr) -> Self {
        Self { client, target, server: None, requests: Lane::default(), replies: Lane::default() }
    }

    pub(super) fn held_requests(&self) -> usize {
        self.requests.held()
    }

    pub(super) fn held_replies(&self) -> usize {
        self.replies.held()
    }

    /// Whether both sides have ended and know it.
    pub(super) fn is_done(&self) -> bool {
        self.requests.is_done() && self.replies.is_done()
    }

    /// Moves what can be moved without waiting.
    pub(super) fn advance(&mut self, mode: Mode, now: Moment) -> Result<Passed, IsReset> {
        if self.server.is_none() && mode != Mode::Blackhole {
            self.server = Some(connected(&self.target).map_err(|_| IsReset)?);
        }
        self.requests.receive(&self.client, now);
        let Some(server) = &self.server else { return Ok(Passed::default()) };
        self.replies.receive(server, now);
        let requests = self.requests.pass(server, gate_of_requests(mode), now)?;
        let replies = self.replies.pass(&self.client, gate_of_replies(mode), now)?;
        Ok(Passed { requests, replies })
    }

    /// When something is to be passed on whose time has not come yet.
    pub(super) fn due(&self, mode: Mode, now: Moment) -> Option<Moment> {
        let dues = [self.requests.due(gate_of_requests(mode)), self.replies.due(gate_of_replies(mode))];
        dues.into_iter().flatten().filter(|due| *due > now).min()
    }

    /// What to wait for. A socket from which nothing is wanted is left out, since its errors would end every wait.
    pub(super) fn interests(&self, mode: Mode, now: Moment) -> Vec<PollFd<'_>> {
        let is_due = |due: Option<Moment>| due.is_some_and(|due| due <= now);
        let client = flags(self.requests.receives(), is_due(self.replies.due(gate_of_replies(mode))));
        let server = flags(self.replies.receives(), is_due(self.requests.due(gate_of_requests(mode))));
        let sockets = [Some((&self.client, client)), self.server.as_ref().map(|socket| (socket, server))];
        let wanted = sockets.into_iter().flatten().filter(|(_, flags)| !flags.is_empty());
        wanted.map(|(socket, flags)| PollFd::new(socket, flags)).collect()
    }

    /// Resets the connection on both sides.
    pub(super) fn reset(self) {
        for socket in [Some(self.client), self.server].into_iter().flatten() {
            // A socket that has been reset already is closed all the same.
            let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
        }
    }
}

fn flags(receives: bool, sends: bool) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, receives);
    flags.set(PollFlags::OUT, sends);
    flags
}

fn gate_of_requests(mode: Mode) -> Gate {
    match mode {
        Mode::Pass | Mode::ReplyHole => Gate::Open(Duration::ZERO),
        Mode::Delay(delay) => Gate::Open(delay),
        Mode::Blackhole | Mode::RequestHole | Mode::Cut => Gate::Closed,
    }
}

fn gate_of_replies(mode: Mode) -> Gate {
    match mode {
        Mode::Pass | Mode::RequestHole => Gate::Open(Duration::ZERO),
        Mode::Delay(delay) => Gate::Open(delay),
        Mode::Blackhole | Mode::ReplyHole | Mode::Cut => Gate::Closed,
    }
}

/// A connection that is being made, and on which nothing is ever waited for.
fn connected(target: &SocketAddr) -> rustix::io::Result<TcpStream> {
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    match connect(&socket, target) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error),
    }
}
