//! One server as the locks of this process see it: its links, who waits there, and who holds there.
//!
//! All of them share one connection, and the messages that come on it are handed to whom they are for.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use fencepost_core::{Clock, HolderId, Result, lock};
use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_util::lock::MutexGuard;

use crate::connection::Listener;
use crate::endpoint::{Endpoint, Options};
use crate::keys::LockKey;
use crate::leases::Leases;
use crate::resp::Reply;
use crate::script;
use crate::server_clock::ServerClock;
use crate::session::{Link, Session};

/// How long a waiter is believed to live without a sign of it.
pub(crate) const ALIVE_FOR: Duration = Duration::from_secs(6);

/// How often it gives one.
const SIGN_EVERY: Duration = Duration::from_secs(2);

/// How many waiters give their sign at once.
const BATCH: usize = 100;

/// What a waiter is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// The lock is reserved for it.
    Turn,
    /// It is the next one, after somebody whose turn it is now.
    Next,
    /// It is the first in the queue, and the lock is free after so long if nothing is done.
    First(Duration),
    /// It is not in the queue, or the connection is broken: it must ask again.
    AskAgain,
}

/// One server.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    own: Weak<Self>,
    /// Whether somebody connects again for the sake of the leases.
    is_looked_after: AtomicBool,
    pub(crate) clock: Clock,
    pub(crate) options: Options,
    /// What this process is known by on the server.
    pub(crate) process: String,
    link: Arc<Link>,
    /// A link of its own for grants that wait for replicas, since that wait holds up a connection.
    granting: Option<Arc<Link>>,
    /// Whose grant is waited for on that link.
    granting_turn: futures_util::lock::Mutex<()>,
    waiters: Mutex<Waiters>,
    pub(crate) leases: Leases,
    pub(crate) server_clock: ServerClock,
}

#[derive(Default)]
struct Waiters {
    waiting: HashMap<HolderId, Waiting>,
    /// By the key of the lock, those who wait for it in the order in which they came.
    lines: HashMap<LockKey, BTreeMap<u64, HolderId>>,
    next: u64,
    gives_signs: bool,
}

impl Waiters {
    fn remove(&mut self, holder: HolderId) {
        let Some(waiting) = self.waiting.remove(&holder) else { return };
        let Some(line) = self.lines.get_mut(&waiting.key) else { return };
        line.remove(&waiting.number);
        if line.is_empty() {
            self.lines.remove(&waiting.key);
        }
    }
}

struct Waiting {
    key: LockKey,
    number: u64,
    /// Whether somebody of another process stood before it when it was last told its rank.
    is_behind_others: bool,
    notes: UnboundedSender<Note>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("link", &self.shared.link).finish_non_exhaustive()
    }
}

impl Server {
    /// A server that is not connected to yet.
    pub(crate) fn new(clock: Clock, endpoint: Endpoint, options: Options) -> Self {
        let process = HolderId::draw(&clock).to_string();
        let channel = format!("fencepost:p:{process}");
        let granting =
            (options.replicas > 0).then(|| Link::new(clock.clone(), endpoint.clone(), options, None));
        let link = Link::new(clock.clone(), endpoint, options, Some(channel));
        let shared = Arc::new_cyclic(|weak: &Weak<Shared>| {
            link.listen(Weak::<Shared>::clone(weak));
            Shared {
                own: Weak::clone(weak),
                is_looked_after: AtomicBool::new(false),
                clock,
                options,
                process,
                link,
                granting,
                granting_turn: futures_util::lock::Mutex::default(),
                waiters: Mutex::default(),
                leases: Leases::default(),
                server_clock: ServerClock::default(),
            }
        });
        Self { shared }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    pub(crate) fn options(&self) -> &Options {
        &self.shared.options
    }

    /// The link that grants are asked for on.
    pub(crate) fn granting(&self) -> &Arc<Link> {
        self.shared.granting.as_ref().unwrap_or(&self.shared.link)
    }

    /// The turn to ask for a grant, where grants wait for replicas; nothing elsewhere.
    pub(crate) async fn granting_turn(&self) -> Option<MutexGuard<'_, ()>> {
        match self.shared.granting {
            Some(_) => Some(self.shared.granting_turn.lock().await),
            None => None,
        }
    }

    /// The session for everything but grants.
    pub(crate) async fn session(&self) -> Result<Session> {
        self.shared.link.session().await
    }

    /// Connects again as long as there are leases: their holders are to be told at once when one is taken away. What has happened
    /// meanwhile is asked for.
    async fn stay_in_touch(self) {
        while !self.shared.leases.is_empty() {
            let Ok(session) = self.session().await else { continue };
            self.shared.is_looked_after.store(false, Ordering::SeqCst);
            // One that broke before that has started nobody else.
            let goes_on = !session.connection.is_open();
            if !goes_on || self.shared.is_looked_after.swap(true, Ordering::SeqCst) {
                return self.look_after_all();
            }
        }
        self.shared.is_looked_after.store(false, Ordering::SeqCst);
    }

    /// The session for everything but grants, if there is one now.
    pub(crate) fn open_session(&self) -> Option<Session> {
        self.shared.link.open_session()
    }

    /// Whether an answer may come soon.
    pub(crate) fn is_promising(&self) -> bool {
        self.shared.link.is_promising()
    }

    /// Has the first of this process who wait for a lock ask for it now: its release was sent a moment ago on the same connection.
    /// The server would say the same, one exchange later. Where others come before it, it waits on, and is not even asked to where
    /// that is known.
    pub(crate) fn hand_on(&self, key: &LockKey) {
        let waiters = lock(&self.shared.waiters);
        let first = waiters.lines.get(key).and_then(|line| line.values().next());
        let first = first.and_then(|holder| waiters.waiting.get(holder));
        if let Some(waiting) = first.filter(|waiting| !waiting.is_behind_others) {
            // A waiter that has just ended wants to know nothing.
            drop(waiting.notes.unbounded_send(Note::Turn));
        }
    }

    /// Takes note of how many stand before a waiter on the server: more than of this process are others.
    pub(crate) fn note_rank(&self, holder: HolderId, rank: usize) {
        let mut waiters = lock(&self.shared.waiters);
        let Some(waiting) = waiters.waiting.get(&holder) else { return };
        let ours = waiters.lines.get(&waiting.key).map_or(0, |line| line.range(..waiting.number).count());
        if let Some(waiting) = waiters.waiting.get_mut(&holder) {
            waiting.is_behind_others = rank > ours;
        }
    }

    /// Puts a waiter on the list of those who are told, until the result is dropped.
    pub(crate) fn attend(&self, holder: HolderId, key: &LockKey) -> Attended {
        let (notes, heard) = unbounded();
        let mut waiters = lock(&self.shared.waiters);
        let number = waiters.next;
        waiters.next += 1;
        waiters.lines.entry(key.clone()).or_default().insert(number, holder);
        let waiting = Waiting { key: key.clone(), number, is_behind_others: false, notes };
        waiters.waiting.insert(holder, waiting);
        if !std::mem::replace(&mut waiters.gives_signs, true) {
            self.shared.clock.serve(give_signs(Arc::downgrade(&self.shared), self.clock().clone()));
        }
        Attended { server: self.clone(), holder, heard }
    }
}

/// A waiter's place on the list, and what it hears.
pub(crate) struct Attended {
    server: Server,
    holder: HolderId,
    pub(crate) heard: UnboundedReceiver<Note>,
}

impl Drop for Attended {
    fn drop(&mut self) {
        lock(&self.server.shared.waiters).remove(self.holder);
    }
}

impl Shared {
    fn note(&self, holder: &str, note: Note) {
        let Ok(holder) = holder.parse() else { return };
        if let Some(waiting) = lock(&self.waiters).waiting.get(&holder) {
            // A waiter that has just ended wants to know nothing.
            drop(waiting.notes.unbounded_send(note));
        }
    }
}

impl Listener for Shared {
    fn hear(&self, message: &str) {
        let mut words = message.splitn(3, ' ');
        let (what, holder) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        match what {
            "turn" => self.note(holder, Note::Turn),
            "next" => self.note(holder, Note::Next),
            "gone" => self.leases.take_away(holder, words.next().unwrap_or_default()),
            _ => {}
        }
    }

    fn broken(&self) {
        // Behind the next connection there may be another server.
        self.server_clock.forget();
        for waiting in lock(&self.waiters).waiting.values() {
            drop(waiting.notes.unbounded_send(Note::AskAgain));
        }
        let Some(shared) = self.own.upgrade().filter(|shared| !shared.leases.is_empty()) else { return };
        // One is enough, however many tries to connect break off meanwhile.
        if !self.is_looked_after.swap(true, Ordering::SeqCst) {
            let server = Server { shared };
            self.clock.serve(async move { server.stay_in_touch().await });
        }
    }
}

/// Shows the server from time to time that the waiters live, as long as there are any.
async fn give_signs(shared: Weak<Shared>, clock: Clock) {
    loop {
        clock.sleep(SIGN_EVERY / 2 + clock.jitter(SIGN_EVERY / 2)).await;
        let Some(shared) = shared.upgrade() else { return };
        let waiting: Vec<(HolderId, LockKey)> = {
            let mut waiters = lock(&shared.waiters);
            waiters.gives_signs = !waiters.waiting.is_empty();
            waiters.waiting.iter().map(|(holder, waiting)| (*holder, waiting.key.clone())).collect()
        };
        if waiting.is_empty() {
            return;
        }
        for batch in waiting.chunks(BATCH) {
            sign(&shared, batch).await;
        }
    }
}

async fn sign(shared: &Shared, batch: &[(HolderId, LockKey)]) {
    // Whoever waits hears of a broken connection by itself.
    let Ok(session) = shared.link.session().await else { return };
    let keys: Vec<&str> = batch.iter().map(|(_, key)| &**key).collect();
    let alive_for = ALIVE_FOR.as_millis().to_string();
    let holders: Vec<String> = batch.iter().map(|(holder, _)| holder.to_string()).collect();
    let mut arguments = vec![alive_for.as_str()];
    arguments.extend(holders.iter().map(String::as_str));
    let script = if shared.options.is_node { &script::NODE_BEAT } else { &script::BEAT };
    let Ok(reply) = session.connection.run(script, &keys, &arguments).await else { return };
    for (holder, state) in holders.iter().zip(reply.list()) {
        match (state, state.text()) {
            (_, Some("turn")) => shared.note(holder, Note::Turn),
            (_, Some(_)) => shared.note(holder, Note::AskAgain),
            (Reply::Integer(left), _) if *left >= 0 => {
                shared.note(holder, Note::First(Duration::from_millis(left.unsigned_abs())));
            }
            _ => {}
        }
    }
}
