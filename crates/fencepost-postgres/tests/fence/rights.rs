//! Which rights who needs: those that the installation prints are enough, and without them nobody gets further.

use fencepost_core::{Clock, ErrorKind, Fence, Locks, NamePrefix};
use fencepost_postgres::PostgresBackend;
use fencepost_testkit::block_on;
use fencepost_testkit::servers::psql;

use crate::stage::{GOOD, LOCK, NONE, STALE, Stage, assert_code, assert_kind, name, stamp, tried};

const WRITE: &str = "update account set total = total + 1";

/// A server on which somebody who may has run what the installation prints for `app`.
fn prepared() -> Stage {
    let stage = Stage::unguarded();
    let sql = stage.fence_of("app").installation(Some(("account", &name(LOCK))));
    for _ in 0..2 {
        psql(&stage.server.url(), &sql).unwrap();
    }
    stage
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn rights_that_are_printed_are_enough_for_lock_and_fence() {
    let stage = prepared();
    let url = stage.server.url_of("app", "postgres").parse().unwrap();
    let locks = Locks::new(PostgresBackend::from_url(&url, Clock::system()).unwrap());
    let fence = stage.fence_of("app");
    let lease = block_on(locks.lock(LOCK).unwrap().acquire()).unwrap();
    let own = lease.stamp();
    block_on(fence.seal(&own)).unwrap();
    block_on(fence.check(&own)).unwrap();
    assert_eq!(block_on(fence.marks(&NamePrefix::new("ledger/"))).unwrap().len(), 1);
    assert!(block_on(fence.findings(&name(LOCK))).unwrap().is_empty());
    let (token, holder) = (own.token.get(), own.holder.as_str());
    let stamps = format!(r#"{{"ledger%2F1":[{token},"{holder}"]}}"#);
    assert_code(&stage.session(&stamps).query(WRITE), "ok");
    let check = format!("select fencepost.check('ledger/1', {token}, '{holder}')");
    assert_code(&tried(&mut stage.session(NONE), &format!("{check}; {WRITE}")), "ok");
    block_on(lease.release()).unwrap();
    assert!(block_on(fence.forget(&name(LOCK))).unwrap());
    assert_eq!(stage.total(), "4");
}

/// Those rights do not reach to the mark itself, nor to the guard.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn role_that_may_seal_cannot_touch_the_mark_or_the_guard() {
    let stage = prepared();
    stage.seal(10, "b").unwrap();
    let mut session = stage.session(STALE);
    for sql in [
        "update fencepost.fence set token = 9",
        "delete from fencepost.fence",
        "select * from fencepost.fence",
        "select fencepost.hold('ledger/1', 1, 9, 'a')",
        "alter table account disable trigger all",
        "select fencepost.unguard('account')",
        "set session_replication_role = replica",
    ] {
        assert_code(&tried(&mut session, sql).map_err(|said| format!("{said} [{sql}]")), "42501");
    }
    assert_code(&session.query(WRITE), "FP002");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn role_without_rights_is_denied_and_told_what_helps() {
    let stage = prepared();
    stage.seal(10, "b").unwrap();
    stage.server.execute("create role stranger login; grant all on account to stranger");
    let fence = stage.fence_of("stranger");
    for error in [
        block_on(fence.seal(&stamp(LOCK, 11, "c"))).unwrap_err(),
        block_on(fence.check(&stamp(LOCK, 10, "b"))).unwrap_err(),
        block_on(fence.mark(&name(LOCK))).unwrap_err(),
        block_on(fence.marks(&NamePrefix::default())).unwrap_err(),
        block_on(fence.forget(&name(LOCK))).unwrap_err(),
        block_on(fence.findings(&name(LOCK))).unwrap_err(),
        block_on(fence.install(Some(("account", &name(LOCK))))).unwrap_err(),
        block_on(fence.uninstall(Some("account"))).unwrap_err(),
    ] {
        assert_kind(&error, ErrorKind::Denied);
        assert!(error.advice().is_some_and(|hint| hint.contains("--dry-run")), "{error:?}");
    }
    let mut session = stage.session_of("stranger", GOOD);
    assert_code(&session.query("select fencepost.check('ledger/1', 10, 'b')"), "42501");
    assert_eq!(stage.mark().unwrap().token.get(), 10);
}

/// The guard has the rights of whoever made it, so that a program under `run` needs none on the schema.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn writer_needs_no_right_on_the_schema() {
    let stage = prepared();
    stage.seal(10, "b").unwrap();
    stage.server.execute("create role writer login; grant all on account to writer");
    for (stamps, expected) in [(GOOD, "ok"), (STALE, "FP002"), (NONE, "FP001")] {
        let mut session = stage.session_of("writer", stamps);
        session.query("select set_config('search_path', '', false)").unwrap();
        assert_code(&tried(&mut session, "update public.account set total = 1"), expected);
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn database_that_is_not_prepared_and_may_not_be_is_denied_with_the_way() {
    let stage = Stage::unguarded();
    let fence = stage.fence_of("app");
    let error = block_on(fence.seal(&stamp(LOCK, 10, "b"))).unwrap_err();
    assert_kind(&error, ErrorKind::Denied);
    assert!(error.advice().is_some_and(|hint| hint.contains("--dry-run")), "{error:?}");
    assert_eq!(block_on(fence.mark(&name(LOCK))).unwrap(), None);
    assert_kind(&block_on(fence.check(&stamp(LOCK, 10, "b"))).unwrap_err(), ErrorKind::Stale);
}

/// A search path of somebody's own leads no function astray.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn objects_of_the_same_name_in_front_change_nothing() {
    let stage = prepared();
    stage.seal(10, "b").unwrap();
    stage.server.execute(
        "create schema trap; grant usage on schema trap to public; \
         create function trap.pg_advisory_xact_lock_shared(int, int) returns void language sql as ''; \
         create function trap.current_setting(text, boolean) returns text language sql as \
         $$ select '{\"ledger%2F1\":[10,\"b\"]}'::text $$; \
         create table trap.fence (lock text, token bigint, holder text)",
    );
    let mut session = stage.session(STALE);
    session.query("set search_path = trap, pg_catalog, public").unwrap();
    assert_code(&session.query("update public.account set total = 1"), "FP002");
    assert_code(&session.query("select fencepost.check('ledger/1', 9, 'a')"), "FP002");
}
