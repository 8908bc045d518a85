//! `run --once-per`: a slot is done once, by whichever host comes first, and whatever their clocks say.

use std::fs;
use std::time::Duration;

use fencepost::Profile;
use fencepost_testkit::servers::SteppedClock;
use rustix::process::Signal;
use serde_json::Value;

use super::Place;
use crate::support::{Running, eventually, number};

on_every_backend!(
    hosts_whose_clocks_differ_do_each_slot_once,
    failed_or_killed_command_leaves_its_slot_to_be_done,
    slot_that_has_begun_is_done_whatever_becomes_of_its_command,
);

const HOSTS: i32 = 5;

/// How many slots the hosts race for: a file takes no round trips.
fn slots(place: &Place) -> u32 {
    if place.profile.backend == "file" { 100 } else { 25 }
}

fn keeps_logbook(profile: &Profile) -> bool {
    profile.logbook
}

/// A clock for each host, all within two seconds; no process reads another host's.
fn clocks(place: &Place) -> Vec<SteppedClock> {
    let clock = |host: i32| {
        let folder = place.home.path(&format!("clock-{host}"));
        fs::create_dir(&folder).unwrap();
        let mut clock = SteppedClock::new(&folder);
        let by = Duration::from_millis(500) * host.unsigned_abs();
        if host < 0 {
            clock.step_back(by);
        } else {
            clock.step_forward(by);
        }
        clock
    };
    (-HOSTS / 2..=HOSTS / 2).map(clock).collect()
}

fn hosts_whose_clocks_differ_do_each_slot_once(place: &Place) {
    if !place.offers(keeps_logbook, &["--once-per", "tick 1"]) {
        return;
    }
    let (home, clocks) = (&place.home, clocks(place));
    let tells = |clock: &SteppedClock| {
        let mut date = home.command("date");
        clock.apply_to(date.arg("+%s%6N"));
        number(&String::from_utf8(date.output().unwrap().stdout).unwrap())
    };
    assert!(tells(&clocks[4]) > tells(&clocks[0]) + 1_500_000, "the clocks differ");
    let ticks: Vec<String> =
        (0..slots(place)).map(|slot| format!("2026-11-30T{}:{:02}", 9 + slot / 60, slot % 60)).collect();
    for tick in &ticks {
        let host = |clock: &SteppedClock| {
            let script = "echo $0 $FENCEPOST_TOKEN >>done";
            let mut run = home.fencepost(["run", "--once-per", tick, "demo", "--", "sh", "-c", script, tick]);
            clock.apply_to(&mut run);
            Running::of(&mut run)
        };
        let hosts: Vec<Running> = clocks.iter().map(host).collect();
        for host in hosts {
            let said = host.ends().exits(0).stderr;
            assert_eq!(said, "", "a host that comes too late says nothing");
        }
    }
    let done = home.read("done");
    let done: Vec<(&str, &str)> = done.lines().map(|line| line.split_once(' ').unwrap()).collect();
    assert_eq!(done.iter().map(|(tick, _)| *tick).collect::<Vec<_>>(), ticks, "each slot once, in order");
    assert!(done.is_sorted_by(|(_, one), (_, next)| number(one) < number(next)), "{done:?}");
}

fn failed_or_killed_command_leaves_its_slot_to_be_done(place: &Place) {
    if !place.offers(keeps_logbook, &["--once-per", "tick-10", "--slot-on", "success"]) {
        return;
    }
    let home = &place.home;
    let args = |slot, script| {
        [
            "run",
            "--once-per",
            slot,
            "--slot-on",
            "success",
            "--report",
            "report",
            "demo",
            "--",
            "sh",
            "-c",
            script,
        ]
    };
    home.run(args("tick-10", "exit 3")).exits(3);
    let run = home.start(args("tick-10", "echo $$ >killed; exec sleep 60"));
    home.await_line("killed");
    run.kill();
    let run = home.start(args("tick-10", "trap 'exit 0' TERM; echo $$ >asked; while :; do sleep 0.02; done"));
    home.await_line("asked");
    run.signal(Signal::TERM);
    let asked = run.ends().exits(0);
    assert!(asked.stderr.contains("tick-10 does not count as done"), "{asked:?}");
    home.run(args("tick-10", "touch good")).exits(0);
    assert!(home.path("good").exists() && home.json("report")["outcome"] == "ran");

    for done in ["tick-10", "tick-9"] {
        let late = home.run(args(done, "touch late")).exits(0);
        assert_eq!((late.stderr.as_str(), home.path("late").exists()), ("", false));
        let report = home.json("report");
        assert_eq!((&report["outcome"], &report["exit_code"]), (&"already_done".into(), &0.into()));
        for unknown in ["token", "holder", "held_ms", "lost_reason"] {
            assert_eq!(report.get(unknown), Some(&Value::Null), "{unknown}");
        }
    }
    home.run(args("tick-11", "touch next")).exits(0);
    assert!(home.path("next").exists());
}

fn slot_that_has_begun_is_done_whatever_becomes_of_its_command(place: &Place) {
    if !place.offers(keeps_logbook, &["--once-per", "tick-1"]) {
        return;
    }
    let home = &place.home;
    let holder = place.start_holder("first", &["--once-per", "tick-1"]);
    for patience in [&["-n"][..], &["--wait", "20s"], &[]] {
        let args = ["run", "--once-per", "tick-1", "--events", "events"];
        let late = home.run(args.iter().chain(patience).chain(&["demo", "--", "touch", "late"])).exits(0);
        assert_eq!((late.stderr.as_str(), home.path("late").exists()), ("", false), "its holder is at work");
    }
    let events = home.read("events");
    let done: Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!((&done["event"], &done["detail"]), (&"already_done".into(), &"tick-1".into()), "{events}");
    holder.kill();
    home.await_free("demo");
    let told = home.run(["-v", "run", "--once-per", "tick-1", "demo", "--", "touch", "late"]).exits(0).stderr;
    assert_eq!(told.matches("tick-1 is done already").count(), 1, "{told}");
    assert!(!home.path("late").exists());
    home.run(["run", "--once-per", "tick-2", "demo", "--", "touch", "next"]).exits(0);
    eventually("the next one", || home.path("next").exists());
}
