//! `doctor`: what it looks at, what it says, and that a server which is away or hangs costs no other its findings.

use std::fs;
use std::time::Duration;

use fencepost::Clock;
use fencepost_testkit::servers::{PostgresServer, RedisServer};
use serde_json::Value;

use crate::support::{Home, Outcome, json};

/// What is said about a Redis that nothing is said against, but that it is young.
const WELL: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// The place whose name contains `place`.
#[track_caller]
fn checked<'a>(report: &'a Value, role: &str, place: &str) -> &'a Value {
    let all = report["checked"].as_array().unwrap();
    let is_it = |one: &&Value| one["role"] == role && one["place"].as_str().unwrap().contains(place);
    all.iter().find(is_it).unwrap_or_else(|| panic!("{role} {place} in {report:#}"))
}

fn evidence(checked: &Value) -> Vec<&str> {
    let findings = checked["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["evidence"].as_str().unwrap()).collect()
}

fn configure(home: &Home, redis: &RedisServer) {
    let sink = home.path("sink");
    let (cheap, sink) = (redis.url(), sink.display());
    home.write(
        "fencepost.toml",
        &format!(
            "[backends.cheap]\nurl = \"{cheap}\"\n[backends.here]\nurl = \"file:{sink}/locks\"\n\
             [[locks]]\nmatch = \"events/**\"\nbackend = \"cheap\"\nfence = [\"file:{sink}\"]\n\
             [[locks]]\nmatch = \"etl/**\"\nbackend = \"cheap\"\n\
             [[locks]]\nmatch = \"ledger/**\"\nbackend = \"here\"\nfence = [\"file:{sink}\", \"{cheap}\"]\n"
        ),
    );
}

#[test]
fn default_directory_is_looked_at_without_a_configuration_and_not_made() {
    let home = Home::new();
    let said = home.run(["doctor"]).exits(0).stdout;
    assert!(said.contains("state/fencepost (backend)\n") && said.contains("note     "), "{said}");
    assert!(said.ends_with("1 place looked at: 0 serious, 1 warning, 1 note\n"), "{said}");
    let report = json(&home.run(["doctor", "--json"]).exits(0));
    let keys: Vec<_> = report.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["checked", "notes", "serious", "warnings"]);
    let only = &report["checked"][0];
    assert_eq!(
        (&only["role"], &only["kind"], &report["serious"]),
        (&"backend".into(), &"file".into(), &0.into())
    );
    let keys: Vec<_> = only["findings"][0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["about", "consequence", "evidence", "remedy", "severity"]);
    assert!(!home.locks().exists());
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn each_backend_and_fence_of_the_configuration_is_looked_at_once() {
    let (home, redis) = (Home::new(), RedisServer::start_with(&WELL));
    configure(&home, &redis);
    let report = json(&home.run(["doctor", "--json"]).exits(1));
    assert_eq!(report["checked"].as_array().unwrap().len(), 4, "{report:#}");
    let backend = checked(&report, "backend", "redis://");
    assert_eq!(backend["rules"], serde_json::json!(["events/**", "etl/**"]));
    assert!(backend["servers"][0].as_str().unwrap().starts_with("Redis "), "{backend:#}");
    let fence = checked(&report, "fence", "sink");
    assert_eq!(fence["rules"], serde_json::json!(["events/**", "ledger/**"]));
    // The marks would be in the tests' temporary directory.
    assert_eq!(fence["findings"][0]["severity"], "serious");
    assert!(!home.path("sink").exists(), "nothing is made");
    assert_eq!(redis.command(&["DBSIZE"]).integer(), 0, "nothing is left behind");
    let of_lock = json(&home.run(["doctor", "--json", "etl/1"]).exits(0));
    assert_eq!(of_lock["checked"].as_array().unwrap().len(), 1, "{of_lock:#}");
    let by_hand = ["doctor", "--json", "--backend", &redis.url(), "--fence", &redis.url()];
    assert_eq!(json(&home.run(by_hand).exits(0))["checked"].as_array().unwrap().len(), 2);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn worst_place_comes_first_in_lines_that_a_terminal_shows_whole() {
    let (home, redis) = (Home::new(), RedisServer::start_with(&["--maxmemory", "100mb"]));
    configure(&home, &redis);
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let said = home.run(["doctor", "ledger/1", "events/1"]).exits(1).stdout;
    let place = |name: &str| said.find(name).unwrap_or_else(|| panic!("{name} in {said}"));
    assert!(place("(backend, of the rule \"events/**\")") < place("(backend, of the rule \"ledger/**\")"));
    assert!(said.contains("  serious  maxmemory-policy is allkeys-lru"), "{said}");
    assert!(said.contains("           change: CONFIG SET maxmemory-policy noeviction"), "{said}");
    let widest = said.lines().filter(|line| !line.contains('/')).map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{said}");
    assert!(said.lines().last().unwrap().starts_with("4 places looked at: "), "{said}");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn server_that_hangs_delays_no_other_for_long() {
    let (home, redis) = (Home::new(), RedisServer::start_with(&WELL));
    redis.stop();
    let clock = Clock::system();
    let begun = clock.now();
    let near = format!("file:{}", home.path("near").display());
    let outcome = home.run(["doctor", "--json", "--backend", &redis.url(), "--fence", &near]).exits(1);
    assert!(clock.now().since(begun) < Duration::from_secs(8));
    assert!(outcome.stderr.contains(&format!("still looking at {}", redis.url())), "{outcome:?}");
    assert!(!outcome.stderr.contains("near"), "{outcome:?}");
    let report = json(&outcome);
    assert!(evidence(checked(&report, "backend", "redis://"))[0].contains("has not answered"), "{report:#}");
    assert!(!evidence(checked(&report, "fence", "near")).is_empty(), "{report:#}");
    redis.go_on();
}

#[test]
fn server_that_is_away_is_a_finding_and_its_password_is_not_shown() {
    let home = Home::new();
    home.write("secret", "s3cret\n");
    let rules = "[[locks]]\nmatch = \"a/**\"\nbackend = \"a\"\n[[locks]]\nmatch = \"**\"\nbackend = \"b\"\n";
    let file = home.path("secret").display().to_string();
    home.write(
        "fencepost.toml",
        &format!(
            "[backends.a]\nurl = \"redis://u:${{file:{file}}}@127.0.0.1:1\"\n\
             [backends.b]\nurl = \"postgres://u:${{file:{file}}}@127.0.0.1:1/x\"\n{rules}"
        ),
    );
    let said = home.run(["doctor"]).exits(1);
    assert_eq!(said.stdout.matches("Connection refused").count(), 2, "{said:?}");
    assert!(said.stdout.ends_with("2 places looked at: 2 serious, 0 warnings, 0 notes\n"), "{said:?}");
    for outcome in [said, home.run(["-v", "doctor", "--json", "a/1"]).exits(1)] {
        assert!(!format!("{outcome:?}").contains("s3cret"), "{outcome:?}");
    }
}

#[test]
fn what_is_written_wrong_ends_as_elsewhere() {
    let home = Home::new();
    for args in [
        &["--backend", "nonsense"][..],
        &["--backend", "redis://h?x=1"],
        &["--fence", "redlock://a,b,c"],
        &["a\nb"],
    ] {
        home.run(["doctor"].iter().chain(args)).exits(64);
    }
    home.write("fencepost.toml", "[[locks]]\nmatch = \"a\"\nbackend = \"none\"\n");
    home.run(["doctor"]).exits(78);
    home.write(
        "fencepost.toml",
        "[backends.x]\nurl = \"file:\"\n[[locks]]\nmatch = \"a\"\nbackend = \"x\"\n",
    );
    home.run(["doctor", "other"]).exits(78);
    home.run(["doctor", "a"]).exits(0);
}

#[test]
fn looking_at_nothing_is_not_told_as_well() {
    let home = Home::new();
    home.write("fencepost.toml", "");
    let said = home.run(["doctor"]).exits(1).stdout;
    assert!(said.contains("serious  nothing to look at"), "{said}");
    assert!(said.ends_with("0 places looked at: 1 serious, 0 warnings, 0 notes\n"), "{said}");
    let url = format!("file:{}", home.path("here").display());
    home.write("fencepost.toml", &format!("[backends.a]\nurl = \"{url}\"\n[fences.f]\nurl = \"{url}\"\n"));
    let report = json(&home.run(["doctor", "--json"]).exits(1));
    assert_eq!(report["checked"].as_array().unwrap().len(), 3, "{report:#}");
    assert_eq!(evidence(checked(&report, "configuration", "fencepost.toml")), ["it has no rule"]);
    checked(&report, "backend", "here");
    checked(&report, "fence", "here");
}

#[test]
fn what_no_rule_uses_is_looked_at_too() {
    let home = Home::new();
    let stores = "[backends.a]\nurl = \"file:\"\n[backends.old]\nurl = \"redis://127.0.0.1:1\"\n\
                  [backends.far]\nurl = \"redis://h:${UNSET_HERE}\"\n[fences.f]\nurl = \"redis://127.0.0.1:2\"\n";
    home.write("fencepost.toml", &format!("{stores}[[locks]]\nmatch = \"**\"\nbackend = \"a\"\n"));
    let report = json(&home.run(["doctor", "--json"]).exits(1));
    for (role, place) in [("backend", "127.0.0.1:1"), ("fence", "127.0.0.1:2")] {
        assert_eq!(checked(&report, role, place)["findings"][0]["severity"], "serious", "{report:#}");
    }
    let far = checked(&report, "backend", "${UNSET_HERE}");
    assert_eq!((&far["findings"][0]["severity"], &far["kind"]), (&"note".into(), &"redis".into()));
    assert_eq!(json(&home.run(["doctor", "--json", "a"]).exits(0))["checked"].as_array().unwrap().len(), 1);
}

#[test]
fn rule_that_is_wrong_costs_no_other_its_findings() {
    let home = Home::new();
    let stores = "[backends.a]\nurl = \"redis://u:${UNSET_HERE}@h\"\n[backends.b]\nurl = \"redis://h?bogus=1\"\n\
                  [backends.c]\nurl = \"file:\"\n";
    let rule = |name: &str| format!("[[locks]]\nmatch = \"{name}\"\nbackend = \"{name}\"\n");
    home.write("fencepost.toml", &format!("{stores}{}{}{}", rule("a"), rule("b"), rule("c")));
    let report = json(&home.run(["doctor", "--json"]).exits(1));
    assert_eq!(
        (&report["serious"], report["checked"].as_array().unwrap().len()),
        (&2.into(), 3),
        "{report:#}"
    );
    let unset = checked(&report, "backend", "${UNSET_HERE}");
    assert!(evidence(unset)[0].contains("fencepost.toml:2:") && evidence(unset)[0].contains("UNSET_HERE"));
    assert_eq!(unset["rules"], serde_json::json!(["a"]));
    assert!(evidence(checked(&report, "backend", "redis://h?"))[0].contains("bogus"), "{report:#}");
    assert!(!evidence(checked(&report, "backend", "state/fencepost")).is_empty(), "{report:#}");
    let named = json(&home.run(["doctor", "--json", "a", "b", "c"]).exits(1));
    assert_eq!(named["checked"], report["checked"]);
    home.run(["doctor", "c"]).exits(0);
    home.run(["doctor", "--backend", "file:"]).exits(0);
}

/// One that every build has is away, and so is a finding too.
#[test]
fn rule_with_a_backend_that_a_build_lacks_is_a_finding_and_not_the_end() {
    let home = Home::new();
    let rules = "[[locks]]\nmatch = \"a\"\nbackend = \"x\"\n[[locks]]\nmatch = \"**\"\nbackend = \"y\"\n";
    let backends = "[backends.x]\nurl = \"etcd://127.0.0.1:1\"\n[backends.y]\nurl = \"file:\"\n";
    home.write("fencepost.toml", &format!("{backends}{rules}"));
    let report = json(&home.run(["doctor", "--json"]).exits(1));
    assert_eq!(report["serious"], 1, "{report:#}");
    assert_eq!(checked(&report, "backend", "etcd://")["findings"][0]["severity"], "serious");
    assert!(!evidence(checked(&report, "backend", "state/fencepost")).is_empty(), "{report:#}");
}

#[test]
fn directory_that_only_others_may_write_is_serious() {
    let home = Home::new();
    fs::create_dir(home.path("locks")).unwrap();
    let url = format!("file:{}", home.path("locks").display());
    let Some(outcome) = home.as_nobody(&["doctor", "--backend", &url]) else { return };
    let said = outcome.exits(1).stdout;
    assert!(said.contains("serious  ") && said.contains("install -d -m"), "{said}");
}

#[test]
fn disk_that_is_full_and_one_of_a_container_are_found() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "only root can mount one, and CI must prove this");
        return;
    }
    let home = Home::new();
    let doctor = "fencepost doctor --json --backend file:$PWD/";
    let small = format!("mkdir small && mount -t tmpfs -o size=400k none small && {doctor}small");
    // Layers cannot lie upon layers, as the tests' own directory may.
    let layers = format!(
        "mkdir disk layers && mount -t tmpfs none disk && mkdir disk/a disk/b disk/c \
         && mount -t overlay -o lowerdir=disk/a,upperdir=disk/b,workdir=disk/c none layers && {doctor}layers"
    );
    let found = |script: &str| {
        // In a name space of its own, which takes what is mounted with it.
        let mut command = home.command("unshare");
        let report = json(&Outcome::of(command.args(["--mount", "sh", "-c", script]).output().unwrap()));
        evidence(&report["checked"][0]).join("\n")
    };
    let small = found(&small);
    assert!(small.contains("400 KiB and") && small.contains("it is on tmpfs"), "{small}");
    let layers = found(&layers);
    assert!(layers.contains("it is on overlay"), "{layers}");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn guard_that_was_switched_off_is_serious_until_it_is_installed_again() {
    let (home, server) = (Home::new(), PostgresServer::start_with(&["fsync=on", "full_page_writes=on"]));
    let (url, lock) = (server.url(), "ledger/1");
    server.execute("alter role postgres set statement_timeout = '1h'");
    let twice = home.run(["doctor", "--backend", &url, "--fence", &url]).exits(0).stdout;
    assert_eq!(twice.matches("statement_timeout = ").count(), 2, "{twice}");
    assert_eq!(twice.matches("(as above)").count(), 1, "{twice}");
    server.execute("alter role postgres reset statement_timeout");
    server.execute("create table account (total int)");
    let install = ["fence", "install", &url, "--table", "account", "--lock", lock];
    let doctor = ["doctor", "--json", "--backend", &url, "--fence", &url, lock];
    home.run(install).exits(0);
    let well = json(&home.run(doctor).exits(0));
    assert_eq!(evidence(checked(&well, "fence", "postgres://")), [""; 0], "{well:#}");
    server.execute("alter table account disable trigger all");
    let weak = json(&home.run(doctor).exits(1));
    assert_eq!(evidence(checked(&weak, "fence", "postgres://")), ["the guard of account is disabled"]);
    home.run(install).exits(0);
    home.run(doctor).exits(0);
    let other = ["fence", "install", &url, "--table", "account", "--lock", "other"];
    home.run(other).exits(0);
    server.execute("drop schema fencepost cascade");
    let gone = json(&home.run(doctor).exits(0));
    assert!(evidence(checked(&gone, "fence", "postgres://"))[0].contains("no table is guarded"));
}
