//! `run` on three members, of which one fails: it goes on, by way of another.

use fencepost_testkit::servers::EtcdCluster;

use crate::scene::{await_renewals, start_holder};
use crate::support::{Home, now_micros, number};

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn run_and_its_waiter_outlive_the_leader() {
    let mut cluster = EtcdCluster::start();
    let leader = cluster.leader();
    let home = Home::on(&cluster.url_from(leader));
    let args = ["--ttl", "4s", "--events", "events", "--report", "report"];
    let holder = start_holder(&home, &args);
    let waiter = home.start(["run", "demo", "--", "printenv", "FENCEPOST_TOKEN"]);
    home.await_waiter("demo");
    cluster[leader].kill();
    await_renewals(&home);
    home.write("stop", "");
    holder.ends().exits(0);
    let token = number(&home.read("held"));
    assert_eq!(home.json("report")["token"], token);
    assert!(number(&waiter.ends().exits(0).stdout) > token);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn run_begins_soon_although_the_first_member_stands_still() {
    let cluster = EtcdCluster::start();
    let follower = cluster.follower();
    let home = Home::on(&cluster.url_from(follower));
    cluster[follower].stop();
    let before = now_micros();
    home.run(["run", "-n", "demo", "--", "true"]).exits(0);
    let took = now_micros() - before;
    assert!(took < 2_000_000, "{took} µs");
    cluster[follower].go_on();
}
