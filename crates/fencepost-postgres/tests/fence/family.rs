//! Partitions and tables that inherit: a statement on one of them fires no guard of the others.

use fencepost_core::Fence;
use fencepost_testkit::block_on;

use crate::stage::{GOOD, LOCK, NONE, STALE, Stage, assert_code, tried};

const TABLES: &str = r#"
create table entry (day int, n int) partition by range (day);
create table entry_1 partition of entry for values from (0) to (10);
create table entry_2 partition of entry for values from (10) to (20) partition by list (n);
create table "Entry 2 ü" partition of entry_2 for values in (1);
create table parent (n int);
create table child () inherits (parent);
create table grandchild () inherits (child);
grant all on all tables in schema public to app;
"#;

const MEMBERS: [&str; 7] = ["entry", "entry_1", "entry_2", "\"Entry 2 ü\"", "parent", "child", "grandchild"];

/// A stage on which the families are guarded.
fn guarded() -> Stage {
    let stage = Stage::new();
    stage.server.execute(TABLES);
    for (table, count) in [("entry", 4), ("parent", 3)] {
        let done = stage.guard(table, LOCK);
        assert_eq!(done.iter().filter(|line| line.contains("need the token")).count(), count, "{done:?}");
    }
    stage
}

fn write_to(table: &str) -> String {
    format!("delete from {table}")
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn every_member_of_a_family_is_guarded() {
    let stage = guarded();
    assert!(stage.findings().is_empty(), "{:?}", stage.findings());
    for (stamps, expected) in [(NONE, "FP001"), (STALE, "FP002"), (GOOD, "ok")] {
        let mut session = stage.session(stamps);
        for member in MEMBERS {
            assert_code(&tried(&mut session, &write_to(member)), expected);
            assert_code(&tried(&mut session, &format!("truncate {member}")), expected);
        }
        assert_code(&tried(&mut session, "insert into entry values (12, 1)"), expected);
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn member_that_came_later_is_found_and_guarded_by_a_second_install() {
    let stage = guarded();
    stage.server.execute("create table later partition of entry_2 for values in (2)");
    stage.server.execute("create table cousin () inherits (parent); grant all on later, cousin to app");
    let findings = stage.findings();
    for (child, parents) in [("later", &["entry", "entry_2"][..]), ("cousin", &["parent"])] {
        let found = findings.iter().find(|finding| finding.starts_with(child));
        let found = found.unwrap_or_else(|| panic!("{child} in {findings:?}"));
        assert!(parents.iter().any(|parent| found.contains(&format!("belongs to {parent}"))), "{found}");
        // What the finding warns of.
        assert_code(&tried(&mut stage.session(NONE), &write_to(child)), "ok");
    }
    stage.guard("entry", LOCK);
    stage.guard("parent", LOCK);
    assert!(stage.findings().is_empty(), "{:?}", stage.findings());
    for child in ["later", "cousin"] {
        assert_code(&tried(&mut stage.session(NONE), &write_to(child)), "FP001");
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn guard_that_does_not_always_fire_is_found() {
    let stage = guarded();
    let harm = |sql: &str, finding: &str| {
        stage.server.execute(sql);
        let findings = stage.findings();
        assert!(findings.iter().any(|found| found.contains(finding)), "{sql}: {findings:?}");
    };
    harm("alter table account disable trigger all", "account is disabled");
    harm("alter table account enable trigger all", "account does not fire always");
    let mut replaying = stage.session_of("postgres", NONE);
    replaying.query("set session_replication_role = replica").unwrap();
    assert_code(&tried(&mut replaying, "delete from account"), "ok");
    stage.guard("account", LOCK);
    assert!(stage.findings().is_empty(), "{:?}", stage.findings());
    assert_code(&tried(&mut replaying, "delete from account"), "FP001");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn guard_that_somebody_dropped_in_part_is_found() {
    for (suffix, write) in [("_truncate", "truncate account"), ("", "delete from account")] {
        let stage = Stage::new();
        let id = stage.server.query("select id from fencepost.fence where lock = 'ledger/1'");
        stage.server.execute(&format!("drop trigger fencepost_guard_{id}{suffix} on account"));
        assert_code(&tried(&mut stage.session(NONE), write), "ok");
        let findings = stage.findings();
        assert!(
            findings.iter().any(|found| found.contains("account lacks a part")),
            "{suffix:?}: {findings:?}"
        );
        stage.guard("account", LOCK);
        assert!(stage.findings().is_empty(), "{:?}", stage.findings());
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn family_is_freed_as_a_whole() {
    let stage = guarded();
    block_on(stage.fence().uninstall(Some("entry"))).unwrap();
    for member in &MEMBERS[..4] {
        assert_code(&tried(&mut stage.session(NONE), &write_to(member)), "ok");
    }
    assert_code(&tried(&mut stage.session(NONE), &write_to("child")), "FP001");
    let freed = block_on(stage.fence().uninstall(None)).unwrap();
    assert_eq!(freed.len(), 4, "{freed:?}");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn look_at_the_database_finds_the_weak_guards_of_every_lock() {
    let seen = |stage: &Stage| -> Vec<String> {
        let found = block_on(stage.fence().examine()).unwrap().findings;
        let found = found.into_iter().map(|finding| finding.evidence);
        found.filter(|evidence| !evidence.contains(" is off")).collect()
    };
    let unguarded = Stage::unguarded();
    let [warned, noted] = &seen(&unguarded)[..] else { panic!("{:?}", seen(&unguarded)) };
    assert!(warned == "no table is guarded by any lock" && noted.contains("has no schema fencepost"));
    block_on(unguarded.fence().install(None)).unwrap();
    assert_eq!(seen(&unguarded), ["no table is guarded by any lock"]);
    let stage = guarded();
    assert_eq!(seen(&stage), [""; 0]);
    stage.guard("customer", "other/lock");
    stage.server.execute("alter table customer disable trigger all");
    assert_eq!(seen(&stage), ["the guard of customer is disabled"]);
    assert!(stage.findings().is_empty(), "that is another lock");
    let rows = || stage.server.query("select count(*) from fencepost.fence");
    let before = rows();
    assert!(block_on(stage.fence().findings(&"unknown".parse().unwrap())).unwrap().is_empty());
    assert_eq!(rows(), before, "a look leaves nothing behind");
}
