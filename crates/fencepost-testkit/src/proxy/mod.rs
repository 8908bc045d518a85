//! A proxy on 127.0.0.1 between a client and a server, which loses, holds back and delays what they say on command.
//!
//! One thread moves everything and obeys between two moves. Invariant: when a call here has returned, what it asked for
//! holds, for connections that exist too.

mod lane;
mod relay;
mod run;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::port::Port;
use run::{Counts, Order, Orders, Run};

/// What a [`Proxy`] does with what comes.
///
/// What is held back is kept, also the end of a connection, and is delivered in order when it may pass again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Everything passes.
    Pass,
    /// Nothing passes. Connections are accepted and stay open, and neither side hears of the other's end.
    Blackhole,
    /// Requests pass, replies are held back: it has happened, and the client does not know.
    ReplyHole,
    /// Replies pass, requests are held back.
    RequestHole,
    /// Connections are reset, on both sides and with all that was held back, and new ones are refused.
    Cut,
    /// Everything passes this much later, in each of the two directions.
    Delay(Duration),
}

/// A running proxy. Dropping it ends all of its connections.
#[derive(Debug)]
pub struct Proxy {
    port: Arc<Port>,
    counts: Arc<Counts>,
    orders: Sender<Order>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy on a port that the kernel chose, through which everything passes to `target`.
    ///
    /// # Panics
    /// When the system has no port or no descriptor left.
    pub fn start(target: SocketAddr) -> Self {
        let port = Arc::new(Port::reserve());
        let counts = Arc::new(Counts::default());
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect(DESCRIPTOR));
        let (sender, receiver) = channel();
        let orders = Orders::new(receiver, Arc::clone(&wake));
        let run = Run::new(target, Arc::clone(&port), Arc::clone(&counts));
        let thread = std::thread::spawn(move || run.until_told_to_end(&orders));
        Self { port, counts, orders: sender, wake, thread: Some(thread) }
    }

    /// The port on which clients connect.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Does from now on as `mode` says.
    pub fn set(&self, mode: Mode) {
        self.tell(|done| Order::Set(mode, done));
    }

    /// Connects those who come from now on to `target`; who is connected stays so.
    pub fn redirect(&self, target: SocketAddr) {
        self.tell(|done| Order::Redirect(target, done));
    }

    /// How many connections of clients it has open. One whose end is held back counts.
    pub fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::Acquire)
    }

    /// How many bytes of requests have been passed on.
    pub fn passed_requests(&self) -> usize {
        self.counts.passed_requests.load(Ordering::Acquire)
    }

    /// How many bytes of replies have been passed on.
    pub fn passed_replies(&self) -> usize {
        self.counts.passed_replies.load(Ordering::Acquire)
    }

    /// How many bytes of requests wait here: the client has sent them, and the server has not got them.
    pub fn held_requests(&self) -> usize {
        self.counts.held_requests.load(Ordering::Acquire)
    }

    /// How many bytes of replies wait here. More than none in a [`Mode::ReplyHole`] says: the server has done it.
    pub fn held_replies(&self) -> usize {
        self.counts.held_replies.load(Ordering::Acquire)
    }

    fn tell(&self, order: impl FnOnce(Sender<()>) -> Order) {
        let (done, is_done) = channel();
        self.orders.send(order(done)).expect(ENDS_LAST);
        self.wake();
        is_done.recv().expect(ENDS_LAST);
    }

    fn wake(&self) {
        rustix::io::write(&self.wake, &1_u64.to_ne_bytes()).expect("a counter of events is never full");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.orders.send(Order::End));
        self.wake();
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed, and whoever waited for it has panicked too.
            drop(thread.join());
        }
    }
}

const DESCRIPTOR: &str = "the system has a descriptor left";
const ENDS_LAST: &str = "the proxy's thread ends when the proxy is dropped";
