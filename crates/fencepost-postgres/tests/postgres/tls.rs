//! TLS: whom a server's certificate has to be of, as `sslmode` says, and a password that is bound to the channel.

use fencepost_core::ErrorKind;
use fencepost_testkit::proxy::Proxy;
use fencepost_testkit::servers::{Certificates, PostgresServer, PostgresSetup};
use std::path::Path;

use crate::stage::{
    TTL, ask, assert_held, assert_kind, assert_nothing_is_left, lock, locks, pass, refusal, release, take,
    wait_for_waiters,
};

fn url(server: &PostgresServer, host: &str, mode: &str, authority: &Path) -> String {
    let (port, authority) = (server.port(), authority.display());
    format!(
        "postgres://postgres@{host}:{port}/postgres?sslmode={mode}&sslrootcert={authority}&connect_timeout=10"
    )
}

/// Whether the only session of ours is encrypted.
fn is_encrypted(server: &PostgresServer) -> bool {
    server.query(
        "select ssl from pg_stat_ssl join pg_stat_activity using (pid) where application_name = 'fencepost'",
    ) == "t"
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn lock_is_held_waited_for_and_given_up_over_tls() {
    let server = PostgresSetup::default().tls().start();
    let url = url(&server, "localhost", "verify-full", &server.certificates().authority());
    let (ann, bob) = (locks(&url), locks(&url));
    let held = take(&lock(&ann, "a"));
    assert!(is_encrypted(&server));
    let waiting = ask(&lock(&bob, "a"));
    wait_for_waiters(&server, 1);
    pass(TTL * 2);
    assert_held(&held, &ann);
    // It is cancelled over TLS too.
    assert_kind(&refusal(&lock(&ann, "a").wait(TTL / 2)), ErrorKind::Contended);
    release(held);
    release(waiting.lease().0);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn server_of_another_authority_is_refused_where_it_is_verified() {
    let server = PostgresSetup::default().tls().start();
    let folder = tempfile::tempdir().unwrap();
    let other = Certificates::new(folder.path()).authority();
    for mode in ["verify-full", "verify-ca", "require"] {
        let error = refusal(&lock(&locks(&url(&server, "localhost", mode, &other)), "a"));
        assert_kind(&error, ErrorKind::Unavailable);
        assert!(error.to_string().contains("certificate"), "{mode}: {error}");
        let right = server.certificates().authority();
        release(take(&lock(&locks(&url(&server, "localhost", mode, &right)), "a")));
    }
}

/// The certificate is for 127.0.0.1 and localhost.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn server_of_another_name_is_refused_only_where_the_name_counts() {
    let server = PostgresSetup::default().tls().start();
    let authority = server.certificates().authority();
    let elsewhere = |mode| format!("{}&hostaddr=127.0.0.1", url(&server, "db.example", mode, &authority));
    let error = refusal(&lock(&locks(&elsewhere("verify-full")), "a"));
    assert_kind(&error, ErrorKind::Unavailable);
    assert!(error.to_string().contains("certificate"), "{error}");
    release(take(&lock(&locks(&elsewhere("verify-ca")), "a")));
    release(take(&lock(&locks(&url(&server, "127.0.0.1", "verify-full", &authority)), "a")));
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn server_without_tls_is_refused_where_tls_is_required() {
    let server = PostgresServer::start();
    let required = |mode| format!("{}?sslmode={mode}", server.url());
    assert_kind(&refusal(&lock(&locks(&required("require")), "a")), ErrorKind::Unavailable);
    release(take(&lock(&locks(&required("prefer")), "a")));
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn password_can_be_bound_to_the_channel() {
    let server = PostgresSetup::default().password("open-sesame").tls().start();
    let url = |mode: &str, binding: &str| {
        let login = server.url_of("postgres:open-sesame", "postgres");
        format!("{login}?sslmode={mode}&channel_binding={binding}&quarantine=off&connect_timeout=10")
    };
    release(take(&lock(&locks(&url("require", "require")), "a")));
    assert!(is_encrypted_or_gone(&server));
    let error = refusal(&lock(&locks(&url("disable", "require")), "a"));
    assert!(matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unavailable), "{error:?}");
    release(take(&lock(&locks(&url("disable", "prefer")), "a")));
}

/// A session that was released may be on its way out.
fn is_encrypted_or_gone(server: &PostgresServer) -> bool {
    let count = "select count(*) from pg_stat_ssl join pg_stat_activity using (pid)
        where application_name = 'fencepost' and not ssl";
    server.query(count) == "0"
}

/// Somebody in between whose certificate is not the server's.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn server_in_between_is_not_let_have_the_password() {
    let real = PostgresSetup::default().password("open-sesame").tls().start();
    let other = PostgresSetup::default().password("open-sesame").tls().start();
    let proxy = Proxy::start((std::net::Ipv4Addr::LOCALHOST, other.port()).into());
    let authority = real.certificates().authority();
    let port = proxy.port();
    let url = format!(
        "postgres://postgres:open-sesame@localhost:{port}/postgres?sslmode=verify-full&sslrootcert={}",
        authority.display()
    );
    assert_kind(&refusal(&lock(&locks(&url), "a")), ErrorKind::Unavailable);
    assert!(!other.log().contains("authenticated"), "{}", other.log());
}
