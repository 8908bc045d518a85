//! The fence in a Redis by way of the library: scripts that run only under the sealed stamp, late requests, losses of data.
//!
//! Beside each test of what holds stands what happens where the check is left out or made in another way.

use std::net::Ipv4Addr;

use fencepost_core::{
    BackendUrl, Error, ErrorKind, Fence, FencingToken, LossReason, Mark, Result, Stamp, StampHolder,
};
use fencepost_redis::{FencedScript, RedisFence, Value};
use fencepost_testkit::block_on;
use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::{RedisServer, RedisSetup, Reply, wait_until};

use crate::stage::{CARELESS, assert_kind, at, clock, lock, proxy_to, take};

/// The data that the tests protect.
const TOTAL: &[&str] = &["total"];

/// Writes what it is told and says what was there.
const WRITE: &str =
    "local before = redis.call('GET', KEYS[1])\nredis.call('SET', KEYS[1], ARGV[1])\nreturn before";

pub(crate) fn fence_at(port: u16) -> RedisFence {
    fence(&format!("redis://{}:{port}", Ipv4Addr::LOCALHOST)).expect("the URL names a server")
}

fn fence(url: &str) -> Result<RedisFence> {
    let url: BackendUrl = url.parse().expect("a test writes a URL");
    RedisFence::from_url(&url, clock())
}

pub(crate) fn stamp(token: u64, holder: &str) -> Stamp {
    Stamp {
        lock: "ledger/1".parse().expect("a test names a lock"),
        token: FencingToken::try_from(token).expect("it is a token"),
        holder: StampHolder::new(holder).expect("it is a holder"),
    }
}

fn seal(fence: &RedisFence, stamp: &Stamp) {
    block_on(fence.seal(stamp)).expect("it is the greatest stamp");
}

fn write(script: &FencedScript, stamp: &Stamp, text: &str) -> Result<Value> {
    block_on(script.run_stamped(stamp, TOTAL, &[text]))
}

fn total(server: &RedisServer) -> Reply {
    server.command(&["GET", "total"])
}

fn text(text: &str) -> Reply {
    Reply::Text(text.to_owned())
}

#[track_caller]
fn assert_stale<T: std::fmt::Debug>(answer: Result<T>, says: &str) -> Error {
    let error = answer.expect_err("it is not the sealed stamp");
    assert_kind(&error, ErrorKind::Stale);
    assert!(format!("{error:?}").contains(says), "{says:?} in {error:?}");
    error
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn script_runs_under_the_sealed_stamp_alone() {
    let server = RedisServer::start();
    let fence = fence_at(server.port());
    let script = fence.script(WRITE).expect("it is a script");
    assert_stale(write(&script, &stamp(8, "a"), "never"), "seal first");
    seal(&fence, &stamp(8, "a"));
    assert_eq!(write(&script, &stamp(8, "a"), "one").unwrap(), Value::Null);
    assert_eq!(write(&script, &stamp(8, "a"), "two").unwrap().text(), Some("one"));
    assert_stale(write(&script, &stamp(7, "a"), "older"), "the mark is 8");
    assert_stale(write(&script, &stamp(8, "b"), "other"), "another holder");
    assert_stale(write(&script, &stamp(9, "a"), "newer"), "seal first");
    assert_eq!(total(&server), text("two"), "what was refused has changed something");
    seal(&fence, &stamp(9, "b"));
    assert_stale(write(&script, &stamp(8, "a"), "late"), "the mark is 9");
    assert_eq!(total(&server), text("two"));
}

/// Negative control: what the script is for.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn check_in_the_client_lets_a_stale_write_in() {
    let server = RedisServer::start();
    let fence = fence_at(server.port());
    seal(&fence, &stamp(8, "a"));
    block_on(fence.check(&stamp(8, "a"))).expect("it is the sealed stamp");
    seal(&fence, &stamp(9, "b"));
    server.command(&["SET", "total", "of 9"]);
    server.command(&["SET", "total", "of 8"]);
    assert_eq!(total(&server), text("of 8"), "the write that was checked too early is in");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn scripts_compare_tokens_exactly_up_to_the_last() {
    let server = RedisServer::start();
    let fence = fence_at(server.port());
    let script = fence.script(WRITE).expect("it is a script");
    let exact = 1_u64 << 53;
    for token in [9, 10, exact - 1, exact, exact + 1, exact + 2, FencingToken::MAX - 1, FencingToken::MAX] {
        seal(&fence, &stamp(token, "a"));
        write(&script, &stamp(token, "a"), &token.to_string()).expect("it is the sealed stamp");
        assert_stale(write(&script, &stamp(token - 1, "a"), "below"), &format!("the mark is {token}"));
        if token < FencingToken::MAX {
            assert_stale(write(&script, &stamp(token + 1, "a"), "above"), "seal first");
        }
        assert_eq!(total(&server), text(&token.to_string()));
    }
}

/// Negative control: the same comparison in the numbers of Lua.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn numbers_of_lua_take_two_tokens_for_one() {
    let server = RedisServer::start();
    let compare = "return tonumber(ARGV[1]) < tonumber(ARGV[2]) and 1 or 0";
    let is_less = |one: u64, other: u64| {
        server.command(&["EVAL", compare, "0", &one.to_string(), &other.to_string()]).integer() == 1
    };
    let exact = 1_u64 << 53;
    assert!(is_less(exact - 1, exact));
    assert!(!is_less(exact, exact + 1), "a double would have to hold 2^53+1");
    assert!(!is_less(FencingToken::MAX - 1, FencingToken::MAX));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn keys_and_arguments_of_a_script_are_those_that_it_was_given() {
    let server = RedisServer::start();
    let fence = fence_at(server.port());
    seal(&fence, &stamp(8, "a"));
    let run = |source: &str, keys: &[&str], arguments: &[&[u8]]| {
        let script = fence.script(source).expect("it is a script");
        block_on(script.run_stamped(&stamp(8, "a"), keys, arguments))
    };
    let none: &[&[u8]] = &[];
    let counted =
        run("return {#KEYS, #ARGV, KEYS[2], ARGV[3]} -- at the end", &["a", "b"], &[b"1", b"", b"\0\xff"]);
    let bytes = |bytes: &[u8]| Value::Bytes(bytes.to_vec());
    let expected = vec![Value::Integer(2), Value::Integer(3), bytes(b"b"), bytes(b"\0\xff")];
    assert_eq!(counted.unwrap(), Value::List(expected));
    assert_eq!(run("", &[], none).unwrap(), Value::Null);
    assert_eq!(
        run("if true then return 1 end\nredis.call('SET', 'total', 'x')", &[], none).unwrap(),
        Value::Integer(1)
    );
    assert_eq!(
        run("return check and 1 or 0", &[], none).map_err(|error| error.kind()),
        Err(ErrorKind::Unexpected)
    );
    assert_kind(&run("return redis.call('NOSUCH')", &[], none).unwrap_err(), ErrorKind::Unexpected);
    assert_kind(&run("not Lua", &[], none).unwrap_err(), ErrorKind::Unexpected);
    assert_eq!(total(&server), Reply::Nil);
    assert_kind(&fence.script("#!lua flags=no-writes\nreturn 1").unwrap_err(), ErrorKind::InvalidArgument);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn script_is_sent_again_in_full_where_the_server_has_forgotten_it() {
    let server = RedisServer::start();
    let fence = fence_at(server.port());
    let script = fence.script(WRITE).expect("it is a script");
    seal(&fence, &stamp(8, "a"));
    write(&script, &stamp(8, "a"), "one").expect("it is the sealed stamp");
    server.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(write(&script, &stamp(8, "a"), "two").unwrap().text(), Some("one"));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn refused_lease_is_lost_and_sends_nothing_more() {
    let server = RedisServer::start();
    let (locks, fence) = (at(server.port(), CARELESS), fence_at(server.port()));
    let script = fence.script(WRITE).expect("it is a script");
    let lease = take(&lock(&locks, "ledger/1"));
    let run = || block_on(script.run(&lease, TOTAL, &["x"]));
    assert_stale(run(), "seal first");
    lease.check().expect("nobody else has sealed, so the lease goes on");
    seal(&fence, &lease.stamp());
    run().expect("it is the sealed stamp");

    let next = Stamp { token: FencingToken::try_from(lease.token().get() + 1).unwrap(), ..stamp(1, "b") };
    seal(&fence, &next);
    assert_stale(run(), "is stale");
    assert_eq!(lease.check().unwrap_err().loss_reason(), Some(LossReason::Refused));
    let sent = || server.info("commandstats", "cmdstat_evalsha");
    let before = sent();
    assert_kind(&run().unwrap_err(), ErrorKind::Lost);
    assert_eq!(sent(), before, "a script was sent under a lost lease");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn write_that_arrives_after_a_newer_seal_is_refused() {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let (slow, fast) = (fence_at(proxy.port()), fence_at(server.port()));
    let script = slow.script(WRITE).expect("it is a script");
    seal(&fast, &stamp(8, "a"));
    write(&script, &stamp(8, "a"), "in time").expect("it is the sealed stamp");
    proxy.set(Mode::RequestHole);
    let late = std::thread::spawn(move || write(&script, &stamp(8, "a"), "late"));
    wait_until("the write is on its way", || proxy.held_requests() > 0);
    seal(&fast, &stamp(9, "b"));
    proxy.set(Mode::Pass);
    assert_stale(late.join().expect("writing does not panic"), "the mark is 9");
    assert_eq!(total(&server), text("in time"));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn write_whose_answer_is_lost_is_in_doubt_and_never_repeated() {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let fence = fence_at(proxy.port());
    let script = fence.script("return redis.call('INCR', KEYS[1])").expect("it is a script");
    seal(&fence, &stamp(8, "a"));
    let add = |script: &FencedScript| block_on(script.run_stamped(&stamp(8, "a"), TOTAL, &[] as &[&str]));
    assert_eq!(add(&script).unwrap(), Value::Integer(1));
    proxy.set(Mode::ReplyHole);
    let doubt = add(&script).unwrap_err();
    assert_kind(&doubt, ErrorKind::Indeterminate);
    assert_eq!(total(&server), text("2"));
    proxy.set(Mode::Cut);
    proxy.set(Mode::Pass);
    wait_until("the server is reached again", || block_on(fence.mark(&stamp(8, "a").lock)).is_ok());
    assert_eq!(total(&server), text("2"), "the script ran again");
    seal(&fence, &stamp(8, "a"));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn fence_in_quarantine_works_and_leaves_its_mark_alone() {
    let server = RedisServer::start();
    let fence = fence_at(server.port());
    seal(&fence, &stamp(8, "a"));
    block_on(fence.check(&stamp(8, "a"))).expect("it is the sealed stamp");
    assert_eq!(server.command(&["KEYS", "*"]), Reply::Array(vec![text("fencepost:{ledger%2F1}:f")]));
    assert_eq!(server.command(&["TTL", &RedisFence::mark_key(&stamp(8, "a").lock)]), Reply::Integer(-1));
    let refused = block_on(at(server.port(), "max_ttl=60s").lock("ledger/1").unwrap().try_acquire());
    assert!(refused.unwrap().is_none(), "the server was not in quarantine");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn marks_outlive_a_restart_with_the_data() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let fence = fence_at(server.port());
    let script = fence.script(WRITE).expect("it is a script");
    seal(&fence, &stamp(9, "b"));
    write(&script, &stamp(9, "b"), "kept").expect("it is the sealed stamp");
    server.restart();
    wait_until("the server is reached again", || block_on(fence.mark(&stamp(9, "b").lock)).is_ok());
    assert_stale(write(&script, &stamp(8, "a"), "older"), "the mark is 9");
    assert_eq!(write(&script, &stamp(9, "b"), "newer").unwrap().text(), Some("kept"));
}

/// What the README warns of: who loses the data loses the mark as well.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn loss_of_data_loses_the_mark_with_them() {
    let server = RedisServer::start();
    let fence = fence_at(server.port());
    let script = fence.script(WRITE).expect("it is a script");
    seal(&fence, &stamp(9, "b"));
    write(&script, &stamp(9, "b"), "x").expect("it is the sealed stamp");
    server.command(&["FLUSHALL"]);
    assert_eq!(block_on(fence.mark(&stamp(9, "b").lock)).unwrap(), None);
    assert_stale(write(&script, &stamp(9, "b"), "x"), "no mark");
    seal(&fence, &stamp(8, "a"));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn damaged_mark_accepts_nobody() {
    let server = RedisServer::start();
    let fence = fence_at(server.port());
    let script = fence.script(WRITE).expect("it is a script");
    let key = RedisFence::mark_key(&stamp(8, "a").lock);
    let damages: [&[&str]; 4] = [
        &["HSET", &key, "t", "x", "h", "a"],
        &["HSET", &key, "t", "08", "h", "a"],
        &["HSET", &key, "t", "8"],
        &["SET", &key, "8"],
    ];
    for damage in damages {
        server.command(&["DEL", &key]);
        server.command(damage);
        let answers = [block_on(fence.seal(&stamp(9, "a"))), write(&script, &stamp(8, "a"), "x").map(drop)];
        for answer in answers {
            assert_kind(&answer.expect_err("the mark is damaged"), ErrorKind::Unexpected);
        }
    }
    assert_eq!(total(&server), Reply::Nil);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn policy_that_may_drop_marks_is_a_finding() {
    for (policy, memory, is_found) in [
        ("noeviction", "1gb", false),
        ("volatile-lru", "1gb", false),
        ("allkeys-lru", "0", false),
        ("allkeys-lru", "1gb", true),
    ] {
        let setup = RedisSetup::default().arguments(&["--maxmemory-policy", policy, "--maxmemory", memory]);
        let server = setup.start();
        let findings = block_on(fence_at(server.port()).findings(&stamp(1, "").lock)).unwrap();
        assert_eq!(
            findings.iter().any(|finding| finding.evidence.contains(policy)),
            is_found,
            "{findings:?}"
        );
    }
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn server_that_is_gone_is_unavailable_and_a_mark_reads_as_it_was() {
    let mut server = RedisServer::start();
    let fence = fence_at(server.port());
    seal(&fence, &stamp(8, "a"));
    let mark = Mark { token: stamp(8, "a").token, holder: stamp(8, "a").holder };
    assert_eq!(block_on(fence.mark(&stamp(8, "a").lock)).unwrap(), Some(mark));
    server.kill();
    for answer in [block_on(fence.seal(&stamp(9, "a"))), block_on(fence.check(&stamp(8, "a")))] {
        assert_kind(&answer.expect_err("nobody is there"), ErrorKind::Unavailable);
    }
}

#[test]
fn quorum_is_no_fence() {
    let error = fence("redlock://a,b,c").unwrap_err();
    assert_kind(&error, ErrorKind::Unsupported);
    assert!(error.to_string().contains("the one that the data lie in"), "{error}");
    assert_kind(&fence("redis://h?replicas=1").unwrap_err(), ErrorKind::InvalidArgument);
    assert_kind(&fence("redis://a,b").unwrap_err(), ErrorKind::InvalidArgument);
    fence("redis://h?max_ttl=5m&quarantine=off").expect("the options of a lock may stand there");
}
