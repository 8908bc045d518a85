//! A `PgBouncer` in front of the server: a pool that lends sessions out is refused before the command starts.

use fencepost_testkit::servers::{PgBouncer, PoolMode, PostgresServer};

use crate::faults::{last_act, start_tree};
use crate::support::{Home, is_alive};

use super::number;

/// Nothing is granted by way of this pooler, and `named` says why.
#[track_caller]
fn refuses(url: &str, named: &[&str]) {
    let home = Home::on(url);
    for args in [&["-n"][..], &["--wait", "20s"]] {
        let args = ["run", "--report", "report"].into_iter().chain(args.iter().copied());
        let run = home.run(args.chain(["demo", "--", "touch", "ran"])).exits(64);
        for name in named {
            assert!(run.stderr.contains(name), "{name} in {}", run.stderr);
        }
        assert!(!home.path("ran").exists());
        assert_eq!(home.json("report")["outcome"], "unavailable");
    }
}

#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its server is not installed")]
fn pooler_that_lends_sessions_out_is_refused_and_named() {
    let server = PostgresServer::start();
    for (mode, name) in [(PoolMode::Transaction, "transaction mode"), (PoolMode::Statement, "statement mode")]
    {
        for settings in [&[][..], &["ignore_startup_parameters=options"]] {
            let pooler = PgBouncer::start(&server, mode, settings);
            refuses(&pooler.url(), &[name, "PgBouncer", "hint:"]);
            refuses(&format!("{}?pooler=session", pooler.url()), &[name, "PgBouncer", "hint:"]);
        }
    }
}

#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its server is not installed")]
fn pooler_with_one_session_is_not_waited_for() {
    let server = PostgresServer::start();
    for mode in [PoolMode::Transaction, PoolMode::Session] {
        let pooler = PgBouncer::start(&server, mode, &["default_pool_size=1"]);
        refuses(&pooler.url(), &["pooler", "PgBouncer", "hint:"]);
        let home = Home::on(&format!("{}?pooler=session", pooler.url()));
        let run = home.run(["run", "-n", "demo", "--", "touch", "ran"]).exits(69);
        assert!(run.stderr.contains("has given no session"), "{}", run.stderr);
        assert!(!home.path("ran").exists());
    }
}

#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its server is not installed")]
fn pooler_by_session_is_refused_until_the_url_says_so() {
    let server = PostgresServer::start();
    let pooler = PgBouncer::start(&server, PoolMode::Session, &[]);
    refuses(&pooler.url(), &["session mode", "?pooler=session"]);
    let home = Home::on(&format!("{}?pooler=session", pooler.url()));
    let direct = Home::on(&server.url());
    let (run, pids) = start_tree(&home, &["run", "--grace", "300ms"], "trap '' TERM;");
    direct.run(["run", "-n", "demo", "--", "true"]).exits(75);
    home.run(["run", "-n", "demo", "--", "true"]).exits(75);
    home.run(["status", "demo"]).exits(0);
    let next = direct.start(["run", "demo", "--", "date", "+%s%6N"]);
    direct.await_waiter("demo");
    run.kill();
    assert!(last_act(&home) < number(&next.ends().exits(0).stdout));
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    home.run(["run", "--wait", "10s", "demo", "--", "true"]).exits(0);
}

#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its server is not installed")]
fn holder_behind_a_pooler_that_is_killed_has_lost_its_lock() {
    let server = PostgresServer::start();
    let mut pooler = PgBouncer::start(&server, PoolMode::Session, &[]);
    let home = Home::on(&format!("{}?pooler=session", pooler.url()));
    let (run, pids) = start_tree(&home, &["run", "--grace", "200ms", "--report", "report"], "");
    pooler.kill();
    run.ends().exits(76);
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    assert_eq!(home.json("report")["lost_reason"], "session_ended");
    Home::on(&server.url()).run(["run", "--wait", "10s", "demo", "--", "true"]).exits(0);
}
