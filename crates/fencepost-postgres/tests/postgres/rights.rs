//! Who may use locks, and what those are told who may not.

use std::net::TcpListener;

use fencepost_core::{Error, ErrorKind, Locks, LossReason};
use fencepost_testkit::block_on;
use fencepost_testkit::servers::{PostgresServer, PostgresSetup};

use crate::stage::{
    CARELESS, LONG, SLACK, as_role, ask, assert_held, assert_kind, at, holding_pid, lock, locks, look, loss,
    now, refusal, release, take, wait_for_waiters,
};

/// What a role needs that uses a schema of somebody else: the least.
const LEAST: [&str; 6] = [
    "grant usage on schema fencepost to ann",
    "grant select, update on fencepost.installation to ann",
    "grant select, insert, update on fencepost.incarnation to ann",
    "grant select, insert, update on fencepost.lock to ann",
    "grant select, insert, update, delete on fencepost.waiter to ann",
    "grant select, insert, update, delete on fencepost.reader to ann",
];

/// What it needs besides to take locks away.
const TO_REVOKE: &str = "grant select, insert, update on fencepost.revocation to ann";

/// What it needs to keep logbooks.
const TO_KEEP_BOOK: &str = "grant select, insert, update on fencepost.logbook to ann";

fn server_with_ann() -> PostgresServer {
    let server = PostgresServer::start();
    server.execute("create role ann login");
    release(take(&lock(&at(&server, CARELESS), "a")));
    server
}

/// Everything that can be done with a lock.
fn use_everything(server: &PostgresServer, locks: &Locks) {
    release(take(&lock(locks, "b").shared()));
    let held = take(&lock(locks, "b").ttl(LONG));
    let waiting = ask(&lock(&as_role(server, "ann", "max_ttl=61s"), "b").ttl(LONG));
    wait_for_waiters(server, 1);
    assert_held(&held, locks);
    assert_eq!(block_on(locks.list("")).expect("locks can be listed").len(), 1);
    release(held);
    let (next, _) = waiting.lease();
    block_on(locks.lift("b", next.token())).expect("it can be lifted");
    block_on(locks.revoke("b", next.token(), "so it is")).expect("it can be taken away");
    assert_kind(&loss(&next).0, ErrorKind::Lost);
    drop(next);
    release(ask(&lock(locks, "new").at_least(SLACK / 8)).lease().0);
    release(take(&lock(locks, "book").history(1)));
    assert_eq!(block_on(locks.logbook("book")).expect("it can be read").grants.len(), 1);
    look(locks, "new");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn role_that_may_not_make_the_schema_is_told_what_to_do() {
    let server = PostgresServer::start();
    server.execute("create role ann login");
    let error = refusal(&lock(&as_role(&server, "ann", CARELESS), "a"));
    assert_kind(&error, ErrorKind::Denied);
    assert!(error.advice().is_some_and(|advice| advice.contains("fence install --dry-run")), "{error:?}");
    server.execute("grant create on database postgres to ann");
    let ann = as_role(&server, "ann", CARELESS);
    use_everything(&server, &ann);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn role_that_lacks_any_right_on_the_schema_is_told_what_to_do() {
    let mut server = server_with_ann();
    // Who comes after a crash has to say so.
    server.restart();
    for grant in LEAST {
        let error = refusal(&lock(&as_role(&server, "ann", "max_ttl=61s"), "a"));
        assert_kind(&error, ErrorKind::Denied);
        assert!(error.advice().is_some_and(|advice| advice.contains("fence install --dry-run")), "{error:?}");
        server.execute(grant);
    }
    assert_kind(&refusal(&lock(&as_role(&server, "ann", "max_ttl=61s"), "a")), ErrorKind::Contended);
    let ann = as_role(&server, "ann", CARELESS);
    let held = take(&lock(&ann, "a").ttl(LONG));
    assert_kind(&block_on(ann.revoke("a", held.token(), "so it is")).unwrap_err(), ErrorKind::Denied);
    held.check().expect("nothing was changed");
    release(held);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn least_rights_are_enough_for_everything() {
    let mut server = server_with_ann();
    LEAST.iter().chain([&TO_REVOKE, &TO_KEEP_BOOK]).for_each(|grant| server.execute(grant));
    use_everything(&server, &as_role(&server, "ann", "max_ttl=61s"));
    // Also to say that the server has lost its locks.
    server.restart();
    let error = refusal(&lock(&as_role(&server, "ann", "max_ttl=61s"), "a"));
    assert_kind(&error, ErrorKind::Contended);
    release(take(&lock(&as_role(&server, "ann", CARELESS), "a")));
}

/// Only a member of the holder's role, or of `pg_signal_backend`, ends its session.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn role_that_may_not_end_sessions_of_others_may_not_revoke() {
    let server = server_with_ann();
    server.execute("create role bob login");
    let grants = LEAST.iter().chain([&TO_REVOKE]);
    grants.for_each(|grant| server.execute(&grant.replace("to ann", "to ann, bob")));
    let (ann, bob) = (as_role(&server, "ann", CARELESS), as_role(&server, "bob", CARELESS));
    let held = take(&lock(&ann, "a").ttl(LONG));
    let error = block_on(bob.revoke("a", held.token(), "it is mine")).unwrap_err();
    assert_kind(&error, ErrorKind::Denied);
    held.check().expect("it is held");
    assert_held(&held, &bob);
    server.execute("grant pg_signal_backend to bob");
    block_on(bob.revoke("a", held.token(), "it is mine")).unwrap();
    assert_kind(&loss(&held).0, ErrorKind::Lost);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn revocation_that_was_denied_is_no_reason_for_a_later_loss() {
    let server = server_with_ann();
    LEAST.iter().chain([&TO_REVOKE, &TO_KEEP_BOOK]).for_each(|grant| server.execute(grant));
    let held = take(&lock(&at(&server, CARELESS), "a").ttl(LONG));
    let ann = as_role(&server, "ann", CARELESS);
    assert_kind(&block_on(ann.revoke("a", held.token(), "it is mine")).unwrap_err(), ErrorKind::Denied);
    let noted = format!("select count(*) from fencepost.revocation where token = {}", held.token());
    assert_eq!(server.query(&noted), "0");
    server.terminate(holding_pid(&server));
    assert_eq!(loss(&held).0.loss_reason(), Some(LossReason::SessionEnded));
}

/// Proving a password takes a slow machine a while.
fn patient(url: &str) -> String {
    format!("{url}?connect_timeout=10")
}

fn refused(url: &str) -> Error {
    let asked = now();
    let locks = locks(url);
    let error = refusal(&lock(&locks, "a"));
    assert!(now().since(asked) < SLACK * 5, "{error}");
    assert!(!format!("{error:?} {locks} {locks:?}").contains("wrong-word"), "{error:?}");
    error
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn wrong_password_is_denied_and_never_shown() {
    let server = PostgresSetup::default().password("open-sesame").start();
    for login in ["postgres:wrong-word", "postgres", "eve:wrong-word"] {
        assert_kind(&refused(&patient(&server.url_of(login, "postgres"))), ErrorKind::Denied);
    }
    release(take(&lock(&locks(&patient(&server.url_of("postgres:open-sesame", "postgres"))), "a")));
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn password_is_found_in_a_file_that_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let server = PostgresSetup::default().password("open-sesame").start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("passwords");
    let lines = format!("other:*:*:*:wrong-word\n127.0.0.1:{}:*:postgres:open-sesame\n", server.port());
    std::fs::write(&file, lines).unwrap();
    let url = format!("{}?connect_timeout=10&passfile={}", server.url(), file.display());
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = refused(&url);
    assert_kind(&error, ErrorKind::Denied);
    assert!(format!("{error:?}").contains("0600"), "{error:?}");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    release(take(&lock(&locks(&url), "a")));
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn database_that_is_missing_is_named() {
    let server = PostgresServer::start();
    let error = refused(&server.url_of("postgres", "nowhere"));
    assert_kind(&error, ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn server_that_is_down_or_silent_is_unavailable_and_used_when_it_is_up() {
    let mut server = PostgresServer::start();
    let ann = at(&server, CARELESS);
    release(take(&lock(&ann, "a")));
    server.kill();
    assert_kind(&refused(&server.url()), ErrorKind::Unavailable);
    assert_kind(&refusal(&lock(&ann, "a")), ErrorKind::Unavailable);
    server.restart();
    release(take(&lock(&ann, "a")));
    // One that says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("postgres://postgres@{}/postgres", listener.local_addr().unwrap());
    assert_kind(&refused(&silent), ErrorKind::Unavailable);
    server.stop();
    assert_kind(&refused(&server.url()), ErrorKind::Unavailable);
    server.go_on();
    release(ask(&lock(&ann, "a")).lease().0);
}

/// One that recovers says so, and is no other server for it.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn server_that_is_shutting_down_is_unavailable() {
    use std::io::{Read, Write};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://postgres@{}/postgres?sslmode=disable", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let fields = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0";
            let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
            let _ = connection.read(&mut [0; 512]);
            let _ = connection.write_all(&[b"E", &length[..], fields].concat());
        }
    });
    let error = refused(&url);
    assert_kind(&error, ErrorKind::Unavailable);
    assert!(error.to_string().contains("starting up"), "{error}");
}
