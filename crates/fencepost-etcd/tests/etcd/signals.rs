//! Signals that locks may have changed, and their end.

use std::time::Duration;

use fencepost_core::{Backend, Clock, NamePrefix, until};
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::{EtcdCluster, EtcdServer};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;

use super::stage::{backend, block_on, lock, within};

const TTL: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(20);

type Signals = BoxStream<'static, ()>;

async fn signals(url: &str, prefix: &str) -> Signals {
    backend(url).signals(&NamePrefix::new(prefix)).await.unwrap().expect("etcd pushes them")
}

/// Whether a signal comes within a time.
async fn is_signalled(signals: &mut Signals, most: Duration) -> bool {
    let clock = Clock::system();
    let heard = until(&clock, Some(clock.now().after(most)), signals.next()).await;
    assert_ne!(heard, Some(None), "they have ended");
    heard.is_some()
}

/// Reads what is left of a change that was signalled.
async fn settled(signals: &mut Signals) {
    while is_signalled(signals, Duration::from_millis(200)).await {}
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn changes_are_signalled_and_neither_renewals_nor_other_locks_are() {
    let server = EtcdServer::start();
    block_on(async {
        let mut all = signals(&server.url(), "").await;
        let mut orders = signals(&server.url(), "orders/").await;
        let lease = lock(&server.url(), "orders/7", TTL).acquire().await.unwrap();
        assert!(is_signalled(&mut orders, LONG).await && is_signalled(&mut all, LONG).await);
        settled(&mut orders).await;
        let other = lock(&server.url(), "payments", TTL).acquire().await.unwrap();
        assert!(is_signalled(&mut all, LONG).await);
        settled(&mut all).await;
        assert!(!is_signalled(&mut orders, TTL * 2).await, "it is another lock, or nothing has changed");
        assert!(!is_signalled(&mut all, TTL).await, "a renewal changes nothing");
        lease.check().unwrap();
        lease.release().await.unwrap();
        assert!(is_signalled(&mut orders, LONG).await && is_signalled(&mut all, LONG).await);
        other.release().await.unwrap();
    });
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn signals_end_with_their_connection() {
    let server = EtcdServer::start();
    let way = Proxy::start(server.address());
    block_on(async {
        let url = format!("etcd://{}", way.address());
        let mut cut = signals(&url, "").await;
        way.set(Mode::Cut);
        way.set(Mode::Pass);
        assert_eq!(within(LONG, "the end", cut.next()).await, None);
        let mut again = signals(&url, "").await;
        lock(&server.url(), "orders", TTL).acquire().await.unwrap().release().await.unwrap();
        assert!(is_signalled(&mut again, LONG).await);
    });
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn signals_of_a_member_that_stands_still_end_and_another_one_gives_them() {
    let cluster = EtcdCluster::start();
    let follower = cluster.follower();
    let client = backend(&cluster.url_from(follower));
    block_on(async {
        let mut lost = client.signals(&NamePrefix::default()).await.unwrap().unwrap();
        cluster[follower].stop();
        assert_eq!(within(LONG, "the end", lost.next()).await, None);
        let mut found = client.signals(&NamePrefix::default()).await.unwrap().unwrap();
        let other = cluster.url_from((follower + 1) % 3);
        lock(&other, "orders", TTL).acquire().await.unwrap().release().await.unwrap();
        assert!(is_signalled(&mut found, LONG).await);
        cluster[follower].go_on();
    });
}
