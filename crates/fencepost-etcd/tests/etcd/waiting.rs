//! Waiting: one watch for each waiter, one waiter woken by each release, and nobody who believes in a lease that has ended.

use std::collections::HashSet;
use std::time::Duration;

use fencepost_core::{Backend, Clock, ErrorKind, Wait};
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::EtcdServer;
use futures_util::future::{join, join_all};

use super::stage::{backend, block_on, lock, locks, name, request, sleep, until_waiting, within};

const LONG: Duration = Duration::from_secs(20);

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn release_wakes_one_waiter_of_many() {
    const WAITERS: usize = 16;
    let server = EtcdServer::start();
    let onlooker = locks(&server.url());
    block_on(async {
        let lease = lock(&server.url(), "orders", LONG).acquire().await.unwrap();
        let gate = lock(&server.url(), "gate", LONG).acquire().await.unwrap();
        let waiters = (0..WAITERS).map(|_| async {
            let lease = lock(&server.url(), "orders", LONG).acquire().await.unwrap();
            // Whoever has been woken stays until the count is taken.
            let gate = lock(&server.url(), "gate", LONG).acquire().await.unwrap();
            gate.release().await.unwrap();
            lease.release().await.unwrap();
        });
        let watching = async {
            until_waiting(&onlooker, "orders", WAITERS).await;
            Clock::system().sleep(Duration::from_millis(300)).await;
            let events = || server.figure("etcd_debugging_mvcc_events_total");
            let before = events();
            lease.release().await.unwrap();
            until_waiting(&onlooker, "gate", 1).await;
            Clock::system().sleep(Duration::from_millis(300)).await;
            let events = events() - before;
            // That of the release alone: puts are not heard.
            assert!((1.0..=2.0).contains(&events), "{events} events were sent for one release");
            gate.release().await.unwrap();
        };
        within(LONG * 2, "all waiters", join(join_all(waiters), watching)).await;
    });
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn waiter_asks_for_little_while_it_waits() {
    const WAITERS: f64 = 8.0;
    let server = EtcdServer::start();
    let onlooker = locks(&server.url());
    let started = || server.figure("grpc_server_started_total");
    block_on(async {
        let lease = lock(&server.url(), "orders", LONG).acquire().await.unwrap();
        let waiters = (0..8).map(|_| async {
            lock(&server.url(), "orders", LONG).acquire().await.unwrap().release().await.unwrap();
        });
        let watching = async {
            until_waiting(&onlooker, "orders", 8).await;
            Clock::system().sleep(Duration::from_millis(500)).await;
            let before = started();
            Clock::system().sleep(Duration::from_secs(2)).await;
            let a_second = (started() - before) / WAITERS / 2.0;
            assert!(a_second < 1.0, "{a_second} requests a second and waiter");
            lease.release().await.unwrap();
        };
        within(LONG * 2, "all waiters", join(join_all(waiters), watching)).await;
    });
}

/// Its lease runs out while it can do nothing; whoever believed the watch alone would take the lock with it.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn waiter_whose_lease_has_ended_gets_the_lock_with_another() {
    let server = EtcdServer::start();
    let onlooker = locks(&server.url());
    let waiting = backend(&server.url());
    block_on(async {
        let holder = lock(&server.url(), "orders", LONG).acquire().await.unwrap();
        // The first token of a client is written in a transaction of its own, which would notice.
        let claim = waiting.acquire(&request("warm", LONG, Wait::No)).await.unwrap();
        claim.release().await.unwrap();
        let asked = request("orders", LONG, Wait::Forever);
        let waiter = async { waiting.acquire(&asked).await.unwrap() };
        let meanwhile = async {
            until_waiting(&onlooker, "orders", 1).await;
            let lease = lease_of(&server, "orders", &asked.holder.to_string());
            server.control(&["lease", "revoke", &lease]);
            assert!(onlooker.inspect("orders").await.unwrap().waiters.is_empty());
            holder.release().await.unwrap();
        };
        let (claim, ()) = within(LONG * 2, "the waiter's turn", join(waiter, meanwhile)).await;
        let seen = waiting.inspect(&name("orders")).await.unwrap();
        assert_eq!(seen.holder, Some(asked.holder), "it believes in a lease that has ended");
        assert_eq!(seen.token, Some(claim.grant().token));
        claim.release().await.unwrap();
    });
}

/// The same where the release itself confirms the next one.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn waiter_whose_lease_has_ended_within_the_process_of_the_holder_gets_the_lock_with_another() {
    let server = EtcdServer::start();
    let onlooker = locks(&server.url());
    let client = backend(&server.url());
    block_on(async {
        let holder = client.acquire(&request("orders", LONG, Wait::No)).await.unwrap();
        let asked = request("orders", LONG, Wait::Forever);
        let waiter = async { client.acquire(&asked).await.unwrap() };
        let meanwhile = async {
            until_waiting(&onlooker, "orders", 1).await;
            let lease = lease_of(&server, "orders", &asked.holder.to_string());
            server.control(&["lease", "revoke", &lease]);
            holder.release().await.unwrap();
        };
        let (claim, ()) = within(LONG * 2, "the waiter's turn", join(waiter, meanwhile)).await;
        let seen = client.inspect(&name("orders")).await.unwrap();
        assert_eq!(seen.holder, Some(asked.holder), "it believes in a lease that has ended");
        assert_eq!(seen.token, Some(claim.grant().token));
        claim.release().await.unwrap();
    });
}

/// The lease that keeps the place of a holder, in hexadecimal digits.
fn lease_of(server: &EtcdServer, lock: &str, holder: &str) -> String {
    let found = server.control(&["get", "--prefix", &format!("/fencepost/{lock}/q/")]);
    let lines: Vec<&str> = found.lines().collect();
    let place = lines.chunks_exact(2).find(|place| place[1].contains(holder)).unwrap();
    place[0].rsplit_once("x-").unwrap().1.trim_start_matches('0').to_owned()
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn waiter_whose_watch_is_cut_or_compacted_away_looks_again() {
    let server = EtcdServer::start();
    let way = Proxy::start(server.address());
    let (through, onlooker) = (format!("etcd://{}", way.address()), locks(&server.url()));
    for round in 0..3 {
        block_on(async {
            let holder = lock(&server.url(), "orders", LONG).acquire().await.unwrap();
            let waiting = lock(&through, "orders", LONG);
            let meanwhile = async {
                until_waiting(&onlooker, "orders", 1).await;
                match round {
                    0 => {
                        way.set(Mode::Cut);
                        holder.release().await.unwrap();
                        way.set(Mode::Pass);
                    }
                    1 => {
                        way.set(Mode::Cut);
                        way.set(Mode::Pass);
                        holder.release().await.unwrap();
                    }
                    _ => {
                        let now = server.control(&["endpoint", "status", "--write-out=json"]);
                        let revision = now.split("\"revision\":").nth(1).unwrap();
                        let revision: String = revision.chars().take_while(char::is_ascii_digit).collect();
                        server.control(&["compact", &revision]);
                        holder.release().await.unwrap();
                    }
                }
            };
            let (lease, ()) = within(LONG, "the waiter's turn", join(waiting.acquire(), meanwhile)).await;
            lease.unwrap().release().await.unwrap();
        });
    }
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn waiter_behind_a_server_that_stood_still_is_served_when_it_goes_on() {
    let server = EtcdServer::start();
    let onlooker = locks(&server.url());
    block_on(async {
        let holder = lock(&server.url(), "orders", LONG).acquire().await.unwrap();
        let waiting = lock(&server.url(), "orders", LONG);
        let meanwhile = async {
            until_waiting(&onlooker, "orders", 1).await;
            server.stop();
            Clock::system().sleep(Duration::from_secs(2)).await;
            server.go_on();
            holder.release().await.unwrap();
        };
        let (lease, ()) = within(LONG, "the waiter's turn", join(waiting.acquire(), meanwhile)).await;
        lease.unwrap().release().await.unwrap();
    });
    sleep(Duration::from_millis(1));
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn hand_over_within_a_process_takes_no_watch_and_no_request_of_its_own() {
    const TASKS: usize = 20;
    let server = EtcdServer::start();
    let client = locks(&server.url());
    let count = |method: &str| server.figure(&format!("grpc_server_started_total{{grpc_method=\"{method}\""));
    let orders = client.lock("orders").unwrap().ttl(LONG);
    block_on(async {
        let first = orders.acquire().await.unwrap();
        let (transactions, watches) = (count("Txn"), count("Watch"));
        let tasks = (0..TASKS).map(|_| async {
            let lease = orders.acquire().await.unwrap();
            let token = lease.token();
            lease.release().await.unwrap();
            token
        });
        let beginning = async {
            Clock::system().sleep(Duration::from_millis(200)).await;
            first.release().await.unwrap();
        };
        let (tokens, ()) = within(LONG, "all tasks", join(join_all(tasks), beginning)).await;
        assert_eq!(tokens.into_iter().collect::<HashSet<_>>().len(), TASKS);
        let transactions = count("Txn") - transactions;
        // One to enter and one to leave for each, and a few for who waits when the offset is raised.
        assert!(transactions < 3.0 * 20.0, "{transactions} transactions");
        // That of the first holder, which is held for a while.
        assert!(count("Watch") - watches < 1.5, "a waiter has watched");
    });
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn waiter_behind_a_holder_of_its_process_that_is_lost_or_dropped_is_served() {
    let server = EtcdServer::start();
    let client = locks(&server.url());
    let orders = client.lock("orders").unwrap().ttl(Duration::from_secs(30));
    for is_dropped in [true, false] {
        block_on(async {
            let holder = orders.acquire().await.unwrap();
            let token = holder.token();
            let meanwhile = async {
                until_waiting(&client, "orders", 1).await;
                if is_dropped {
                    drop(holder);
                    return None;
                }
                locks(&server.url()).revoke("orders", token, "a test").await.unwrap();
                Some(holder)
            };
            // Long before the waiter would look by itself.
            let most = Duration::from_secs(3);
            let (next, lost) = within(most, "the waiter's turn", join(orders.acquire(), meanwhile)).await;
            let next = next.unwrap();
            assert!(next.token() > token);
            next.release().await.unwrap();
            drop(lost);
        });
    }
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn waiter_of_a_process_that_gives_up_is_passed_over_by_the_one_behind_it() {
    let server = EtcdServer::start();
    let client = locks(&server.url());
    let ttl = Duration::from_secs(30);
    let orders = client.lock("orders").unwrap().ttl(ttl);
    block_on(async {
        let holder = orders.acquire().await.unwrap();
        let impatient = client.lock("orders").unwrap().ttl(ttl).wait(Duration::from_millis(300));
        let patient = async {
            until_waiting(&client, "orders", 1).await;
            orders.acquire().await.unwrap()
        };
        let meanwhile = async {
            until_waiting(&client, "orders", 2).await;
            until_waiting(&client, "orders", 1).await;
            holder.release().await.unwrap();
        };
        let all = join(join(impatient.acquire(), patient), meanwhile);
        // Long before the one behind would look by itself.
        let most = Duration::from_secs(4);
        let ((refused, next), ()) = within(most, "the waiter's turn", all).await;
        refused.expect_err("it was held");
        next.release().await.unwrap();
    });
}

/// However many sessions this process has left from before.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn try_without_a_server_ends_soon() {
    const LOCKS: usize = 12;
    let server = EtcdServer::start();
    let way = Proxy::start(server.address());
    let client = locks(&format!("etcd://{}", way.address()));
    let (clock, ttl) = (Clock::system(), Duration::from_secs(8));
    block_on(async {
        let all: Vec<_> = (0..LOCKS).map(|number| format!("lock{number}")).collect();
        let taken = join_all(
            all.iter().map(|name| async { client.lock(name).unwrap().ttl(ttl).acquire().await.unwrap() }),
        );
        for lease in taken.await {
            lease.release().await.unwrap();
        }
        // They are too old to be used without a renewal, and young enough for one.
        clock.sleep(ttl / 6).await;
        way.set(Mode::Blackhole);
        let began = clock.now();
        let refused = client.lock("orders").unwrap().ttl(ttl).try_acquire().await.unwrap_err();
        let took = clock.now().since(began);
        assert!(took < Duration::from_millis(2_500), "{took:?}");
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        way.set(Mode::Pass);
    });
}

/// All calls share a connection, which is closed when one of them has had no answer in time and the others neither.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn call_does_not_fail_because_an_older_one_was_given_up() {
    let server = EtcdServer::start();
    let (clock, client) = (Clock::system(), locks(&server.url()));
    block_on(async {
        client.inspect("orders").await.unwrap();
        server.stop();
        let younger = async {
            clock.sleep(Duration::from_millis(300)).await;
            client.inspect("orders").await
        };
        let meanwhile = async {
            // The time of the older one is over after half a second.
            clock.sleep(Duration::from_millis(600)).await;
            server.go_on();
        };
        let ((older, younger), ()) = join(join(client.inspect("orders"), younger), meanwhile).await;
        older.expect_err("nobody has answered in time");
        younger.unwrap();
    });
}
