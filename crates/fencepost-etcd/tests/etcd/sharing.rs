//! Readers beside each other, and writers alone: with members, waiters and holders that stop, and tokens of many at once.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fencepost_core::{
    Backend, Clock, ErrorKind, FencingToken, Lease, Lock, Locks, Mode, Raced, Revoked, Status, Wait, race,
};
use fencepost_testkit::servers::{EtcdCluster, EtcdServer};
use futures_util::future::{join, join_all};

use super::stage::{backend, block_on, lock, locks, name, request, sleep, until_free, until_waiting, within};

const TTL: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(20);

fn reader(url: &str, ttl: Duration) -> Lock {
    lock(url, "orders", ttl).shared()
}

/// Polls `waiting` until so many wait, and no longer: as a process that is stopped.
async fn stopped_while_waiting(waiting: impl Future<Output = ()>, onlooker: &Locks, count: usize) {
    match race(until_waiting(onlooker, "orders", count), waiting).await {
        Raced::First(()) => {}
        Raced::Second(()) => panic!("it was to wait"),
    }
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn writer_gets_in_when_the_ttl_of_a_killed_reader_is_over() {
    let server = EtcdServer::start();
    let clock = Clock::system();
    block_on(async {
        let mut asked = request("orders", TTL, Wait::No);
        asked.mode = Mode::Shared;
        let began = clock.now();
        // Nobody renews it, and nobody gives it back.
        backend(&server.url()).acquire(&asked).await.unwrap().detach();
        let lasting = reader(&server.url(), LONG).acquire().await.unwrap();
        let writer = lock(&server.url(), "orders", LONG);
        let meanwhile = async {
            clock.sleep(TTL / 4).await;
            lasting.release().await.unwrap();
        };
        let (lease, ()) = within(TTL + LONG, "the writer", join(writer.acquire(), meanwhile)).await;
        let took = clock.now().since(began);
        assert!(took >= TTL && took < TTL * 3, "it came in after {took:?}");
        lease.unwrap().release().await.unwrap();
    });
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn stream_of_readers_does_not_starve_a_writer() {
    let server = EtcdServer::start();
    let (clock, clients) = (Clock::system(), [locks(&server.url()), locks(&server.url())]);
    let inside = AtomicUsize::new(0);
    block_on(async {
        // There are so many that one of them is always there, as long as no writer waits.
        let readers = join_all((0..8).map(|task| {
            let (orders, inside) = (clients[task % 2].lock("orders").unwrap().ttl(LONG).shared(), &inside);
            let clock = &clock;
            async move {
                for _ in 0_usize.. {
                    let lease = orders.acquire().await.unwrap();
                    inside.fetch_add(1, Ordering::AcqRel);
                    clock.sleep(Duration::from_millis(20)).await;
                    inside.fetch_sub(1, Ordering::AcqRel);
                    lease.release().await.unwrap();
                }
            }
        }));
        let writes = async {
            for _ in 0..5 {
                clock.sleep(Duration::from_millis(100)).await;
                while inside.load(Ordering::Acquire) == 0 {
                    clock.sleep(Duration::from_millis(1)).await;
                }
                let waiting = lock(&server.url(), "orders", LONG);
                let lease = waiting.acquire().await.unwrap();
                assert_eq!(inside.load(Ordering::Acquire), 0, "a reader and a writer overlap");
                lease.release().await.unwrap();
            }
        };
        within(LONG, "five writers", race(writes, readers)).await;
    });
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn readers_and_writers_dropped_at_any_instant_leave_nothing() {
    let server = EtcdServer::start();
    let (clock, onlooker) = (Clock::system(), locks(&server.url()));
    let clients = [locks(&server.url()), locks(&server.url())];
    let any = |client: &Locks| {
        let lock = client.lock("orders").unwrap().ttl(LONG);
        if clock.random() % 2 == 0 { lock.shared() } else { lock }
    };
    for round in 0..40 {
        block_on(async {
            let held = any(&onlooker).acquire().await.unwrap();
            let attempts = (0..6).map(|task| {
                let (lock, patience) = (any(&clients[task % 2]), clock.jitter(Duration::from_millis(12)));
                let clock = &clock;
                async move { drop(race(lock.acquire(), clock.sleep(patience)).await) }
            });
            join(join_all(attempts), async {
                clock.sleep(clock.jitter(Duration::from_millis(12))).await;
                held.release().await.unwrap();
            })
            .await;
            within(LONG, "the end of what was dropped", clock.settled()).await;
            let seen = onlooker.inspect("orders").await.unwrap();
            assert_eq!((seen.status, seen.waiters.len()), (Status::Free, 0), "round {round}: {seen:?}");
            let last = lock(&server.url(), "orders", LONG).try_acquire().await.unwrap();
            last.expect("nobody has it").release().await.unwrap();
        });
    }
    assert!(server.keys("/fencepost/orders/").is_empty());
}

/// The writer's place ends with its ttl, and the reader behind it comes in beside the one that is there.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn reader_behind_a_writer_that_is_stopped_gets_in_when_its_ttl_is_over() {
    let server = EtcdServer::start();
    let (clock, onlooker) = (Clock::system(), locks(&server.url()));
    block_on(async {
        let first = reader(&server.url(), LONG).acquire().await.unwrap();
        let writer = lock(&server.url(), "orders", TTL);
        let mut waiting = pin!(async { drop(writer.acquire().await) });
        stopped_while_waiting(waiting.as_mut(), &onlooker, 1).await;
        let began = clock.now();
        assert!(reader(&server.url(), LONG).try_acquire().await.unwrap().is_none(), "it passed by a writer");
        let second = within(LONG, "the reader", reader(&server.url(), LONG).acquire()).await.unwrap();
        let took = clock.now().since(began);
        assert!(took >= TTL / 2 && took < TTL * 3, "it came in after {took:?}");
        first.check().unwrap();
        assert_eq!(onlooker.inspect("orders").await.unwrap().readers.len(), 2);
        first.release().await.unwrap();
        second.release().await.unwrap();
        within(LONG, "the writer, when it goes on", waiting).await;
        until_free(&onlooker, "orders").await;
    });
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn readers_outlive_a_leader_that_is_stopped() {
    const SHORT: Duration = Duration::from_secs(4);
    let cluster = EtcdCluster::start();
    let leader = cluster.leader();
    let url = cluster.url_from(leader);
    let leases = block_on(join_all((0..3).map(|_| async { reader(&url, SHORT).acquire().await.unwrap() })));
    cluster[leader].stop();
    // Twice as long as they could live without a renewal.
    sleep(SHORT * 2);
    let other = locks(&cluster.url_from((leader + 1) % 3));
    let writer = other.lock("orders").unwrap().ttl(SHORT);
    block_on(async {
        for lease in leases {
            lease.check().unwrap();
            assert!(writer.try_acquire().await.unwrap().is_none(), "a writer came in beside readers");
            lease.release().await.unwrap();
        }
        let last = within(LONG, "the writer", writer.acquire()).await.unwrap();
        last.release().await.unwrap();
    });
}

/// An older reader is served after a newer one, and the offset was raised in between to where their tokens would be the same.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn no_two_readers_have_the_same_token() {
    let server = EtcdServer::start();
    let onlooker = locks(&server.url());
    block_on(async {
        // So far ahead of the clock that it raises no token.
        let ahead = FencingToken::try_from(Clock::system().wall_micros() + 3_600_000_000).unwrap();
        onlooker.lift("orders", ahead).await.unwrap();
        let writer = lock(&server.url(), "orders", LONG).acquire().await.unwrap();
        let (older, newer) = (reader(&server.url(), LONG), reader(&server.url(), LONG));
        let mut older = pin!(older.acquire());
        match race(until_waiting(&onlooker, "orders", 1), older.as_mut()).await {
            Raced::First(()) => {}
            Raced::Second(_) => panic!("it was to wait"),
        }
        let meanwhile = async {
            until_waiting(&onlooker, "orders", 2).await;
            writer.release().await.unwrap();
        };
        let (newer, ()) = within(LONG, "the newer reader", join(newer.acquire(), meanwhile)).await;
        let newer = newer.unwrap();
        onlooker.lift("orders", newer.token()).await.unwrap();
        let older = within(LONG, "the older reader", older).await.unwrap();
        assert!(older.token() > newer.token(), "{} was granted after {}", older.token(), newer.token());
        let seen = onlooker.inspect("orders").await.unwrap();
        let tokens: Vec<_> = seen.readers.iter().map(|reader| reader.token).collect();
        assert_eq!(tokens, [newer.token(), older.token()]);

        let third = reader(&server.url(), LONG).acquire().await.unwrap();
        assert!(third.token() > older.token(), "{} came after {}", third.token(), older.token());
        let revoked = onlooker.revoke("orders", older.token(), "a test").await.unwrap();
        assert_eq!(revoked, Revoked::Done);
        (newer.check().and(third.check())).unwrap();
        newer.release().await.unwrap();
        third.release().await.unwrap();
        drop(older.release().await);
        until_free(&onlooker, "orders").await;
    });
}

/// Each is a new client, which lets no token lag behind its clock; all settle theirs at once.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn readers_of_many_processes_are_let_in_at_once() {
    const READERS: usize = 48;
    let server = EtcdServer::start();
    let onlooker = locks(&server.url());
    block_on(async {
        let writer = lock(&server.url(), "orders", LONG).acquire().await.unwrap();
        let clients: Vec<Lock> = (0..READERS).map(|_| reader(&server.url(), LONG * 2)).collect();
        let meanwhile = async {
            until_waiting(&onlooker, "orders", READERS).await;
            writer.release().await.unwrap();
        };
        let all = join_all(clients.iter().map(Lock::acquire));
        let (leases, ()) = within(LONG * 2, "all readers", join(all, meanwhile)).await;
        let leases: Vec<_> = leases.into_iter().map(Result::unwrap).collect();
        let tokens: BTreeSet<_> = leases.iter().map(Lease::token).collect();
        assert_eq!(tokens.len(), READERS, "two have the same token");
        for lease in leases {
            lease.release().await.unwrap();
        }
    });
}

/// Readers of one process that wait for the same writer disturb each other in nothing, and its release lets all of them in.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn readers_of_one_process_wait_for_one_writer_in_peace() {
    const READERS: usize = 8;
    let server = EtcdServer::start();
    let (clock, onlooker) = (Clock::system(), locks(&server.url()));
    let (client, gate) = (locks(&server.url()), locks(&server.url()));
    let transactions = || server.figure("grpc_server_started_total{grpc_method=\"Txn\"");
    for is_inside in [true, false] {
        block_on(async {
            let outside = locks(&server.url());
            let writer = if is_inside { &client } else { &outside };
            let writer = writer.lock("orders").unwrap().ttl(LONG).acquire().await.unwrap();
            let shut = gate.lock("gate").unwrap().ttl(LONG).acquire().await.unwrap();
            let readers = (0..READERS).map(|_| async {
                let lease = client.lock("orders").unwrap().ttl(LONG).shared().acquire().await.unwrap();
                // All are inside at once.
                let gate = client.lock("gate").unwrap().ttl(LONG).shared().acquire().await.unwrap();
                gate.release().await.unwrap();
                lease.release().await.unwrap();
            });
            let watching = async {
                until_waiting(&onlooker, "orders", READERS).await;
                clock.sleep(Duration::from_millis(300)).await;
                let before = transactions();
                clock.sleep(Duration::from_secs(1)).await;
                let asked = transactions() - before;
                assert!(asked < 16.0, "{asked} requests of readers that wait");
                writer.release().await.unwrap();
                until_waiting(&onlooker, "gate", READERS).await;
                assert_eq!(onlooker.inspect("orders").await.unwrap().readers.len(), READERS);
                shut.release().await.unwrap();
            };
            within(LONG * 2, "all readers", join(join_all(readers), watching)).await;
        });
    }
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn detached_reader_is_renewed_and_given_back_by_others_and_proves_nothing() {
    let server = EtcdServer::start();
    let (client, other) = (backend(&server.url()), locks(&server.url()));
    block_on(async {
        let beside = reader(&server.url(), LONG).acquire().await.unwrap();
        let lease =
            Locks::new(client.clone()).lock("orders").unwrap().ttl(TTL).shared().acquire().await.unwrap();
        assert_eq!(client.proof(&lease).await.unwrap_err().kind(), ErrorKind::Unsupported);
        let handover = lease.detach().await.unwrap();
        for _ in 0..6 {
            other.renew(&handover, TTL).await.unwrap();
            Clock::system().sleep(TTL / 3).await;
        }
        assert_eq!(other.inspect("orders").await.unwrap().readers.len(), 2);
        other.give_back(&handover).await.unwrap();
        assert_eq!(other.give_back(&handover).await.unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(other.renew(&handover, TTL).await.unwrap_err().kind(), ErrorKind::Lost);
        beside.check().unwrap();
        beside.release().await.unwrap();
        assert_eq!(client.inspect(&name("orders")).await.unwrap().status, Status::Free);
    });
}
