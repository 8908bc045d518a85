//! `explain`: what it says of a lock's rule and of the server that it finds, and of one that it does not find.

use std::time::Duration;

use fencepost::Clock;
use fencepost_testkit::servers::{PostgresServer, RedisServer};
use serde_json::{Value, json as value};

use crate::support::{Home, json};

#[track_caller]
fn promise<'a>(explained: &'a Value, fault: &str) -> &'a Value {
    let promises = explained["promises"].as_array().unwrap();
    promises
        .iter()
        .find(|promise| promise["fault"] == fault)
        .unwrap_or_else(|| panic!("{fault} in {explained:#}"))
}

#[test]
fn rule_is_told_with_its_answers_its_reason_and_its_fence() {
    let home = Home::new();
    let sink = home.path("sink").display().to_string();
    home.write(
        "fencepost.toml",
        &format!(
            "[backends.cheap]\nurl = \"redis://127.0.0.1:1?max_ttl=2m\"\n[[locks]]\nmatch = \"events/**\"\nbackend = \"cheap\"\n\
             ttl = \"20s\"\nfence = [\"file:{sink}\"]\non_overlap = \"corrupts\"\ncan_pause = true\nsink_checks = true\n\
             because = \"two writers corrupt the balance\"\naccept_risk = \"until the move to etcd\"\n"
        ),
    );
    let said = home.run(["explain", "--offline", "events/1"]).exits(0).stdout;
    for part in [
        "fencepost.toml:3, the rule \"events/**\"",
        "answers    on_overlap = \"corrupts\", can_pause = true, sink_checks = true",
        "because    two writers corrupt the balance",
        "risk taken until the move to etcd",
        "fence      file:",
        "20s after its",
        "2m after the server lost its locks",
        "costs      1 round trip to acquire, 1 to give back; one connection for each",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let explained = json(&home.run(["explain", "--json", "--offline", "events/1"]).exits(0));
    assert_eq!(explained["recovery"], value!({"host_ms": 20_000, "server_ms": 120_000}));
    assert_eq!(explained["answers"]["can_pause"], true);
    assert_eq!((&explained["servers"], &explained["given_ttl_ms"]), (&Value::Null, &Value::Null));
    for fault in ["no fault", "pause", "crash", "partition", "clock jump", "restart", "data loss"] {
        promise(&explained, fault);
    }
    let jump = promise(&explained, "clock jump");
    assert_eq!(jump["two_may_overlap"], "yes");
    assert!(jump["what_happens"].as_str().unwrap().ends_with("the fence refuses the older holder"), "{jump}");
}

#[test]
#[cfg_attr(not(all(redis_server, postgres_server)), ignore = "its server is not installed")]
fn version_of_the_server_is_told_as_it_is_found() {
    let redis = RedisServer::start();
    redis.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let home = Home::on(&redis.url());
    let explained = json(&home.run(["explain", "--json", "demo"]).exits(0));
    let version = redis.info("server", "redis_version").unwrap();
    assert_eq!(explained["servers"][0], format!("Redis {version} at 127.0.0.1:{}", redis.port()));
    assert_eq!(explained["serious"], 1);
    let said = home.run(["explain", "demo"]).exits(0).stdout;
    assert!(said.contains("1 serious finding there: fencepost doctor says which"), "{said}");
    assert_eq!(redis.command(&["DBSIZE"]).integer(), 0, "nothing is left behind");
    let postgres = PostgresServer::start();
    let said = Home::on(&postgres.url()).run(["explain", "demo"]).exits(0).stdout;
    assert!(said.contains("PostgreSQL 1"), "{said}");
    assert!(!postgres.query("select to_regnamespace('fencepost') is not null").contains('t'));
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn look_is_over_soon_however_patient_the_url_is() {
    let postgres = PostgresServer::start();
    let home = Home::on(&format!("{}?connect_timeout=30", postgres.url()));
    postgres.stop();
    let clock = Clock::system();
    let begun = clock.now();
    let explained = json(&home.run(["explain", "--json", "demo"]).exits(0));
    assert!(clock.now().since(begun) < Duration::from_secs(6));
    assert_eq!(explained["unseen"], "cannot look at it: it has not answered for 3s");
    postgres.go_on();
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn server_that_hangs_is_explained_all_the_same() {
    let redis = RedisServer::start();
    let home = Home::on(&redis.url());
    redis.stop();
    let clock = Clock::system();
    let begun = clock.now();
    let said = home.run(["explain", "demo"]).exits(0).stdout;
    assert!(clock.now().since(begun) < Duration::from_secs(6));
    assert!(
        said.contains("its version is not known") && said.contains("Could two holders overlap?"),
        "{said}"
    );
    let said = home.run(["explain", "--offline", "demo"]).exits(0).stdout;
    assert!(said.contains("not looked at") && !said.contains("has not answered"), "{said}");
    redis.go_on();
}

#[test]
fn explain_and_advise_say_the_same_of_every_fault() {
    let home = Home::new();
    for (url, postgres, hosts) in
        [("redis://h", "no", "many"), ("postgres://h/d", "yes", "many"), ("file:/locks", "no", "one")]
    {
        let answers =
            ["--on-overlap", "wasteful", "--can-pause", "yes", "--databases", "one", "--sink-checks", "no"];
        let advise = ["advise", "--json", "--postgres", postgres, "--hosts", hosts];
        let advised = json(&home.run(advise.iter().chain(&answers)).exits(0));
        let explained =
            json(&home.run(["explain", "--json", "--offline", "--backend", url, "demo"]).exits(0));
        assert_eq!(advised["pattern"], explained["backend"]);
        let risks = advised["risks"].as_object().unwrap();
        assert_eq!(risks.len(), 7);
        for (key, risk) in risks {
            let fault = key.strip_prefix("server_").unwrap_or(key).replace('_', " ");
            let promise = promise(&explained, &fault);
            for part in ["two_may_overlap", "what_happens"] {
                assert_eq!(risk[part], promise[part], "{fault} of {url}");
            }
        }
    }
}
