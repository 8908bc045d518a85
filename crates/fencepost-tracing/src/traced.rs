//! One attempt and its lease, as spans.
//!
//! A lease is renewed and lost on another thread than the one that acquired it. Invariant: events go to the subscriber that the
//! spans belong to, whatever the thread has as its own.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fencepost_core::{Attempt, Error, ErrorKind, Event, LockName, Observer};
use tracing::field::Empty;
use tracing::{Span, dispatcher};

/// The spans of one attempt and its lease.
#[derive(Debug)]
pub(super) struct Traced {
    backend: &'static str,
    /// What was current when the attempt began.
    parent: Mutex<Option<Span>>,
    /// The attempt's, and then the lease's; a span ends when it is dropped.
    open: Mutex<Option<Span>>,
}

macro_rules! span {
    ($parent:expr, $name:literal, $lock:expr, $backend:expr) => {
        tracing::info_span!(
            target: "fencepost",
            parent: $parent,
            $name,
            lock = %$lock,
            backend = $backend,
            token = Empty,
            holder = Empty,
            outcome = Empty,
            otel.status_code = Empty,
        )
    };
}

macro_rules! event {
    ($level:ident, $span:expr, $($what:tt)+) => {
        inside($span, || tracing::event!(target: "fencepost", parent: $span, tracing::Level::$level, $($what)+))
    };
}

impl Traced {
    pub(super) fn begin(attempt: &Attempt<'_>) -> Self {
        let parent = Span::current();
        let open = span!(&parent, "acquire", attempt.lock, attempt.backend);
        Self { backend: attempt.backend, parent: Mutex::new(Some(parent)), open: Mutex::new(Some(open)) }
    }

    fn open(&self) -> MutexGuard<'_, Option<Span>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The span of the attempt ends, and that of the lease begins.
    fn grant(&self, lock: &LockName, token: i64, holder: &str) {
        let mut open = self.open();
        let parent = self.parent.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(acquire) = open.take() else { return };
        let lease =
            inside(&acquire, || span!(parent.as_ref().unwrap_or(&acquire), "lease", lock, self.backend));
        for span in [&acquire, &lease] {
            span.record("token", token);
            span.record("holder", holder);
        }
        acquire.record("outcome", "granted");
        *open = Some(lease);
    }

    fn end(&self, outcome: &str, is_error: bool) {
        let Some(span) = self.open().take() else { return };
        span.record("outcome", outcome);
        if is_error {
            span.record("otel.status_code", "ERROR");
        }
    }

    /// Something that happens on the way.
    fn tell(&self, event: &Event) {
        let open = self.open();
        let Some(span) = open.as_ref() else { return };
        match event {
            Event::Renewed { .. } => event!(TRACE, span, "the lease was renewed"),
            Event::RenewFailed { error } => event!(WARN, span, %error, "a renewal has failed"),
            Event::Lost { error } => {
                let reason = error.loss_reason().map_or("deadline", fencepost_core::LossReason::as_str);
                event!(ERROR, span, %error, reason, "the lease is lost");
            }
            Event::Stale { error } => event!(ERROR, span, %error, "a fence has refused the token"),
            Event::Quarantined => event!(WARN, span, "the store grants nothing yet"),
            Event::Noticed { what } => event!(WARN, span, what, "noticed"),
            Event::NotGranted { error, .. } if !is_usual(error) => {
                event!(WARN, span, %error, "not granted");
            }
            _ => {}
        }
    }
}

/// Does it where the subscriber of `span` is told.
fn inside<T>(span: &Span, work: impl FnOnce() -> T) -> T {
    let dispatch = span.with_subscriber(|(_, dispatch)| dispatch.clone());
    match dispatch {
        Some(dispatch) => dispatcher::with_default(&dispatch, work),
        None => work(),
    }
}

/// Whether somebody else had the lock, or has done the work: nothing has gone wrong then.
fn is_usual(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Contended | ErrorKind::AlreadyDone)
}

impl Observer for Traced {
    fn observe(&self, lock: &LockName, event: &Event) {
        self.tell(event);
        match event {
            Event::Granted { token, holder, .. } => {
                // Tokens are numbers up to 2^63-1.
                let token = i64::try_from(token.get()).unwrap_or(i64::MAX);
                self.grant(lock, token, &holder.to_string());
            }
            Event::NotGranted { error, .. } => self.end(error.kind().outcome(), !is_usual(error)),
            Event::GivenUp { .. } => self.end("given_up", false),
            Event::Released { error: None, .. } => self.end("released", false),
            Event::Released { error: Some(error), .. } if error.kind() == ErrorKind::Lost => {
                self.end("lost", true);
            }
            Event::Released { .. } => self.end("failed", true),
            Event::Detached { .. } => self.end("detached", false),
            _ => {}
        }
    }
}
