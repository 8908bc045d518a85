//! What holders leave beside the token: in nobody's way, and never older than what was acknowledged last.

use std::time::Duration;

use fencepost_core::{Backend, Clock, ErrorKind, Status, Wait};
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::{EtcdCluster, EtcdServer};
use futures_util::future::join;

use super::stage::{backend, block_on, lock, locks, name, request, sleep, within};

const LONG: Duration = Duration::from_secs(30);

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn logbook_is_in_nobodys_way() {
    let server = EtcdServer::start();
    let client = backend(&server.url());
    block_on(async {
        let mut claim = client.acquire(&request("orders", LONG, Wait::No)).await.unwrap();
        claim.write_logbook(&vec![b'x'; 1 << 20]).await.unwrap();
        let listed = locks(&server.url()).list("").await.unwrap();
        assert_eq!((listed.len(), listed[0].status), (1, Status::Held), "{listed:?}");
        claim.release().await.unwrap();
        assert!(locks(&server.url()).list("").await.unwrap().is_empty(), "a logbook is no lock");
        assert!(server.keys("/fencepost/orders/").is_empty(), "it lies among the places");
        let read = client.logbook(&name("orders")).await.unwrap();
        assert_eq!(read.map(|content| content.len()), Some(1 << 20));
        // Somebody who asks for a lock of that name has another one.
        let alike = lock(&server.url(), "~logbook/orders", LONG).try_acquire().await.unwrap();
        alike.expect("it is free").release().await.unwrap();
    });
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn write_that_a_frozen_member_carries_out_late_undoes_no_later_one() {
    let cluster = EtcdCluster::start();
    let follower = cluster.follower();
    let other = backend(&cluster.url_from((follower + 1) % 3));
    for round in 0..8 {
        let client = backend(&cluster.url_from(follower));
        let mut claim = block_on(client.acquire(&request("orders", LONG, Wait::No))).unwrap();
        // Its connection is to the member that is about to stand still.
        block_on(claim.write_logbook(b"before")).unwrap();
        cluster[follower].stop();
        block_on(within(LONG, "a write by another member", claim.write_logbook(b"early"))).unwrap();
        block_on(claim.write_logbook(b"late")).unwrap();
        cluster[follower].go_on();
        for _ in 0..10 {
            sleep(Duration::from_millis(20));
            let read = block_on(other.logbook(&name("orders"))).unwrap();
            assert_eq!(read.as_deref(), Some(&b"late"[..]), "round {round}");
        }
        block_on(claim.release()).unwrap();
    }
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn write_whose_answer_is_lost_is_repeated_and_counts_once() {
    let server = EtcdServer::start();
    let way = Proxy::start(server.address());
    let client = backend(&format!("etcd://{}", way.address()));
    let onlooker = backend(&server.url());
    block_on(async {
        let mut claim = client.acquire(&request("orders", LONG, Wait::No)).await.unwrap();
        way.set(Mode::ReplyHole);
        let meanwhile = async {
            while onlooker.logbook(&name("orders")).await.unwrap().is_none() {
                Clock::system().sleep(Duration::from_millis(2)).await;
            }
            way.set(Mode::Cut);
            way.set(Mode::Pass);
        };
        let (written, ()) = within(LONG, "the answer", join(claim.write_logbook(b"first"), meanwhile)).await;
        written.unwrap();
        claim.write_logbook(b"second").await.unwrap();
        // What somebody has changed by hand keeps no holder from writing.
        server.control(&["put", "/fencepost/~logbook/orders", "by hand"]);
        claim.write_logbook(b"third").await.unwrap();
        assert_eq!(onlooker.logbook(&name("orders")).await.unwrap().as_deref(), Some(&b"third"[..]));
        claim.release().await.unwrap();
    });
}

/// Its place is still there, and the first, and nobody's.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn holder_whose_lock_was_given_back_and_rests_writes_nothing() {
    let server = EtcdServer::start();
    let (client, other) = (backend(&server.url()), backend(&server.url()));
    block_on(async {
        let mut asked = request("orders", LONG, Wait::No);
        asked.at_least = Some(LONG);
        let mut claim = client.acquire(&asked).await.unwrap();
        claim.write_logbook(b"held").await.unwrap();
        other.give_back(&claim.handover().unwrap()).await.unwrap();
        assert_eq!(other.inspect(&name("orders")).await.unwrap().status, Status::Resting);
        let refused = claim.write_logbook(b"late").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Lost, "{refused}");
        assert_eq!(other.logbook(&name("orders")).await.unwrap().as_deref(), Some(&b"held"[..]));
    });
}
