//! The functions of the fence on the server, called by any client: by hand, by `redis-cli`, by Python, and by two processes at once.

use std::process::{Command, Stdio};

use fencepost_core::{Clock, ErrorKind, Fence, NamePrefix};
use fencepost_testkit::block_on;
use fencepost_testkit::servers::{RedisServer, Reply};

use crate::fence::{fence_at, stamp};
use crate::stage::assert_kind;

const MARK: &str = "fencepost:{ledger%2F1}:f";

/// A server that has the functions.
fn prepared() -> RedisServer {
    let server = RedisServer::start();
    let done = block_on(fence_at(server.port()).install()).expect("nobody else has that name");
    assert!(done[0].starts_with("made"), "{done:?}");
    server
}

fn call(server: &RedisServer, words: &[&str]) -> Reply {
    let all: Vec<&str> = ["FCALL"].iter().chain(words).copied().collect();
    server.command(&all)
}

fn ok() -> Reply {
    Reply::Text("OK".to_owned())
}

#[track_caller]
fn assert_refused(reply: &Reply, code: &str) {
    assert!(matches!(reply, Reply::Error(what) if what.starts_with(code)), "{code} is not {reply:?}");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn functions_check_and_write_in_one_step() {
    let server = prepared();
    let set = |token: &str, holder: &str, value: &str| {
        call(&server, &["fencepost_write", "2", MARK, "total", token, holder, "SET", "total", value])
    };
    assert_refused(&set("8", "a", "never"), "FP002");
    assert_eq!(call(&server, &["fencepost_seal", "1", MARK, "8", "a"]), ok());
    assert_eq!(call(&server, &["fencepost_seal", "1", MARK, "8", "a", "ledger/1"]), ok());
    assert_eq!(server.command(&["FCALL_RO", "fencepost_check", "1", MARK, "8", "a"]), ok());
    assert_eq!(set("8", "a", "in"), ok());
    for (token, holder) in [("7", "a"), ("8", "b"), ("9", "a"), ("8", "")] {
        assert_refused(&set(token, holder, "out"), "FP002");
        assert_refused(&call(&server, &["fencepost_check", "1", MARK, token, holder]), "FP002");
    }
    assert_refused(&call(&server, &["fencepost_seal", "1", MARK, "7", "a"]), "FP002");
    assert_eq!(server.command(&["GET", "total"]), Reply::Text("in".to_owned()));
    let marks = block_on(fence_at(server.port()).marks(&NamePrefix::default())).unwrap();
    assert_eq!(marks[0].0.as_str(), "ledger/1", "a name that was left out is read from the key");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn what_is_no_stamp_is_refused() {
    let server = prepared();
    let great = "9223372036854775808";
    for token in
        ["", "0", "08", "-1", "+8", "8.0", "1e3", " 8", "8 ", "0x8", "nan", great, "18446744073709551617"]
    {
        assert_refused(&call(&server, &["fencepost_seal", "1", MARK, token, "a"]), "FP001");
        assert_refused(&call(&server, &["fencepost_check", "1", MARK, token, "a"]), "FP001");
    }
    let long = "x".repeat(65);
    for holder in [&long, "a b", "ä", "a\n"] {
        assert_refused(&call(&server, &["fencepost_seal", "1", MARK, "8", holder]), "FP001");
    }
    for key in ["total", "fencepost:{ledger%2F1}:l", "fencepost:{}:f", "fencepost:f"] {
        assert_refused(&call(&server, &["fencepost_seal", "1", key, "8", "a"]), "FP001");
    }
    for words in [
        &["fencepost_seal", "0"][..],
        &["fencepost_seal", "1", MARK],
        &["fencepost_seal", "1", MARK, "8"],
        &["fencepost_write", "1", MARK],
    ] {
        assert_refused(&call(&server, words), "FP001");
    }
    let hashed = format!("fencepost:{{h~{}}}:f", "0".repeat(64));
    assert_refused(&call(&server, &["fencepost_seal", "1", &hashed, "8", "a"]), "FP001");
    assert_eq!(server.command(&["DBSIZE"]), Reply::Integer(0));
    assert_eq!(call(&server, &["fencepost_seal", "1", MARK, "8", "a"]), ok());
    assert_refused(&call(&server, &["fencepost_write", "1", MARK, "8", "a"]), "FP001");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn functions_compare_tokens_exactly_up_to_the_last() {
    let server = prepared();
    let exact = 1_u64 << 53;
    for token in [9, 10, exact - 1, exact, exact + 1, exact + 2, (1 << 63) - 2, (1 << 63) - 1] {
        let [below, token] = [token - 1, token].map(|token| token.to_string());
        assert_eq!(call(&server, &["fencepost_seal", "1", MARK, &token, "a"]), ok());
        let push = |token: &str| {
            call(&server, &["fencepost_write", "2", MARK, "log", token, "a", "RPUSH", "log", token])
        };
        assert!(matches!(push(&token), Reply::Integer(_)));
        assert_refused(&push(&below), "FP002");
    }
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn functions_are_installed_once_and_replaced_by_newer_ones() {
    let server = prepared();
    let fence = fence_at(server.port());
    let again = block_on(fence.install()).unwrap();
    assert!(again[0].contains("already"), "{again:?}");
    let older = fence.installation().replace("'FP003", "'FP009");
    assert_eq!(server.command(&["FUNCTION", "LOAD", "REPLACE", &older]), Reply::Text("fencepost".to_owned()));
    let replaced = block_on(fence.install()).unwrap();
    assert!(replaced[0].starts_with("replaced"), "{replaced:?}");
    assert_eq!(call(&server, &["fencepost_seal", "1", MARK, "8", "a"]), ok());
    assert_eq!(block_on(fence.uninstall()).unwrap().len(), 1);
    assert_eq!(block_on(fence.uninstall()).unwrap(), Vec::<String>::new());
    assert_refused(&call(&server, &["fencepost_check", "1", MARK, "8", "a"]), "ERR");
    block_on(fence.check(&stamp(8, "a"))).expect("the marks stay");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn library_of_somebody_else_stays_as_it_is() {
    let server = RedisServer::start();
    let foreign =
        "#!lua name=fencepost\nredis.register_function('fencepost_check', function() return 'x' end)";
    server.command(&["FUNCTION", "LOAD", foreign]);
    let fence = fence_at(server.port());
    for refused in [block_on(fence.install()), block_on(fence.uninstall())] {
        assert_kind(&refused.unwrap_err(), ErrorKind::Unsupported);
    }
    assert_eq!(call(&server, &["fencepost_check", "0"]), Reply::Text("x".to_owned()));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn redis_cli_writes_behind_the_fence() {
    let server = prepared();
    let cli = |words: &[&str]| {
        let port = server.port().to_string();
        let said = Command::new("redis-cli").args(["-p", &port]).args(words).output().expect("it is there");
        String::from_utf8(said.stdout).expect("it says text").trim().to_owned()
    };
    assert_eq!(cli(&["FCALL", "fencepost_seal", "1", MARK, "8", "a"]), "OK");
    let write =
        |token| cli(&["FCALL", "fencepost_write", "2", MARK, "total", token, "a", "INCRBY", "total", "5"]);
    assert_eq!(write("8"), "5");
    assert!(write("7").contains("FP002 token 7 is stale, the mark is 8"), "{}", write("7"));
}

/// Where Python has a client; elsewhere its commands go over a connection of the testkit.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn python_writes_behind_the_fence() {
    let server = prepared();
    let script = "import sys, redis\n\
        r, mark = redis.Redis(port=int(sys.argv[1])), sys.argv[2]\n\
        r.fcall('fencepost_seal', 1, mark, 9007199254740993, 'py', 'ledger/1')\n\
        print(r.fcall('fencepost_write', 2, mark, 'total', 9007199254740993, 'py', 'INCRBY', 'total', 5))\n\
        try: r.fcall('fencepost_write', 2, mark, 'total', 9007199254740992, 'py', 'INCRBY', 'total', 5)\n\
        except redis.exceptions.ResponseError as refused: print(str(refused).split()[0])";
    let has_client = |python: &mut Command| {
        python
            .args(["-c", "import redis"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    if !has_client(&mut Command::new("python3")) {
        let seal = ["fencepost_seal", "1", MARK, "9007199254740993", "py", "ledger/1"];
        assert_eq!(call(&server, &seal), ok());
        let write = |token| {
            call(&server, &["fencepost_write", "2", MARK, "total", token, "py", "INCRBY", "total", "5"])
        };
        assert_eq!(write("9007199254740993"), Reply::Integer(5));
        return assert_refused(&write("9007199254740992"), "FP002");
    }
    let port = server.port().to_string();
    let said = Command::new("python3").args(["-c", script, &port, MARK]).output().expect("it is there");
    assert_eq!(String::from_utf8_lossy(&said.stdout), "5\nFP002\n", "{said:?}");
}

const WRITES: usize = 5_000;

/// One process calls the functions, this one uses the library; both show random tokens that rise all the time.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn accepted_tokens_never_fall_in_the_order_of_the_store() {
    let server = prepared();
    let mut other = Command::new(std::env::current_exe().expect("a test has a program"))
        .args(["--exact", "functions::racer", "--ignored"])
        .env("FENCEPOST_RACER", server.port().to_string())
        .stdout(Stdio::null())
        .spawn()
        .expect("it can be started again");
    let fence = fence_at(server.port());
    let script = fence.script("return redis.call('RPUSH', KEYS[1], ARGV[1])").expect("it is a script");
    for _ in 0..WRITES {
        let stamp = stamp(random_token(), "library");
        // Stale or not: the write shows it.
        drop(block_on(fence.seal(&stamp)));
        drop(block_on(script.run_stamped(&stamp, &["log"], &[format!("{} library", stamp.token)])));
    }
    assert!(other.wait().expect("it ends").success(), "the other process has failed");
    let log = server.command(&["LRANGE", "log", "0", "-1"]);
    let log: Vec<&str> = log.array().iter().map(Reply::text).collect();
    let tokens: Vec<u64> =
        log.iter().map(|line| line.split(' ').next().unwrap().parse().expect("it is a token")).collect();
    assert!(tokens.is_sorted(), "a stale write was accepted");
    for who in ["library", "function"] {
        let writes = log.iter().filter(|line| line.ends_with(who)).count();
        assert!((50..WRITES).contains(&writes), "of the {WRITES} writes by {who} {writes} were accepted");
    }
}

/// The other process of [`accepted_tokens_never_fall_in_the_order_of_the_store`].
#[test]
#[ignore = "a part of another test"]
fn racer() {
    let Ok(port) = std::env::var("FENCEPOST_RACER") else { return };
    let address = format!("127.0.0.1:{port}").parse().expect("it is a port");
    let limit = std::time::Duration::from_secs(10);
    let mut client = fencepost_testkit::servers::RedisClient::connect(address, limit).expect("it is there");
    for _ in 0..WRITES {
        let token = random_token().to_string();
        let line = format!("{token} function");
        client.command(&["FCALL", "fencepost_seal", "1", MARK, &token, "function"]).expect("it answers");
        let write = ["FCALL", "fencepost_write", "2", MARK, "log", &token, "function", "RPUSH", "log", &line];
        client.command(&write).expect("it answers");
    }
}

/// Rises with the wall clock, which both processes see, and lies above 2^53, where doubles would confuse it with its neighbours.
fn random_token() -> u64 {
    (1 << 53) + Clock::system().wall_micros() + Clock::system().random() % 2_000
}
