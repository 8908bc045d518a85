//! `run` when something goes wrong: fencepost is killed or stopped, files are removed, the command will not end.
//!
//! `file:` keeps the lock in the kernel; `memory:` is not shared between processes, but its leases run out, so that
//! what must happen before a deadline can be seen with it.

use std::io::Write;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Home, Running, child_of, eventually, is_alive, now_micros, send, sleep};

/// A command with two more processes, one of them in a session of its own; each writes its pid, then the time, often.
fn tree(trap: &str) -> String {
    let work = format!("{trap} echo $$ >>pids; while :; do date +%s%6N >>log; sleep 0.02; done");
    let quoted = format!("'{}'", work.replace('\'', "'\\''"));
    format!("sh -c {quoted} & setsid sh -c '(sh -c \"$0\" &) ; exit' {quoted} & {work}")
}

pub(crate) fn start_tree(home: &Home, args: &[&str], trap: &str) -> (Running, Vec<i32>) {
    home.write("tree", &tree(trap));
    let run = home.start(args.iter().copied().chain(["demo", "--", "sh", "tree"]));
    eventually("three processes", || home.read("pids").lines().count() >= 3);
    let pids = home.read("pids").lines().map(|pid| pid.parse().unwrap()).collect();
    (run, pids)
}

/// Kills a run and all of its command, so that nobody is left to give anything back.
pub(crate) fn kill_everything(run: Running, pids: &[i32]) {
    let guardian = child_of(run.pid());
    // Stopped first, so that neither can act on the other's death.
    send(guardian, Signal::STOP);
    run.signal(Signal::STOP);
    send(guardian, Signal::KILL);
    run.kill();
    pids.iter().filter(|pid| is_alive(**pid)).for_each(|pid| send(*pid, Signal::KILL));
}

pub(crate) fn last_act(home: &Home) -> u64 {
    home.read("log").lines().filter_map(|line| line.parse().ok()).max().unwrap()
}

#[test]
fn killed_runner_leaves_no_process_and_no_lock() {
    let home = Home::new();
    let (run, pids) = start_tree(&home, &["run"], "");
    let killed_at = now_micros();
    run.kill();
    home.run(["run", "--wait", "10s", "demo", "--", "true"]).exits(0);
    assert!(now_micros() - killed_at < 1_000_000, "the lock is free within a second");
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
}

#[test]
fn next_holder_acts_after_the_last_act_of_a_killed_one() {
    let home = Home::new();
    let (run, pids) = start_tree(&home, &["run", "--grace", "500ms"], "trap '' TERM;");
    run.kill();
    let first = home.run(["run", "demo", "--", "date", "+%s%6N"]).exits(0);
    let first_act: u64 = first.stdout.trim().parse().unwrap();
    assert!(last_act(&home) < first_act);
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
}

#[test]
fn killed_guardian_takes_the_command_with_it() {
    for trap in ["", "trap '' TERM;"] {
        let home = Home::new();
        let (run, pids) = start_tree(&home, &["run", "--report", "report"], trap);
        send(child_of(run.pid()), Signal::KILL);
        run.ends().exits(76);
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
        assert_eq!(
            (&home.json("report")["outcome"], &home.json("report")["lost_reason"]),
            (&"lost".into(), &"guardian_died".into())
        );
        home.run(["run", "-n", "demo", "--", "true"]).exits(0);
    }
}

#[test]
fn lock_outlives_runner_and_guardian_while_a_process_of_the_command_does() {
    let home = Home::new();
    let (run, pids) = start_tree(&home, &["run"], "trap '' TERM;");
    let guardian = child_of(run.pid());
    // Stopped first, so that neither can act on the other's death.
    send(guardian, Signal::STOP);
    run.signal(Signal::STOP);
    send(guardian, Signal::KILL);
    run.kill();
    eventually("the death of the command's first process", || pids.iter().any(|pid| !is_alive(*pid)));
    assert!(pids.iter().any(|pid| is_alive(*pid)), "the others could not be reached");
    home.run(["run", "-n", "demo", "--", "true"]).exits(75);
    home.run(["status", "demo"]).exits(0);
    pids.iter().filter(|pid| is_alive(**pid)).for_each(|pid| send(*pid, Signal::KILL));
    home.run(["run", "--wait", "10s", "demo", "--", "true"]).exits(0);
}

#[test]
fn stopped_command_of_a_killed_runner_is_ended() {
    let home = Home::new();
    let run = home.start(["run", "demo", "--", "sh", "-c", "echo $$ >pid; kill -STOP $$"]);
    let pid = home.await_line("pid").parse().unwrap();
    run.kill();
    eventually("the end of the command", || !is_alive(pid));
    home.run(["run", "--wait", "10s", "demo", "--", "true"]).exits(0);
}

/// What a lease of two seconds does while `stop` stops a part of fencepost: everything has ended before the deadline.
fn ends_before_the_deadline(trap: &str, stop: impl Fn(&Running)) {
    let home = Home::new();
    let args = ["run", "--backend", "memory:", "--ttl", "2s", "--grace", "300ms", "--events", "events"];
    let (run, pids) = start_tree(&home, &args, trap);
    let stopped_at = now_micros();
    stop(&run);
    eventually("the end of the command", || pids.iter().all(|pid| !is_alive(*pid)));
    assert!(last_act(&home) < stopped_at + 2_000_000, "a lease ends at most its ttl after the last renewal");
    assert!(last_act(&home) > stopped_at + 500_000, "and not long before that");
    run.signal(Signal::CONT);
    let run = run.ends().exits(76);
    assert!(home.read("events").contains("\"acquired\""), "{run:?}");
}

#[test]
fn stopped_runner_does_not_keep_the_command_past_the_deadline() {
    ends_before_the_deadline("", |run| run.signal(Signal::STOP));
}

#[test]
fn stopped_runner_does_not_keep_a_command_that_ignores_sigterm() {
    ends_before_the_deadline("trap '' TERM;", |run| run.signal(Signal::STOP));
}

#[test]
fn healthy_lease_is_renewed_and_the_command_runs_on() {
    let home = Home::new();
    let args =
        ["run", "--backend", "memory:", "--ttl", "600ms", "--events", "events", "demo", "--", "sleep", "3"];
    home.run(args).exits(0);
    let renewals = home.read("events").lines().filter(|line| line.contains("\"renewed\"")).count();
    assert!(renewals >= 5, "{renewals} renewals in five times the ttl");
}

#[test]
fn guardian_that_was_stopped_for_a_while_goes_on() {
    let home = Home::new();
    let script = "echo $$ >pid; exec sleep 60";
    let run = home.start(["run", "--backend", "memory:", "--ttl", "2s", "demo", "--", "sh", "-c", script]);
    let command = home.await_line("pid").parse().unwrap();
    let guardian = child_of(run.pid());
    send(guardian, Signal::STOP);
    // The runner renews, so the guardian's stop alone changes nothing.
    sleep(Duration::from_secs(3));
    assert!(is_alive(command));
    send(guardian, Signal::CONT);
    run.signal(Signal::TERM);
    run.ends().exits(143);
}

#[test]
fn lost_lease_with_a_stopped_guardian_ends_the_command_before_the_deadline() {
    let home = Home::new();
    let url = format!("file:{}?test_ttl=on", home.locks().display());
    let args = ["run", "--backend", &url, "--ttl", "2s", "--report", "report"];
    let (run, pids) = start_tree(&home, &args, "trap '' TERM;");
    send(child_of(run.pid()), Signal::STOP);
    let removed_at = now_micros();
    std::fs::remove_file(home.locks().join("demo.tok")).unwrap();
    eventually("the end of the command", || pids.iter().all(|pid| !is_alive(*pid)));
    assert!(last_act(&home) < removed_at + 4_000_000, "the look every second, and the ttl");
    run.ends().exits(76);
}

#[test]
fn removed_token_record_is_a_lost_lease() {
    let home = Home::new();
    let run = home.start(["run", "--report", "report", "demo", "--", "sh", "-c", "echo >held; sleep 60"]);
    home.await_file("held");
    std::fs::remove_file(home.locks().join("demo.tok")).unwrap();
    let run = run.ends().exits(76);
    assert!(run.stderr.contains("replaced or removed"), "{}", run.stderr);
    assert_eq!(home.json("report")["lost_reason"], "replaced");
}

#[test]
fn lost_lease_is_lost_whatever_the_command_returns() {
    let home = Home::new();
    let script = "trap 'exit 0' TERM; echo >held; while :; do sleep 0.02; done";
    let run = home.start(["run", "demo", "--", "sh", "-c", script]);
    home.await_file("held");
    std::fs::remove_file(home.locks().join("demo.tok")).unwrap();
    run.ends().exits(76);
}

#[test]
fn on_lost_warn_lets_the_command_run_on() {
    let home = Home::new();
    let script = "echo >held; sleep 3; echo done";
    let run = home.start(["run", "--on-lost", "warn", "demo", "--", "sh", "-c", script]);
    home.await_file("held");
    std::fs::remove_file(home.locks().join("demo.tok")).unwrap();
    let run = run.ends().exits(76);
    assert_eq!(run.stdout, "done\n");
    assert!(run.stderr.contains("runs on"), "{}", run.stderr);
}

#[test]
fn on_lost_warn_still_ends_the_command_of_a_killed_runner() {
    let home = Home::new();
    let (run, pids) = start_tree(&home, &["run", "--on-lost", "warn"], "");
    run.kill();
    eventually("the end of the command", || pids.iter().all(|pid| !is_alive(*pid)));
}

#[test]
fn revoked_command_is_stopped_and_the_lock_is_free_after_its_last_act() {
    for trap in ["", "trap '' TERM;"] {
        let home = Home::new();
        let args = ["run", "--grace", "200ms", "--report", "report"];
        let (run, pids) = start_tree(&home, &args, trap);
        let status: Value = serde_json::from_str(&home.run(["status", "--json", "demo"]).stdout).unwrap();
        let token = status["token"].to_string();
        let other = (token.parse::<u64>().unwrap() + 1).to_string();
        let revoke =
            |token: &str| home.run(["revoke", "demo", "--yes", "--token", token, "--reason", "night shift"]);
        revoke(&other).exits(1);
        assert!(pids.iter().all(|pid| is_alive(*pid)), "{pids:?}");

        let waiter = home.start(["run", "demo", "--", "date", "+%s%6N"]);
        home.await_waiter("demo");
        let revoked_at = now_micros();
        let revoked = revoke(&token).exits(0);
        assert!(revoked.stderr.contains("free when all its processes have ended"), "{revoked:?}");
        let run = run.ends().exits(76);
        assert!(run.stderr.contains("night shift"), "{run:?}");
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
        assert!(last_act(&home) < revoked_at + 1_500_000, "{} µs", last_act(&home) - revoked_at);
        let first_act: u64 = waiter.ends().exits(0).stdout.trim().parse().unwrap();
        assert!(last_act(&home) < first_act, "the next one began before the revoked one had stopped");
        let report = home.json("report");
        assert_eq!((&report["outcome"], &report["lost_reason"]), (&"lost".into(), &"revoked".into()));
    }
}

#[test]
fn cleaner_of_lock_files_lets_no_second_holder_in() {
    let home = Home::new();
    home.write("counter", "0\n");
    home.write(
        "add",
        "read n <counter; sleep 0.01; echo $((n + 1)) >counter; echo $FENCEPOST_TOKEN >>tokens\n",
    );
    let cleaner =
        Running::of(home.command("sh").args(["-c", "while :; do rm -f state/fencepost/*.lock; done"]));
    let runs = home.shell("seq 200 | xargs -P 20 -I{} fencepost -q run counter -- sh add").exits(0);
    cleaner.kill();
    assert_eq!(home.read("counter"), "200\n", "{}", runs.stderr);
    let tokens: Vec<u64> = home.read("tokens").lines().map(|token| token.parse().unwrap()).collect();
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

#[test]
fn lease_of_a_killed_runner_is_given_back_by_the_guardian() {
    let home = Home::new();
    let url = format!("file:{}?test_ttl=on", home.locks().display());
    let trace =
        ["-f", "-qq", "-s", "10000", "-e", "trace=execve", "-o", "trace", env!("CARGO_BIN_EXE_fencepost")];
    let run = [
        "run",
        "--backend",
        &url,
        "--ttl",
        "60s",
        "demo",
        "--",
        "sh",
        "-c",
        "echo $PPID >guardian; sleep 60",
    ];
    let traced = Running::of(home.command("strace").args(trace).args(run));
    home.await_line("guardian");
    let line = || std::fs::read_to_string(home.locks().join("demo.lock")).unwrap();
    let holder = serde_json::from_str::<Value>(&line()).unwrap()["holder"].as_str().unwrap().to_owned();
    send(child_of(traced.pid()), Signal::KILL);
    eventually("the lease given back", || line().is_empty());
    let programs = home.read("trace");
    assert!(programs.contains("\"give-back\""), "{programs}");
    assert!(!programs.contains(&holder), "what is given back is not in any argument: {programs}");
    traced.ends();
}

#[test]
fn term_at_a_random_moment_leaves_nothing() {
    let home = Home::new();
    home.run(["run", "demo", "--", "true"]).exits(0);
    let mark = format!("{}.{}", 1000 + std::process::id() % 1000, now_micros());
    for round in 0..100_u64 {
        let run = home.start(["run", "demo", "--", "sleep", &mark]);
        sleep(Duration::from_micros(round * 200));
        run.signal(if round % 2 == 0 { Signal::TERM } else { Signal::KILL });
        drop(run.ends());
        home.run(["run", "--wait", "10s", "demo", "--", "true"]).exits(0);
    }
    let everything = home.shell("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").stdout;
    assert!(!everything.contains(&mark), "a command or its guardian lives on");
}

#[test]
fn full_pipe_of_messages_does_not_keep_the_command_from_being_stopped() {
    let home = Home::new();
    let (reader, writer) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    (&writer).write_all(&[b'x'; 4096]).unwrap();
    let mut command = home.fencepost(["-v", "run", "--max-runtime", "300ms", "demo", "--", "sleep", "60"]);
    let mut run = command.stderr(writer).spawn().unwrap();
    eventually("the end of the run", || run.try_wait().unwrap().is_some());
    assert_eq!(run.wait().unwrap().code(), Some(124));
    drop(reader);
}

#[test]
fn record_that_another_process_keeps_locked_does_not_hold_up_a_try() {
    let home = Home::new();
    home.run(["run", "demo", "--", "true"]).exits(0);
    let record = home.locks().join("demo.tok");
    let lock = "exec 9<>\"$0\"; flock 9; echo >locked; exec sleep 60";
    let _locked = Running::of(home.command("sh").args(["-c", lock]).arg(&record));
    home.await_file("locked");
    home.run(["run", "-n", "demo", "--", "true"]).exits(69);
    let waiter = home.start(["run", "demo", "--", "true"]);
    sleep(Duration::from_millis(300));
    waiter.signal(Signal::TERM);
    waiter.ends().exits(143);
}

#[test]
fn record_replaced_just_before_the_end_is_a_lost_lease() {
    let home = Home::new();
    let script = "rm state/fencepost/demo.tok";
    home.run(["run", "demo", "--", "sh", "-c", script]).exits(76);
}

#[test]
fn fence_that_has_seen_a_greater_token_stops_the_run() {
    let home = Home::new();
    let fence = format!("file:{}", home.path("sink").display());
    home.run(["run", "--fence", &fence, "demo", "--", "true"]).exits(0);
    let mark: Value = serde_json::from_str(&home.read("sink/demo.mark")).unwrap();
    let ahead = home.read("sink/demo.mark").replace(&mark["token"].to_string(), "9000000000000000000");
    home.write("sink/demo.mark", &ahead);
    let args = ["run", "--fence", &fence, "--report", "report", "demo", "--", "touch", "ran"];
    let run = home.run(args).exits(79);
    assert!(run.stderr.contains("9000000000000000000") && run.stderr.contains("lift"), "{}", run.stderr);
    assert_eq!(home.json("report")["outcome"], "stale");
    assert!(!home.path("ran").exists());
    home.run(["status", "demo"]).exits(1);
}

#[test]
fn children_that_the_command_leaves_behind_are_reaped_while_it_runs() {
    let home = Home::new();
    let script = "for i in $(seq 50); do (true &); done; echo >left; sleep 60";
    let run = home.start(["run", "demo", "--", "sh", "-c", script]);
    home.await_file("left");
    let guardian = child_of(run.pid());
    let children = || {
        let list = std::fs::read_to_string(format!("/proc/{guardian}/task/{guardian}/children")).unwrap();
        list.split_ascii_whitespace().count()
    };
    eventually("no zombies", || children() == 1);
}

#[test]
fn stopped_guardian_does_not_keep_a_command_past_its_longest_time() {
    let home = Home::new();
    let script = "echo $$ >pid; exec sleep 60";
    let args = ["run", "--max-runtime", "300ms", "--grace", "200ms", "demo", "--", "sh", "-c", script];
    let run = home.start(args);
    let command = home.await_line("pid").parse().unwrap();
    send(child_of(run.pid()), Signal::STOP);
    run.ends().exits(124);
    assert!(!is_alive(command));
}

#[test]
fn limit_on_file_sizes_does_not_end_fencepost() {
    let home = Home::new();
    home.shell("ulimit -f 1; yes | head -c 500 >events; fencepost run --events events demo -- true").exits(0);
}

#[test]
fn removed_lock_file_does_not_hide_the_lock_from_the_list() {
    let home = Home::new();
    let _holder = home.start(["run", "demo", "--", "sh", "-c", "echo >held; sleep 60"]);
    home.await_file("held");
    std::fs::remove_file(home.locks().join("demo.lock")).unwrap();
    let list: Value = serde_json::from_str(&home.run(["list", "--json"]).exits(0).stdout).unwrap();
    assert_eq!((&list[0]["lock"], &list[0]["state"]), (&"demo".into(), &"held".into()));
}

#[test]
fn anything_in_the_place_of_a_lock_file_is_read_with_care() {
    let home = Home::new();
    home.shell("mkdir -p state/fencepost; cd state/fencepost; mkfifo a.lock; ln -s /dev/zero b.lock")
        .exits(0);
    home.run(["list"]).exits(0);
    assert!(home.run(["run", "-n", "a", "--", "true"]).exits(69).stderr.contains("not a regular file"));
    home.run(["run", "-n", "b", "--", "true"]).exits(64);
}

#[test]
fn onlooker_that_may_not_look_is_not_told_that_a_lock_is_free() {
    let home = Home::new();
    let _holder = home.start(["run", "demo", "--", "sh", "-c", "echo >held; sleep 60"]);
    home.await_file("held");
    let url = format!("file:{}", home.locks().display());
    home.shell("chmod 755 . state; chmod 744 state/fencepost").exits(0);
    for args in [&["status", "--backend", &url, "demo"][..], &["list", "--backend", &url]] {
        if let Some(denied) = home.as_nobody(args) {
            denied.exits(77);
        }
    }
}
