//! A lease past its deadline whose session the server still keeps.

use std::time::Duration;

use fencepost_core::{Clock, ErrorKind, Lease, Locks, LossReason, block_on};
use fencepost_postgres::PostgresBackend;
use fencepost_testkit::servers::PostgresServer;

const TTL: Duration = Duration::from_secs(1);

fn locks(server: &PostgresServer, options: &str) -> Locks {
    let url = format!("{}{options}", server.url()).parse().expect("it is a URL");
    Locks::new(PostgresBackend::from_url(&url, Clock::system()).expect("the URL names a server"))
}

/// A lease that is past its deadline, since the server stood still; it goes on now.
fn overdue(server: &PostgresServer, locks: &Locks) -> Lease {
    let lock = locks.lock("orders").expect("it is a name").ttl(TTL);
    let lease = block_on(lock.acquire()).expect("it is free");
    server.stop();
    let told = block_on(lease.lost());
    assert_eq!(told.loss_reason(), Some(LossReason::Deadline));
    assert_eq!(lease.check().expect_err("it is past its deadline").kind(), ErrorKind::Lost);
    server.go_on();
    lease
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn overdue_lease_is_held_again_under_its_token_when_it_is_revalidated() {
    let server = PostgresServer::start();
    let locks = locks(&server, "");
    let lease = overdue(&server, &locks);
    let token = lease.token();
    assert!(lease.check().is_err(), "it came back without being asked for");

    block_on(lease.revalidate()).expect("the server still keeps its session");
    lease.check().expect("it was revalidated");
    assert_eq!(lease.token(), token);
    let other = locks.lock("orders").expect("it is a name");
    assert!(
        block_on(other.try_acquire()).expect("it can be asked for").is_none(),
        "there is a second holder"
    );
    block_on(Clock::system().sleep(TTL * 3));
    lease.check().expect("it is renewed as before");
    block_on(lease.release()).expect("it is held");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn overdue_lease_whose_session_has_ended_is_lost_for_good() {
    let server = PostgresServer::start();
    let locks = locks(&server, "");
    let lease = overdue(&server, &locks);
    server.execute(
        "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and pid <> pg_backend_pid()",
    );
    for _ in 0..2 {
        let revalidated = block_on(lease.revalidate());
        assert_eq!(revalidated.expect_err("nobody keeps it").kind(), ErrorKind::Lost);
    }
    lease.check().expect_err("a lost lease came back");
    let next = block_on(locks.lock("orders").expect("it is a name").acquire()).expect("it is free");
    assert!(next.token() > lease.token());
    block_on(next.release()).expect("it is held");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn lease_that_runs_out_on_the_server_is_not_revalidated() {
    let server = PostgresServer::start();
    let locks = locks(&server, "?on_pause=expire");
    let lease = overdue(&server, &locks);
    assert_eq!(block_on(lease.revalidate()).expect_err("it has run out").kind(), ErrorKind::Lost);
}
