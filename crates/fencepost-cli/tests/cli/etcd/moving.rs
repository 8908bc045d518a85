//! A lock that moves to another backend and back: its tokens grow without anybody's help.

use fencepost_testkit::servers::{EtcdServer, RedisServer};

use super::number;
use crate::support::Home;

#[test]
#[cfg_attr(not(all(etcd_server, redis_server)), ignore = "its server is not installed")]
fn tokens_grow_from_etcd_to_redis_and_back() {
    let (etcd, redis) = (EtcdServer::start(), RedisServer::start());
    let home = Home::new();
    let redis = format!("{}?quarantine=off", redis.url());
    let mut last = 0;
    for url in [&etcd.url(), &redis, &etcd.url(), &redis, &etcd.url()] {
        let run =
            home.run(["run", "-n", "--backend", url, "demo", "--", "printenv", "FENCEPOST_TOKEN"]).exits(0);
        let token = number(&run.stdout);
        assert!(token > last, "{token} came after {last} on {url}");
        last = token;
    }
}

/// An operator's way after a snapshot was restored: the fence refuses, the message says how to lift, and that does it.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn restore_is_repaired_by_what_the_message_says() {
    let mut server = EtcdServer::start();
    let home = Home::on(&server.url());
    let fence = format!("file:{}", home.path("fence").display());
    let run = |code| {
        home.run(["run", "-n", "--fence", &fence, "demo", "--", "printenv", "FENCEPOST_TOKEN"]).exits(code)
    };
    let first = number(&run(0).stdout);
    let snapshot = server.snapshot();
    // An hour ahead of the clock, which would repair it otherwise.
    home.run(["lift", "demo", "--to", &(first + 3_600_000_000).to_string()]).exits(0);
    let lost = number(&run(0).stdout);
    server.restore(&snapshot);
    let refused = run(79);
    let told = refused.stderr.split("fencepost lift ").nth(1).unwrap_or_else(|| panic!("{}", refused.stderr));
    let command = told.split(['`', '\n']).next().unwrap();
    home.shell(&format!("fencepost lift {command}")).exits(0);
    assert!(number(&run(0).stdout) > lost);
}
