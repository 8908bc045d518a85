//! TLS: the certificate of the server must be of an authority that the system trusts.
//!
//! Which that is stands in the environment, which a test must not change; so the client is a process of its own.

use std::path::Path;
use std::process::Command;

use fencepost_testkit::servers::{Certificates, RedisSetup};

use crate::stage::{CARELESS, at, lock, locks, release, take};

/// The variable in which the client finds its URL.
const URL: &str = "FENCEPOST_TLS_URL";

/// What a client that trusts `authority` says of the locks at `url`.
fn said_by_client(url: &str, authority: &Path) -> String {
    let program = std::env::current_exe().expect("a program knows its own path");
    let output = Command::new(program)
        .args(["--ignored", "--exact", "tls::client", "--nocapture", "--test-threads=1"])
        .env(URL, url)
        .env("SSL_CERT_FILE", authority)
        .output()
        .expect("a test can start itself");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
#[ignore = "the client process of the other tests"]
fn client() {
    let Ok(url) = std::env::var(URL) else { return };
    let wanted = lock(&locks(&url), "a").wait(std::time::Duration::ZERO);
    match fencepost_testkit::block_on(wanted.acquire()) {
        Ok(lease) => {
            release(lease);
            println!("@held and released");
        }
        Err(error) => println!("@{error:?}"),
    }
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn only_a_server_whose_authority_is_trusted_is_talked_to() {
    let server = RedisSetup::default().tls().start();
    let folder = tempfile::tempdir().unwrap();
    let other = Certificates::new(folder.path());
    let url = format!("{}?{CARELESS}", server.tls_url());
    let authority = server.certificates().authority();
    let said = said_by_client(&url, &authority);
    assert!(said.contains("@held and released"), "{said}");
    let by_name = url.replace("127.0.0.1", "localhost");
    assert!(said_by_client(&by_name, &authority).contains("@held and released"));
    let said = said_by_client(&url, &other.authority());
    assert!(said.contains("@Unavailable") && said.contains("certificate"), "{said}");
    // What is no TLS is no server.
    let plain = format!("rediss://127.0.0.1:{}?{CARELESS}", server.port());
    let said = said_by_client(&plain, &authority);
    assert!(said.contains("@Unavailable"), "{said}");
    // Without TLS the other port is served as before.
    release(take(&lock(&at(server.port(), CARELESS), "a")));
}
