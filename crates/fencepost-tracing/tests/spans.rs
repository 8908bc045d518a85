//! The spans and events of attempts and leases, as a subscriber sees them.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencepost_core::{Clock, Fence, Locks, MemoryBackend, MemoryFence, Raced, Stamp, VirtualTime, race};
use fencepost_tracing::Spans;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

/// Writes down spans when they close, and events, each with the path of the spans around it.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Fields {
    fn of(&self, names: &[&str]) -> String {
        names.iter().fold(String::new(), |mut text, name| {
            if let Some(value) = self.0.get(name) {
                write!(text, " {name}={value}").expect("a string takes everything");
            }
            text
        })
    }
}

impl Diary {
    fn note(&self, line: String) {
        self.0.lock().expect("nobody panics here").push(line);
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().expect("nobody panics here").clone()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Diary {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        context.span(id).expect("it is new").extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).expect("it is open");
        values.record(span.extensions_mut().get_mut::<Fields>().expect("it was put there"));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let path = context.event_span(event).map_or("nowhere".to_owned(), |span| span.name().to_owned());
        let level = event.metadata().level();
        self.note(format!("{path}: {level} {}{}", fields.0["message"], fields.of(&["reason"])));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).expect("it is closing");
        let parent = span.parent().map_or("nothing", |parent| parent.name());
        let extensions = span.extensions();
        let fields = extensions.get::<Fields>().expect("it was put there");
        let names = ["lock", "backend", "token", "outcome", "otel.status_code"];
        self.note(format!("{} under {parent}:{}", span.name(), fields.of(&names)));
    }
}

#[test]
fn attempt_and_lease_are_spans_under_that_of_their_caller() {
    let diary = Diary::default();
    let time = VirtualTime::new(1);
    let locks = Locks::new(MemoryBackend::new(time.clock()));
    let lock = locks.lock("orders").unwrap().observer(Arc::new(Spans));
    let token = tracing::subscriber::with_default(Registry::default().with(diary.clone()), || {
        let _job = tracing::info_span!("job").entered();
        time.block_on(async {
            let lease = lock.acquire().await.unwrap();
            assert!(lock.try_acquire().await.unwrap().is_none());
            let dropped = race(time.clock().sleep(Duration::from_secs(1)), lock.acquire()).await;
            assert!(matches!(dropped, Raced::First(())));
            let token = lease.token();
            lease.release().await.unwrap();
            token
        })
    });
    let expected = [
        format!("acquire under job: lock=orders backend=memory token={token} outcome=granted"),
        "acquire under job: lock=orders backend=memory outcome=not_acquired".to_owned(),
        "acquire under job: lock=orders backend=memory outcome=given_up".to_owned(),
        format!("lease under job: lock=orders backend=memory token={token} outcome=released"),
        "job under nothing:".to_owned(),
    ];
    assert_eq!(diary.all(), expected);
}

#[test]
fn loss_and_refusal_are_events_in_the_span_of_the_lease_and_its_error() {
    let diary = Diary::default();
    let time = VirtualTime::new(1);
    let locks = Locks::new(MemoryBackend::new(time.clock()));
    let lock = locks.lock("orders").unwrap().observer(Arc::new(Spans));
    tracing::subscriber::with_default(Registry::default().with(diary.clone()), || {
        time.block_on(async {
            let lease = lock.acquire().await.unwrap();
            let fence = MemoryFence::default();
            let next = (lease.token().get() + 1).try_into().unwrap();
            fence.seal(&Stamp { token: next, ..lease.stamp() }).await.unwrap();
            lease.heed(fence.check(&lease.stamp()).await).unwrap_err();
            lease.release().await.unwrap_err();
        });
    });
    let diary = diary.all();
    let ends = |line: &String, end: &str| assert!(line.ends_with(end), "{diary:#?}");
    ends(&diary[1], "lease: ERROR a fence has refused the token");
    ends(&diary[2], "lease: ERROR the lease is lost reason=refused");
    ends(&diary[3], "outcome=lost otel.status_code=ERROR");
    assert_eq!(diary.len(), 4, "{diary:#?}");
}

/// Leases are kept on fencepost's own thread, which has no subscriber of its own.
#[test]
fn renewals_on_another_thread_are_told_to_the_subscriber_of_the_span() {
    let diary = Diary::default();
    let locks = Locks::new(MemoryBackend::new(Clock::system()));
    let ttl = Duration::from_millis(400);
    let lock = locks.lock("orders").unwrap().ttl(ttl).observer(Arc::new(Spans));
    tracing::subscriber::with_default(Registry::default().with(diary.clone()), || {
        let lease = fencepost_core::block_on(lock.acquire()).unwrap();
        let renewed = || diary.all().iter().any(|line| line == "lease: TRACE the lease was renewed");
        // Who waits by `block_on` renews by itself; this thread does nothing.
        let (_never, nothing) = std::sync::mpsc::channel::<()>();
        let give_up_at = Clock::system().now().after(ttl * 50);
        while !renewed() && Clock::system().now() < give_up_at {
            let _ = nothing.recv_timeout(ttl / 20);
        }
        assert!(renewed(), "{:#?}", diary.all());
        drop(lease);
        fencepost_core::block_on(Clock::system().settled());
    });
    assert!(diary.all().last().unwrap().contains("outcome=released"), "{:#?}", diary.all());
}
