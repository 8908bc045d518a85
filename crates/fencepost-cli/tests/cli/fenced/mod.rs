//! `run --fence postgres://…` and `fence … postgres://…` with a real server: the database refuses who comes too late.
//!
//! The table is `account`, and a write to it needs the token of the lock `ledger/1`.

mod advised;
mod manage;
mod names;
mod nested;
mod paused;
mod programs;
mod refusing;

use fencepost_testkit::servers::PostgresServer;
use serde_json::Value;

use crate::support::{Home, Outcome};

const LOCK: &str = "ledger/1";

/// A server with the guarded table, and a home whose locks are files.
struct Scene {
    home: Home,
    server: PostgresServer,
    /// The fence, and the database, as the role `app` reaches them.
    url: String,
}

impl Scene {
    fn new() -> Self {
        Self::with(Home::new())
    }

    fn with(home: Home) -> Self {
        let scene = Self::unguarded(home);
        let owner = scene.server.url();
        scene.home.run(["fence", "install", &owner, "--table", "account", "--lock", LOCK]).exits(0);
        scene.server.execute("grant usage on schema fencepost to app");
        scene
    }

    /// A server with the table, on which nothing of fencepost is.
    fn unguarded(home: Home) -> Self {
        let server = PostgresServer::start();
        server.execute(
            "create role app login; create table account (id int primary key, total bigint not null default 0); \
             insert into account values (1, 0); grant all on account to app",
        );
        let url = server.url_of("app", "postgres");
        Self { home, server, url }
    }

    /// Runs a shell script under the lock and its fence; `$DB` is the database.
    fn run(&self, script: &str) -> Outcome {
        self.run_with(&["--fence", &self.url, LOCK], script)
    }

    /// Runs a shell script with these arguments of `run`.
    fn run_with(&self, args: &[&str], script: &str) -> Outcome {
        let mut command = self.home.fencepost(["run"].iter().chain(args).chain(&["--", "sh", "-c", script]));
        Outcome::of(command.env("DB", &self.url).output().unwrap())
    }

    /// Runs a shell script without any lock.
    fn without(&self, script: &str) -> Outcome {
        Outcome::of(self.home.command("sh").args(["-c", script]).env("DB", &self.url).output().unwrap())
    }

    fn total(&self) -> String {
        self.server.query("select sum(total) from account")
    }
}

fn json(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| panic!("{outcome:?}"))
}

#[track_caller]
fn assert_says(outcome: &Outcome, parts: &[&str]) {
    for part in parts {
        assert!(outcome.stderr.contains(part), "{part:?} in {outcome:?}");
    }
}

/// A `psql` that says the SQLSTATE of what goes wrong; the SQL follows.
const PSQL: &str = "psql -X -q -A -t -w -v ON_ERROR_STOP=1 -v VERBOSITY=verbose \"$DB\" -c ";

/// Adds one to the total.
const ADD: &str = "'update account set total = total + 1 where id = 1'";

fn psql(sql: &str) -> String {
    format!("{PSQL}{sql}")
}
