//! The logbook: who may write it, and on which session.

use fencepost_core::{AcquireRequest, ErrorKind, HolderId, Mode, Wait};
use fencepost_testkit::block_on;
use fencepost_testkit::servers::PostgresServer;

use crate::stage::{CARELESS, LONG, assert_kind, at, clock, lock, number, release, sessions, take};

fn request() -> AcquireRequest {
    AcquireRequest {
        name: "a".parse().expect("a test names a lock"),
        holder: HolderId::draw(&clock()),
        label: "a test".to_owned(),
        mode: Mode::Exclusive,
        ttl: LONG,
        at_least: None,
        wait: Wait::No,
        beside: Vec::new(),
        observer: None,
    }
}

/// A session that lives is not enough: its grant has to be the last one.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn session_whose_grant_is_not_the_present_one_writes_nothing() {
    let server = PostgresServer::start();
    let locks = at(&server, CARELESS);
    let read = || server.query("select convert_from(content, 'utf8') from fencepost.logbook");
    let mut claim = block_on(locks.backend().acquire(&request())).expect("a free lock can be had");
    block_on(claim.write_logbook(b"ours")).expect("its holder can write");
    for change in ["held = held + 1", "pid = pid + 1", "who = replace(who, ' ', ' 0')"] {
        server.execute("create table kept as select * from fencepost.lock");
        server.execute(&format!("update fencepost.lock set {change}"));
        let error = block_on(claim.write_logbook(b"late")).expect_err("it is not the present grant");
        assert_kind(&error, ErrorKind::Lost);
        assert_eq!(read(), "ours", "{change}");
        server.execute(
            "update fencepost.lock l set held = k.held, pid = k.pid, who = k.who from kept k where l.id = k.id;
             drop table kept",
        );
    }
    block_on(claim.write_logbook(b"ours still")).expect("its holder can write");
    assert_eq!(read(), "ours still");
    block_on(claim.release()).expect("it is held");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn holder_reads_and_writes_on_the_session_that_it_has() {
    let server = PostgresServer::start();
    let locks = at(&server, CARELESS);
    let held = take(&lock(&locks, "a").ttl(LONG).history(3));
    assert_eq!(sessions(&server), 1);
    let entries = block_on(locks.logbook("a")).expect("it can be read").grants;
    assert_eq!((entries.len(), sessions(&server)), (1, 1));
    release(held);
    // It was used for nothing else, and is used again.
    release(take(&lock(&locks, "a").ttl(LONG)));
    assert_eq!((sessions(&server), number(&server, "select count(*) from fencepost.logbook")), (1, 1));
}
