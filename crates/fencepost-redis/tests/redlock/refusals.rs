//! What cannot form a quorum, and what can although one node refuses.

use fencepost_core::{BackendUrl, Clock, ErrorKind};
use fencepost_redis::redlock::RedlockBackend;
use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::{RedisServer, RedisSetup, wait_until};

use super::nodes::{AT_ONCE, LIMIT, Nodes, address, give, lock, locks, ms, proxied, take, within};

fn refused(url: &str) -> ErrorKind {
    let url: BackendUrl = url.parse().expect("it is a URL");
    RedlockBackend::from_url(&url, Clock::system()).expect_err("it is refused").kind()
}

#[test]
fn even_number_and_a_single_node_are_refused() {
    for url in ["redlock://a", "redlock://a,b", "redlock://a,b,c,d", "redlock://a:1,b:1,a:1"] {
        assert_eq!(refused(url), ErrorKind::InvalidArgument, "{url}");
    }
    let hidden = RedlockBackend::from_url(&"redlock://a,b,c?nothing=1".parse().unwrap(), Clock::system());
    assert!(
        !format!("{:?}", hidden.unwrap_err()).contains("test_"),
        "what is for tests is offered to nobody"
    );
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn same_server_under_two_names_is_refused() {
    let nodes = Nodes::start(2);
    let ports = nodes.ports();
    for hosts in [
        format!("localhost:{0},127.0.0.1:{0},127.0.0.1:{1}", ports[0], ports[1]),
        format!("127.0.0.1:{1},127.0.0.1:{0},localhost:{0}", ports[0], ports[1]),
    ] {
        let locks = locks(&format!("redlock://{hosts}?{AT_ONCE}"));
        for _ in 0..2 {
            let error = within(LIMIT, "the refusal", lock(&locks, "a", ms(1_000)).try_acquire()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.to_string().contains("same server"), "{error}");
        }
    }
    assert!((0..2).all(|node| nodes.left_over(node).is_empty()));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn nodes_that_change_places_stay_a_quorum() {
    let nodes = Nodes::start(3);
    let proxies = nodes.proxies();
    let locks = locks(&proxied(&proxies, AT_ONCE));
    give(take(&lock(&locks, "a", ms(1_000))));
    for (from, to) in [(0, 1), (1, 0)] {
        proxies[from].set(Mode::Cut);
        proxies[from].redirect(address(nodes.servers[to].port()));
    }
    for proxy in &proxies[..2] {
        proxy.set(Mode::Pass);
    }
    wait_until("all nodes are used", || {
        let Ok(Some(lease)) = within(LIMIT, "a try", lock(&locks, "a", ms(1_000)).try_acquire()) else {
            return false;
        };
        let held = nodes.holding(0..3, &lease).len();
        give(lease);
        held == 3
    });
}

fn with_password(password: &str) -> RedisServer {
    RedisSetup::default().arguments(&["--requirepass", password]).start()
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn wrong_password_of_one_node_is_done_without_and_of_a_majority_is_denied() {
    let servers: Vec<RedisServer> = ["ours", "ours", "theirs"].map(with_password).into();
    let url = |servers: &[&RedisServer]| {
        let hosts: Vec<String> =
            servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
        format!("redlock://:ours@{}?{AT_ONCE}", hosts.join(","))
    };
    let mut servers = servers;
    let all = locks(&url(&servers.iter().collect::<Vec<_>>()));
    let lease = take(&lock(&all, "a", ms(1_000)));
    assert_eq!(lease.slack(), Some(0));
    give(lease);
    let denied = with_password("others");
    let most = locks(&url(&[&servers[0], &servers[2], &denied]));
    let error = within(LIMIT, "the refusal", lock(&most, "a", ms(1_000)).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    println!("{error}");
    for server in [&servers[2], &denied] {
        assert!(error.to_string().contains(&format!("127.0.0.1:{}", server.port())), "{error}");
    }
    // Where another one goes down as well, the error says that this one refuses us.
    servers[1].kill();
    let error = within(LIMIT, "the refusal", lock(&all, "a", ms(1_000)).try_acquire()).unwrap_err();
    println!("{error}");
    assert!(error.to_string().contains(&format!("127.0.0.1:{}", servers[2].port())), "{error}");
    assert!(error.to_string().contains("WRONGPASS"), "{error}");
}
