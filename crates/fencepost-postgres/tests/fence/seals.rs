//! What the library's seal does with sessions in its way: it waits for a moment, and then ends those of older holders alone.

use fencepost_core::{ErrorKind, Fence};
use fencepost_testkit::block_on;
use fencepost_testkit::servers::{PostgresClient, psql};

use crate::stage::{GOOD, LOCK, NONE, SLACK, Stage, assert_code, assert_kind, name, stamp, timed};

const ADD: &str = "update account set total = total + 1 where id = 1";

fn writing(stage: &Stage, user: &str) -> PostgresClient {
    let mut session = stage.session_of(user, GOOD);
    session.query(&format!("begin; {ADD}")).unwrap();
    session
}

fn pid(session: &mut PostgresClient) -> String {
    session.query("select pg_backend_pid()").unwrap()
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn seal_ends_the_open_transaction_of_an_older_holder() {
    let stage = Stage::new();
    let (mut older, mut other) = (writing(&stage, "app"), stage.session(NONE));
    other.query("begin; select 1").unwrap();
    let (sealed, took) = timed(|| stage.seal(11, "c"));
    sealed.unwrap();
    assert!(took < SLACK, "{took:?}");
    let said = older.query(ADD).unwrap_err();
    assert!(said.contains("terminat") || said.contains("closed"), "{said}");
    assert_eq!(stage.total(), "0", "what it had written is rolled back");
    other.query("commit").expect("who has not written under a stamp is left alone");
    let mut newer = stage.session(r#"{"ledger%2F1":[11,"c"]}"#);
    newer.query(ADD).unwrap();
    assert_eq!(stage.total(), "1");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn seal_waits_for_a_short_transaction_and_ends_nobody() {
    let stage = Stage::new();
    let mut older = writing(&stage, "app");
    std::thread::scope(|scope| {
        let sealing = scope.spawn(|| stage.seal(11, "c"));
        stage.wait_for_waiters(1);
        older.query("commit").unwrap();
        sealing.join().unwrap().unwrap();
    });
    assert_eq!(stage.total(), "1");
    older.query("select 1").expect("it was not ended");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn seal_of_the_same_stamp_neither_waits_nor_disturbs() {
    let stage = Stage::new();
    let mut writers: Vec<_> = (1..=4)
        .map(|id| {
            let mut session = stage.session(GOOD);
            session.query(&format!("begin; update account set total = 1 where id = {id}")).unwrap();
            session
        })
        .collect();
    let fence = stage.fence();
    block_on(fence.seal(&stamp(LOCK, 10, "b"))).expect("one that waited for them would give up");
    for writer in &mut writers {
        writer.query("commit").unwrap();
    }
    assert_eq!(stage.total(), "4");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn stale_seal_ends_nobody() {
    let stage = Stage::new();
    let mut writer = writing(&stage, "app");
    for (token, holder) in [(9, "a"), (10, "a"), (10, "")] {
        // One that waited for the writer would be unavailable.
        assert_kind(&stage.seal(token, holder).unwrap_err(), ErrorKind::Stale);
    }
    writer.query("commit").unwrap();
    assert_eq!(stage.total(), "1");
    assert_eq!(stage.mark().unwrap().token.get(), 10);
}

/// A role without privileges may not end a superuser's session; then nothing is sealed.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn seal_that_may_not_end_a_session_names_it_and_leaves_nothing() {
    let stage = Stage::unguarded();
    stage.server.execute("create role keeper login; grant create on database postgres to keeper");
    stage.server.execute("alter table account owner to keeper; alter table customer owner to keeper");
    let fence = stage.fence_of("keeper");
    block_on(fence.install(Some(("account", &name(LOCK))))).unwrap();
    block_on(fence.seal(&stamp(LOCK, 10, "b"))).unwrap();
    for user in ["postgres", "app"] {
        stage.server.execute("grant all on account, customer to app");
        let mut older = writing(&stage, user);
        let error = block_on(fence.seal(&stamp(LOCK, 11, "c"))).unwrap_err();
        assert_kind(&error, ErrorKind::Unavailable);
        for part in [format!("session {}", pid(&mut older)), "token 10".to_owned(), "\"b\"".to_owned()] {
            assert!(error.to_string().contains(&part), "{part} in {error}");
        }
        assert!(error.advice().is_some_and(|hint| hint.contains("pg_signal_backend")), "{error:?}");
        assert_eq!(stage.mark().unwrap().token.get(), 10);
        older.query("commit").expect("it was not ended");
    }
    assert_eq!(stage.total(), "2");
    // With the right that the hint names, the other role's session is ended; a superuser's still is not.
    stage.server.execute("grant pg_signal_backend to keeper");
    let mut older = writing(&stage, "app");
    block_on(fence.seal(&stamp(LOCK, 11, "c"))).unwrap();
    older.query("commit").unwrap_err();
    assert_eq!(stage.total(), "2");
}

/// A role may end sessions of its own, whoever owns the schema.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn seal_ends_the_sessions_of_its_own_role() {
    let stage = Stage::unguarded();
    stage.server.execute(
        "create role keeper login; grant create on database postgres to keeper; alter table account owner to keeper",
    );
    let sql = stage.fence_of("app").installation(Some(("account", &name(LOCK))));
    psql(&stage.server.url_of("keeper", "postgres"), &sql).unwrap();
    stage.server.execute("grant all on account to app");
    let fence = stage.fence_of("app");
    block_on(fence.seal(&stamp(LOCK, 10, "b"))).unwrap();
    let mut older = writing(&stage, "app");
    block_on(fence.seal(&stamp(LOCK, 11, "c"))).unwrap();
    older.query("commit").unwrap_err();
    assert_eq!(stage.total(), "0");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn several_open_transactions_are_ended_together() {
    let stage = Stage::new();
    let mut older: Vec<_> = (1..=3)
        .map(|id| {
            let mut session = stage.session(GOOD);
            session.query(&format!("begin; update account set total = 1 where id = {id}")).unwrap();
            session
        })
        .collect();
    stage.seal(11, "c").unwrap();
    for session in &mut older {
        session.query("commit").unwrap_err();
    }
    assert_eq!(stage.total(), "0");
    assert_code(&stage.session(GOOD).query(ADD), "FP002");
}
