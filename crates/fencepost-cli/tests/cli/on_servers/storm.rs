//! Faults and kills at random moments: no two commands at once, tokens that grow, and nothing left behind.

use std::time::Duration;

use fencepost_testkit::proxy::{Mode, Proxy};
use rustix::process::Signal;

use crate::scene::{Scene, Server};
use crate::support::{Dice, Running, all_end, now_micros, number, sleep};

on_servers!([redis, etcd, zookeeper] {
    storm_of_kills_leaves_nothing_that_lasts,
    term_at_a_random_moment_leaves_nothing,
    storm_of_faults_lets_no_two_in,
});

const ROUNDS: usize = 60;

fn storm_of_kills_leaves_nothing_that_lasts<S: Server>() {
    let (scene, mut dice) = (Scene::<S>::new(), Dice::new());
    scene.warm_up();
    for _ in 0..ROUNDS {
        let run = scene.home.start(["run", "--ttl", "1s", "demo", "--", "true"]);
        sleep(Duration::from_micros(dice.below(40_000)));
        run.kill();
    }
    scene.home.run(["run", "--wait", "20s", "demo", "--", "true"]).exits(0);
    scene.server.assert_nothing_lasts();
}

fn term_at_a_random_moment_leaves_nothing<S: Server>() {
    let (scene, mut dice) = (Scene::<S>::new(), Dice::new());
    scene.warm_up();
    for _ in 0..ROUNDS {
        let run = scene.home.start(["run", "--ttl", "60s", "demo", "--", "sleep", "60"]);
        sleep(Duration::from_micros(dice.below(40_000)));
        run.signal(Signal::TERM);
        drop(run.ends());
        scene.home.run(["run", "-n", "demo", "--", "true"]).exits(0);
    }
    scene.assert_nothing_is_left();
}

/// What the commands of the shells take, in seconds. Each shell runs its command over and over, by a way of its own to the server.
const WORK: [&str; 4] = ["0.02", "0.1", "1.5", "1.5"];

/// What happens to a way; how the first five last is often longer than the ttl.
fn fault(dice: &mut Dice, of: u64) -> Mode {
    match dice.below(of) {
        0 => Mode::Cut,
        1 => Mode::Blackhole,
        2 => Mode::ReplyHole,
        3 => Mode::RequestHole,
        4 => Mode::Delay(Duration::from_millis(dice.below(100))),
        _ => Mode::Pass,
    }
}

fn storm_of_faults_lets_no_two_in<S: Server>() {
    let (scene, mut dice) = (Scene::<S>::new(), Dice::new());
    // The kernel frees this lock with the last process that could act, so a kill in the middle is no overlap.
    let work = "exec 9>busy; flock -n 9 || echo $FENCEPOST_TOKEN >>overlaps; echo $FENCEPOST_TOKEN >>tokens; echo $2 >holder; sleep $1";
    scene.home.write("work", work);
    let ways: Vec<Proxy> = WORK.iter().map(|_| Proxy::start(scene.server.address())).collect();
    let shells = ways.iter().zip(WORK).enumerate().map(|(index, (way, work))| {
        let (url, ttl) = (S::url_at(way.address()), S::STORM_TTL);
        let run = format!(
            "fencepost -q run --backend '{url}' --ttl {ttl} --grace 100ms --wait 2s demo -- sh work {work} {index}"
        );
        let script = format!("while [ ! -e stop ]; do {run}; done 2>/dev/null; exit 0");
        Running::of(scene.home.command("sh").args(["-c", &script]))
    });
    let shells = shells.collect();
    let end = now_micros() + 6_000_000;
    while now_micros() < end {
        // Whoever holds the lock is hit more often than the others, and not healed.
        let holder: Option<usize> =
            scene.home.read("holder").trim().parse().ok().filter(|_| dice.below(2) == 0);
        let way = &ways[holder.unwrap_or_else(|| usize::try_from(dice.below(4)).unwrap())];
        way.set(fault(&mut dice, if holder.is_some() { 5 } else { 8 }));
        scene.server.disturb(dice.below(20));
        sleep(Duration::from_millis(dice.below(300)));
        scene.server.go_on();
    }
    scene.home.write("stop", "");
    for way in &ways {
        way.set(Mode::Pass);
    }
    all_end(shells, 0);
    assert_eq!(scene.home.read("overlaps"), "");
    let tokens = scene.home.read("tokens");
    let tokens: Vec<u64> = tokens.lines().map(number).collect();
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    assert!(tokens.len() > 1, "{} runs", tokens.len());
    scene.home.run(["run", "--wait", "20s", "demo", "--", "true"]).exits(0);
    scene.server.assert_nothing_lasts();
}
