//! Redis servers of the testkit: each start, fault and restart does what it says, and nothing outlives its test.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use fencepost_core::Clock;
use fencepost_testkit::servers::{RedisClient, RedisSentinel, RedisServer, RedisSetup, Reply, wait_until};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(20);

fn ok() -> Reply {
    Reply::Text("OK".to_owned())
}

fn client(server: &RedisServer, limit: Duration) -> RedisClient {
    RedisClient::connect(SocketAddr::from(([127, 0, 0, 1], server.port())), limit)
        .expect("the server accepts")
}

fn pidfd(process: u32) -> OwnedFd {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw).expect("it is the number of a process");
    pidfd_open(process, PidfdFlags::empty()).expect("the process exists")
}

fn ends(process: &OwnedFd) -> bool {
    ends_within(LONG, process)
}

fn ends_within(limit: Duration, process: &OwnedFd) -> bool {
    let limit = limit.try_into().expect("it is short");
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit)).expect("a process can be waited for") == 1
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn server_answers_at_its_url_and_is_the_one_that_was_started() {
    let clock = Clock::system();
    let before = clock.now();
    let server = RedisServer::start();
    println!("it answers after {:?}", clock.now().since(before));
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    assert_eq!(server.info("server", "process_id"), Some(server.pid().to_string()));
    assert_eq!(server.info("server", "no_such_field"), None);
    assert_eq!(server.command(&["SET", "a", "1"]), ok());
    assert_eq!(server.command(&["INCR", "a"]).integer(), 2);
    assert_eq!(server.command(&["GET", "a"]).text(), "2");
    assert_eq!(server.command(&["GET", "b"]), Reply::Nil);
    assert_eq!(server.command(&["KEYS", "*"]), Reply::Array(vec![Reply::Text("a".to_owned())]));
    assert!(
        matches!(server.command(&["LPUSH", "a", "1"]), Reply::Error(text) if text.starts_with("WRONGTYPE"))
    );
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn several_servers_know_nothing_of_each_other() {
    let servers = RedisServer::start_several(5);
    for (number, server) in servers.iter().enumerate() {
        assert_eq!(server.command(&["DBSIZE"]).integer(), 0);
        server.command(&["SET", "number", &number.to_string()]);
    }
    assert_eq!(servers[3].command(&["GET", "number"]).text(), "3");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn server_that_cannot_start_says_why() {
    let started = std::panic::catch_unwind(|| RedisServer::start_with(&["--no-such-option", "1"]));
    let message = started.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("no-such-option"), "{message}");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn password_is_asked_of_others() {
    let server = RedisServer::start_with(&["--requirepass", "secret"]);
    assert_eq!(server.command(&["SET", "a", "1"]), ok());
    let refused = client(&server, Duration::from_secs(5)).command(&["GET", "a"]).unwrap();
    assert!(matches!(refused, Reply::Error(text) if text.starts_with("NOAUTH")));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn stopped_server_keeps_its_connections_and_answers_when_it_goes_on() {
    let server = RedisServer::start();
    let mut client = client(&server, SHORT);
    assert_eq!(client.command(&["PING"]).unwrap().text(), "PONG");
    server.stop();
    client.send(&["INCR", "a"]).unwrap();
    client.receive().unwrap_err();
    server.go_on();
    wait_until("the reply comes", || client.receive().is_ok_and(|reply| reply == Reply::Integer(1)));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn killed_server_refuses_connections() {
    let mut server = RedisServer::start();
    let process = pidfd(server.pid());
    server.stop();
    server.kill();
    assert!(ends(&process));
    assert_eq!(server.client().unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn restarted_server_has_what_its_persistence_kept() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes"]);
    let (port, process) = (server.port(), server.pid());
    server.command(&["SET", "a", "1"]);
    server.restart();
    assert_eq!(server.command(&["GET", "a"]).text(), "1");
    server.restart_empty();
    assert_eq!(server.command(&["GET", "a"]), Reply::Nil);
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), process);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn restarted_server_without_persistence_has_nothing() {
    let mut server = RedisServer::start();
    server.command(&["SET", "a", "1"]);
    server.kill();
    server.restart();
    assert_eq!(server.command(&["GET", "a"]), Reply::Nil);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn stepped_clock_moves_the_time_and_lets_keys_expire() {
    let mut server = RedisSetup::default().own_clock().start();
    let hour = Duration::from_hours(1);
    let seconds =
        |server: &RedisServer| -> u64 { server.command(&["TIME"]).array()[0].text().parse().unwrap() };
    let wall = || Clock::system().wall_micros() / 1_000_000;
    assert!(seconds(&server).abs_diff(wall()) < 60);
    server.command(&["SET", "soon", "1", "EX", "3000"]);
    server.command(&["SET", "late", "1", "EX", "36000"]);
    server.step_clock_forward(hour);
    assert!(seconds(&server).abs_diff(wall() + 3600) < 60);
    assert_eq!(server.command(&["GET", "soon"]), Reply::Nil);
    assert_eq!(server.command(&["GET", "late"]).text(), "1");
    server.step_clock_back(2 * hour);
    assert!(seconds(&server).abs_diff(wall() - 3600) < 60);
    assert!(server.command(&["TTL", "late"]).integer() > 36000 + 3000);
    server.restart();
    assert!(seconds(&server).abs_diff(wall() - 3600) < 60);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn replica_has_the_data_and_takes_over() {
    let secret = ["--requirepass", "secret"];
    let (primary, replica) = (RedisServer::start_with(&secret), RedisServer::start_with(&secret));
    primary.command(&["SET", "a", "1"]);
    replica.replica_of(&primary);
    assert_eq!(replica.command(&["GET", "a"]).text(), "1");
    assert!(
        matches!(replica.command(&["SET", "a", "2"]), Reply::Error(text) if text.starts_with("READONLY"))
    );
    replica.promote();
    assert_eq!(replica.command(&["SET", "a", "2"]), ok());
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn sentinel_makes_the_replica_the_primary() {
    let (mut primary, replica) = (RedisServer::start(), RedisServer::start());
    replica.replica_of(&primary);
    let sentinel = RedisSentinel::start(&primary);
    sentinel.wait_for_replicas(1);
    assert_eq!(sentinel.primary_port(), primary.port());
    primary.kill();
    wait_until("the replica is the primary", || sentinel.primary_port() == replica.port());
    assert_eq!(replica.command(&["SET", "a", "1"]), ok());
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn several_sentinels_decide_together() {
    let (mut primary, replica) = (RedisServer::start(), RedisServer::start());
    replica.replica_of(&primary);
    let sentinels = RedisSentinel::start_several(3, &primary);
    for sentinel in &sentinels {
        sentinel.wait_for_replicas(1);
    }
    primary.kill();
    for sentinel in &sentinels {
        wait_until("the replica is the primary", || sentinel.primary_port() == replica.port());
    }
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn server_with_tls_shows_a_certificate_of_its_authority() {
    let server = RedisSetup::default().tls().start();
    assert_eq!(server.tls_url(), format!("rediss://127.0.0.1:{}", server.tls_port()));
    let handshake = |authority: &std::path::Path| {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-brief", "-verify_return_error", "-verify_ip", "127.0.0.1", "-connect"]);
        command.arg(format!("127.0.0.1:{}", server.tls_port())).arg("-CAfile").arg(authority);
        command.stdin(Stdio::null()).output().unwrap()
    };
    let output = handshake(&server.certificates().authority());
    assert!(output.status.success(), "{output:?}");
    let stranger = RedisSetup::default().tls().start();
    assert!(!handshake(&stranger.certificates().authority()).status.success());
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn server_outlives_the_thread_that_started_it() {
    let server = std::thread::spawn(RedisServer::start).join().unwrap();
    assert!(!ends_within(SHORT, &pidfd(server.pid())));
    assert_eq!(server.command(&["PING"]).text(), "PONG");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn server_ends_with_its_value() {
    let server = RedisServer::start();
    let process = pidfd(server.pid());
    drop(server);
    assert!(ends(&process));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn no_server_outlives_a_killed_test() {
    // A killed test cannot remove its servers' directories.
    let directory = tempfile::tempdir().unwrap();
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.env("TMPDIR", directory.path()).args(["--ignored", "--exact", "started_and_left", "--nocapture"]);
    let mut test = test.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(test.stdout.take().unwrap()).lines().map_while(Result::ok);
    let numbers =
        lines.filter_map(|line| line.split_once("started:").map(|(_, number)| number.parse().unwrap()));
    let processes: Vec<_> = numbers.take(3).map(pidfd).collect();
    assert_eq!(processes.len(), 3);
    test.kill().unwrap();
    test.wait().unwrap();
    assert!(processes.iter().all(ends));
}

#[test]
#[ignore = "the test that another one kills"]
fn started_and_left() {
    let (server, stopped) = (RedisServer::start(), RedisServer::start());
    let sentinel = RedisSentinel::start(&server);
    stopped.stop();
    println!("\nstarted:{}\nstarted:{}\nstarted:{}", server.pid(), stopped.pid(), sentinel.pid());
    std::io::stdin().read_line(&mut String::new()).unwrap();
}
