//! Several ask at the same instant: one gets in soon, each gets in, and nothing is left.

use std::sync::Barrier;
use std::time::Duration;

use fencepost_core::Locks;
use fencepost_testkit::history::{Hold, assert_clean};
use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::wait_until;

use super::nodes::{AT_ONCE, LIMIT, Nodes, lock, locks, ms, now, pass, percentile, proxied, within};

const TTL: Duration = Duration::from_secs(3);
const CLIENTS: usize = 3;
const ROUNDS: usize = 60;

/// One client of one round: asks at the same instant as the others, and holds the lock for a moment.
fn compete(locks: &Locks, together: &Barrier) -> Hold {
    let lock = lock(locks, "a", TTL);
    together.wait();
    let asked = now();
    let lease = within(LIMIT, "an acquisition", lock.acquire()).unwrap_or_else(|error| panic!("{error}"));
    let granted = now();
    pass(ms(2));
    lease.check().expect("a short hold is not lost");
    let (ended, token, holder) = (now(), lease.token(), lease.holder());
    within(LIMIT, "a release", lease.release()).unwrap_or_else(|error| panic!("{error}"));
    Hold { asked, granted, ended, token, holder }
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn of_three_who_ask_at_the_same_instant_each_gets_in_and_leaves_nothing() {
    let nodes = Nodes::start(5);
    let proxies = nodes.proxies();
    let clients: Vec<Locks> = (0..CLIENTS).map(|_| locks(&proxied(&proxies, AT_ONCE))).collect();
    let (mut all, mut first, mut last) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let held_up = (round % 2 == 1).then(|| &proxies[round / 2 % 5]);
        let (together, done) = (Barrier::new(CLIENTS + 1), &Barrier::new(CLIENTS + 1));
        let holds: Vec<Hold> = std::thread::scope(|scope| {
            let run = |locks| {
                let together = &together;
                scope.spawn(move || {
                    let hold = compete(locks, together);
                    done.wait();
                    hold
                })
            };
            let threads: Vec<_> = clients.iter().map(run).collect();
            if let Some(proxy) = held_up {
                proxy.set(Mode::ReplyHole);
            }
            together.wait();
            if let Some(proxy) = held_up {
                pass(ms(200));
                proxy.set(Mode::Pass);
            }
            done.wait();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let began = holds.iter().map(|hold| hold.asked).min().unwrap();
        first.push(holds.iter().map(|hold| hold.granted).min().unwrap().since(began));
        last.push(holds.iter().map(|hold| hold.granted).max().unwrap().since(began));
        all.extend(holds);
        // The cancelling of the attempts that lost is on its way; the ttl is three seconds away.
        let asked = now();
        wait_until("nothing is left on any node", || (0..5).all(|node| nodes.left_over(node).is_empty()));
        assert!(now().since(asked) < ms(1_000), "round {round}: {:?}", now().since(asked));
    }
    for (what, durations) in [("first in", &first), ("last in", &last)] {
        let [half, most] = [50, 100].map(|percent| percentile(durations, percent));
        println!("{what}: p50 {half:?}, at most {most:?}");
    }
    assert!(percentile(&first, 100) < ms(1_000), "one of them gets in soon");
    assert!(percentile(&last, 100) < TTL, "each of them gets in without anybody's ttl running out");
    assert_clean(&all);
}
