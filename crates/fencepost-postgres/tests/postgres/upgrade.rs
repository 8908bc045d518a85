//! A schema that an older fencepost has made: it is brought up to date by the first session, in place.

use fencepost_core::ErrorKind;
use fencepost_testkit::block_on;
use fencepost_testkit::servers::PostgresServer;

use crate::stage::{
    CARELESS, LONG, as_role, assert_held, assert_kind, at, draw, lock, number, refusal, release, session,
    take, told,
};

/// The locks of the schema as its first version had them.
const FIRST: &str = concat!("begin; create schema fencepost;\n", include_str!("schema-1.sql"), "commit");

fn old_server() -> PostgresServer {
    let server = PostgresServer::start();
    server.execute("create role ann login; create role bob login");
    told(&mut session(&server), FIRST);
    server.execute(
        "grant usage on schema fencepost to ann, bob;
         grant select, update on fencepost.installation to ann;
         grant select, insert, update on fencepost.incarnation, fencepost.lock, fencepost.revocation to ann;
         grant select, insert, update, delete on fencepost.waiter to ann;
         grant select on all tables in schema fencepost to bob",
    );
    server
}

fn version(server: &PostgresServer) -> i64 {
    number(server, "select version from fencepost.installation")
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn schema_of_an_older_version_is_brought_up_to_date_and_keeps_its_tokens_and_grants() {
    let server = old_server();
    server.execute("insert into fencepost.lock (name, token) values ('a', 9000000000000000)");
    assert!(draw(&at(&server, "max_ttl=1m")) > 9_000_000_000_000_000, "the row is the one that was there");
    assert_eq!(version(&server), 2);
    // Once more changes nothing, with anybody's rights.
    let ann = as_role(&server, "ann", CARELESS);
    let held = take(&lock(&ann, "a").ttl(LONG).history(2));
    assert_held(&held, &ann);
    release(held);
    release(take(&lock(&ann, "a").shared()));
    assert_eq!(block_on(ann.logbook("a")).expect("it can be read").grants.len(), 1);
    let may = "select has_table_privilege('bob', 'fencepost.logbook', 'insert')";
    assert_eq!(server.query(may), "f", "who could hold no lock can keep no logbook");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn role_that_may_not_bring_the_schema_up_to_date_is_told_what_to_do() {
    let server = old_server();
    let error = refusal(&lock(&as_role(&server, "ann", CARELESS), "a"));
    assert_kind(&error, ErrorKind::Denied);
    assert!(error.advice().is_some_and(|advice| advice.contains("fence install --dry-run")), "{error:?}");
    assert_eq!(version(&server), 1, "nothing was changed");
    draw(&at(&server, CARELESS));
    draw(&as_role(&server, "ann", CARELESS));
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn sessions_of_all_versions_bring_the_schema_up_to_date_at_once() {
    let server = old_server();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                release(block_on(lock(&at(&server, CARELESS), "a").acquire()).expect("it is given"));
            });
        }
    });
    assert_eq!(version(&server), 2);
}
