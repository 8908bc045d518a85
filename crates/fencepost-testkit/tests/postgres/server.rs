//! A server that runs: what it is started with, and how it is asked.

use std::path::Path;
use std::time::Duration;

use fencepost_core::Clock;
use fencepost_testkit::servers::{PostgresClient, PostgresServer, PostgresSetup, psql};

use crate::session_of;

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn server_answers_at_its_url_and_is_the_one_that_was_started() {
    let clock = Clock::system();
    let before = clock.now();
    let server = PostgresServer::start();
    println!("it answers after {:?}", clock.now().since(before));
    assert_eq!(server.url(), format!("postgres://postgres@127.0.0.1:{}/postgres", server.port()));
    let pid = psql(&server.url(), "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)");
    assert_eq!(pid, Ok(server.pid().to_string()));
    server.execute("CREATE TABLE a (b int, c text); INSERT INTO a VALUES (1, 'x'), (2, NULL)");
    assert_eq!(server.query("SELECT * FROM a ORDER BY b"), "1|x\n2|");
    assert!(server.try_query("SELECT * FROM b").unwrap_err().contains("\"b\" does not exist"));
    server.create_database("other");
    assert_eq!(
        psql(&server.url_of("postgres", "other"), "SELECT current_database()"),
        Ok("other".to_owned())
    );
    assert!(server.socket_directory().join(format!(".s.PGSQL.{}", server.port())).exists());
    assert_eq!(server.query("SHOW synchronous_commit"), "on");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn server_that_cannot_start_says_why() {
    let started = std::panic::catch_unwind(|| PostgresServer::start_with(&["no_such_setting=1"]));
    let message = started.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("no_such_setting"), "{message}");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn settings_that_come_later_count() {
    let server = PostgresServer::start_with(&["max_connections=20", "fsync=on"]);
    assert_eq!(server.query("SHOW max_connections"), "20");
    assert_eq!(server.query("SHOW fsync"), "on");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn password_is_asked_of_others() {
    let server = PostgresSetup::default().password("secret").start();
    assert_eq!(server.query("SELECT 1"), "1");
    assert!(psql(&server.url(), "SELECT 1").unwrap_err().contains("password"));
    assert!(psql(&server.url_of("postgres:wrong", "postgres"), "SELECT 1").is_err());
    let url = server.url_of("postgres:secret", "postgres");
    assert_eq!(psql(&url, "SHOW password_encryption"), Ok("scram-sha-256".to_owned()));
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn server_with_tls_shows_a_certificate_of_its_authority() {
    let server = PostgresSetup::default().tls().start();
    let ask = |authority: &Path| {
        let url = format!("{}?sslmode=verify-full&sslrootcert={}", server.url(), authority.display());
        psql(&url, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
    };
    assert_eq!(ask(&server.certificates().authority()), Ok("t".to_owned()));
    let stranger = PostgresSetup::default().tls().start();
    assert!(ask(&stranger.certificates().authority()).unwrap_err().contains("certificate verify failed"));
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn session_stays_open_and_says_what_fails() {
    let server = PostgresServer::start();
    let mut client = server.client().unwrap();
    let session = session_of(&mut client);
    assert_eq!(client.query("SELECT 1;"), Ok("1".to_owned()));
    assert_eq!(client.query("SELECT\n1/0").unwrap_err(), "22012 division by zero");
    assert_eq!(session_of(&mut client), session);
    assert!(PostgresClient::connect(&server.url_of("postgres", "none")).unwrap_err().contains("\"none\""));
    server.terminate(session);
    assert!(client.query("SELECT 1").unwrap_err().contains("terminating connection"));
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn stepped_clock_moves_the_time() {
    let mut server = PostgresSetup::default().own_clock().start();
    let hour = Duration::from_hours(1);
    let seconds = |server: &PostgresServer| -> u64 {
        server.query("SELECT floor(extract(epoch FROM clock_timestamp()))").parse().unwrap()
    };
    let wall = || Clock::system().wall_micros() / 1_000_000;
    assert!(seconds(&server).abs_diff(wall()) < 60);
    server.step_clock_forward(hour);
    assert!(seconds(&server).abs_diff(wall() + 3600) < 60);
    server.step_clock_back(2 * hour);
    assert!(seconds(&server).abs_diff(wall() - 3600) < 60);
    server.restart();
    assert!(seconds(&server).abs_diff(wall() - 3600) < 60);
}
