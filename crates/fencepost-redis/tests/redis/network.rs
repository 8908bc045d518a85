//! Faults of the path to the server, and servers that are none.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::{ErrorKind, Event, Lease, LossReason, Status};
use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::{RedisServer, wait_until};
use fencepost_testkit::{Listener, block_on};

use crate::stage::{
    CARELESS, Diary, SLACK, TTL, ask, assert_held, assert_kind, assert_nothing_is_left, at, deadline, key,
    lock, locks, look, loss, now, pass, proxy_to, refusal, release, scripts, take, wait_for_waiters,
};

/// How long the server may leave a command without its reply.
const COMMAND_MOST: Duration = Duration::from_secs(2);

/// How long a try to connect may take.
const CONNECT_MOST: Duration = Duration::from_secs(2);

/// A holder that the path to the server is taken from.
fn holder_is_lost_by_its_deadline(mode: Mode) {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let (ann, bob) = (at(proxy.port(), CARELESS), at(server.port(), CARELESS));
    let held = take(&lock(&ann, "a"));
    let waiting = ask(&lock(&bob, "a"));
    pass(TTL / 4);
    proxy.set(mode);
    let (error, _) = loss(&held);
    assert_eq!(error.loss_reason(), Some(LossReason::Deadline), "{error}");
    let deadline = deadline(&held);
    assert!(held.check().is_err());
    let (next, granted) = waiting.lease();
    assert!(granted >= deadline, "the holds do not overlap");
    assert!(granted.since(deadline) < SLACK + TTL);
    assert!(next.token() > held.token());
    proxy.set(Mode::Pass);
    // The path is there again: what was lost stays lost, and the next holder is left alone.
    let outcome = block_on(held.release());
    assert_kind(&outcome.expect_err("it was lost"), ErrorKind::Lost);
    assert_held(&next, &bob);
    release(next);
    release(take(&lock(&ann, "a")));
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn holder_in_a_black_hole_is_lost_by_its_deadline() {
    holder_is_lost_by_its_deadline(Mode::Blackhole);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn holder_that_is_cut_off_is_lost_by_its_deadline() {
    holder_is_lost_by_its_deadline(Mode::Cut);
}

/// The server has renewed the lease to the last, so the next holder waits for longer.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn holder_that_hears_nothing_is_lost_by_its_deadline() {
    holder_is_lost_by_its_deadline(Mode::ReplyHole);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn holder_on_a_server_that_stands_still_is_lost_by_its_deadline() {
    let server = RedisServer::start();
    let (ann, bob) = (at(server.port(), CARELESS), at(server.port(), CARELESS));
    let held = take(&lock(&ann, "a"));
    let waiting = ask(&lock(&bob, "a"));
    wait_for_waiters(&server, "a", 1);
    server.stop();
    let (error, _) = loss(&held);
    assert_eq!(error.loss_reason(), Some(LossReason::Deadline), "{error}");
    server.go_on();
    // The renewals that the server finds when it goes on come too late.
    let (next, granted) = waiting.lease();
    assert!(granted >= deadline(&held), "the holds do not overlap");
    assert!(next.token() > held.token());
    assert_kind(&block_on(held.release()).expect_err("it was lost"), ErrorKind::Lost);
    assert_held(&next, &bob);
    release(next);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn holder_that_is_cut_off_for_a_while_keeps_its_lease() {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let (ann, diary) = (at(proxy.port(), CARELESS), Arc::new(Diary::default()));
    let held = take(&lock(&ann, "a").ttl(Duration::from_secs(3)).observer(diary.listener()));
    for mode in [Mode::Cut, Mode::Blackhole] {
        let failed = diary.count("failed");
        proxy.set(mode);
        pass(Duration::from_secs(1));
        proxy.set(Mode::Pass);
        let before = deadline(&held);
        wait_until("it is renewed again", || deadline(&held) > before);
        held.check().expect("a second is less than the ttl");
        assert!(mode == Mode::Blackhole || diary.count("failed") > failed, "{diary}");
    }
    release(held);
    assert_nothing_is_left(&server);
}

/// What was given up while the server could not be reached is not sent when it can be again.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn outage_is_followed_by_one_renewal_of_each_lease() {
    const LEASES: u64 = 60;
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let ann = at(proxy.port(), CARELESS);
    let ttl = Duration::from_secs(4);
    let leases: Vec<Lease> =
        (0..LEASES).map(|number| take(&lock(&ann, &format!("a/{number}")).ttl(ttl))).collect();
    proxy.set(Mode::Cut);
    proxy.set(Mode::Blackhole);
    // Each lease is tried to be renewed several times before the next connection is given up.
    pass(CONNECT_MOST * 7 / 8);
    let (before, tried) = (scripts(&server), now());
    proxy.set(Mode::Pass);
    wait_until("all are renewed again", || {
        leases.iter().all(|lease| deadline(lease) > tried.after(ttl * 9 / 10))
    });
    let count = scripts(&server) - before;
    println!("{count} scripts for {LEASES} leases");
    assert!(count <= LEASES * 2, "{count}");
    for lease in leases {
        release(lease);
    }
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn holder_does_not_notice_that_the_server_has_forgotten_its_scripts() {
    let server = RedisServer::start();
    let (ann, diary) = (at(server.port(), CARELESS), Arc::new(Diary::default()));
    let held = take(&lock(&ann, "a").observer(diary.listener()));
    for _ in 0..3 {
        server.command(&["SCRIPT", "FLUSH"]);
        let before = deadline(&held);
        wait_until("it is renewed", || deadline(&held) > before);
    }
    server.command(&["SCRIPT", "FLUSH"]);
    assert_held(&held, &ann);
    server.command(&["SCRIPT", "FLUSH"]);
    release(held);
    assert_eq!(diary.count(""), 0, "{diary}");
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn connection_that_answers_nothing_is_replaced() {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let ann = at(proxy.port(), CARELESS);
    release(take(&lock(&ann, "a")));
    proxy.set(Mode::Blackhole);
    let asked = now();
    let error = block_on(ann.inspect("a")).unwrap_err();
    let time = now().since(asked);
    assert_kind(&error, ErrorKind::Unavailable);
    assert!((COMMAND_MOST / 2..COMMAND_MOST + SLACK).contains(&time), "{time:?}");
    proxy.set(Mode::Pass);
    let asked = now();
    assert_eq!(look(&ann, "a").status, Status::Free);
    assert!(now().since(asked) < SLACK);
}

/// A grant that comes when it is over is none, and is given back.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn grant_that_arrives_after_its_own_deadline_is_none() {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let ann = at(proxy.port(), CARELESS);
    let ttl = Duration::from_millis(400);
    release(take(&lock(&ann, "a")));
    proxy.set(Mode::Delay(ttl * 3 / 2));
    let outcome = block_on(lock(&ann, "a").ttl(ttl).try_acquire());
    assert_kind(&outcome.expect_err("it is over"), ErrorKind::Lost);
    proxy.set(Mode::Pass);
    assert_nothing_is_left(&server);
}

/// Late by less than the lease: its holder believes in what is left.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn grant_that_arrives_late_is_believed_in_for_what_is_left() {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let ann = at(proxy.port(), CARELESS);
    let (ttl, delay) = (Duration::from_secs(3), Duration::from_millis(400));
    release(take(&lock(&ann, "a")));
    proxy.set(Mode::Delay(delay));
    let lease = take(&lock(&ann, "a").ttl(ttl));
    assert!(lease.remaining().unwrap() + delay * 2 < ttl);
    let left = server.command(&["PTTL", &key("a", "l")]).integer();
    assert!(u128::try_from(left).unwrap() > lease.remaining().unwrap().as_millis());
    proxy.set(Mode::Pass);
    release(lease);
}

/// A deadline that is counted from the reply would be later than what the server keeps.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn deadline_is_inside_the_term_of_the_server_however_late_its_replies_are() {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let held = take(&lock(&at(proxy.port(), CARELESS), "a").ttl(Duration::from_secs(2)));
    proxy.set(Mode::Delay(Duration::from_millis(60)));
    for _ in 0..3 {
        let before = deadline(&held);
        wait_until("it is renewed", || deadline(&held) > before);
        let believed = deadline(&held);
        let left = u64::try_from(server.command(&["PTTL", &key("a", "l")]).integer()).unwrap();
        assert!(believed <= now().after(Duration::from_millis(left)));
    }
    proxy.set(Mode::Pass);
    release(held);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn waiter_in_a_black_hole_gives_up_on_time() {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let (ann, bob) = (at(server.port(), CARELESS), at(proxy.port(), CARELESS));
    // The waiter does not look again before it gives up.
    let held = take(&lock(&ann, "a").ttl(Duration::from_secs(20)));
    release(take(&lock(&bob, "b")));
    let wait = Duration::from_millis(1_500);
    let asked = now();
    let waiting = ask(&lock(&bob, "a").wait(wait));
    wait_for_waiters(&server, "a", 1);
    // On the same connection, so that the waiter has its answer now.
    look(&bob, "b");
    proxy.set(Mode::Blackhole);
    let (outcome, given_up) = waiting.outcome();
    let time = given_up.since(asked);
    assert!((wait..wait + SLACK).contains(&time), "{time:?}");
    assert_kind(&outcome.unwrap_err(), ErrorKind::Contended);
    proxy.set(Mode::Pass);
    release(held);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn server_that_is_down_is_unavailable_at_once_and_used_when_it_is_up() {
    let mut server = RedisServer::start();
    let ann = at(server.port(), CARELESS);
    server.kill();
    let asked = now();
    assert_kind(&refusal(&lock(&ann, "a")), ErrorKind::Unavailable);
    assert!(now().since(asked) < SLACK);
    server.restart();
    release(take(&lock(&ann, "a")));
}

/// A listener that answers every connection with `text`.
fn odd_server(text: &'static [u8]) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the system has a port left");
    let port = listener.local_addr().expect("a listener has an address").port();
    std::thread::spawn(move || {
        let mut connections = Vec::new();
        for mut connection in listener.incoming().flatten() {
            let _ = connection.read(&mut [0; 256]).and_then(|_| connection.write_all(text));
            // It stays open: whoever waits for more is not helped by its end.
            connections.push(connection);
        }
    });
    port
}

#[test]
fn what_is_no_redis_is_an_error_and_no_panic() {
    let texts: [&[u8]; 6] = [
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"*-7\r\n$-9\r\n",
        b"%99999999999999999999\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"$4611686018427387904\r\nxx",
    ];
    let asked = now();
    let asking: Vec<_> =
        texts.iter().map(|text| ask(&lock(&at(odd_server(text), CARELESS), "a").wait(SLACK))).collect();
    for (asking, text) in asking.into_iter().zip(texts) {
        let error = asking.outcome().0.expect_err("it is none");
        assert!(
            matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unexpected),
            "{text:?}: {error:?}"
        );
    }
    assert!(now().since(asked) < SLACK * 3);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn wrong_password_is_denied_and_never_shown() {
    let server = RedisServer::start_with(&["--requirepass", "open-sesame"]);
    let with = |login: &str| locks(&format!("redis://{login}127.0.0.1:{}?{CARELESS}", server.port()));
    for login in ["", ":wrong-word@", "ann:wrong-word@"] {
        let locks = with(login);
        let error = refusal(&lock(&locks, "a"));
        assert_kind(&error, ErrorKind::Denied);
        assert!(!format!("{error:?} {locks} {locks:?}").contains("wrong-word"), "{error:?} {locks:?}");
    }
    release(take(&lock(&with(":open-sesame@"), "a")));
    release(take(&lock(&with("default:open-sesame@"), "a")));
}

/// Whoever the server lets do nothing but what the README asks for can do everything.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn privileges_of_the_readme_are_enough_and_needed() {
    let server = RedisServer::start();
    let give = |name: &str, rules: &str| {
        let rules =
            ["ACL", "SETUSER", name, "on", ">word"].into_iter().chain(rules.split(' ')).collect::<Vec<_>>();
        assert_eq!(server.command(&rules).text(), "OK");
        locks(&format!("redis://{name}:word@127.0.0.1:{}?{CARELESS}", server.port()))
    };
    let enough = give(
        "ann",
        "~fencepost:* &fencepost:* +@scripting +@read +@write +@pubsub +@connection +info +time +scan",
    );
    let held = take(&lock(&enough, "a"));
    let waiting = ask(&lock(&enough, "a"));
    wait_for_waiters(&server, "a", 1);
    assert_eq!(block_on(enough.list("")).unwrap().len(), 1);
    release(held);
    release(waiting.lease().0);
    let lease = take(&lock(&enough, "a"));
    block_on(enough.lift("a", lease.token())).unwrap();
    block_on(enough.revoke("a", lease.token(), "so it is")).unwrap();
    assert_eq!(loss(&lease).0.loss_reason(), Some(LossReason::Revoked));
    drop(lease);
    for (name, rules) in [
        ("bob", "~fencepost:* +@scripting +@read +@write +@pubsub +@connection +info +time +scan"),
        ("eve", "~other:* &fencepost:* +@scripting +@read +@write +@pubsub +@connection +info +time +scan"),
        ("joe", "~fencepost:* &fencepost:* +@read +@write +@pubsub +@connection +info +time +scan"),
    ] {
        assert_kind(&refusal(&lock(&give(name, rules), "a")), ErrorKind::Denied);
    }
}

/// The server has renewed it, and it is over all the same when its holder hears of that.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn renewal_that_is_heard_of_after_its_term_is_a_loss() {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let (ann, bob) = (at(server.port(), CARELESS), at(proxy.port(), CARELESS));
    let heard = Listener::new();
    let held = take(&lock(&ann, "a").observer(heard.observer()));
    let handover = block_on(held.detach()).expect("a lease on Redis can be detached");
    let parted = |event: &Event| matches!(event, Event::Detached { .. } | Event::Released { .. });
    assert_eq!(heard.count(|event| matches!(event, Event::Detached { .. })), 1, "{heard:?}");
    assert_eq!(heard.count(parted), 1, "{heard:?}");
    // The connection is there, and the server knows the script.
    block_on(bob.renew(&handover, TTL)).expect("it has not run out");
    proxy.set(Mode::ReplyHole);
    let renewing = std::thread::spawn(move || block_on(bob.renew(&handover, TTL)));
    pass(TTL + TTL / 4);
    proxy.set(Mode::Pass);
    let late = renewing.join().expect("renewing does not panic").expect_err("its term is over");
    assert_eq!(late.loss_reason(), Some(LossReason::Deadline), "{late}");
}
