//! A holder that is stopped past its lease: the next one has the lock, and the database refuses what the old one still writes.

use fencepost_testkit::servers::RedisServer;
use rustix::process::Signal;

use super::{ADD, LOCK, Scene, assert_says, psql};
use crate::support::{Home, Running, child_of, send};

/// Locks on a Redis whose leases run out.
fn on_redis() -> (RedisServer, Scene) {
    let redis = RedisServer::start();
    let home = Home::on(&format!("{}?quarantine=off", redis.url()));
    (redis, Scene::with(home))
}

/// A holder that has read the total and writes what it makes of it when the file `go` is there.
fn start_holder(scene: &Scene, args: &[&str]) -> Running {
    let script = format!(
        "total=$({}); echo $total >held; while [ ! -e go ]; do sleep 0.02; done; {}; echo $? >late; exit 5",
        psql("'select total from account where id = 1'"),
        psql("\"update account set total = $total + 1 where id = 1\""),
    );
    let all = ["run", "--ttl", "1500ms", "--fence", &scene.url].into_iter().chain(args.iter().copied());
    let mut command = scene.home.fencepost(all.chain([LOCK, "--", "sh", "-c", &script]));
    let run = Running::of(command.env("DB", &scene.url));
    scene.home.await_line("held");
    run
}

/// The runner, its guardian, and the command.
fn tree(run: &Running) -> [i32; 3] {
    let guardian = child_of(run.pid());
    [run.pid(), guardian, child_of(guardian)]
}

fn stop_until_the_next_has_written(scene: &Scene, pids: [i32; 3]) {
    for pid in pids {
        send(pid, Signal::STOP);
    }
    let next = scene.run_with(&["--wait", "20s", "--fence", &scene.url, LOCK], &psql(ADD));
    next.exits(0);
    assert_eq!(scene.total(), "1");
    scene.home.write("go", "");
}

/// The command first: its parent would reap it.
fn wake(pids: [i32; 3]) {
    for pid in pids.into_iter().rev() {
        send(pid, Signal::CONT);
    }
}

#[test]
#[cfg_attr(not(all(postgres_server, redis_server)), ignore = "its server is not installed")]
fn write_of_a_holder_that_slept_past_its_lease_is_refused_by_the_database() {
    let (_redis, scene) = on_redis();
    let run = start_holder(&scene, &[]);
    let pids @ [_, _, command] = tree(&run);
    stop_until_the_next_has_written(&scene, pids);
    // The command is awake before those who would end it.
    send(command, Signal::CONT);
    assert_eq!(scene.home.await_line("late"), "1");
    assert_eq!(scene.total(), "1", "nothing of the late write is there");
    wake(pids);
    assert_says(&run.ends().exits(76), &["FP002", "stale stamp", LOCK]);
    scene.run(&psql(ADD)).exits(0);
    assert_eq!(scene.total(), "2");
}

/// The control: without the guard on the table the late write destroys what the next one has written.
#[test]
#[cfg_attr(not(all(postgres_server, redis_server)), ignore = "its server is not installed")]
fn write_of_a_holder_that_slept_past_its_lease_destroys_an_unguarded_total() {
    let (_redis, scene) = on_redis();
    scene.home.run(["fence", "uninstall", &scene.server.url(), "--table", "account"]).exits(0);
    let run = start_holder(&scene, &[]);
    let pids @ [_, _, command] = tree(&run);
    stop_until_the_next_has_written(&scene, pids);
    send(command, Signal::CONT);
    assert_eq!(scene.home.await_line("late"), "0");
    assert_eq!(scene.total(), "1", "two have added one");
    wake(pids);
    run.ends().exits(76);
}

/// With `--on-lost warn` nothing but the fence is left, and it is enough.
#[test]
#[cfg_attr(not(all(postgres_server, redis_server)), ignore = "its server is not installed")]
fn command_that_runs_on_after_the_loss_is_refused_by_the_database() {
    let (_redis, scene) = on_redis();
    let run = start_holder(&scene, &["--on-lost", "warn"]);
    let pids = tree(&run);
    stop_until_the_next_has_written(&scene, pids);
    wake(pids);
    assert_says(&run.ends().exits(76), &["FP002", "runs on"]);
    assert_eq!((scene.home.read("late").as_str(), scene.total().as_str()), ("1\n", "1"));
}

/// A transaction that was open when its holder fell asleep is ended by the next one's seal.
#[test]
#[cfg_attr(not(all(postgres_server, redis_server)), ignore = "its server is not installed")]
fn open_transaction_of_a_sleeping_holder_is_rolled_back_for_the_next() {
    let (_redis, scene) = on_redis();
    scene.home.write(
        "work.sql",
        "begin; update account set total = total + 100 where id = 1;\n\\! echo >held; while [ ! -e go ]; do sleep 0.02; done\n\
         commit;\n",
    );
    let script = psql(ADD).replace("-c ", "-f work.sql").replace(ADD, "; echo $? >late");
    let all = ["run", "--ttl", "1500ms", "--fence", &scene.url, LOCK, "--", "sh", "-c", &script];
    let run = Running::of(scene.home.fencepost(all).env("DB", &scene.url));
    scene.home.await_line("held");
    let pids @ [_, _, command] = tree(&run);
    // `psql` waits for its shell, and holds the transaction open whether it is stopped or not.
    stop_until_the_next_has_written(&scene, pids);
    send(command, Signal::CONT);
    assert_ne!(scene.home.await_line("late"), "0");
    assert_eq!(scene.total(), "1");
    wake(pids);
    run.ends().exits(76);
}
