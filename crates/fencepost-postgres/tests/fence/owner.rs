//! The way past the guard that a table's owner has, for repairs: with a reason, which the server's log tells.

use crate::stage::{NONE, STALE, Stage, assert_code, tried};

const WRITE: &str = "update account set total = total + 1";
const BYPASS: &str = "set fencepost.bypass = 'ticket 4711'";

fn owned() -> Stage {
    let stage = Stage::new();
    stage.server.execute(
        "create role clerk login; create role chief login; grant clerk to chief; create role guest login; \
         alter table account owner to clerk; grant all on account to guest",
    );
    stage
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn owner_passes_with_a_reason_that_is_logged() {
    let stage = owned();
    for user in ["clerk", "chief", "postgres"] {
        for stamps in [NONE, STALE] {
            let mut session = stage.session_of(user, stamps);
            session.query(BYPASS).unwrap();
            assert_code(&session.query(WRITE), "ok");
            assert_code(&tried(&mut session, "truncate account"), "ok");
            session.query("reset fencepost.bypass").unwrap();
            assert!(session.query(WRITE).is_err(), "it ends with the setting");
        }
        let told = format!("{user} passes by the guard of public.account (lock \"ledger/1\"): ticket 4711");
        assert!(stage.server.log().contains(&told), "{told}: {}", stage.server.log());
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn nobody_else_passes() {
    let stage = owned();
    for stamps in [NONE, STALE] {
        let mut session = stage.session_of("guest", stamps);
        session.query(BYPASS).unwrap();
        assert_code(&session.query(WRITE), "42501");
    }
    // Neither does whoever calls what the owner has written.
    stage.server.execute(
        "create function add() returns void language sql security definer as 'update public.account set total = 1'; \
         alter function add() owner to clerk",
    );
    let mut session = stage.session_of("guest", NONE);
    session.query(BYPASS).unwrap();
    assert_code(&session.query("select add()"), "42501");
    assert_eq!(stage.total(), "0");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn bypass_without_a_reason_is_none() {
    let stage = owned();
    let mut session = stage.session_of("clerk", NONE);
    session.query("set fencepost.bypass = ''").unwrap();
    assert_code(&session.query(WRITE), "FP001");
}
