//! The task that reads a connection, sends what has gathered, and watches the age of the oldest request.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use fencepost_core::Sleep;
use fencepost_net::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Listener, Shared, To, Wire};
use crate::protocol::{Answer, NUMBER_OF_SIGHTS, Sight};

/// How much is read at once.
const READ_AT_ONCE: usize = 16 * 1024;

/// The longest frame that is believed in. ZooKeeper sends no longer list of children than fits into its own memory many times over.
const LONGEST_FRAME: usize = 256 * 1024 * 1024;

pub(super) struct Driver {
    stream: Stream,
    listener: Arc<dyn Listener>,
    shared: Weak<Shared>,
    sending: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    alarm: Option<Sleep>,
}

impl Drop for Driver {
    /// If a bug ends it, no answer will come.
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade().filter(|_| std::thread::panicking()) {
            shared.break_off("what reads it has ended by a bug".to_owned());
        }
    }
}

impl Driver {
    pub(super) fn new(stream: Stream, listener: Arc<dyn Listener>, shared: Weak<Shared>) -> Self {
        let (sending, input) = Default::default();
        Self { stream, listener, shared, sending, sent: 0, input, alarm: None }
    }

    pub(super) fn poll(&mut self, shared: &Shared, context: &mut Context<'_>) -> Poll<()> {
        match self.work(shared, context) {
            Ok(()) => Poll::Pending,
            Err(why) => {
                shared.break_off(why.clone());
                self.listener.broken(&why);
                Poll::Ready(())
            }
        }
    }

    /// Sends and reads until neither can go on. What comes is handed out in its order, without the lock of the wire.
    fn work(&mut self, shared: &Shared, context: &mut Context<'_>) -> Result<(), String> {
        {
            let mut wire = shared.wire();
            if let Some(why) = &wire.broken {
                return Err(why.clone());
            }
            wire.driver = Some(context.waker().clone());
        }
        // What comes may have somebody send more.
        loop {
            self.send(shared, context).map_err(|error| error.to_string())?;
            let end = self.read(context);
            let has_come = self.hand_out(shared)?;
            if let Some(why) = end {
                return Err(why);
            }
            if !has_come || shared.wire().output.is_empty() {
                break;
            }
        }
        self.watch(shared, context)
    }

    fn send(&mut self, shared: &Shared, context: &mut Context<'_>) -> io::Result<()> {
        loop {
            if self.sent == self.sending.len() {
                self.sending.clear();
                self.sent = 0;
                let mut wire = shared.wire();
                std::mem::swap(&mut self.sending, &mut wire.output);
                wire.is_sending = !self.sending.is_empty();
                if self.sending.is_empty() {
                    drop(wire);
                    return match Pin::new(&mut self.stream).poll_flush(context) {
                        Poll::Ready(flushed) => flushed,
                        Poll::Pending => Ok(()),
                    };
                }
            }
            match Pin::new(&mut self.stream).poll_write(context, &self.sending[self.sent..]) {
                Poll::Ready(written) => self.sent += written?,
                Poll::Pending => return Ok(()),
            }
        }
    }

    /// Reads all that is there. Why nothing more will come, if that is so.
    fn read(&mut self, context: &mut Context<'_>) -> Option<String> {
        loop {
            let length = self.input.len();
            self.input.resize(length + READ_AT_ONCE, 0);
            let mut buffer = ReadBuf::new(&mut self.input[length..]);
            let outcome = Pin::new(&mut self.stream).poll_read(context, &mut buffer);
            let read = buffer.filled().len();
            self.input.truncate(length + read);
            match outcome {
                Poll::Pending => return None,
                Poll::Ready(Err(error)) => return Some(error.to_string()),
                Poll::Ready(Ok(())) if read == 0 => {
                    return Some("the server has closed the connection".to_owned());
                }
                Poll::Ready(Ok(())) => {}
            }
        }
    }

    /// Hands out what has come in full. Whether there was anything.
    fn hand_out(&mut self, shared: &Shared) -> Result<bool, String> {
        let mut at = 0;
        while let Some(frame) = frame(&self.input[at..])? {
            at += frame.len() + 4;
            let (number, answer) = Answer::read(frame)
                .map_err(|_| "the server does not speak ZooKeeper's protocol".to_owned())?;
            self.hand_on(shared, number, answer)?;
        }
        self.input.drain(..at);
        Ok(at > 0)
    }

    fn hand_on(&self, shared: &Shared, number: i32, answer: Answer) -> Result<(), String> {
        if number == NUMBER_OF_SIGHTS {
            let sight = Sight::read(&answer).map_err(|_| "the server tells of nothing that is known")?;
            if let Some(sight) = sight {
                self.listener.sees(&sight);
            }
            return Ok(());
        }
        let to = take(&mut shared.wire(), number, &answer)?;
        match to {
            // Whoever asked may have gone.
            To::Caller(caller) => drop(caller.send(answer)),
            To::Node(path) => self.listener.answered(&path, answer.code),
            To::Written(path) => self.listener.written(&path, answer.code),
            To::Login => self.listener.logged_in(answer.code),
            To::Heartbeat => self.listener.beaten(&answer),
        }
        Ok(())
    }

    fn watch(&mut self, shared: &Shared, context: &mut Context<'_>) -> Result<(), String> {
        let mut wire = shared.wire();
        loop {
            let now = shared.clock.now();
            let overdue = wire.unanswered.front().map(|oldest| oldest.since.after(shared.silent_most));
            if overdue.is_some_and(|at| now >= at) {
                return Err(format!("the server has not answered for {:?}", shared.silent_most));
            }
            // An idle connection is looked at once more, and then only after it has been used again.
            let alarm = match (&mut self.alarm, overdue) {
                (Some(alarm), _) => alarm,
                (None, None) => {
                    wire.is_watched = false;
                    return Ok(());
                }
                (alarm, Some(at)) => alarm.insert(shared.clock.sleep_until(at)),
            };
            wire.is_watched = true;
            if Pin::new(alarm).poll(context).is_pending() {
                return Ok(());
            }
            self.alarm = None;
        }
    }
}

/// Who gets the answer with this number: whoever has waited longest.
fn take(wire: &mut Wire, number: i32, answer: &Answer) -> Result<To, String> {
    wire.last_seen = wire.last_seen.max(answer.seen);
    match wire.unanswered.pop_front() {
        Some(oldest) if oldest.number == number => Ok(oldest.to),
        _ => Err("the server answers what nobody has asked".to_owned()),
    }
}

/// The first frame of `input`, if it is there in full.
fn frame(input: &[u8]) -> Result<Option<&[u8]>, String> {
    let Some((length, rest)) = input.split_first_chunk() else { return Ok(None) };
    let length = usize::try_from(i32::from_be_bytes(*length)).ok().filter(|length| *length <= LONGEST_FRAME);
    let length = length.ok_or_else(|| "the server does not speak ZooKeeper's protocol".to_owned())?;
    Ok(rest.get(..length))
}
