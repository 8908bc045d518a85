//! Why tokens are no sequence: negative controls, on the server alone.

use fencepost_testkit::servers::PostgresServer;

use crate::tokens::stop_log_writer;

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn sequence_hands_out_again_what_was_committed_before_a_crash() {
    let mut server = PostgresServer::start_with(&["fsync=on", "wal_writer_delay=10s"]);
    server.execute("create sequence tokens");
    server.execute("checkpoint");
    stop_log_writer(&server);
    let (mut open, mut other) = (server.client().unwrap(), server.client().unwrap());
    open.query("begin").unwrap();
    assert_eq!(open.query("select nextval('tokens')").unwrap(), "1");
    let committed: Vec<String> = (0..5).map(|_| other.query("select nextval('tokens')").unwrap()).collect();
    assert_eq!(committed, ["2", "3", "4", "5", "6"]);
    server.kill();
    server.restart();
    assert_eq!(server.query("select nextval('tokens')"), "1", "six were given to the outside");
}
