//! What every test here stands on: a server with a guarded table, sessions with stamps, and what a refusal says.
//!
//! The table is `account`, its lock `ledger/1`, and the mark is token 10 of holder `b`.

use std::time::Duration;

use fencepost_core::{Clock, Error, ErrorKind, Fence, LockName, Mark, Stamp, StampHolder};
use fencepost_postgres::PostgresFence;
use fencepost_testkit::block_on;
use fencepost_testkit::servers::{PostgresClient, PostgresServer, wait_until};

pub(crate) const LOCK: &str = "ledger/1";

/// Settings of sessions: of the holder whose stamp is the mark, of one before it, and of one that was never sealed.
pub(crate) const GOOD: &str = r#"{"ledger%2F1":[10,"b"]}"#;
pub(crate) const STALE: &str = r#"{"ledger%2F1":[9,"a"]}"#;
pub(crate) const UNSEALED: &str = r#"{"ledger%2F1":[11,"c"]}"#;
pub(crate) const NONE: &str = "";

/// How late anything may be on a busy machine.
pub(crate) const SLACK: Duration = Duration::from_secs(2);

/// A server whose table is guarded.
pub(crate) struct Stage {
    pub(crate) server: PostgresServer,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let stage = Self::unguarded();
        stage.guard("account", LOCK);
        stage.seal(10, "b").unwrap();
        stage.server.execute("grant usage on schema fencepost to app");
        stage
    }

    /// A server with the table, on which nothing of fencepost is.
    pub(crate) fn unguarded() -> Self {
        let server = PostgresServer::start();
        server.execute(TABLES);
        Self { server }
    }

    pub(crate) fn fence(&self) -> PostgresFence {
        self.fence_of("postgres")
    }

    /// The fence as a role uses it.
    pub(crate) fn fence_of(&self, user: &str) -> PostgresFence {
        fence_at(&self.server.url_of(user, "postgres"))
    }

    pub(crate) fn guard(&self, table: &str, lock: &str) -> Vec<String> {
        block_on(self.fence().install(Some((table, &name(lock))))).unwrap()
    }

    /// Seals the lock's fence by the library.
    pub(crate) fn seal(&self, token: u64, holder: &str) -> Result<(), Error> {
        block_on(self.fence().seal(&stamp(LOCK, token, holder)))
    }

    pub(crate) fn mark(&self) -> Option<Mark> {
        block_on(self.fence().mark(&name(LOCK))).unwrap()
    }

    pub(crate) fn findings(&self) -> Vec<String> {
        let found = block_on(self.fence().findings(&name(LOCK))).unwrap();
        found.into_iter().map(|finding| finding.evidence).collect()
    }

    /// A session of the role `app` under stamps.
    pub(crate) fn session(&self, stamps: &str) -> PostgresClient {
        self.session_of("app", stamps)
    }

    /// A session that a program has which is run under stamps: they are options of its connection.
    pub(crate) fn session_of(&self, user: &str, stamps: &str) -> PostgresClient {
        let options = if stamps.is_empty() { String::new() } else { format!("-c fencepost.stamps={stamps}") };
        let port = self.server.port();
        let connection =
            format!("host=127.0.0.1 port={port} user={user} dbname=postgres options='{options}'");
        PostgresClient::connect(&connection).unwrap()
    }

    /// The sum of what is in the table.
    pub(crate) fn total(&self) -> String {
        self.server.query("select sum(total) from account")
    }

    /// Waits until so many sessions wait for a fence.
    pub(crate) fn wait_for_waiters(&self, count: usize) {
        let sql = "select count(*) from pg_locks \
                   where locktype = 'advisory' and classid = 1717923429 and not granted";
        wait_until("the sessions wait for the fence", || self.server.query(sql) == count.to_string());
    }
}

pub(crate) fn fence_at(url: &str) -> PostgresFence {
    PostgresFence::from_url(&url.parse().unwrap(), Clock::system()).unwrap()
}

pub(crate) fn name(lock: &str) -> LockName {
    lock.parse().unwrap()
}

pub(crate) fn stamp(lock: &str, token: u64, holder: &str) -> Stamp {
    Stamp { lock: name(lock), token: token.try_into().unwrap(), holder: StampHolder::new(holder).unwrap() }
}

/// The SQLSTATE of a refusal, or `ok`.
pub(crate) fn code(answer: &Result<String, String>) -> &str {
    answer.as_ref().map_or_else(|refusal| refusal.split(' ').next().unwrap_or_default(), |_| "ok")
}

/// Tries a write in a transaction that is rolled back, and says how it went.
pub(crate) fn tried(session: &mut PostgresClient, write: &str) -> Result<String, String> {
    let answer = session.query(&format!("begin; {write}"));
    session.query("rollback").unwrap();
    answer
}

#[track_caller]
pub(crate) fn assert_code(answer: &Result<String, String>, expected: &str) {
    assert_eq!(code(answer), expected, "{answer:?}");
}

#[track_caller]
pub(crate) fn assert_kind(error: &Error, kind: ErrorKind) {
    assert_eq!(error.kind(), kind, "{error}");
}

/// How long something takes.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = Clock::system().wall_micros();
    let result = work();
    (result, Duration::from_micros(Clock::system().wall_micros() - before))
}

const TABLES: &str = "
create role app login;
grant pg_execute_server_program to app;
create table customer (id int primary key);
insert into customer select generate_series(1, 4);
create table account (
    id int primary key,
    total bigint not null default 0,
    customer int references customer on delete cascade on update cascade
);
insert into account select n, 0, n from generate_series(1, 4) n;
grant all on customer, account to app;
";
