//! What was given up is over, also when a request of it arrives late.

use std::time::Duration;

use fencepost_core::{Backend, Clock, ErrorKind, Raced, Status, Wait, race};
use fencepost_etcd::bare::Bare;
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::{EtcdCluster, EtcdServer, wait_until};

use futures_util::future::join_all;

use super::stage::{backend, block_on, lock, locks, name, request, sleep, until_free, within};

const LONG: Duration = Duration::from_secs(30);

/// A member takes a request, stands still, and carries it out when it goes on, long after the client was served elsewhere.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn request_to_a_stopped_member_that_was_given_up_gets_nothing_when_it_goes_on() {
    let cluster = EtcdCluster::start();
    let follower = cluster.follower();
    let other = locks(&cluster.url_from((follower + 1) % 3));
    for round in 0..6 {
        let url = cluster.url_from(follower);
        let client = backend(&url);
        block_on(async {
            // Warm, so that the next request goes out at once.
            let claim = client.acquire(&request("warm", LONG, Wait::No)).await.unwrap();
            claim.release().await.unwrap();
            let claim = client.acquire(&request("warm", LONG, Wait::No)).await.unwrap();
            claim.release().await.unwrap();
        });
        cluster[follower].stop();
        let asked = request("orders", LONG, Wait::No);
        let outcome = block_on(async {
            if round % 2 == 0 {
                // Served by another member, and given back.
                let claim = within(LONG, "another member", client.acquire(&asked)).await.unwrap();
                claim.release().await.map(|()| true)
            } else {
                let clock = Clock::system();
                match race(client.acquire(&asked), clock.sleep(Duration::from_millis(100))).await {
                    Raced::First(claim) => claim.unwrap().release().await.map(|()| true),
                    Raced::Second(()) => Ok(false),
                }
            }
        });
        let was_served = outcome.unwrap();
        assert_eq!(was_served, round % 2 == 0, "round {round}: it was not given up when it was to be");
        // Everything that was dropped is being ended meanwhile.
        block_on(within(LONG, "the end of what was dropped", Clock::system().settled()));
        cluster[follower].go_on();
        for _ in 0..10 {
            sleep(Duration::from_millis(20));
            let seen = block_on(other.inspect("orders")).unwrap();
            assert_eq!(seen.status, Status::Free, "round {round}: what was given up has come to life");
        }
        block_on(async {
            let lease = other.lock("orders").unwrap().ttl(LONG).try_acquire().await.unwrap();
            lease.expect("nobody holds it").release().await.unwrap();
        });
    }
}

/// The control: who only removes its key finds it there again, under a lease that goes on.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn request_to_a_stopped_member_comes_to_life_where_it_is_only_undone() {
    const ROUNDS: usize = 30;
    let cluster = EtcdCluster::start();
    let follower = cluster.follower();
    let is_back = || !cluster[(follower + 1) % 3].keys("/bare/").is_empty();
    for _ in 0..ROUNDS {
        let url = cluster.url_from(follower).parse().unwrap();
        let client = block_on(Bare::connect(&url, Clock::system())).unwrap();
        cluster[follower].stop();
        // The keys are made, by way of another member in the end, and removed again.
        let keys: Vec<String> = (0..8).map(|number| format!("/bare/{number}")).collect();
        let pairs = join_all(keys.iter().map(|key| client.pair(key)));
        for pair in block_on(within(LONG, "another member", pairs)) {
            pair.unwrap();
        }
        cluster[follower].go_on();
        for _ in 0..5 {
            sleep(Duration::from_millis(20));
            if is_back() {
                return;
            }
        }
    }
    panic!("nothing was carried out late: the fault shows nothing");
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn attempt_whose_answer_is_lost_is_found_again_and_not_repeated() {
    let server = EtcdServer::start();
    let way = Proxy::start(server.address());
    let through = format!("etcd://{}", way.address());
    let client = backend(&through);
    block_on(async {
        for _ in 0..2 {
            let claim = client.acquire(&request("warm", LONG, Wait::No)).await.unwrap();
            claim.release().await.unwrap();
        }
    });
    way.set(Mode::ReplyHole);
    let asked = request("orders", LONG, Wait::Forever);
    let onlooker = locks(&server.url());
    block_on(async {
        let meanwhile = async {
            while onlooker.inspect("orders").await.unwrap().status == Status::Free {
                Clock::system().sleep(Duration::from_millis(2)).await;
            }
            way.set(Mode::Cut);
            way.set(Mode::Pass);
        };
        let (claim, ()) =
            within(LONG, "the answer", futures_util::future::join(client.acquire(&asked), meanwhile)).await;
        let claim = claim.unwrap();
        let seen = client.inspect(&name("orders")).await.unwrap();
        assert_eq!(seen.holder, Some(asked.holder));
        assert_eq!(seen.token, Some(claim.grant().token));
        assert!(seen.waiters.is_empty(), "it was entered twice");
        claim.release().await.unwrap();
        assert_eq!(onlooker.inspect("orders").await.unwrap().status, Status::Free);
    });
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn release_whose_answer_is_lost_is_no_loss() {
    let server = EtcdServer::start();
    let way = Proxy::start(server.address());
    let through = format!("etcd://{}", way.address());
    let onlooker = locks(&server.url());
    let lease = block_on(lock(&through, "orders", LONG).acquire()).unwrap();
    way.set(Mode::ReplyHole);
    let released = std::thread::scope(|scope| {
        let releasing = scope.spawn(|| block_on(lease.release()));
        wait_until("the release is carried out", || {
            block_on(onlooker.inspect("orders")).unwrap().status == Status::Free
        });
        way.set(Mode::Cut);
        way.set(Mode::Pass);
        releasing.join().unwrap()
    });
    released.unwrap();
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn attempt_that_nobody_can_end_is_indeterminate() {
    let server = EtcdServer::start();
    let way = Proxy::start(server.address());
    let through = format!("etcd://{}", way.address());
    let client = locks(&through);
    let waiting = client.lock("orders").unwrap().ttl(LONG).wait(Duration::from_millis(1_500));
    block_on(async {
        for _ in 0..2 {
            client.lock("warm").unwrap().ttl(LONG).acquire().await.unwrap().release().await.unwrap();
        }
        way.set(Mode::ReplyHole);
        let refused = within(LONG, "an answer that does not come", waiting.acquire()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Indeterminate, "{refused}");
        way.set(Mode::Pass);
        until_free(&locks(&server.url()), "orders").await;
    });
}
