//! Tokens: the revision and an offset that never falls, over everything but the loss of what was lifted.

use std::time::Duration;

use fencepost_core::{Clock, ErrorKind, Fence, FencingToken, MemoryFence, Stamp};
use fencepost_testkit::servers::EtcdServer;

use super::stage::{block_on, lock, locks};

const TTL: Duration = Duration::from_secs(10);

fn token_of(url: &str, name: &str) -> FencingToken {
    block_on(async {
        let lease = lock(url, name, TTL).acquire().await.unwrap();
        let token = lease.token();
        lease.release().await.unwrap();
        token
    })
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn token_does_not_lag_behind_the_wall_clock() {
    let server = EtcdServer::start();
    for name in ["first", "second", "first"] {
        let before = Clock::system().wall_micros();
        let token = token_of(&server.url(), name).get();
        let after = Clock::system().wall_micros();
        assert!(token + 1_000_000 >= before && token < after + 1_000_000, "{before} {token} {after}");
    }
    // One client that goes on for longer than a token may lag.
    let client = locks(&server.url());
    for _ in 0..3 {
        block_on(Clock::system().sleep(Duration::from_millis(700)));
        let before = Clock::system().wall_micros();
        let lease = block_on(client.lock("first").unwrap().ttl(TTL).acquire()).unwrap();
        assert!(lease.token().get() + 1_000_000 >= before);
        block_on(lease.release()).unwrap();
    }
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn clients_that_know_different_offsets_agree_on_who_is_newer() {
    let server = EtcdServer::start();
    let (early, mut last) = (locks(&server.url()), None);
    let one = |client: &fencepost_core::Locks| {
        block_on(async {
            let lease = client.lock("orders").unwrap().ttl(TTL).acquire().await.unwrap();
            let token = lease.token();
            lease.release().await.unwrap();
            token
        })
    };
    for _ in 0..20 {
        // The first one knows the offset from before the new one has raised it, or before it was lifted.
        let late = locks(&server.url());
        block_on(Clock::system().sleep(Duration::from_millis(120)));
        for token in [one(&late), one(&early)] {
            assert!(Some(token) > last, "{token} came after {last:?}");
            last = Some(token);
        }
    }
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn damaged_offset_is_written_over_and_tokens_grow_on() {
    let server = EtcdServer::start();
    let mut last = token_of(&server.url(), "orders");
    for (key, value) in
        [("/fencepost/.offset", "x"), ("/fencepost/.offset", "5"), ("/fencepost/orders/s", "")]
    {
        server.control(&["put", key, value]);
        let token = token_of(&server.url(), "orders");
        assert!(token > last, "{token} came after {last}");
        last = token;
    }
    server.control(&["del", "/fencepost/.offset"]);
    assert!(token_of(&server.url(), "orders") > last);
}

/// The whole way of an operator: the server goes back to a snapshot, a fence refuses what it grants, and a lift repairs it.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn token_from_before_a_restore_is_refused_until_it_is_lifted() {
    let mut server = EtcdServer::start();
    let fence = std::sync::Arc::new(MemoryFence::default());
    let seal = |url: &str| {
        let fence = std::sync::Arc::<MemoryFence>::clone(&fence);
        block_on(lock(url, "orders", TTL).fence(fence).acquire())
    };
    block_on(seal(&server.url()).unwrap().release()).unwrap();
    let snapshot = server.snapshot();
    // An hour ahead of the clock, which could repair it otherwise.
    let ahead = FencingToken::try_from(Clock::system().wall_micros() + 3_600_000_000).unwrap();
    block_on(locks(&server.url()).lift("orders", ahead)).unwrap();
    let lease = seal(&server.url()).unwrap();
    let lost = lease.stamp();
    block_on(lease.release()).unwrap();
    server.restore(&snapshot);
    let refused = seal(&server.url()).expect_err("its token is older than the sealed one");
    assert_eq!(refused.kind(), ErrorKind::Stale);
    let told = format!("{refused} {}", refused.advice().unwrap_or_default());
    assert!(told.contains("lift") && told.contains(&lost.token.to_string()), "{told}");
    let to = FencingToken::try_from(lost.token.get() + 1).unwrap();
    block_on(locks(&server.url()).lift("orders", to)).unwrap();
    let lease = seal(&server.url()).unwrap();
    assert!(lease.token() > lost.token);
    block_on(lease.release()).unwrap();
    assert!(block_on(fence.check(&lost)).is_err());
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn token_grows_over_a_restore_by_the_clock_alone() {
    let mut server = EtcdServer::start();
    token_of(&server.url(), "orders");
    let snapshot = server.snapshot();
    for _ in 0..50 {
        token_of(&server.url(), "orders");
    }
    let before = token_of(&server.url(), "orders");
    // A token lags behind the clock by a second at most.
    block_on(Clock::system().sleep(Duration::from_secs(1)));
    server.restore(&snapshot);
    let after = token_of(&server.url(), "orders");
    assert!(after > before, "{after} came after {before}");
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn lift_counts_for_those_who_wait_already() {
    let server = EtcdServer::start();
    let client = locks(&server.url());
    block_on(async {
        let holder = lock(&server.url(), "orders", TTL).acquire().await.unwrap();
        let waiting = lock(&server.url(), "orders", TTL);
        let to = FencingToken::try_from(holder.token().get() + 9_000_000_000).unwrap();
        let meanwhile = async {
            super::stage::until_waiting(&client, "orders", 1).await;
            client.lift("orders", to).await.unwrap();
            holder.release().await.unwrap();
        };
        let (lease, ()) = futures_util::future::join(waiting.acquire(), meanwhile).await;
        let lease = lease.unwrap();
        assert!(lease.token() >= to, "{} was to be {to} at least", lease.token());
        let seen = client.inspect("orders").await.unwrap();
        assert_eq!(seen.token, Some(lease.token()));
        let stamp: Stamp = lease.stamp();
        assert_eq!(stamp.token, lease.token());
        lease.release().await.unwrap();
        // No other lock is lifted with it.
        let other = lock(&server.url(), "others", TTL).acquire().await.unwrap();
        assert!(other.token() < to);
        other.release().await.unwrap();
    });
}
