//! A program gets the lock that `fencepost run` would hold.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use fencepost::{ErrorKind, LockName, Policy, Stamp, block_on};
use tempfile::TempDir;

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn policy(&self, rule: &str) -> Policy {
        let (locks, marks) = (self.path("locks"), self.path("marks"));
        let text = format!(
            "[backends.here]\nurl = \"file:{}\"\n[fences.marks]\nurl = \"file:{}\"\n[defaults]\nwait = \"50ms\"\n\
             [[locks]]\nmatch = \"ledger/**\"\nbackend = \"here\"\n{rule}\n",
            locks.display(),
            marks.display()
        );
        fs::write(self.path("fencepost.toml"), text).unwrap();
        Policy::open(&self.path("fencepost.toml")).unwrap()
    }
}

#[test]
fn lock_has_the_place_the_wait_and_the_fences_of_its_rule() {
    let place = Place::new();
    fs::create_dir(place.path("marks")).unwrap();
    let policy = place.policy("fence = [\"marks\"]");
    block_on(async {
        let lease = policy.lock("ledger/1").unwrap().acquire().await.unwrap();
        assert!(place.path("locks").is_dir());
        let fence =
            fencepost::fence(&format!("file:{}", place.path("marks").display()).parse().unwrap()).unwrap();
        let name: LockName = "ledger/1".parse().unwrap();
        assert_eq!(fence.mark(&name).await.unwrap().unwrap().token, lease.token());
        let stamp: Stamp = lease.stamp();
        fence.check(&stamp).await.unwrap();
        // The wait of the defaults is over soon; without it this would wait for ever.
        let error = policy.lock("ledger/1").unwrap().acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Contended);
        lease.release().await.unwrap();
    });
}

#[test]
fn name_that_no_rule_matches_is_no_lock() {
    let place = Place::new();
    let policy = place.policy("");
    let error = policy.lock("leger/1").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(error.advice(), Some("the nearest rules are ledger/**"));
    assert_eq!(error.lock().unwrap().as_str(), "leger/1");
}

#[test]
fn rule_that_is_too_weak_for_its_answers_gives_no_lock() {
    let place = Place::new();
    let policy = place.policy("on_overlap = \"corrupts\"\nhosts = \"many\"");
    let error = policy.lock("ledger/1").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("does not reach beyond one host"), "{error}");
    assert!(place.policy("require = \"durable\"").lock("ledger/1").is_ok());
    let policy = place.policy("require = \"durable\"");
    let error = block_on(async { policy.lock("ledger/1").unwrap().acquire().await.unwrap_err() });
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn configuration_that_is_wrong_is_no_policy() {
    let place = Place::new();
    fs::write(place.path("wrong.toml"), "[[locks]]\n").unwrap();
    let error = Policy::open(&place.path("wrong.toml")).unwrap_err();
    assert!(error.to_string().contains("wrong.toml:1:1: a rule needs a \"match\""), "{error}");
    assert!(Policy::open(&place.path("none.toml")).is_err());
}

#[test]
fn ttl_of_the_rule_is_asked_for() {
    let place = Place::new();
    let text = "[backends.m]\nurl = \"memory:\"\n[[locks]]\nmatch = \"**\"\nbackend = \"m\"\nttl = \"7s\"\n";
    fs::write(place.path("f.toml"), text).unwrap();
    let policy = Policy::open(&place.path("f.toml")).unwrap();
    block_on(async {
        let lease = policy.lock("a").unwrap().acquire().await.unwrap();
        assert_eq!(lease.ttl(), Some(Duration::from_secs(7)));
        // A second lock on the same backend sees it: they share it.
        assert!(policy.lock("a").unwrap().try_acquire().await.unwrap().is_none());
    });
}

#[test]
fn history_of_the_rule_is_kept_by_writers_and_readers_seal_nothing() {
    let place = Place::new();
    fs::create_dir(place.path("marks")).unwrap();
    let text = format!(
        "[backends.m]\nurl = \"memory:\"\n[[locks]]\nmatch = \"**\"\nbackend = \"m\"\nhistory = 2\nfence = [\"file:{}\"]\n",
        place.path("marks").display()
    );
    fs::write(place.path("f.toml"), text).unwrap();
    let policy = Policy::open(&place.path("f.toml")).unwrap();
    block_on(async {
        let mut tokens = Vec::new();
        for _ in 0..3 {
            let lease = policy.lock("a").unwrap().acquire().await.unwrap();
            tokens.push(lease.token());
            lease.release().await.unwrap();
        }
        let one = policy.shared_lock("a").unwrap().acquire().await.unwrap();
        let other = policy.shared_lock("a").unwrap().acquire().await.unwrap();
        let kept = policy.locks_of("a").unwrap().logbook("a").await.unwrap().grants;
        assert_eq!(kept.iter().map(|grant| grant.token).collect::<Vec<_>>(), tokens[1..]);
        let fence = fencepost::fence(&format!("file:{}", place.path("marks").display()).parse().unwrap());
        let mark = fence.unwrap().mark(&"a".parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(mark.token, tokens[2], "the last writer's");
        one.release().await.and(other.release().await).unwrap();
    });
}

/// What a process in that directory, with these variables, says of the lock `ledger/1`.
fn loaded(place: &Place, variables: &[(&str, &str)]) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "load_finds_what_the_command_would_find", "--nocapture"]);
    child.current_dir(place.0.path()).env(ANSWER, place.path("answer"));
    for variable in ["FENCEPOST_BACKEND", "FENCEPOST_CONFIG"] {
        child.env_remove(variable);
    }
    child.env("XDG_CONFIG_HOME", place.path("config")).env("XDG_STATE_HOME", place.path("state"));
    let output = child.envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    fs::read_to_string(place.path("answer")).unwrap()
}

/// Where a process that a test has started writes what it found.
const ANSWER: &str = "FENCEPOST_TEST_ANSWER";

#[test]
fn load_finds_what_the_command_would_find() {
    if let Some(answer) = std::env::var_os(ANSWER) {
        let lock = Policy::load().and_then(|policy| policy.lock("ledger/1"));
        let lease = lock.and_then(|lock| block_on(lock.acquire()));
        fs::write(answer, lease.map_or_else(|error| error.to_string(), |_| "held".to_owned())).unwrap();
        return;
    }
    let place = Place::new();
    assert_eq!(loaded(&place, &[]), "held");
    assert!(place.path("state/fencepost").is_dir(), "without a configuration it is a directory of this host");
    let other = format!("file:{}", place.path("other").display());
    assert_eq!(loaded(&place, &[("FENCEPOST_BACKEND", &other)]), "held");
    assert!(place.path("other").is_dir());
    place.policy("");
    assert_eq!(loaded(&place, &[]), "held");
    assert!(place.path("locks").is_dir());
    fs::write(place.path("named.toml"), "").unwrap();
    let unmatched = loaded(&place, &[("FENCEPOST_CONFIG", "named.toml")]);
    assert!(unmatched.contains("no rule of the configuration matches the lock"), "{unmatched}");
    let both = [("FENCEPOST_CONFIG", "named.toml"), ("FENCEPOST_BACKEND", other.as_str())];
    assert_eq!(loaded(&place, &both), "held");
    assert!(loaded(&place, &[("FENCEPOST_CONFIG", "none.toml")]).contains("cannot be read"));
    assert!(loaded(&place, &[("FENCEPOST_BACKEND", "nonsense")]).contains("URL"));
}

#[test]
fn rule_on_a_backend_that_its_options_weaken_is_refused() {
    let place = Place::new();
    let kind = |options: &str| {
        let text = format!(
            "[backends.x]\nurl = \"redlock://a,b,c{options}\"\n[[locks]]\nmatch = \"a\"\nbackend = \"x\"\n\
             fence = [\"file:/marks\"]\non_overlap = \"corrupts\"\n"
        );
        fs::write(place.path("weak.toml"), text).unwrap();
        let locked = Policy::open(&place.path("weak.toml")).unwrap().lock("a");
        locked.err().map(|error| error.kind())
    };
    assert_ne!(kind(""), Some(ErrorKind::InvalidArgument), "what is refused is the option");
    assert_eq!(kind("?quarantine=off"), Some(ErrorKind::InvalidArgument));
}
