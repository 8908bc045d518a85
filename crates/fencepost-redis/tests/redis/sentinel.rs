//! Failover by three Sentinels: the holder keeps its lease or hears of its loss, and waiters are served by the new primary.

use std::time::Duration;

use fencepost_core::{ErrorKind, Locks};
use fencepost_testkit::servers::{RedisSentinel, RedisServer, RedisSetup, wait_until};

use crate::stage::{
    ask, assert_held, assert_kind, assert_nothing_is_left, deadline, lock, locks, loss, now, old_server,
    refusal, release, take, wait_for_waiters,
};

struct Watched {
    primary: RedisServer,
    replica: RedisServer,
    sentinels: Vec<RedisSentinel>,
}

impl Watched {
    fn start() -> Self {
        let (primary, replica) = (old_server(RedisSetup::default()), RedisServer::start());
        replica.replica_of(&primary);
        let sentinels = RedisSentinel::start_several(3, &primary);
        for sentinel in &sentinels {
            sentinel.wait_for_replicas(1);
        }
        Self { primary, replica, sentinels }
    }

    fn locks(&self, options: &str) -> Locks {
        let hosts: Vec<String> =
            self.sentinels.iter().map(|sentinel| sentinel.address().to_string()).collect();
        locks(&format!("redis+sentinel://{}/{}?{options}", hosts.join(","), RedisSentinel::PRIMARY))
    }

    fn fail_over(&mut self) {
        self.primary.kill();
        let port = self.replica.port();
        wait_until("the replica is the primary", || {
            // A Sentinel kills all connections of the server that it promotes, perhaps this one too.
            let role = self.replica.client().and_then(|mut client| client.command(&["ROLE"]));
            role.is_ok_and(|role| role.array()[0].text() == "master")
                && self.sentinels.iter().all(|sentinel| sentinel.primary_port() == port)
        });
    }
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn holder_keeps_its_lease_over_a_failover_and_a_waiter_is_served_after_it() {
    let mut watched = Watched::start();
    let (ann, bob) = (watched.locks("max_ttl=6s"), watched.locks("max_ttl=1s"));
    let (long, short) = (Duration::from_secs(6), Duration::from_secs(1));
    let kept = take(&lock(&ann, "kept").ttl(long));
    let gone = take(&lock(&bob, "gone").ttl(short));
    let waiting = ask(&lock(&ann, "gone").ttl(long));
    wait_for_waiters(&watched.primary, "gone", 1);
    wait_for_waiters(&watched.replica, "gone", 1);
    // One Sentinel that does not answer is passed over.
    let stopped = watched.sentinels.remove(0);
    stopped.stop();
    let killed = now();
    watched.fail_over();
    let before = deadline(&kept);
    if now().since(killed) > long * 2 / 3 {
        // So slow a failover ends the lease.
        assert_kind(&loss(&kept).0, ErrorKind::Lost);
        return;
    }
    assert_kind(&refusal(&lock(&bob, "other").ttl(short)), ErrorKind::Contended);
    wait_until("the lease is renewed on the new primary", || deadline(&kept) > before);
    assert_held(&kept, &ann);
    drop(gone);
    let (next, granted) = waiting.lease();
    assert!(granted.since(killed) >= long, "the longest lease that the old primary may have given is over");
    release(next);
    release(kept);
    assert_nothing_is_left(&watched.replica);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn name_that_no_sentinel_knows_is_unavailable() {
    let primary = RedisServer::start();
    let sentinel = RedisSentinel::start(&primary);
    let error = refusal(&lock(&locks(&format!("redis+sentinel://{}/other", sentinel.address())), "a"));
    assert_kind(&error, ErrorKind::Unavailable);
    assert!(error.to_string().contains("\"other\""), "{error}");
}
