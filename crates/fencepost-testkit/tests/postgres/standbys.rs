//! Standbys: they follow, they lag in two ways, and they take over.

use fencepost_testkit::servers::wait_until;

use crate::with_table;

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn standby_follows_and_is_promoted() {
    let mut primary = with_table();
    let standby = primary.standby();
    primary.execute("INSERT INTO kept VALUES (1)");
    standby.wait_for_replay(&primary);
    assert_eq!(standby.query("SELECT a FROM kept"), "1");
    assert!(standby.try_query("INSERT INTO kept VALUES (2)").unwrap_err().contains("read-only"));
    primary.restart();
    primary.execute("INSERT INTO kept VALUES (2)");
    standby.wait_for_replay(&primary);
    primary.kill();
    standby.promote();
    standby.execute("INSERT INTO kept VALUES (3)");
    assert_eq!(standby.query("SELECT string_agg(a::text, ',' ORDER BY a) FROM kept"), "1,2,3");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn standby_that_receives_nothing_lacks_the_last_commit_when_it_is_promoted() {
    let mut primary = with_table();
    let standby = primary.standby();
    standby.stop_receiving();
    primary.execute("INSERT INTO kept VALUES (1)");
    primary.kill();
    standby.promote();
    assert_eq!(standby.query("SELECT count(*) FROM kept"), "0");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn paused_standby_shows_nothing_new_and_loses_nothing() {
    let primary = with_table();
    let (standby, other) = (primary.standby(), primary.standby());
    standby.pause_replay();
    other.stop_receiving();
    primary.execute("INSERT INTO kept VALUES (1)");
    let position = primary.query("SELECT pg_current_wal_flush_lsn()");
    let has_received = format!("SELECT pg_last_wal_receive_lsn() >= '{position}'");
    wait_until("the standby has received it", || standby.query(&has_received) == "t");
    assert_eq!(standby.query("SELECT count(*) FROM kept"), "0");
    standby.promote();
    assert_eq!(standby.query("SELECT a FROM kept"), "1");
    other.follow(&primary);
    other.wait_for_replay(&primary);
    assert_eq!(other.query("SELECT a FROM kept"), "1");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn standby_that_cannot_be_made_is_no_panic() {
    let mut primary = with_table();
    let standby = primary.standby();
    primary.kill();
    let message = primary.try_standby().unwrap_err();
    assert!(message.contains("pg_basebackup"), "{message}");
    standby.promote();
    assert!(standby.try_promote().unwrap_err().contains("recovery is not in progress"));
}
