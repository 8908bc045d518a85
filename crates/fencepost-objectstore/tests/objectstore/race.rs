//! Processes that seal at once, under tokens that come in any order.

use std::process::{Child, Command};

use fencepost_core::{Clock, ErrorKind, Fence, block_on};
use fencepost_testkit::servers::S3Server;

use crate::support::{OBJECT, fence, ledger, seal, sealed, stamp};

/// The variables in which a worker finds the server, and who it is.
const SERVER: &str = "FENCEPOST_OBJECTSTORE_SERVER";
const HOLDER: &str = "FENCEPOST_OBJECTSTORE_HOLDER";

const SEALS: u64 = 2_000;

#[test]
#[ignore = "other tests run it in a process of its own"]
fn worker() {
    let Ok(server) = std::env::var(SERVER) else { return };
    let (fence, holder) = (fence(server.parse().unwrap()), std::env::var(HOLDER).unwrap());
    let clock = Clock::system();
    let (mut highest, mut accepted) = (0, 0);
    for _ in 0..SEALS {
        // Around the greatest that it knows, so that neither process is only ever late.
        let token = (highest + clock.random() % 20).saturating_sub(9).max(1);
        let shown = stamp(token, &holder);
        match block_on(fence.seal(&shown)) {
            Ok(()) => {
                assert!(token >= highest, "{token} was sealed after {highest} was seen");
                accepted += 1;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Stale, "{error:?}"),
        }
        let mark = block_on(fence.mark(&ledger())).unwrap().unwrap().token.get();
        assert!(mark >= highest, "the mark fell from {highest} to {mark}");
        highest = mark;
    }
    assert!(accepted > 0, "nothing of {holder} was accepted");
}

fn start(server: &S3Server, holder: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "race::worker", "--nocapture", "--test-threads=1"])
        .envs([(SERVER, server.address().to_string()), (HOLDER, holder.to_owned())])
        .spawn()
        .unwrap()
}

/// Where one is lower than the one before.
fn falls(tokens: &[u64]) -> Vec<(u64, u64)> {
    tokens.windows(2).filter(|pair| pair[1] < pair[0]).map(|pair| (pair[0], pair[1])).collect()
}

#[test]
fn mark_never_falls_while_two_processes_seal() {
    let server = S3Server::start();
    let workers = ["one", "two"].map(|holder| start(&server, holder));
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    let tokens = tokens(&server);
    assert!(tokens.len() > 100, "{}", tokens.len());
    assert_eq!(falls(&tokens), []);
}

#[test]
fn mark_that_falls_is_found() {
    let (server, fence) = sealed();
    let old = server.content(OBJECT).unwrap();
    seal(&fence, 8).unwrap();
    server.put(OBJECT, &[], &old);
    assert_eq!(falls(&tokens(&server)), [(8, 7)]);
}

/// The tokens that the object had, one after the other.
fn tokens(server: &S3Server) -> Vec<u64> {
    let token = |body: &Vec<u8>| {
        let text = std::str::from_utf8(body).unwrap();
        text.lines().find_map(|line| line.strip_prefix("token ")).unwrap().parse().unwrap()
    };
    server.history(OBJECT).iter().map(token).collect()
}
