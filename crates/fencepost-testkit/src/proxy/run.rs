//! The proxy's thread: it waits for a socket, a moment or an order, and then moves everything that can be moved.
//!
//! Nothing in it blocks, so that an order is obeyed at once, also while nobody reads what was sent.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use fencepost_core::{Clock, Moment};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, shutdown};

use super::Mode;
use super::relay::{Passed, Relay};
use crate::port::Port;

/// What the thread is told. It answers when it is done.
#[derive(Debug)]
pub(super) enum Order {
    Set(Mode, Sender<()>),
    Redirect(SocketAddr, Sender<()>),
    End,
}

/// Where orders come from, and what wakes the thread for them.
#[derive(Debug)]
pub(super) struct Orders {
    receiver: Receiver<Order>,
    wake: Arc<OwnedFd>,
}

impl Orders {
    pub(super) fn new(receiver: Receiver<Order>, wake: Arc<OwnedFd>) -> Self {
        Self { receiver, wake }
    }

    /// The next order, if there is one. Waking is asked for after the order has been sent, so none is slept over.
    fn next(&self) -> Option<Order> {
        // Without an event there is nothing to read.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        self.receiver.try_recv().ok()
    }
}

/// What the outside may know of the thread.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) connections: AtomicUsize,
    pub(super) passed_requests: AtomicUsize,
    pub(super) passed_replies: AtomicUsize,
    pub(super) held_requests: AtomicUsize,
    pub(super) held_replies: AtomicUsize,
}

#[derive(Debug)]
pub(super) struct Run {
    target: SocketAddr,
    mode: Mode,
    port: Arc<Port>,
    /// There is none while new connections are refused.
    listener: Option<TcpListener>,
    relays: Vec<Relay>,
    counts: Arc<Counts>,
    clock: Clock,
}

impl Run {
    pub(super) fn new(target: SocketAddr, port: Arc<Port>, counts: Arc<Counts>) -> Self {
        let (listener, clock) = (Some(listen(&port)), Clock::system());
        Self { target, mode: Mode::Pass, port, listener, relays: Vec::new(), counts, clock }
    }

    pub(super) fn until_told_to_end(mut self, orders: &Orders) {
        loop {
            while let Some(order) = orders.next() {
                match order {
                    Order::Set(mode, done) => self.set(mode, &done),
                    Order::Redirect(target, done) => {
                        self.target = target;
                        tell(&done);
                    }
                    Order::End => return,
                }
            }
            let now = self.clock.now();
            self.accept();
            self.advance(now);
            self.wait(orders, now);
        }
    }

    fn set(&mut self, mode: Mode, done: &Sender<()>) {
        self.mode = mode;
        if mode == Mode::Cut {
            // Those that wait to be accepted are reset with it. To close it would not do: a process that was forked a moment ago has
            // it too, until its program starts.
            if let Some(listener) = self.listener.take() {
                shutdown(&listener, Shutdown::Both).expect("a socket that listens can be shut down");
            }
            self.relays.drain(..).for_each(Relay::reset);
        } else if self.listener.is_none() {
            self.listener = Some(listen(&self.port));
        }
        self.advance(self.clock.now());
        tell(done);
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        // What has gone away before it was accepted is as good as none.
        while let Ok((client, _)) = listener.accept() {
            if is_prepared(&client) {
                self.relays.push(Relay::new(client, self.target));
            }
        }
    }

    fn advance(&mut self, now: Moment) {
        for mut relay in std::mem::take(&mut self.relays) {
            match relay.advance(self.mode, now) {
                Ok(passed) => {
                    self.count(passed);
                    if !relay.is_done() {
                        self.relays.push(relay);
                    }
                }
                Err(_) => relay.reset(),
            }
        }
        let held = |held: fn(&Relay) -> usize| self.relays.iter().map(held).sum();
        self.counts.held_requests.store(held(Relay::held_requests), Ordering::Release);
        self.counts.held_replies.store(held(Relay::held_replies), Ordering::Release);
        self.counts.connections.store(self.relays.len(), Ordering::Release);
    }

    fn count(&self, passed: Passed) {
        self.counts.passed_requests.fetch_add(passed.requests, Ordering::Release);
        self.counts.passed_replies.fetch_add(passed.replies, Ordering::Release);
    }

    fn wait(&self, orders: &Orders, now: Moment) {
        let mut interests = vec![PollFd::new(&orders.wake, PollFlags::IN)];
        interests.extend(self.listener.as_ref().map(|listener| PollFd::new(listener, PollFlags::IN)));
        interests.extend(self.relays.iter().flat_map(|relay| relay.interests(self.mode, now)));
        let due = self.relays.iter().filter_map(|relay| relay.due(self.mode, now)).min();
        let limit = due.map(|due| timespec(due.since(now)));
        // An interrupted wait is a short one.
        let _ = poll(&mut interests, limit.as_ref());
    }
}

/// A socket whose client has gone already may refuse it.
fn is_prepared(client: &TcpStream) -> bool {
    client.set_nonblocking(true).and_then(|()| client.set_nodelay(true)).is_ok()
}

fn listen(port: &Port) -> TcpListener {
    let listener = TcpListener::bind(port.address()).expect("a reserved port can be listened on");
    listener.set_nonblocking(true).expect("a socket can be told not to block");
    listener
}

/// Whoever does not listen any more has panicked.
fn tell(done: &Sender<()>) {
    let _ = done.send(());
}

fn timespec(duration: Duration) -> Timespec {
    duration.try_into().expect("a delay is shorter than all of time")
}
