//! Three members, of which one fails: whoever can reach a majority keeps its lock, and nobody ever holds it beside another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fencepost_core::{Clock, ErrorKind, Observer};
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::EtcdCluster;

use super::stage::{Notes, block_on, lock, locks, sleep, until_free, until_waiting, within};

const TTL: Duration = Duration::from_secs(4);

/// Long enough for an election on a busy machine, after which a lease has its whole ttl again.
const LONG: Duration = Duration::from_secs(20);

/// The way of one client to each member, which may be lost.
struct Ways(Vec<Proxy>);

impl Ways {
    fn to(cluster: &EtcdCluster) -> Self {
        Self((0..cluster.count()).map(|member| Proxy::start(cluster[member].address())).collect())
    }

    fn url_from(&self, first: usize) -> String {
        let count = self.0.len();
        let addresses = (0..count).map(|next| self.0[(first + next) % count].address().to_string());
        format!("etcd://{}", addresses.collect::<Vec<_>>().join(","))
    }
}

/// What befalls a member.
#[derive(Clone, Copy, Debug)]
enum Blow {
    Kill,
    Stop,
    /// Its clients do not reach it any more, and it does not know.
    Hole,
}

fn strike(cluster: &mut EtcdCluster, ways: &Ways, member: usize, blow: Blow) {
    match blow {
        Blow::Kill => cluster[member].kill(),
        Blow::Stop => cluster[member].stop(),
        Blow::Hole => ways.0[member].set(Mode::Blackhole),
    }
}

/// A holder that is connected to the member which is hit keeps its lock, and is not alone in being served.
fn holder_survives(blow: Blow, is_leader: bool) {
    let mut cluster = EtcdCluster::start();
    let ways = Ways::to(&cluster);
    let leader = cluster.leader();
    let victim = if is_leader { leader } else { (leader + 1) % 3 };
    let notes = Notes::new();
    let observer: Arc<dyn Observer> = Arc::<Notes>::clone(&notes);
    let url = ways.url_from(victim);
    let lease = block_on(lock(&url, "orders", TTL).observer(observer).acquire()).unwrap();
    strike(&mut cluster, &ways, victim, blow);
    let renewed = notes.count("renewed");
    // Twice as long as it could live without a renewal.
    sleep(TTL * 2);
    lease.check().unwrap_or_else(|error| panic!("{blow:?}: {error}\n{}", notes.all()));
    assert!(notes.count("renewed") > renewed + 2, "{}", notes.all());
    // By way of another member, which sees the same.
    let other = locks(&ways.url_from((victim + 1) % 3));
    block_on(async {
        let seen = other.inspect("orders").await.unwrap();
        assert_eq!(seen.token, Some(lease.token()));
        let refused = other.lock("orders").unwrap().ttl(TTL).try_acquire().await.unwrap();
        assert!(refused.is_none(), "there is a second holder");
        let token = lease.token();
        lease.release().await.unwrap();
        let next = within(LONG, "the next", other.lock("orders").unwrap().ttl(TTL).acquire()).await.unwrap();
        assert!(next.token() > token);
        next.release().await.unwrap();
    });
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn holder_outlives_the_death_of_the_leader() {
    holder_survives(Blow::Kill, true);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn holder_outlives_a_leader_that_is_stopped() {
    holder_survives(Blow::Stop, true);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn holder_outlives_the_loss_of_its_way_to_the_leader() {
    holder_survives(Blow::Hole, true);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn holder_outlives_the_death_of_a_follower() {
    holder_survives(Blow::Kill, false);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn holder_outlives_a_follower_that_is_stopped() {
    holder_survives(Blow::Stop, false);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn holder_outlives_the_loss_of_its_way_to_a_follower() {
    holder_survives(Blow::Hole, false);
}

/// Whoever waits by way of the member that is hit gets the lock all the same, in its turn.
fn waiters_survive(blow: Blow) {
    let mut cluster = EtcdCluster::start();
    let ways = Ways::to(&cluster);
    let victim = cluster.leader();
    let other = locks(&cluster.url_from((victim + 1) % 3));
    let order = std::sync::Mutex::new(Vec::new());
    let lease = block_on(other.lock("orders").unwrap().ttl(TTL).acquire()).unwrap();
    std::thread::scope(|scope| {
        for number in 0..3 {
            let (order, url) = (&order, ways.url_from(victim));
            scope.spawn(move || {
                block_on(async {
                    let waiting = lock(&url, "orders", TTL);
                    let lease = within(LONG * 2, "a waiter's turn", waiting.acquire()).await.unwrap();
                    order.lock().unwrap().push((number, lease.token()));
                    lease.check().unwrap();
                    lease.release().await.unwrap();
                });
            });
            block_on(until_waiting(&other, "orders", number + 1));
        }
        strike(&mut cluster, &ways, victim, blow);
        // The waiters must notice by themselves, and stay alive meanwhile.
        sleep(TTL);
        block_on(lease.release()).unwrap();
    });
    let order = order.into_inner().unwrap();
    assert_eq!(order.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2], "{blow:?}");
    assert!(order.is_sorted_by(|one, next| one.1 < next.1), "{order:?}");
    block_on(until_free(&other, "orders"));
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn waiters_keep_their_places_when_the_leader_dies() {
    waiters_survive(Blow::Kill);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn waiters_keep_their_places_when_the_leader_is_stopped() {
    waiters_survive(Blow::Stop);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn waiters_keep_their_places_when_they_lose_their_way_to_the_leader() {
    waiters_survive(Blow::Hole);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn member_that_fails_at_the_start_is_passed_over_soon() {
    let mut cluster = EtcdCluster::start();
    let follower = cluster.follower();
    let took = |cluster: &EtcdCluster| {
        let clock = Clock::system();
        let began = clock.now();
        let lease = block_on(lock(&cluster.url_from(follower), "orders", TTL).acquire()).unwrap();
        let took = clock.now().since(began);
        block_on(lease.release()).unwrap();
        took
    };
    cluster[follower].stop();
    let stopped = took(&cluster);
    assert!(stopped < Duration::from_millis(1_500), "{stopped:?} with a member that is stopped");
    cluster[follower].kill();
    let dead = took(&cluster);
    assert!(dead < Duration::from_secs(1), "{dead:?} with a member that is dead");
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn holder_that_reaches_no_majority_has_lost_by_its_deadline() {
    let cluster = EtcdCluster::start();
    let ttl = Duration::from_secs(2);
    let lease = block_on(lock(&cluster.url(), "orders", ttl).acquire()).unwrap();
    let leader = cluster.leader();
    for other in (0..3).filter(|member| *member != leader) {
        cluster[other].stop();
    }
    let clock = Clock::system();
    let began = clock.now();
    // The leader that is left says yes to keep-alives for a while; nobody confirms that it leads.
    let lost = block_on(within(ttl * 3, "the loss", lease.lost()));
    assert_eq!(lost.kind(), ErrorKind::Lost);
    assert!(clock.now().since(began) <= ttl, "it was believed in for {:?}", clock.now().since(began));
    let refused = block_on(lock(&cluster.url(), "others", ttl).try_acquire());
    let kind = refused.expect_err("there is no majority").kind();
    assert!(matches!(kind, ErrorKind::Unavailable | ErrorKind::Indeterminate), "{kind:?}");
}

/// Several holders in turn while members die, stand still and are cut off: the counter that they raise without any other
/// protection tells whether two were ever inside at once.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn members_that_fail_in_turn_let_no_two_in() {
    const HOLDERS: usize = 4;
    let mut cluster = EtcdCluster::start();
    let ways: Vec<Ways> = (0..HOLDERS).map(|_| Ways::to(&cluster)).collect();
    let (ends, inside) = (AtomicBool::new(false), AtomicUsize::new(0));
    let tokens = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (number, ways) in ways.iter().enumerate() {
            let (ends, inside, tokens) = (&ends, &inside, &tokens);
            let lock = lock(&ways.url_from(number % 3), "orders", Duration::from_secs(2));
            scope.spawn(move || {
                while !ends.load(Ordering::Acquire) {
                    block_on(work(&lock, inside, tokens));
                }
            });
        }
        for round in 0..6 {
            let victim = if round % 2 == 0 { cluster.leader() } else { cluster.follower() };
            match round % 3 {
                0 => cluster[victim].stop(),
                1 => cluster[victim].kill(),
                _ => ways[round % HOLDERS].0[victim].set(Mode::Blackhole),
            }
            sleep(Duration::from_millis(1_200));
            cluster.heal();
            ways.iter().flat_map(|ways| &ways.0).for_each(|way| way.set(Mode::Pass));
        }
        ends.store(true, Ordering::Release);
    });
    let tokens = tokens.into_inner().unwrap();
    assert!(tokens.len() > 20, "{} grants", tokens.len());
    assert!(tokens.is_sorted_by(|one, next| one < next), "tokens did not grow: {tokens:?}");
    block_on(until_free(&locks(&cluster.url()), "orders"));
}

async fn work(
    lock: &fencepost_core::Lock,
    inside: &AtomicUsize,
    tokens: &std::sync::Mutex<Vec<fencepost_core::FencingToken>>,
) {
    // What cannot be had for the moment is asked for again.
    let Ok(lease) = lock.acquire().await else { return };
    if lease.check().is_ok() {
        assert_eq!(inside.fetch_add(1, Ordering::AcqRel), 0, "two are inside");
        tokens.lock().unwrap().push(lease.token());
        Clock::system().sleep(Duration::from_millis(3)).await;
        // Whoever was late does not count: it knows.
        inside.fetch_sub(1, Ordering::AcqRel);
    }
    drop(lease.release().await);
}
