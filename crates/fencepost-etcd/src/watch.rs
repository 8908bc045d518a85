//! Watching keys for their end: all watches on one connection share one call.
//!
//! Invariant: a watch that can hear nothing any more ends, so that whoever waits looks again and never waits in vain.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use fencepost_core::{Clock, Raced, race};
use futures_channel::mpsc;
use futures_util::StreamExt;

use crate::connection::Connection;
use crate::failure::Failure;
use crate::generated::event::EventType;
use crate::generated::watch_create_request::FilterType;
use crate::generated::watch_request::RequestUnion;
use crate::generated::{WatchCancelRequest, WatchCreateRequest, WatchRequest, WatchResponse};
use crate::lock;
use crate::login::Token;

/// The watches on one connection.
pub(crate) struct Hub {
    connection: Connection,
    token: Option<Token>,
    requests: mpsc::UnboundedSender<WatchRequest>,
    watching: Mutex<HashMap<i64, mpsc::UnboundedSender<Heard>>>,
    next_id: AtomicI64,
    has_ended: AtomicBool,
}

/// What a watch hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It hears everything from now on.
    Begun,
    /// The key is gone.
    Deleted,
}

/// A watch on one key. It ends when it is dropped.
pub(crate) struct Watch {
    id: i64,
    heard: mpsc::UnboundedReceiver<Heard>,
    hub: Arc<Hub>,
}

impl Hub {
    /// Begins the call.
    pub(crate) fn start(clock: &Clock, connection: Connection, token: Option<Token>) -> Arc<Self> {
        let (requests, requested) = mpsc::unbounded();
        let (watching, has_ended) = Default::default();
        let hub = Self { connection, token, requests, watching, next_id: AtomicI64::new(1), has_ended };
        let hub = Arc::new(hub);
        let serving = Arc::downgrade(&hub);
        let (connection, token) = (hub.connection.clone(), hub.token.clone());
        clock.serve(async move {
            let hear = |answer: &WatchResponse| serving.upgrade().map(|hub| hub.hear(answer)).is_some();
            // How it has ended does not matter: whoever watches looks for itself.
            drop(serve(&connection, token.as_ref(), requested, hear).await);
            if let Some(hub) = serving.upgrade() {
                hub.has_ended.store(true, Ordering::Release);
                lock(&hub.watching).clear();
            }
        });
        hub
    }

    /// Whether it can be used on `connection`.
    pub(crate) fn serves(&self, connection: &Connection) -> bool {
        self.connection.is(connection) && !self.has_ended.load(Ordering::Acquire)
    }

    /// Watches one key from `revision` on, or from now on with 0.
    pub(crate) fn watch(self: &Arc<Self>, key: &[u8], revision: i64) -> Watch {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, heard) = mpsc::unbounded();
        lock(&self.watching).insert(id, sender);
        let create = WatchCreateRequest {
            key: key.to_vec(),
            start_revision: revision,
            filters: vec![FilterType::Noput.into()],
            watch_id: id,
            ..WatchCreateRequest::default()
        };
        self.request(RequestUnion::CreateRequest(create));
        // The call may have ended before the watch was on the list.
        if self.has_ended.load(Ordering::Acquire) {
            lock(&self.watching).remove(&id);
        }
        Watch { id, heard, hub: Arc::clone(self) }
    }

    fn request(&self, request: RequestUnion) {
        // Where the call has ended, the watch has too.
        let _ = self.requests.unbounded_send(WatchRequest { request_union: Some(request) });
    }

    /// Tells the watch that an answer is for.
    fn hear(&self, answer: &WatchResponse) {
        let mut watching = lock(&self.watching);
        if answer.canceled {
            watching.remove(&answer.watch_id);
            return;
        }
        let Some(sender) = watching.get(&answer.watch_id) else { return };
        let begun = answer.created.then_some(Heard::Begun);
        let deleted = answer.events.iter().filter(|event| event.r#type() == EventType::Delete);
        for heard in begun.into_iter().chain(deleted.map(|_| Heard::Deleted)) {
            // Whoever watches may be about to end.
            let _ = sender.unbounded_send(heard);
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

    /// What it was begun with.
    pub(crate) fn token(&self) -> Option<&Token> {
        self.hub.token.as_ref()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if lock(&self.hub.watching).remove(&self.id).is_some() {
            self.hub.request(RequestUnion::CancelRequest(WatchCancelRequest { watch_id: self.id }));
        }
    }
}
