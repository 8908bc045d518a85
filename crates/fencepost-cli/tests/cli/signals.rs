//! Signals to `fencepost`, once and twice, before, during and after the acquire.

use std::os::unix::process::CommandExt;

use rustix::process::Signal;

use crate::support::{Home, Outcome, Running, sleep};

const ALL: [(Signal, i32); 6] = [
    (Signal::HUP, 1),
    (Signal::INT, 2),
    (Signal::QUIT, 3),
    (Signal::USR1, 10),
    (Signal::USR2, 12),
    (Signal::TERM, 15),
];

#[test]
fn command_that_a_passed_on_signal_ends_gives_its_exit_code() {
    for (signal, number) in ALL {
        for times in [1, 2] {
            let home = Home::new();
            let run = home.start(["run", "demo", "--", "sh", "-c", "echo >held; exec sleep 1000"]);
            home.await_file("held");
            (0..times).for_each(|_| run.signal(signal));
            run.ends().exits(128 + number);
            home.run(["run", "-n", "demo", "--", "true"]).exits(0);
        }
    }
}

#[test]
fn command_gets_each_signal_as_often_as_it_was_sent() {
    for (signal, number) in ALL {
        let home = Home::new();
        let script =
            format!("trap 'echo got >>log' {number}; echo >held; while [ ! -e stop ]; do sleep 0.02; done");
        let run = home.start(["run", "demo", "--", "sh", "-c", &script]);
        home.await_file("held");
        for times in 1..=2 {
            run.signal(signal);
            crate::support::eventually("the trap", || home.read("log").lines().count() == times);
        }
        home.write("stop", "");
        run.ends().exits(0);
        assert_eq!(home.read("log").lines().count(), 2, "exactly once each");
    }
}

#[test]
fn signals_that_end_a_process_end_the_wait() {
    for (signal, number) in ALL.into_iter().filter(|(_, number)| ![10, 12].contains(number)) {
        for times in [1, 2] {
            let home = Home::new();
            let holder = home.start(["run", "demo", "--", "sh", "-c", "echo >held; sleep 1000"]);
            home.await_file("held");
            let waiter = home.start(["run", "--report", "report", "demo", "--", "touch", "ran"]);
            home.await_waiter("demo");
            waiter.signal(signal);
            if times == 2 {
                waiter.signal(signal);
            }
            waiter.ends().exits(128 + number);
            assert_eq!(home.json("report")["outcome"], "interrupted");
            drop(holder);
            home.await_free("demo");
            assert!(!home.path("ran").exists());
        }
    }
}

#[test]
fn user_signals_during_the_wait_reach_the_command_afterwards() {
    for (signal, number) in [(Signal::USR1, 10), (Signal::USR2, 12)] {
        let home = Home::new();
        let holder = home.start(["run", "demo", "--", "sh", "-c", "echo >held; sleep 1000"]);
        home.await_file("held");
        let waiter = home.start(["run", "demo", "--", "sleep", "1000"]);
        home.await_waiter("demo");
        waiter.signal(signal);
        sleep(std::time::Duration::from_millis(50));
        holder.kill();
        waiter.ends().exits(128 + number);
    }
}

#[test]
fn signal_at_the_very_start_ends_it_or_the_command() {
    for (signal, number) in ALL {
        for _ in 0..5 {
            let home = Home::new();
            let run = home.start(["run", "demo", "--", "sleep", "1000"]);
            run.signal(signal);
            let Outcome { code, signal: by, .. } = run.ends();
            assert!(code == Some(128 + number) || by == Some(number), "{code:?} {by:?}");
            home.run(["run", "-n", "demo", "--", "true"]).exits(0);
        }
    }
}

#[test]
fn ignored_hangup_stays_ignored() {
    let home = Home::new();
    let script = "trap '' HUP; exec fencepost run demo -- sh -c 'grep SigIgn /proc/self/status >mask; echo >held; sleep 1'";
    let run = Running::of(home.command("sh").args(["-c", script]));
    home.await_file("held");
    run.signal(Signal::HUP);
    run.ends().exits(0);
    let mask = u64::from_str_radix(home.read("mask").split_whitespace().nth(1).unwrap(), 16).unwrap();
    assert_eq!(mask & 1, 1, "as nohup wants it");
}

#[test]
fn command_starts_with_no_signal_blocked() {
    let home = Home::new();
    let run = home.run(["run", "demo", "--", "grep", "-E", "SigBlk|SigIgn", "/proc/self/status"]).exits(0);
    for line in run.stdout.lines() {
        // The test's own way to start processes leaves the C library's two internal signals ignored.
        let mask = u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap();
        assert_eq!(mask & !0x1_8000_0000, 0, "{line}");
    }
}

#[test]
fn ignored_sigchld_does_not_lose_the_exit_code() {
    let home = Home::new();
    let script = "trap '' CHLD; exec fencepost run demo -- sh -c 'exit 5'";
    Outcome::of(home.command("bash").args(["-c", script]).output().unwrap()).exits(5);
}

#[test]
fn signal_to_the_whole_group_reaches_the_command_once() {
    let home = Home::new();
    let script = "trap 'echo got >>log' INT; echo >held; while [ ! -e stop ]; do sleep 0.02; done";
    let run = Running::of(home.fencepost(["run", "demo", "--", "sh", "-c", script]).process_group(0));
    home.await_file("held");
    rustix::process::kill_process_group(rustix::process::Pid::from_raw(run.pid()).unwrap(), Signal::INT)
        .unwrap();
    crate::support::eventually("the trap", || home.read("log").lines().count() == 1);
    home.write("stop", "");
    run.ends().exits(0);
    assert_eq!(home.read("log"), "got\n");
}

#[test]
fn kill_of_the_whole_group_ends_the_command_too() {
    let home = Home::new();
    let script = "echo $$ >pid; exec sleep 1000";
    let run = Running::of(home.fencepost(["run", "demo", "--", "sh", "-c", script]).process_group(0));
    let command = home.await_line("pid").parse().unwrap();
    rustix::process::kill_process_group(rustix::process::Pid::from_raw(run.pid()).unwrap(), Signal::KILL)
        .unwrap();
    crate::support::eventually("the end of the command", || !crate::support::is_alive(command));
    home.run(["run", "--wait", "10s", "demo", "--", "true"]).exits(0);
}

#[test]
fn closed_streams_do_not_keep_fencepost_from_its_duty() {
    let home = Home::new();
    let script = "fencepost -v run demo -- sh -c '(trap \"\" TERM; echo $$ >pid; sleep 2; echo late >>log) & exit 0' 2>&1 | head -c 1";
    home.shell(script);
    home.run(["run", "demo", "--", "true"]).exits(0);
    assert_eq!(home.read("log"), "late\n", "the lock was held until then");
}
