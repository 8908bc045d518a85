//! The layer in front of a service that counts what reaches it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use async_trait::async_trait;
use fencepost_core::{
    Error, ErrorKind, Examination, Fence, FencingToken, Finding, LockName, Mark, MemoryFence, NamePrefix,
    Result, Stamp, StampHolder, block_on,
};
use fencepost_file::FileFence;
use fencepost_http::{FENCING_TOKEN, FencingLayer, fencing_header};
use http::{Request, Response};
use serde_json::{Value, json};
use tower_layer::Layer;
use tower_service::Service;

/// Answers with the stamp that it finds, and counts.
#[derive(Clone, Default)]
struct Ledger(Arc<AtomicUsize>);

impl Service<Request<()>> for Ledger {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<std::result::Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        self.0.fetch_add(1, Ordering::Relaxed);
        let stamp: &Stamp = request.extensions().get().unwrap();
        ready(Ok(Response::new(format!("{} {}", stamp.lock, stamp.token))))
    }
}

/// A layer, and how many requests have passed it.
struct Scene {
    layer: FencingLayer,
    ledger: Ledger,
}

impl Scene {
    fn new(fence: Arc<dyn Fence>) -> Self {
        let lock_of = |request: &http::request::Parts| request.uri.path().trim_start_matches('/').parse();
        Self { layer: FencingLayer::lock_from(fence, lock_of), ledger: Ledger::default() }
    }

    /// The status and the body of the answer to a request with these headers.
    fn put(&self, path: &str, headers: &[(http::HeaderName, http::HeaderValue)]) -> (u16, String) {
        let mut request = Request::put(path).body(()).unwrap();
        for (name, value) in headers {
            request.headers_mut().append(name, value.clone());
        }
        let response = block_on(self.layer.layer(self.ledger.clone()).call(request)).unwrap();
        (response.status().as_u16(), response.into_body())
    }

    fn shows(&self, path: &str, stamp: &Stamp) -> (u16, String) {
        self.put(path, &[fencing_header(stamp)])
    }

    #[track_caller]
    fn refuses(&self, answer: &(u16, String), status: u16) -> Value {
        assert_eq!((answer.0, self.ledger.0.load(Ordering::Relaxed)), (status, 0), "{answer:?}");
        let body: Value = serde_json::from_str(&answer.1).unwrap();
        let keys: Vec<&str> = body.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["error", "lock", "mark", "token"]);
        body
    }
}

fn stamp(lock: &str, token: u64, holder: &str) -> Stamp {
    let (lock, token) = (lock.parse().unwrap(), FencingToken::try_from(token).unwrap());
    Stamp { lock, token, holder: StampHolder::new(holder).unwrap() }
}

/// Each fence of these tests, with nothing sealed.
fn each_fence(test: impl Fn(Arc<dyn Fence>)) {
    test(Arc::new(MemoryFence::default()));
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().display()).parse().unwrap();
    test(Arc::new(FileFence::from_url(&url).unwrap()));
}

#[test]
fn sealed_stamp_passes_and_is_handed_to_the_service() {
    each_fence(|fence| {
        let scene = Scene::new(Arc::clone(&fence));
        let sealed = stamp("ledger/1", FencingToken::MAX, "0123-abc");
        block_on(fence.seal(&sealed)).unwrap();
        assert_eq!(scene.shows("/ledger/1", &sealed), (200, format!("ledger/1 {}", FencingToken::MAX)));
        assert_eq!(scene.shows("/ledger/1", &sealed).0, 200);
    });
}

#[test]
fn stale_stamp_is_412_with_the_mark() {
    each_fence(|fence| {
        let scene = Scene::new(Arc::clone(&fence));
        block_on(fence.seal(&stamp("a", 8, "new"))).unwrap();
        for (token, holder) in [(7, "old"), (7, "new"), (8, "other"), (9, "new"), (FencingToken::MAX, "new")]
        {
            let refused = scene.refuses(&scene.shows("/a", &stamp("a", token, holder)), 412);
            assert_eq!(refused["mark"], json!({"token": 8, "holder": "new"}));
            assert_eq!((&refused["lock"], &refused["token"]), (&json!("a"), &json!(token)));
            assert!(refused["error"].as_str().unwrap().contains(&token.to_string()), "{refused}");
        }
        assert_eq!(block_on(fence.mark(&"a".parse().unwrap())).unwrap().unwrap().token.get(), 8);
    });
}

#[test]
fn stamp_that_was_never_sealed_is_412_and_seals_nothing() {
    each_fence(|fence| {
        let scene = Scene::new(Arc::clone(&fence));
        let refused = scene.refuses(&scene.shows("/a", &stamp("a", 7, "")), 412);
        assert_eq!(refused["mark"], Value::Null);
        assert_eq!(block_on(fence.mark(&"a".parse().unwrap())).unwrap(), None);
    });
}

#[test]
fn sealed_stamp_of_another_lock_is_refused() {
    each_fence(|fence| {
        let scene = Scene::new(Arc::clone(&fence));
        let other = stamp("b", 9, "x");
        block_on(fence.seal(&other)).unwrap();
        let refused = scene.refuses(&scene.shows("/a", &other), 400);
        assert_eq!((&refused["lock"], &refused["mark"]), (&json!("a"), &Value::Null));
    });
}

#[test]
fn request_without_a_stamp_is_428_and_one_in_doubt_400() {
    each_fence(|fence| {
        let scene = Scene::new(Arc::clone(&fence));
        let sealed = stamp("a", 7, "x");
        block_on(fence.seal(&sealed)).unwrap();
        let refused = scene.refuses(&scene.put("/a", &[]), 428);
        assert_eq!((&refused["lock"], &refused["token"]), (&json!("a"), &Value::Null));
        let header = fencing_header(&sealed);
        scene.refuses(&scene.put("/a", &[header.clone(), header]), 400);
        scene.refuses(&scene.put("/a", &[(FENCING_TOKEN, "7".parse().unwrap())]), 400);
        scene.refuses(&scene.put("/", &[]), 400);
    });
}

#[test]
fn names_that_are_awkward_pass_for_themselves_alone() {
    each_fence(|fence| {
        let names = ["say \"hi\"", "back\\slash", "a;lock=\"b\"", "straße/中", "100%", "%22", " a "];
        for name in names {
            let layer = FencingLayer::new(Arc::clone(&fence), name.parse().unwrap());
            let scene = Scene { layer, ledger: Ledger::default() };
            for other in names.iter().filter(|other| **other != name) {
                block_on(fence.seal(&stamp(other, 7, "x"))).unwrap();
                let refused = scene.refuses(&scene.shows("/", &stamp(other, 7, "x")), 400);
                assert_eq!(refused["lock"], json!(name));
            }
            block_on(fence.seal(&stamp(name, 7, "x"))).unwrap();
            assert_eq!(scene.shows("/", &stamp(name, 7, "x")), (200, format!("{name} 7")));
        }
    });
}

/// A fence that answers every call with an error of this kind.
#[derive(Debug)]
struct Away(ErrorKind);

impl Away {
    fn error<T>(&self) -> Result<T> {
        Err(Error::new(self.0, "ask the fence", "it is at 10.0.0.1"))
    }
}

impl fmt::Display for Away {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("away:")
    }
}

#[async_trait]
impl Fence for Away {
    async fn seal(&self, _: &Stamp) -> Result<()> {
        self.error()
    }

    async fn check(&self, _: &Stamp) -> Result<()> {
        self.error()
    }

    async fn mark(&self, _: &LockName) -> Result<Option<Mark>> {
        Err(Error::new(ErrorKind::Unavailable, "ask the fence", "it is at 10.0.0.1"))
    }

    async fn marks(&self, _: &NamePrefix) -> Result<Vec<(LockName, Mark)>> {
        self.error()
    }

    async fn forget(&self, _: &LockName) -> Result<bool> {
        self.error()
    }

    async fn findings(&self, _: &LockName) -> Result<Vec<Finding>> {
        self.error()
    }

    async fn examine(&self) -> Result<Examination> {
        self.error()
    }
}

#[test]
fn fence_that_gives_no_answer_lets_nothing_pass() {
    use ErrorKind::{
        Contended, Denied, Indeterminate, InvalidArgument, Lost, Stale, Unavailable, Unexpected,
    };
    // A stale stamp whose mark cannot be told is refused as well.
    for kind in [Unavailable, Indeterminate, Contended, Stale] {
        let scene = Scene::new(Arc::new(Away(kind)));
        let refused = scene.refuses(&scene.shows("/a", &stamp("a", 7, "x")), 503);
        assert!(!refused.to_string().contains("10.0.0.1"), "{refused}");
    }
    for kind in [Denied, InvalidArgument, Lost, Unexpected, ErrorKind::Unsupported] {
        let scene = Scene::new(Arc::new(Away(kind)));
        scene.refuses(&scene.shows("/a", &stamp("a", 7, "x")), 500);
    }
}

#[test]
fn cause_of_a_refusal_is_left_for_the_operator() {
    let layer = FencingLayer::new(Arc::new(Away(ErrorKind::Unavailable)), "a".parse().unwrap());
    let mut request = Request::put("/").body(()).unwrap();
    request.headers_mut().extend([fencing_header(&stamp("a", 7, "x"))]);
    let response = block_on(layer.layer(Ledger::default()).call(request)).unwrap();
    let cause: &Error = response.extensions().get().unwrap();
    assert!(cause.to_string().contains("10.0.0.1"), "{cause}");
}
