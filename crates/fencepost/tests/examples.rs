//! Each example does what its head says, as the process that a user starts.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// An example that the tests were built with: it stands beside them.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(program.exists(), "{} was not built: cargo build --examples", program.display());
    Command::new(program)
}

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn url(&self) -> String {
        format!("file:{}", self.path().join("locks").display())
    }

    fn says(&self, name: &str, arguments: &[&str]) -> String {
        let output = example(name).arg(self.url()).args(arguments).current_dir(self.path()).output().unwrap();
        text(&output)
    }
}

fn text(output: &Output) -> String {
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {said}{complained}", output.status);
    said.into_owned()
}

/// The number behind `token` or `term` in the first line.
fn token(said: &str) -> u64 {
    said.lines().next().unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn first_lock_holds_works_and_gives_back() {
    let place = Place::new();
    let (first, second) = (place.says("first_lock", &[]), place.says("first_lock", &[]));
    assert!(first.ends_with("step 1\nstep 2\nstep 3\ngiven back\n"), "{first}");
    assert!(token(&second) > token(&first), "{first}{second}");
}

#[test]
fn leaders_take_terms_one_after_the_other() {
    let place = Place::new();
    let leads =
        || example("leader").args([&place.url(), "3"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let leaders = [leads(), leads()];
    let said = leaders.map(|leader| text(&leader.wait_with_output().unwrap()));
    let terms = |said: &str| -> Vec<u64> {
        let lines = said.lines().filter_map(|line| line.strip_prefix("elected, term "));
        lines.map(|term| term.parse().unwrap()).collect()
    };
    let mut all: Vec<u64> = said.iter().flat_map(|said| terms(said)).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 6, "each term is another one: {said:?}");
}

#[test]
fn transfer_takes_both_locks_in_whatever_order_they_are_named() {
    let place = Place::new();
    let said = place.says("multi_lock", &["zoe", "adam"]);
    assert!(
        said.starts_with("account/zoe with token ") && said.contains("account/adam with token "),
        "{said}"
    );
    assert!(said.ends_with("moved from zoe to adam\n"), "{said}");
}

#[test]
fn report_of_a_period_is_made_once() {
    let place = Place::new();
    let first = place.says("cron_once", &["2026-11-29T12:00"]);
    assert!(first.ends_with("done\n"), "{first}");
    let again = place.says("cron_once", &["2026-11-29T12:00"]);
    assert!(again.starts_with("nothing to do: "), "{again}");
    assert!(place.says("cron_once", &["2026-11-29T12:05"]).ends_with("done\n"));
}

#[test]
fn totals_of_partitions_are_published_under_their_rule() {
    let place = Place::new();
    let totals: PathBuf = place.path().join("totals");
    std::fs::create_dir(&totals).unwrap();
    let rule = format!(
        "[backends.b]\nurl = \"{}\"\n[[locks]]\nmatch = \"stream/*\"\nbackend = \"b\"\n",
        place.url()
    );
    std::fs::write(place.path().join("fencepost.toml"), rule).unwrap();
    let works = || {
        let mut command = example("partition_worker");
        command.arg(format!("file:{}", totals.display())).args(["7", "8"]).current_dir(place.path());
        text(&command.env_remove("FENCEPOST_CONFIG").env_remove("FENCEPOST_BACKEND").output().unwrap())
    };
    let (first, second) = (works(), works());
    assert!(first.starts_with("stream/7: 1 in ") && second.starts_with("stream/7: 2 in "), "{first}{second}");
    assert_eq!(std::fs::read_to_string(totals.join("stream%2F8")).unwrap(), "2\n");
}
