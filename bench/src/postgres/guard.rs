//! What a fence adds to a transaction of the user's own.

use std::cell::RefCell;

use fencepost_core::{Clock, Fence, Lease};
use fencepost_postgres::PostgresFence;
use fencepost_testkit::block_on;
use fencepost_testkit::servers::PostgresServer;

use super::locks;
use super::wire::Session;
use crate::measure::{Figure, in_turns, median, micros, on_one_core};

/// How many transactions of each kind a round has.
const TIMES: usize = 1_000;

/// A transaction on a guarded table beside the same on a plain one.
pub(crate) fn transaction() -> Figure {
    on_one_core(|| {
        let bank = RefCell::new(Bank::open());
        let plain = || median((0..TIMES).map(|_| bank.borrow_mut().transact(Kind::Plain)));
        let guarded = || median((0..TIMES).map(|_| bank.borrow_mut().transact(Kind::Guarded)));
        in_turns("postgres: a transaction with the guard", "µs", plain, guarded)
    })
}

/// What the guard adds to it, beside what a mark adds that the program raises by itself in one more statement.
pub(crate) fn added() -> Figure {
    on_one_core(|| {
        let bank = RefCell::new(Bank::open());
        let marked = || bank.borrow_mut().added_by(Kind::Marked);
        let guarded = || bank.borrow_mut().added_by(Kind::Guarded);
        in_turns("postgres: what the guard adds, to an upsert", "µs", marked, guarded)
    })
}

#[derive(Clone, Copy)]
enum Kind {
    Plain,
    Guarded,
    Marked,
}

/// A session that writes to tables with and without a guard.
struct Bank {
    session: Session,
    begin: Vec<u8>,
    commit: Vec<u8>,
    plain: Vec<u8>,
    guarded: Vec<u8>,
    mark: Vec<u8>,
    _lease: Lease,
    _server: PostgresServer,
}

impl Bank {
    fn open() -> Self {
        let server = PostgresServer::start();
        server.execute(TABLES);
        let lock = locks(&server).lock("bank").expect("a name");
        let url = server.url().parse().expect("the server has a URL");
        let fence = PostgresFence::from_url(&url, Clock::system()).expect("the URL names a server");
        let lease = block_on(async {
            let lease = lock.acquire().await?;
            fence.install(Some(("guarded", lock.name()))).await?;
            fence.seal(&lease.stamp()).await?;
            Ok::<_, fencepost_core::Error>(lease)
        });
        let lease = lease.expect("the server lets us");
        let mut session = Session::new(&server);
        let (token, holder) = (lease.token(), lease.holder());
        // As `run` writes it.
        session.execute(&format!(r#"set fencepost.stamps = '{{"bank":[{token},"{holder}"]}}'"#));
        let update = |table| format!("update {table} set total = total + 1 where id = $1");
        Self {
            begin: session.prepare("begin", "begin", &[]),
            commit: session.prepare("commit", "commit", &[]),
            plain: session.prepare("plain", &update("plain"), &[1]),
            guarded: session.prepare("guarded", &update("guarded"), &[1]),
            mark: session.prepare("mark", UPSERT, &[1, 1]),
            session,
            _lease: lease,
            _server: server,
        }
    }

    /// How many microseconds one transaction takes.
    fn transact(&mut self, kind: Kind) -> f64 {
        micros(|| {
            self.session.run(&self.begin);
            if let Kind::Marked = kind {
                self.session.run(&self.mark);
            }
            let update = if let Kind::Guarded = kind { &self.guarded } else { &self.plain };
            self.session.run(update);
            self.session.run(&self.commit);
        })
    }

    /// How much longer one of this kind takes than a plain one; both take turns.
    fn added_by(&mut self, kind: Kind) -> f64 {
        let all = (0..TIMES).map(|_| (self.transact(Kind::Plain), self.transact(kind)));
        let (plain, more): (Vec<f64>, Vec<f64>) = all.unzip();
        median(more.into_iter()) - median(plain.into_iter())
    }
}

const TABLES: &str = "create table plain (id int primary key, total bigint not null);
    create table guarded (id int primary key, total bigint not null);
    create table mark (id int primary key, token int not null);
    insert into plain values (1, 0); insert into guarded values (1, 0)";

const UPSERT: &str = "insert into mark values ($1, $2)
    on conflict (id) do update set token = excluded.token where mark.token <= excluded.token";
