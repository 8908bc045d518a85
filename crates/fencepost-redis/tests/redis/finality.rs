//! What was given up stays given up, whatever is still on its way, and whoever is not the holder changes nothing.

use std::time::Duration;

use std::thread::JoinHandle;

use fencepost_core::{ErrorKind, FencingToken, Handover, Lease, Lock, Result, Revoked, Status};
use fencepost_testkit::block_on;
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::{RedisServer, wait_until};
use futures_util::FutureExt;

use crate::stage::{
    CARELESS, RENEW, SLACK, Signpost, TTL, ask, assert_held, assert_kind, assert_nothing_is_left, at, key,
    keys, lock, look, now, proxy_to, refusal, release, scripts, take, wait_for_waiters,
};

/// A request to acquire that is held back on a connection which its client has given up.
struct Late {
    server: RedisServer,
    proxy: Proxy,
}

/// Tries once, in the background.
fn try_once(lock: &Lock) -> JoinHandle<Result<Option<Lease>>> {
    let lock = lock.clone();
    std::thread::spawn(move || block_on(lock.try_acquire()))
}

impl Late {
    /// The request, and its sender, which goes on by another way.
    fn request<T>(send: impl FnOnce(&Lock) -> T) -> (Self, T) {
        let server = RedisServer::start();
        let proxy = proxy_to(&server);
        let signpost = Signpost::to(proxy.port());
        let ann = signpost.locks(CARELESS);
        // The server knows the script then, and would run the late request.
        release(take(&lock(&ann, "a")));
        proxy.set(Mode::RequestHole);
        signpost.turn_to(server.port());
        let asking = send(&lock(&ann, "a").ttl(Duration::from_secs(20)));
        wait_until("the request is on its way", || proxy.held_requests() > 0);
        (Self { server, proxy }, asking)
    }

    /// Lets the late request arrive, and waits until it was carried out.
    fn arrives(&self) {
        let before = scripts(&self.server);
        self.proxy.set(Mode::Pass);
        wait_until("the late request was carried out", || scripts(&self.server) > before);
    }

    fn tombstones(&self) -> Vec<String> {
        keys(&self.server).into_iter().filter(|key| key.contains(":x:")).collect()
    }

    fn status(&self) -> Status {
        look(&at(self.server.port(), CARELESS), "a").status
    }
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn request_that_arrives_after_it_was_cancelled_gets_nothing() {
    let (late, asking) = Late::request(try_once);
    let asked = now();
    assert_kind(&asking.join().unwrap().unwrap_err(), ErrorKind::Unavailable);
    assert!(now().since(asked) < Duration::from_secs(2) + SLACK, "a command has its deadline");
    let tombstones = late.tombstones();
    assert_eq!(tombstones.len(), 1);
    let left = late.server.command(&["PTTL", &tombstones[0]]).integer();
    assert!((50_000..=60_000).contains(&left), "it lasts for the max_ttl: {left}");
    late.arrives();
    assert_eq!(late.status(), Status::Free);
    release(take(&lock(&at(late.server.port(), CARELESS), "a")));
    assert_nothing_is_left(&late.server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn request_of_a_reader_that_arrives_after_it_was_cancelled_gets_nothing() {
    let (late, asking) = Late::request(|lock| try_once(&lock.clone().shared()));
    assert_kind(&asking.join().unwrap().unwrap_err(), ErrorKind::Unavailable);
    let reader = take(&lock(&at(late.server.port(), CARELESS), "a").shared());
    late.arrives();
    let readers = look(&at(late.server.port(), CARELESS), "a").readers;
    assert_eq!(readers.iter().map(|reader| reader.holder).collect::<Vec<_>>(), [reader.holder()]);
    release(reader);
    assert_nothing_is_left(&late.server);
}

/// The control: without the tombstone the late request takes the lock for nobody.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn late_request_takes_the_lock_where_no_tombstone_stops_it() {
    let (late, asking) = Late::request(try_once);
    assert!(asking.join().unwrap().is_err());
    for tombstone in late.tombstones() {
        late.server.command(&["DEL", &tombstone]);
    }
    late.arrives();
    assert_eq!(late.status(), Status::Held);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn request_that_arrives_after_the_release_gets_nothing() {
    let (late, asking) = Late::request(ask);
    let (lease, _) = asking.lease();
    assert_held(&lease, &at(late.server.port(), CARELESS));
    release(lease);
    assert_eq!(late.tombstones().len(), 1);
    late.arrives();
    assert_eq!(late.status(), Status::Free);
    assert_nothing_is_left(&late.server);
}

/// The same request twice is one grant.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn request_that_arrives_while_its_lock_is_held_changes_nothing() {
    let (late, asking) = Late::request(ask);
    let (lease, _) = asking.lease();
    late.arrives();
    assert_held(&lease, &at(late.server.port(), CARELESS));
    release(lease);
    assert_eq!(late.status(), Status::Free);
    assert_nothing_is_left(&late.server);
}

/// The reply is lost, and the client asks again on a new connection.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lost_reply_to_a_request_is_one_grant_all_the_same() {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let ann = at(proxy.port(), CARELESS);
    release(take(&lock(&ann, "a")));
    proxy.set(Mode::ReplyHole);
    let asking = ask(&lock(&ann, "a").ttl(Duration::from_secs(20)));
    wait_until("the server has granted it", || {
        look(&at(server.port(), CARELESS), "a").status == Status::Held
    });
    let granted = look(&at(server.port(), CARELESS), "a");
    proxy.set(Mode::Cut);
    proxy.set(Mode::Pass);
    let (lease, _) = asking.lease();
    assert_eq!(Some(lease.token()), granted.token);
    release(lease);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lost_reply_to_a_release_is_a_release_all_the_same() {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let ann = at(proxy.port(), CARELESS);
    // The server knows the script then, and runs it with the first request.
    release(take(&lock(&ann, "a")));
    let lease = take(&lock(&ann, "a").ttl(Duration::from_secs(20)));
    proxy.set(Mode::ReplyHole);
    let releasing = std::thread::spawn(move || block_on(lease.release()));
    wait_until("the server has released it", || server.command(&["EXISTS", &key("a", "l")]).integer() == 0);
    proxy.set(Mode::Cut);
    proxy.set(Mode::Pass);
    releasing.join().unwrap().expect("it was ours when it was released");
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn older_renewal_with_a_shorter_ttl_does_not_shorten_the_lease() {
    let server = RedisServer::start();
    let lease = take(&lock(&at(server.port(), CARELESS), "a").ttl(Duration::from_secs(30)));
    let beginning = format!("1|{}|{}|held|", lease.holder(), lease.token());
    let record = key("a", "l");
    let renew = |beginning: &str, ttl: &str| {
        let reply = server.command(&["EVAL", RENEW, "1", &record, beginning, ttl]);
        reply.array()[1].integer()
    };
    assert_eq!(renew(&beginning, "500"), 1);
    assert!(server.command(&["PTTL", &record]).integer() > 20_000);
    assert_eq!(renew(&beginning, "50000"), 1, "a longer one counts");
    assert!(server.command(&["PTTL", &record]).integer() > 40_000);
    // Nor does the renewal of somebody who held it before: the token is another one.
    let before = format!("1|{}|{}|held|", lease.holder(), lease.token().get() - 1);
    assert_eq!(renew(&before, "90000"), 0);
    assert!(server.command(&["PTTL", &record]).integer() < 60_000);
    release(lease);
    assert_eq!(renew(&beginning, "500"), 0, "what is gone is not made anew");
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn holder_of_before_changes_nothing() {
    let server = RedisServer::start();
    let locks = at(server.port(), CARELESS);
    let before = take(&lock(&locks, "a"));
    let handover = before.handover().unwrap().clone();
    release(before);
    let lease = take(&lock(&locks, "a"));
    let error = block_on(locks.backend().give_back(&handover)).unwrap_err();
    assert_kind(&error, ErrorKind::Lost);
    // The same holder with another token is another one too.
    let mixed = Handover { holder: lease.holder(), ..handover.clone() };
    assert_kind(&block_on(locks.backend().give_back(&mixed)).unwrap_err(), ErrorKind::Lost);
    for token in [handover.token, FencingToken::try_from(lease.token().get() + 1).unwrap()] {
        assert_eq!(block_on(locks.revoke("a", token, "")).unwrap(), Revoked::NotCurrent);
    }
    assert_held(&lease, &locks);
    release(lease);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn nothing_that_goes_well_writes_a_tombstone() {
    let server = RedisServer::start();
    let (ann, bob) = (at(server.port(), CARELESS), at(server.port(), CARELESS));
    let lease = take(&lock(&ann, "a"));
    assert_kind(&refusal(&lock(&bob, "a")), ErrorKind::Contended);
    let waited = block_on(lock(&bob, "a").wait(TTL / 4).acquire());
    assert_kind(&waited.unwrap_err(), ErrorKind::Contended);
    let asking = ask(&lock(&bob, "a"));
    wait_for_waiters(&server, "a", 1);
    release(lease);
    release(asking.lease().0);
    let left: Vec<String> = keys(&server).into_iter().filter(|key| key.contains(":x:")).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn acquisition_that_is_dropped_while_its_request_is_held_back_leaves_nothing() {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let ann = at(proxy.port(), "quarantine=off&max_ttl=3s");
    release(take(&lock(&ann, "a")));
    for mode in [Mode::RequestHole, Mode::ReplyHole] {
        proxy.set(mode);
        let (requests, replies) = (proxy.held_requests(), proxy.held_replies());
        let wanted = lock(&ann, "a").ttl(Duration::from_secs(3));
        let mut acquiring = Box::pin(async move { wanted.acquire().await });
        let is_pending = (&mut acquiring).now_or_never().is_none();
        assert!(is_pending);
        wait_until("it is under way", || {
            let _ = (&mut acquiring).now_or_never();
            proxy.held_requests() > requests || proxy.held_replies() > replies
        });
        drop(acquiring);
        proxy.set(Mode::Pass);
        assert_nothing_is_left(&server);
        release(take(&lock(&ann, "a")));
    }
}
