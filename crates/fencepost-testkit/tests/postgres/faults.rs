//! A server that is stopped, killed and restarted: what it keeps, and what its clients see.

use std::process::Command;
use std::time::Duration;

use fencepost_testkit::servers::{PostgresServer, psql};

use crate::{descriptors, ends_within, processes, session_of, with_table};

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn stopped_server_keeps_its_connections_and_answers_when_it_goes_on() {
    let server = PostgresServer::start();
    let mut client = server.client().unwrap();
    server.stop();
    client.send("SELECT 1");
    let states =
        Command::new("ps").args(["-o", "state=", "--ppid", &server.pid().to_string()]).output().unwrap();
    let states = String::from_utf8(states.stdout).unwrap();
    assert!(states.lines().count() > 1 && states.lines().all(|state| "TZ".contains(state)), "{states}");
    server.go_on();
    assert_eq!(client.receive(), Ok("1".to_owned()));
    assert_eq!(server.query("SELECT 1"), "1");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn killed_server_is_gone_and_refuses_connections() {
    let mut server = PostgresServer::start();
    let mut client = server.client().unwrap();
    let (url, processes) = (server.url(), descriptors(&processes(&server)));
    assert!(processes.len() > 3);
    server.stop();
    server.kill();
    assert!(processes.iter().all(|process| ends_within(Duration::ZERO, process)));
    client.query("SELECT 1").unwrap_err();
    assert!(psql(&url, "SELECT 1").unwrap_err().contains("refused"));
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn killed_server_comes_back_with_what_was_committed() {
    let mut server = with_table();
    let (port, process) = (server.port(), server.pid());
    let mut client = server.client().unwrap();
    client.query("INSERT INTO kept VALUES (1)").unwrap();
    client.query("BEGIN; INSERT INTO kept VALUES (2)").unwrap();
    server.restart();
    assert_eq!(server.query("SELECT a FROM kept"), "1");
    server.kill();
    server.restart();
    assert_eq!(server.query("SELECT a FROM kept"), "1");
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), process);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn emptied_server_has_nothing_and_another_identity() {
    let mut server = with_table();
    let identity =
        |server: &PostgresServer| server.query("SELECT system_identifier FROM pg_control_system()");
    let before = identity(&server);
    server.restart_empty();
    assert!(server.try_query("SELECT a FROM kept").is_err());
    assert_ne!(identity(&server), before);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn unlogged_table_is_kept_by_a_clean_restart_and_emptied_by_others() {
    let mut server = PostgresServer::start();
    server.execute("CREATE UNLOGGED TABLE fleeting (a int)");
    let fill = |server: &PostgresServer| server.execute("INSERT INTO fleeting VALUES (1)");
    let count = |server: &PostgresServer| server.query("SELECT count(*) FROM fleeting");
    fill(&server);
    server.restart_cleanly();
    assert_eq!(count(&server), "1");
    server.shut_down_immediately();
    server.restart();
    assert_eq!(count(&server), "0");
    fill(&server);
    server.restart();
    assert_eq!(count(&server), "0");
    fill(&server);
    server.shut_down();
    server.restart();
    assert_eq!(count(&server), "1");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn killed_session_ends_all_sessions_and_the_server_recovers() {
    let mut server = with_table();
    server.execute("CREATE UNLOGGED TABLE fleeting (a int); INSERT INTO fleeting VALUES (1)");
    let process = server.pid();
    let (mut client, mut other) = (server.client().unwrap(), server.client().unwrap());
    server.kill_session(session_of(&mut client));
    client.query("SELECT 1").unwrap_err();
    other.query("SELECT 1").unwrap_err();
    assert_eq!(server.query("SELECT count(*) FROM fleeting"), "0");
    assert_eq!(server.pid(), process);
}
