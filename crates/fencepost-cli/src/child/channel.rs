//! What runner and guardian tell each other: one JSON message per packet, descriptors beside it.
//!
//! A packet socket keeps messages apart, and its end is the news that the other process is gone. Nobody blocks in it while
//! the command lives: a message that does not fit because the other process is stopped is dropped, and a deadline that is
//! not heard of means an earlier end. Only the guardian's last word waits until it is read.

use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fencepost::Handover;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The most descriptors in one message; the kernel's own limit is 253.
const MOST_DESCRIPTORS: usize = 250;

/// The longest message. Only the environment of a hundred locks with very long names comes near it.
const LONGEST: usize = 192 * 1024;

/// From the runner.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToGuardian {
    /// The lock is held: start the command. The lock's descriptors come with it.
    Start(Start),
    /// The lease was renewed: nanoseconds on `CLOCK_BOOTTIME`.
    Deadline(Option<u64>),
    /// Pass this signal on.
    Signal(i32),
    /// End the command: SIGTERM, the grace, SIGKILL.
    Stop,
    /// The job goes on after a stop.
    Continue,
    /// The command wants the terminal, and no shell can ever bring it to the foreground.
    LeaveSession,
}

/// What the guardian needs to start the command.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    /// Variables to set, or to remove.
    pub(crate) environment: Vec<(String, Option<String>)>,
    /// By when the command must have ended; nanoseconds on `CLOCK_BOOTTIME`.
    pub(crate) deadline: Option<u64>,
    pub(crate) grace_ms: u64,
    /// Leave the command alone at the deadline.
    pub(crate) only_warn: bool,
    /// For each descriptor of the message, whether the command inherits it.
    pub(crate) inheritable: Vec<bool>,
    /// What to give back if the runner cannot.
    pub(crate) give_back: Vec<GiveBack>,
}

/// A lease that another process can give back. Travels in memory only, since the URL may contain a password.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct GiveBack {
    pub(crate) url: String,
    pub(crate) handover: Handover,
}

/// From the guardian.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToRunner {
    /// The command runs, in this process group.
    Started(i32),
    /// The command could not be executed: the error's number.
    NotStarted(i32),
    /// The command was stopped by this signal, and the job is to stop with it.
    Stopped(i32),
    /// The command has ended, and these processes of it live on.
    Lingering(Vec<i32>),
    /// SIGKILL has not ended these processes.
    Unkillable(Vec<i32>),
    /// Nothing of the command is left.
    Ended(Ended),
}

/// How the command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// The guardian ended it because the deadline came near.
    pub(crate) by_deadline: bool,
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ExitStatus {
    Code(i32),
    Signal(i32),
}

/// One end of the socket between runner and guardian.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: OwnedFd,
    /// Kept, because fresh memory for the longest message costs more than the message.
    buffer: RefCell<Vec<u8>>,
}

/// What can be read from a channel.
#[derive(Debug)]
pub(crate) enum Received<M> {
    Message(M, Vec<OwnedFd>),
    /// Nothing yet.
    Nothing,
    /// The other process is gone.
    Gone,
}

impl Channel {
    pub(super) fn pair() -> io::Result<(Self, Self)> {
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let end = |socket| Self { socket, buffer: RefCell::new(vec![0; LONGEST]) };
        Ok((end(one), end(other)))
    }

    /// Sends `message`, with duplicates of `descriptors`.
    pub(crate) fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        if text.len() > LONGEST || descriptors.len() > MOST_DESCRIPTORS {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "too many locks, or too long names, for one run",
            ));
        }
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.socket, &[IoSlice::new(&text)], &mut ancillary, flags)?;
        Ok(())
    }

    /// Sends `message`, and waits for room if the other process has not read what came before. Ends without it only
    /// when that process is gone.
    pub(super) fn send_surely(&self, message: &impl Serialize) {
        while let Err(error) = self.send(message, &[]) {
            if error.kind() != io::ErrorKind::WouldBlock {
                return;
            }
            let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], None);
        }
    }

    /// The next message, without waiting for one.
    pub(crate) fn receive<M: DeserializeOwned>(&self) -> Received<M> {
        let mut text = self.buffer.borrow_mut();
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match recvmsg(&self.socket, &mut [IoSliceMut::new(&mut text)], &mut ancillary, flags) {
            Ok(received) if received.bytes > 0 => match serde_json::from_slice(&text[..received.bytes]) {
                Ok(message) => Received::Message(message, descriptors(&mut ancillary)),
                Err(_) => Received::Gone,
            },
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Received::Nothing,
            _ => Received::Gone,
        }
    }
}

fn descriptors(ancillary: &mut RecvAncillaryBuffer<'_>) -> Vec<OwnedFd> {
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    rights.flatten().collect()
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
