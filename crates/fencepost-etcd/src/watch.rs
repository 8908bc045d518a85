//! Watching keys for their end, and locks for any change: all watches on one connection share one call.
//!
//! Invariant: a watch that can hear nothing any more ends, so that whoever waits looks again and never waits in vain. A watch that
//! was refused ends the use of its call, which goes on with the login that it was begun with.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use fencepost_core::{Clock, Raced, lock, race};
use futures_channel::mpsc;
use futures_util::StreamExt;

use crate::connection::Connection;
use crate::failure::{Failure, Next};
use crate::generated::event::EventType;
use crate::generated::watch_create_request::FilterType;
use crate::generated::watch_request::RequestUnion;
use crate::generated::{Event, WatchCancelRequest, WatchCreateRequest, WatchRequest, WatchResponse};
use crate::keys::Names;
use crate::login::Token;

/// The watches on one connection.
pub(crate) struct Hub {
    connection: Connection,
    token: Option<Token>,
    requests: mpsc::UnboundedSender<WatchRequest>,
    watching: Mutex<Watching>,
    next_id: AtomicI64,
    has_ended: AtomicBool,
    was_refused: AtomicBool,
}

/// What is watched.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// One key, for its end.
    Key {
        key: Vec<u8>,
        /// From this revision on, or from now on with 0.
        revision: i64,
    },
    /// The keys of locks, for any change from now on.
    Locks(Names),
}

/// What a watch hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It hears everything from now on.
    Begun,
    /// The key is gone, or something about the locks has changed.
    Changed,
}

/// Who watches, by number.
#[derive(Default)]
struct Watching(HashMap<i64, Listener>);

struct Listener {
    told: mpsc::Sender<Heard>,
    /// Which locks are watched, where it is not one key.
    names: Option<Box<Names>>,
    has_begun: bool,
}

/// How much of what it hears a watch may leave unread. One change says as much as many.
const UNREAD_MOST: usize = 2;

/// A watch. It ends when it is dropped.
pub(crate) struct Watch {
    id: i64,
    heard: mpsc::Receiver<Heard>,
    hub: Arc<Hub>,
}

impl Hub {
    /// Begins the call.
    pub(crate) fn start(clock: &Clock, connection: Connection, token: Option<Token>) -> Arc<Self> {
        let (requests, requested) = mpsc::unbounded();
        let (watching, has_ended, was_refused) = Default::default();
        let next_id = AtomicI64::new(1);
        let hub = Self { connection, token, requests, watching, next_id, has_ended, was_refused };
        let hub = Arc::new(hub);
        let serving = Arc::downgrade(&hub);
        let (connection, token) = (hub.connection.clone(), hub.token.clone());
        clock.serve(async move {
            let hear = |answer: &WatchResponse| serving.upgrade().map(|hub| hub.hear(answer)).is_some();
            let ended = serve(&connection, token.as_ref(), requested, hear).await;
            if let Some(hub) = serving.upgrade() {
                if ended.is_err_and(|failure| failure.next() == Next::LogIn) {
                    hub.was_refused.store(true, Ordering::Release);
                }
                // How else it has ended does not matter: whoever watches looks for itself.
                hub.end();
            }
        });
        hub
    }

    /// Ends all watches on it.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        lock(&self.watching).0.clear();
    }

    /// Whether it can be used on `connection`.
    pub(crate) fn serves(&self, connection: &Connection) -> bool {
        self.connection.is(connection) && !self.has_ended.load(Ordering::Acquire) && !self.was_refused()
    }

    /// Whether it has been refused what it asks for with its login.
    pub(crate) fn was_refused(&self) -> bool {
        self.was_refused.load(Ordering::Acquire)
    }

    /// What it was begun with.
    pub(crate) fn token(&self) -> Option<&Token> {
        self.token.as_ref()
    }

    /// Begins a watch.
    pub(crate) fn watch(self: &Arc<Self>, subject: Subject) -> Watch {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (told, heard) = mpsc::channel(UNREAD_MOST);
        let create = subject.asked_for(id);
        let names = subject.names().map(Box::new);
        lock(&self.watching).0.insert(id, Listener { told, names, has_begun: false });
        self.request(RequestUnion::CreateRequest(create));
        // The call may have ended before the watch was on the list.
        if self.has_ended.load(Ordering::Acquire) {
            lock(&self.watching).0.remove(&id);
        }
        Watch { id, heard, hub: Arc::clone(self) }
    }

    fn request(&self, request: RequestUnion) {
        // Where the call has ended, the watch has too.
        let _ = self.requests.unbounded_send(WatchRequest { request_union: Some(request) });
    }

    fn hear(&self, answer: &WatchResponse) {
        if lock(&self.watching).tell(answer) == Told::Refused {
            self.was_refused.store(true, Ordering::Release);
        }
    }
}

impl Subject {
    fn asked_for(&self, id: i64) -> WatchCreateRequest {
        match self {
            Self::Key { key, revision } => WatchCreateRequest {
                key: key.clone(),
                start_revision: *revision,
                filters: vec![FilterType::Noput.into()],
                watch_id: id,
                ..WatchCreateRequest::default()
            },
            Self::Locks(names) => {
                let (key, range_end) = names.range();
                WatchCreateRequest { key, range_end, watch_id: id, ..WatchCreateRequest::default() }
            }
        }
    }

    fn names(self) -> Option<Names> {
        match self {
            Self::Key { .. } => None,
            Self::Locks(names) => Some(names),
        }
    }
}

/// Newer versions refuse a watch without saying which one.
const NO_WATCH: i64 = -1;

/// What an answer was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    News,
    /// A watch was refused, and others would be, too.
    Refused,
}

impl Watching {
    /// Tells the watch that an answer is for.
    fn tell(&mut self, answer: &WatchResponse) -> Told {
        if answer.canceled {
            return self.end(answer);
        }
        let Some(listener) = self.0.get_mut(&answer.watch_id) else { return Told::News };
        listener.has_begun |= answer.created;
        let begun = answer.created.then_some(Heard::Begun);
        let has_changed = answer.events.iter().any(|event| listener.cares_about(event));
        for heard in begun.into_iter().chain(has_changed.then_some(Heard::Changed)) {
            // Whoever watches may be about to end, or has not read yet what says the same.
            drop(listener.told.try_send(heard));
        }
        Told::News
    }

    fn end(&mut self, answer: &WatchResponse) -> Told {
        self.0.remove(&answer.watch_id);
        if answer.watch_id == NO_WATCH {
            // It is not said which one was refused: any that has not begun yet looks for itself.
            self.0.retain(|_, listener| listener.has_begun);
        }
        let is_refused = answer.compact_revision == 0 && !answer.cancel_reason.is_empty();
        if is_refused { Told::Refused } else { Told::News }
    }
}

impl Listener {
    fn cares_about(&self, event: &Event) -> bool {
        match (&self.names, &event.kv) {
            (None, _) => event.r#type() == EventType::Delete,
            (Some(names), Some(found)) => names.contain(&found.key),
            (Some(_), None) => false,
        }
    }
}

async fn serve(
    connection: &Connection,
    token: Option<&Token>,
    mut requested: mpsc::UnboundedReceiver<WatchRequest>,
    hear: impl Fn(&WatchResponse) -> bool,
) -> Result<(), Failure> {
    let mut answers = connection.begin::<WatchResponse>(WATCH, token.map(Token::text)).await?;
    loop {
        match race(requested.next(), answers.next()).await {
            Raced::First(Some(request)) => answers.tell(&request)?,
            Raced::Second(Ok(Some(answer))) if hear(&answer) => {}
            Raced::First(None) | Raced::Second(Ok(_)) => return Ok(()),
            Raced::Second(Err(failure)) => return Err(failure),
        }
    }
}

const WATCH: &str = "/etcdserverpb.Watch/Watch";

impl Watch {
    /// The next news; `None` when nothing can be heard any more.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Heard> {
        self.heard.next().await
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if lock(&self.hub.watching).0.remove(&self.id).is_some() {
            self.hub.request(RequestUnion::CancelRequest(WatchCancelRequest { watch_id: self.id }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::KeyValue;

    fn listen(watching: &mut Watching, id: i64, names: Option<Names>) -> mpsc::Receiver<Heard> {
        let (told, heard) = mpsc::channel(UNREAD_MOST);
        let names = names.map(Box::new);
        watching.0.insert(id, Listener { told, names, has_begun: false });
        heard
    }

    fn begun(id: i64) -> WatchResponse {
        WatchResponse { watch_id: id, created: true, ..WatchResponse::default() }
    }

    fn put(id: i64, key: &str) -> WatchResponse {
        let kv = Some(KeyValue { key: key.into(), ..KeyValue::default() });
        let events = vec![Event { r#type: EventType::Put.into(), kv }];
        WatchResponse { watch_id: id, events, ..WatchResponse::default() }
    }

    fn refused(id: i64) -> WatchResponse {
        let cancel_reason = "etcdserver: permission denied".to_owned();
        WatchResponse {
            watch_id: id,
            created: true,
            canceled: true,
            cancel_reason,
            ..WatchResponse::default()
        }
    }

    #[test]
    fn refusal_that_names_no_watch_ends_those_that_have_not_begun() {
        let mut watching = Watching::default();
        let mut old = listen(&mut watching, 1, None);
        assert_eq!(watching.tell(&begun(1)), Told::News);
        let mut new = listen(&mut watching, 2, None);
        assert_eq!(watching.tell(&refused(-1)), Told::Refused);
        assert_eq!(old.try_recv(), Ok(Heard::Begun));
        assert!(old.try_recv().is_err_and(|error| error == mpsc::TryRecvError::Empty), "it goes on");
        assert!(new.try_recv().is_err_and(|error| error == mpsc::TryRecvError::Closed), "it waits in vain");
    }

    #[test]
    fn end_of_a_watch_that_was_dropped_ends_no_other() {
        let mut watching = Watching::default();
        let mut heard = listen(&mut watching, 2, None);
        let canceled = WatchResponse { watch_id: 1, canceled: true, ..WatchResponse::default() };
        assert_eq!(watching.tell(&canceled), Told::News);
        assert!(heard.try_recv().is_err_and(|error| error == mpsc::TryRecvError::Empty));
    }

    #[test]
    fn end_by_compaction_is_no_refusal() {
        let mut watching = Watching::default();
        let mut heard = listen(&mut watching, 1, None);
        let compacted = WatchResponse { compact_revision: 9, ..refused(1) };
        assert_eq!(watching.tell(&compacted), Told::News);
        assert!(heard.try_recv().is_err_and(|error| error == mpsc::TryRecvError::Closed));
    }

    #[test]
    fn change_of_other_locks_is_not_heard_and_many_are_one() {
        let mut watching = Watching::default();
        let names = Names::of("/x/", &fencepost_core::NamePrefix::new("orders/"));
        let mut heard = listen(&mut watching, 1, Some(names));
        watching.tell(&put(1, "/x/payments/q/x-1"));
        watching.tell(&put(1, "/x/.offset"));
        assert!(heard.try_recv().is_err());
        for _ in 0..1_000 {
            watching.tell(&put(1, "/x/orders%2F7/q/x-1"));
        }
        let unread = std::iter::from_fn(|| heard.try_recv().ok()).count();
        assert!((1..=UNREAD_MOST + 1).contains(&unread), "{unread}");
    }
}
