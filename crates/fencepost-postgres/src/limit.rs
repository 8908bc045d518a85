//! Whether the server ends a session when it is idle, because it has waited: a stopped waiter would be granted the lock.
//!
//! Invariant: a session on which somebody waits is limited, or a statement is under way that limits it before it waits. So what ends
//! the limit is sent before anybody begins to wait, or not at all.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Mutex;

use fencepost_core::lock;

/// The limit of one session.
#[derive(Debug, Default)]
pub(crate) struct Limit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_set: bool,
    /// The locks that somebody waits for, in a request or in the door: a set may wait for several slots at once.
    waiting: Vec<i32>,
    /// How many requests there were.
    requests: u64,
}

/// What a request has found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    number: u64,
    is_alone: bool,
    was_set: bool,
}

impl Begun {
    /// Whether the request ends the limit where it is granted at once.
    pub(crate) fn ends_it(self) -> bool {
        self.was_set && self.is_alone
    }
}

impl Limit {
    pub(crate) fn is_set(&self) -> bool {
        lock(&self.0).is_set
    }

    /// The session works by other terms, and nobody waits on it.
    pub(crate) fn reset(&self) {
        lock(&self.0).is_set = false;
    }

    /// Begins a request for a lock, before it is sent. Where it may wait the session counts as limited until it has answered otherwise.
    pub(crate) fn begin(&self, id: i32, waits: bool) -> Begun {
        let mut state = lock(&self.0);
        state.waiting.retain(|waited_for| *waited_for != id);
        state.requests += 1;
        let begun =
            Begun { number: state.requests, is_alone: state.waiting.is_empty(), was_set: state.is_set };
        if waits {
            state.is_set = true;
            state.waiting.push(id);
        }
        begun
    }

    /// Nobody waits for the lock any more.
    pub(crate) fn stop(&self, id: i32) {
        lock(&self.0).waiting.retain(|waited_for| *waited_for != id);
    }

    /// A request was granted at once. Any other one beside it may have limited the session.
    pub(crate) fn not_waited(&self, begun: Begun) {
        let mut state = lock(&self.0);
        if begun.is_alone && state.requests == begun.number {
            state.is_set = false;
        }
    }

    /// Ends the limit by `sending`, which is sent when it is first polled, where there is one and nobody waits.
    ///
    /// # Cancel safety
    /// As that of `sending`.
    pub(crate) async fn end<E>(&self, sending: impl Future<Output = Result<(), E>>) -> Result<(), E> {
        let mut sending = pin!(sending);
        let mut is_sent = false;
        poll_fn(|context| {
            if is_sent {
                return sending.as_mut().poll(context);
            }
            let mut state = lock(&self.0);
            if !state.is_set || !state.waiting.is_empty() {
                return Ok(()).into();
            }
            state.is_set = false;
            is_sent = true;
            sending.as_mut().poll(context)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::FutureExt;

    use super::*;

    /// Whether it is sent.
    fn ends(limit: &Limit) -> bool {
        let mut is_sent = false;
        let sending = async {
            is_sent = true;
            // Who would begin now is sent behind it.
            assert!(limit.0.try_lock().is_err());
            Ok::<_, Infallible>(())
        };
        limit.end(sending).now_or_never().unwrap().unwrap();
        is_sent
    }

    #[test]
    fn limit_is_ended_once_and_not_while_anybody_waits() {
        let limit = Limit::default();
        assert!(!ends(&limit), "there is none");
        limit.begin(1, true);
        assert!(!ends(&limit));
        limit.begin(2, true);
        limit.stop(2);
        assert!(!ends(&limit), "the first one still waits");
        limit.begin(1, true);
        limit.stop(1);
        assert!(limit.is_set() && ends(&limit));
        assert!(!limit.is_set() && !ends(&limit));
    }

    #[test]
    fn grant_at_once_ends_it_only_where_nobody_waits_beside_it() {
        let limit = Limit::default();
        let first = limit.begin(1, true);
        assert!(!first.ends_it(), "there was none");
        limit.stop(1);
        limit.not_waited(first);
        assert!(!limit.is_set());
        limit.begin(1, true);
        let beside = limit.begin(2, false);
        assert!(!beside.ends_it());
        limit.stop(2);
        limit.not_waited(beside);
        assert!(limit.is_set());
        limit.stop(1);
        let last = limit.begin(3, false);
        assert!(last.ends_it());
        limit.begin(4, true);
        limit.stop(4);
        limit.not_waited(last);
        assert!(limit.is_set(), "the one behind it has limited it again");
    }
}
