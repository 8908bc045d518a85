//! The example `axum_fence` over real HTTP, on a port of the loopback that the kernel chooses.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../examples/axum_fence.rs"]
#[expect(dead_code, reason = "the example's `main` takes a port that is fixed")]
mod axum_fence;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use fencepost::http::fencing_header;
use fencepost::{BackendUrl, Fence, FencingToken, MemoryFence, Stamp, StampHolder, block_on};
use serde_json::{Value, json};

/// The service, and the directory of its results.
struct Scene {
    directory: tempfile::TempDir,
    fence: Arc<dyn Fence>,
    address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

impl Scene {
    fn new() -> Self {
        Self::with(|url| fencepost::fence(url).unwrap())
    }

    /// A service that asks this fence first, beside the one that its store has.
    fn with(fence: impl FnOnce(&BackendUrl) -> Arc<dyn Fence>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url: BackendUrl = format!("file:{}", directory.path().join("sink").display()).parse().unwrap();
        let fence = fence(&url);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_io().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let service = axum_fence::service(url, Arc::clone(&fence));
        runtime.spawn(async move { axum::serve(listener, service).await });
        Self { directory, fence, address, _runtime: runtime }
    }

    /// A PUT of `body`, with these lines of header; the status and the answer.
    fn put(&self, path: &str, headers: &str, body: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(self.address).unwrap();
        let length = body.len();
        let head =
            format!("PUT {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {length}");
        write!(socket, "{head}\r\n{headers}\r\n{body}").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// The same for the lock of the stamp, under it.
    fn publish(&self, stamp: &Stamp, body: &str) -> (u16, String) {
        self.put(&format!("/results/{}", stamp.lock.canonical()), &line(stamp), body)
    }

    fn result(&self, stamp: &Stamp) -> String {
        fs::read_to_string(self.directory.path().join("sink").join(stamp.lock.canonical())).unwrap()
    }
}

fn line(stamp: &Stamp) -> String {
    let (name, value) = fencing_header(stamp);
    format!("{name}: {}\r\n", value.to_str().unwrap())
}

fn stamp(lock: &str, token: u64) -> Stamp {
    let (lock, token) = (lock.parse().unwrap(), FencingToken::try_from(token).unwrap());
    Stamp { lock, token, holder: StampHolder::new("0123456789abcdef").unwrap() }
}

fn parsed(body: &str) -> Value {
    serde_json::from_str(body).unwrap()
}

#[test]
fn holder_publishes_until_the_next_one_has_sealed() {
    let scene = Scene::new();
    let (old, new) = (stamp("totals/1", 7), stamp("totals/1", FencingToken::MAX));
    assert_eq!(scene.publish(&old, "old").0, 412, "nobody has sealed");
    block_on(scene.fence.seal(&old)).unwrap();
    assert_eq!(scene.publish(&old, "old"), (200, "published under 7\n".to_owned()));
    block_on(scene.fence.seal(&new)).unwrap();
    let (status, body) = scene.publish(&old, "late");
    let mark = json!({"token": FencingToken::MAX, "holder": "0123456789abcdef"});
    assert_eq!((status, &parsed(&body)["mark"]), (412, &mark));
    assert_eq!(scene.result(&old), "old");
    assert_eq!(scene.publish(&new, "new").0, 200);
    assert_eq!(scene.result(&old), "new");
}

#[test]
fn request_without_the_stamp_of_its_own_lock_is_refused() {
    let scene = Scene::new();
    let other = stamp("mine", 9);
    block_on(scene.fence.seal(&other)).unwrap();
    assert_eq!(scene.put("/results/totals", "", "x").0, 428);
    assert_eq!(scene.put("/results/totals", "Fencing-Token: 9\r\n", "x").0, 400);
    assert_eq!(scene.put("/results/totals", &line(&other).repeat(2), "x").0, 400);
    let (status, body) = scene.put("/results/totals", &line(&other), "x");
    assert_eq!((status, &parsed(&body)["lock"]), (400, &json!("totals")));
    assert_eq!(scene.put("/results/%ff", &line(&other), "x").0, 400);
    assert_eq!(scene.put("/results/mine", &line(&other), "x").0, 200);
}

#[test]
fn awkward_names_go_through_path_and_header() {
    let scene = Scene::new();
    for name in ["say \"hi\"", "a/b\\c;d=e", "straße/中", "100%"] {
        let stamp = stamp(name, 7);
        block_on(scene.fence.seal(&stamp)).unwrap();
        assert_eq!(scene.publish(&stamp, name).0, 200, "{name}");
        assert_eq!(scene.result(&stamp), name);
    }
}

/// The layer asks a fence that has not heard of the next holder yet, as if it had asked a moment earlier.
#[test]
fn holder_that_is_overtaken_behind_the_layer_is_refused_by_the_store() {
    let (old, new) = (stamp("totals", 7), stamp("totals", 8));
    let scene = Scene::with(|url| {
        block_on(fencepost::fence(url).unwrap().seal(&new)).unwrap();
        Arc::new(MemoryFence::default())
    });
    block_on(scene.fence.seal(&old)).unwrap();
    let (status, body) = scene.publish(&old, "late");
    assert_eq!(status, 412, "{body}");
    assert!(body.contains("cannot publish the result: token 7 is stale, the mark is 8"), "{body}");
    assert!(!scene.directory.path().join("sink/totals").exists());
}

#[test]
fn fence_that_is_damaged_is_500() {
    let scene = Scene::new();
    let stamp = stamp("totals", 7);
    block_on(scene.fence.seal(&stamp)).unwrap();
    // Its directory has been taken away, and a file is in its place.
    let sink = scene.directory.path().join("sink");
    fs::rename(&sink, scene.directory.path().join("gone")).unwrap();
    fs::write(&sink, "").unwrap();
    let (status, body) = scene.publish(&stamp, "x");
    assert_eq!((status, &parsed(&body)["mark"]), (500, &Value::Null), "{body}");
}

/// Nobody listens where the fence should be.
#[test]
#[cfg(feature = "redis")]
fn fence_that_is_away_is_503_and_nothing_is_published() {
    let scene = Scene::with(|_| fencepost::fence(&"redis://127.0.0.1:1".parse().unwrap()).unwrap());
    let stamp = stamp("totals", 7);
    let store: BackendUrl =
        format!("file:{}", scene.directory.path().join("sink").display()).parse().unwrap();
    block_on(fencepost::fence(&store).unwrap().seal(&stamp)).unwrap();
    let (status, body) = scene.publish(&stamp, "x");
    assert_eq!((status, &parsed(&body)["lock"]), (503, &json!("totals")), "{body}");
    assert!(!scene.directory.path().join("sink/totals").exists());
}
