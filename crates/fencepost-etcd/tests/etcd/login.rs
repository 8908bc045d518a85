//! Logins: wrong ones, ones that run out, and what a user may do.

use std::time::Duration;

use fencepost_core::{Clock, ErrorKind};
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::{EtcdServer, EtcdSetup};
use futures_util::future::join_all;

use super::stage::{block_on, lock, locks, sleep};

const TTL: Duration = Duration::from_secs(10);

fn url(server: &EtcdServer, login: &str) -> String {
    format!("etcd://{login}@{}", server.address())
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn missing_and_wrong_logins_are_denied_and_not_shown() {
    let mut server = EtcdServer::start();
    server.require_login("s3cret");
    server.add_user("ann", "gue55ed", "/fencepost/");
    for (login, says) in
        [("", "asks for a login"), ("root:wr0ng", "percent-encoded"), ("nobody:wr0ng", "percent-encoded")]
    {
        let url = if login.is_empty() { server.url() } else { url(&server, login) };
        let refused = block_on(lock(&url, "orders", TTL).try_acquire()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied, "{refused:?}");
        assert!(refused.advice().unwrap().contains(says), "{refused:?}");
        assert!(!format!("{refused:?}").contains("wr0ng"), "{refused:?}");
    }
    let lease = block_on(lock(&url(&server, "ann:gue55ed"), "orders", TTL).acquire()).unwrap();
    block_on(lease.release()).unwrap();
    let elsewhere = format!("{}/team", url(&server, "ann:gue55ed"));
    let refused = block_on(lock(&elsewhere, "orders", TTL).try_acquire()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied);
    assert!(refused.advice().unwrap().contains("grant-permission"), "{refused:?}");
}

/// Every request after a while needs a new login, the release and the renewals too.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn login_that_has_run_out_is_renewed_and_a_release_included() {
    let mut server = EtcdSetup::default().arguments(&["--auth-token-ttl", "2"]).start();
    server.require_login("s3cret");
    let client = locks(&url(&server, "root:s3cret"));
    let lease = block_on(client.lock("orders").unwrap().ttl(Duration::from_mins(1)).acquire()).unwrap();
    // Nothing is asked meanwhile: the first renewal is due after seven seconds at least.
    sleep(Duration::from_secs(4));
    let before = logins(&server);
    block_on(lease.release()).unwrap();
    assert!(logins(&server) > before, "the login had run out");
}

fn logins(server: &EtcdServer) -> f64 {
    server.figure("grpc_server_started_total{grpc_method=\"Authenticate\"")
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn many_tasks_share_one_login() {
    let mut server = EtcdSetup::default().arguments(&["--auth-token-ttl", "2"]).start();
    server.require_login("s3cret");
    let client = locks(&url(&server, "root:s3cret"));
    let all = |client: &fencepost_core::Locks| {
        let tasks: Vec<_> =
            (0..20).map(|number| client.lock(&format!("lock{number}")).unwrap().ttl(TTL)).collect();
        block_on(join_all(tasks.iter().map(|lock| async {
            lock.acquire().await.unwrap().release().await.unwrap();
        })));
    };
    let before = logins(&server);
    all(&client);
    assert!(logins(&server) - before < 1.5, "one login for all");
    sleep(Duration::from_secs(4));
    all(&client);
    assert!(logins(&server) - before <= 3.0, "{} logins", logins(&server) - before);
}

/// All watches go over one call, which was begun with a login that has run out meanwhile.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn watch_that_begins_after_the_login_has_run_out_is_begun_with_another() {
    let mut server = EtcdSetup::default().arguments(&["--auth-token-ttl", "2"]).start();
    server.require_login("s3cret");
    let url = url(&server, "root:s3cret");
    let (client, others) = (locks(&url), locks(&url));
    let transactions = || server.figure("grpc_server_started_total{grpc_method=\"Txn\"");
    let ttl = Duration::from_secs(30);
    block_on(async {
        let clock = Clock::system();
        // Its key is watched from now on.
        let held = client.lock("held").unwrap().ttl(ttl).acquire().await.unwrap();
        clock.sleep(Duration::from_secs(4)).await;
        let in_the_way = others.lock("orders").unwrap().ttl(ttl).acquire().await.unwrap();
        let waiting = client.lock("orders").unwrap().ttl(ttl);
        let meanwhile = async {
            super::stage::until_waiting(&others, "orders", 1).await;
            clock.sleep(Duration::from_millis(500)).await;
            let before = transactions();
            clock.sleep(Duration::from_secs(1)).await;
            let asked = transactions() - before;
            assert!(asked < 5.0, "{asked} requests of one that waits: it has no watch");
            in_the_way.release().await.unwrap();
        };
        let waited = futures_util::future::join(waiting.acquire(), meanwhile);
        let (lease, ()) = super::stage::within(Duration::from_secs(10), "the waiter's turn", waited).await;
        lease.unwrap().release().await.unwrap();
        held.release().await.unwrap();
    });
}

/// It takes the server longer than one try of a renewal may take.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn login_that_is_slower_than_a_try_of_a_renewal_ends() {
    let mut server = EtcdSetup::default().arguments(&["--bcrypt-cost", "10"]).start();
    server.require_login("s3cret");
    let (clock, client) = (Clock::system(), locks(&url(&server, "root:s3cret")));
    let began = clock.now();
    drop(block_on(locks(&url(&server, "root:s3cret")).inspect("orders")).unwrap());
    // A try of a renewal is a tenth of it, and one member has less than that.
    let ttl = Duration::from_secs((clock.now().since(began) * 10).as_secs().clamp(1, 15));
    let lease = block_on(client.lock("orders").unwrap().ttl(ttl).acquire()).unwrap();
    let before = logins(&server);
    // It ends the logins of the user, and needs one itself.
    server.control_with(&["user", "passwd", "root", "--interactive=false"], "s3cret\n");
    sleep(ttl * 2);
    assert!(logins(&server) - before > 1.5, "the login was good still");
    lease.check().unwrap();
    block_on(lease.release()).unwrap();
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn watch_that_breaks_costs_no_login() {
    let mut server = EtcdServer::start();
    server.require_login("s3cret");
    let way = Proxy::start(server.address());
    let through = locks(&format!("etcd://root:s3cret@{}", way.address()));
    let direct = locks(&url(&server, "root:s3cret"));
    block_on(async {
        let held = direct.lock("orders").unwrap().ttl(TTL * 3).acquire().await.unwrap();
        let waiting = through.lock("orders").unwrap().ttl(TTL * 3);
        let meanwhile = async {
            super::stage::until_waiting(&direct, "orders", 1).await;
            let before = logins(&server);
            for _ in 0..5 {
                Clock::system().sleep(Duration::from_millis(200)).await;
                way.set(Mode::Cut);
                way.set(Mode::Pass);
            }
            held.release().await.unwrap();
            before
        };
        let waited = futures_util::future::join(waiting.acquire(), meanwhile);
        let (lease, before) = super::stage::within(TTL * 3, "the waiter's turn", waited).await;
        let more = logins(&server) - before;
        assert!(more < 0.5, "{more} logins with a login that is good");
        lease.unwrap().release().await.unwrap();
    });
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn login_to_a_server_that_asks_for_none_is_no_error_and_one_that_begins_to_is_obeyed() {
    let mut server = EtcdServer::start();
    let client = locks(&url(&server, "root:s3cret"));
    let once = || {
        block_on(async {
            let lease = client.lock("orders").unwrap().ttl(TTL).acquire().await?;
            lease.release().await
        })
    };
    once().unwrap();
    server.require_login("s3cret");
    block_on(Clock::system().sleep(Duration::from_millis(50)));
    // The server says that a name is missing, and the next try brings one.
    once().unwrap();
}
