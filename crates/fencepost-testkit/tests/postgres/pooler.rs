//! `PgBouncer`: whose session a client has, by the mode.

use fencepost_testkit::servers::{PgBouncer, PoolMode, PostgresClient, PostgresServer};

use crate::{ends, pidfd, session_of};

#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its servers are not installed")]
fn pooler_lends_one_session_to_two_clients_by_transaction() {
    let server = PostgresServer::start();
    let pooler = PgBouncer::start(&server, PoolMode::Transaction, &["default_pool_size=1"]);
    let connect = || PostgresClient::connect(&pooler.url()).unwrap();
    let (mut one, mut other) = (connect(), connect());
    assert_eq!(session_of(&mut one), session_of(&mut other));
    one.query("BEGIN").unwrap();
    other.send("SELECT 1");
    one.query("COMMIT").unwrap();
    assert_eq!(other.receive(), Ok("1".to_owned()));
}

#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its servers are not installed")]
fn pooler_by_session_gives_each_client_its_own() {
    let server = PostgresServer::start();
    let mut pooler = PgBouncer::start(&server, PoolMode::Session, &[]);
    let connect = |pooler: &PgBouncer| PostgresClient::connect(&pooler.url()).unwrap();
    let (mut one, mut other) = (connect(&pooler), connect(&pooler));
    assert_ne!(session_of(&mut one), session_of(&mut other));
    let process = pidfd(pooler.pid());
    pooler.kill();
    assert!(ends(&process));
    one.query("SELECT 1").unwrap_err();
    pooler.restart();
    session_of(&mut connect(&pooler));
}

#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its servers are not installed")]
fn pooler_by_statement_refuses_transactions() {
    let server = PostgresServer::start();
    let pooler = PgBouncer::start(&server, PoolMode::Statement, &[]);
    let mut client = PostgresClient::connect(&pooler.url()).unwrap();
    client.query("BEGIN").unwrap_err();
}
