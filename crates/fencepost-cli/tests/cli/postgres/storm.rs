//! Kills and losses at random moments: no two commands at once, tokens that grow, and nothing left behind.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{Scene, number};
use crate::support::{Dice, Running, all_end, eventually, now_micros, sleep};

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn signal_at_a_random_moment_leaves_nothing() {
    let (scene, mut dice) = (Scene::new(), Dice::new());
    scene.home.run(["run", "demo", "--", "true"]).exits(0);
    for round in 0..60 {
        let run = scene.home.start(["run", "demo", "--", "sleep", "60"]);
        sleep(Duration::from_micros(dice.below(40_000)));
        if round % 2 == 0 {
            run.signal(Signal::TERM);
            drop(run.ends());
        } else {
            run.kill();
            // Its guardian has the command to end.
            scene.home.run(["run", "--wait", "10s", "demo", "--", "true"]).exits(0);
        }
        scene.home.run(["run", "-n", "demo", "--", "true"]).exits(0);
    }
    scene.assert_nothing_is_left();
}

/// The processes below `root` that can be killed, in no order.
fn tree(root: i32) -> Vec<i32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        let file = format!("/proc/{pid}/task/{pid}/children");
        let children = std::fs::read_to_string(file).unwrap_or_default();
        found.extend(children.split_ascii_whitespace().filter_map(|child| child.parse::<i32>().ok()));
        next += 1;
    }
    found
}

/// Kills one process of a run: the runner, the guardian, or one of the command.
fn kill_one_of(run: &Running, dice: &mut Dice) {
    let tree = tree(run.pid());
    let index = usize::try_from(dice.below(tree.len().try_into().unwrap())).unwrap();
    // It may have ended meanwhile; its number is not given to another so soon.
    let _ = kill_process(Pid::from_raw(tree[index]).unwrap(), Signal::KILL);
}

const KILLS: usize = 200;

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn storm_of_kills_lets_no_two_in() {
    let (scene, mut dice) = (Scene::new(), Dice::new());
    // The kernel frees this lock with the last process that could act, so a kill in the middle is no overlap; neither is one of
    // the process that asks for it. A kill may hit `mv` alone, and then nothing has been added.
    let work = "exec 9>busy; flock -n -E 42 9; [ $? != 42 ] || echo $FENCEPOST_TOKEN >>overlaps; echo $FENCEPOST_TOKEN >>tokens; \
                read n <counter; sleep 0.0$1; echo $((n + 1)) >counter.$$; mv counter.$$ counter && echo >>additions";
    scene.home.write("work", work);
    scene.home.write("counter", "0\n");
    let start = |dice: &mut Dice| {
        let naps = dice.below(9).to_string();
        let args = ["-q", "run", "--ttl", "2s", "--grace", "200ms", "demo", "--", "sh", "work", &naps];
        scene.home.start(args)
    };
    let mut runs: Vec<Running> = (0..4).map(|_| start(&mut dice)).collect();
    // Whoever was hit is left alone: what kills the runner and the guardian at one stroke is more than a lock survives.
    let mut hit = Vec::new();
    for _ in 0..KILLS {
        sleep(Duration::from_millis(dice.below(40)));
        let index = usize::try_from(dice.below(4)).unwrap();
        kill_one_of(&runs[index], &mut dice);
        hit.push(std::mem::replace(&mut runs[index], start(&mut dice)));
    }
    hit.into_iter().chain(runs).for_each(|run| drop(run.ends()));
    scene.home.run(["run", "--wait", "20s", "demo", "--", "true"]).exits(0);
    assert_eq!(scene.home.read("overlaps"), "");
    let tokens = scene.home.read("tokens");
    let tokens: Vec<u64> = tokens.lines().map(number).collect();
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    assert!(tokens.len() > KILLS / 25, "{} runs", tokens.len());
    // Whoever was killed between the two has added and not said so.
    let (counter, additions) =
        (number(&scene.home.read("counter")), scene.home.read("additions").len() as u64);
    assert!(counter >= additions && counter <= tokens.len() as u64, "{counter}, {additions}");
    scene.assert_nothing_is_left();
}

/// Sessions are ended at random, as by an administrator. What overlaps then lasts no longer than the grace, and is not asserted;
/// the tokens grow all the same.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn storm_of_ended_sessions_gives_no_token_twice() {
    let (scene, mut dice) = (Scene::new(), Dice::new());
    let script = "while [ ! -e stop ]; do fencepost -q run --grace 100ms demo -- sh -c 'echo $FENCEPOST_TOKEN >>tokens; sleep 0.05'; done 2>/dev/null; exit 0";
    let shell = |_| Running::of(scene.home.command("sh").args(["-c", script]));
    let shells: Vec<_> = (0..4).map(shell).collect();
    let end = now_micros() + 4_000_000;
    while now_micros() < end {
        sleep(Duration::from_millis(dice.below(150)));
        let sql = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'fencepost' order by random() limit 1";
        scene.server.query(sql);
    }
    scene.home.write("stop", "");
    all_end(shells, 0);
    let tokens = scene.home.read("tokens");
    let tokens: Vec<u64> = tokens.lines().map(number).collect();
    let mut sorted = tokens.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert!(sorted.len() == tokens.len() && tokens.len() > 10, "{tokens:?}");
    eventually("a free lock", || scene.holding("demo").is_none());
    scene.assert_nothing_is_left();
}
