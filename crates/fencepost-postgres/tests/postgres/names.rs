//! Which names are one lock, and by which keys the server knows them.

use fencepost_core::{ErrorKind, Lock, Wait, release_all};
use fencepost_testkit::block_on;
use fencepost_testkit::servers::{PostgresServer, wait_until};

use crate::stage::{
    CARELESS, DOOR, LOCK, LONG, TTL, assert_held, assert_kind, assert_nothing_is_left, at, lock, locks, now,
    number, refusal, release, take,
};

/// Two words with the same CRC32.
const TWINS: [&str; 2] = ["plumless", "buckeroo"];

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn names_with_the_same_checksum_are_two_locks() {
    let server = PostgresServer::start();
    let ann = at(&server, CARELESS);
    let held = TWINS.map(|name| take(&lock(&ann, name)));
    let bob = at(&server, CARELESS);
    for name in TWINS {
        assert_kind(&refusal(&lock(&bob, name)), ErrorKind::Contended);
    }
    held.into_iter().for_each(release);
    // In one session, which the server would let in twice.
    let set = TWINS.map(|name| lock(&ann, name));
    let leases = block_on(Lock::acquire_all(&set, Wait::No)).unwrap();
    assert_eq!(number(&server, &format!("select count(*) from pg_locks where classid = {LOCK}")), 2);
    assert!(block_on(release_all(leases)).is_empty());
    assert_nothing_is_left(&server);
}

/// Programs of two versions must mean the same lock.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn keys_are_the_class_of_locks_and_the_number_of_the_row() {
    let server = PostgresServer::start();
    let ann = at(&server, CARELESS);
    for name in ["a", "orders/b", "c"] {
        let held = take(&lock(&ann, name));
        let id = server.query(&format!("select id from fencepost.lock where name = '{name}'"));
        let keys = server
            .query("select classid, objid, objsubid from pg_locks where locktype = 'advisory' and granted");
        assert_eq!(keys, format!("1717923427|{id}|2"));
        release(held);
    }
    assert_eq!([LOCK, DOOR], ["1717923427", "1717923428"]);
    let names = server.query("select name from fencepost.lock order by id");
    assert_eq!(names, "a\norders/b\nc", "rows bear the names as they are written");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn advisory_locks_of_others_are_not_ours() {
    let server = PostgresServer::start();
    let ann = at(&server, CARELESS);
    release(take(&lock(&ann, "a")));
    let id = number(&server, "select id from fencepost.lock where name = 'a'");
    let class: i64 = LOCK.parse().unwrap();
    let mut other = server.client().unwrap();
    for key in [id, class, (class << 32) | id] {
        other.query(&format!("select pg_advisory_lock({key}::bigint)")).unwrap();
    }
    let held = take(&lock(&ann, "a"));
    assert_held(&held, &ann);
    release(held);
    assert_eq!(number(&server, "select count(*) from pg_locks where locktype = 'advisory'"), 3);
    // The same key in another database is another lock as well.
    server.create_database("other");
    let url = format!(
        "dbname=other host={} port={} user=postgres",
        server.socket_directory().display(),
        server.port()
    );
    let mut stranger = fencepost_testkit::servers::PostgresClient::connect(&url).unwrap();
    stranger.query(&format!("select pg_advisory_lock({LOCK}, {id})")).unwrap();
    let held = take(&lock(&ann, "a"));
    assert_held(&held, &ann);
    release(held);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn name_in_two_databases_is_two_locks() {
    let server = PostgresServer::start();
    server.create_database("other");
    let here = at(&server, CARELESS);
    let there = locks(&format!("{}?{CARELESS}", server.url_of("postgres", "other")));
    let held = [&here, &there].map(|locks| take(&lock(locks, "a")));
    for (lease, locks) in held.iter().zip([&here, &there]) {
        assert_held(lease, locks);
        assert_kind(&refusal(&lock(locks, "a")), ErrorKind::Contended);
    }
    held.into_iter().for_each(release);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn one_release_is_enough_after_many_renewals() {
    let server = PostgresServer::start();
    let ann = at(&server, CARELESS);
    let held = take(&lock(&ann, "a").ttl(TTL / 2));
    let renewals = || number(&server, "select calls from pg_stat_user_functions where funcname = 'held_by'");
    server.execute("alter system set track_functions = 'all'");
    server.execute("select pg_reload_conf()");
    let begun = now();
    let entries = format!("select count(*) from pg_locks where locktype = 'advisory' and classid = {LOCK}");
    while now().since(begun) < TTL * 5 {
        assert_eq!(number(&server, &entries), 1, "renewing takes nothing");
        held.check().expect("it is renewed");
    }
    assert!(TTL < LONG);
    let mut looker = server.client().unwrap();
    release(held);
    assert_eq!(looker.query(&entries).unwrap(), "0", "it is free at once");
    wait_until("the renewals are counted", || renewals() >= 20);
    release(take(&lock(&at(&server, CARELESS), "a")));
}
