//! `run` on a real terminal: Ctrl-C, Ctrl-Z, `fg`, `bg`, reading, pagers, nested shells, a hang-up, and a SIGKILL.
//!
//! The terminal is handed over at the start where all three streams are it, and otherwise when the command asks for it;
//! what a user sees must not depend on which.

use rustix::process::Signal;

use crate::pty::{CTRL_C, CTRL_D, CTRL_Z, Process, Terminal, await_stopped};
use crate::support::{Home, Running, eventually, is_alive, now_micros, send};

/// What to append to a command line so that the terminal is handed over at the start, and so that it is not.
const BOTH: [&str; 2] = ["", " 2>errors"];

/// Says that it runs, waits to be told to go on, and gives an exit code of its own.
const PATIENT: &str = "echo one; echo $$ >held; while [ ! -e go ]; do sleep 0.02; done; echo two; exit 3";

/// A script under `fencepost run demo` in the foreground of a shell; it has started, and written its pid.
///
/// It is bash, because dash cannot be stopped while it starts a program (with vfork).
fn started(home: &Home, script: &str, line_end: &str) -> (Terminal, i32) {
    started_by("bash", home, script, line_end)
}

/// The same, of a script that counts signals. It is not bash, which forgets those that arrive during a trap.
fn counting(home: &Home, script: &str, line_end: &str) -> (Terminal, i32) {
    started_by("sh", home, script, line_end)
}

fn started_by(shell: &str, home: &Home, script: &str, line_end: &str) -> (Terminal, i32) {
    home.write("script", script);
    let mut terminal = Terminal::with_shell(home);
    terminal.types(&format!("fencepost run demo -- {shell} script{line_end}"));
    let pid = written_pid(home, "held");
    (terminal, pid)
}

/// The pid that a process has written into a file.
fn written_pid(home: &Home, file: &str) -> i32 {
    home.await_line(file).parse().unwrap()
}

fn is_free(home: &Home) {
    home.run(["run", "-n", "demo", "--", "true"]).exits(0);
}

fn is_held(home: &Home) {
    home.run(["status", "demo"]).exits(0);
}

/// The shell has the terminal and reads from it.
fn shell_reads(terminal: &mut Terminal) {
    terminal.types("read line; echo \"read:$line\"");
    terminal.types("words");
    terminal.sees("read:words");
    terminal.prompts();
}

#[test]
fn ctrl_c_reaches_the_command_exactly_once() {
    for line_end in ["", " 2>errors", " | cat"] {
        let home = Home::new();
        let script =
            "trap 'echo int >>log' INT; trap 'exit 3' USR1; echo $$ >held; while :; do sleep 0.02; done";
        let (mut terminal, _) = counting(&home, script, line_end);
        terminal.presses(CTRL_C);
        eventually("the trap", || !home.read("log").is_empty());
        // A second SIGINT would take the same way, and so be there before this signal is.
        send(terminal.runner(), Signal::USR1);
        terminal.prompts();
        terminal.types("echo \"status:${PIPESTATUS[0]}\"");
        terminal.sees("status:3");
        assert_eq!(home.read("log"), "int\n");
        is_free(&home);
    }
}

#[test]
fn ctrl_c_reaches_a_command_that_was_given_the_terminal_later_exactly_once() {
    let home = Home::new();
    let script = "trap 'echo int >>log' INT; trap 'exit 3' USR1; read line; echo $line >held; while :; do sleep 0.02; done";
    home.write("script", script);
    let mut terminal = Terminal::with_shell(&home);
    terminal.types("fencepost run demo -- sh script 2>errors");
    terminal.types("words");
    assert_eq!(home.await_line("held"), "words");
    terminal.presses(CTRL_C);
    eventually("the trap", || !home.read("log").is_empty());
    send(terminal.runner(), Signal::USR1);
    terminal.exits(3);
    assert_eq!(home.read("log"), "int\n");
}

#[test]
fn ctrl_c_gives_the_exit_code_of_the_command() {
    for line_end in BOTH {
        for (script, code) in [
            ("trap 'exit 3' INT; echo $$ >held; while :; do sleep 0.02; done", 3),
            ("echo $$ >held; exec sleep 1000", 130),
        ] {
            let home = Home::new();
            let (mut terminal, _) = counting(&home, script, line_end);
            terminal.presses(CTRL_C);
            terminal.exits(code);
            is_free(&home);
        }
    }
}

#[test]
fn command_reads_from_the_terminal() {
    for line_end in ["", " 2>errors", " | cat"] {
        let home = Home::new();
        let (mut terminal, _) = started(&home, "echo $$ >held; read line; echo \"got:$line\"", line_end);
        terminal.types("words");
        terminal.sees("got:words");
        terminal.exits(0);
    }
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    for line_end in BOTH {
        let home = Home::new();
        let (mut terminal, pid) = started(&home, PATIENT, line_end);
        terminal.presses(CTRL_Z);
        terminal.sees("Stopped");
        terminal.prompts();
        await_stopped(pid, true);
        is_held(&home);
        terminal.types("jobs");
        terminal.sees("Stopped");
        terminal.prompts();
        terminal.types("fg");
        await_stopped(pid, false);
        eventually("the terminal", || (terminal.foreground() == pid) == line_end.is_empty());
        home.write("go", "");
        terminal.sees("two");
        terminal.exits(3);
        is_free(&home);
    }
}

#[test]
fn job_is_stopped_and_continued_as_often_as_one_likes() {
    for line_end in BOTH {
        let home = Home::new();
        let (mut terminal, pid) = started(&home, PATIENT, line_end);
        for _ in 0..10 {
            terminal.presses(CTRL_Z);
            terminal.sees("Stopped");
            terminal.prompts();
            await_stopped(pid, true);
            terminal.types("fg");
            await_stopped(pid, false);
        }
        home.write("go", "");
        terminal.sees("two");
        terminal.exits(3);
    }
}

#[test]
fn stopped_job_goes_on_in_the_background() {
    for line_end in BOTH {
        let home = Home::new();
        let (mut terminal, pid) = started(&home, PATIENT, line_end);
        terminal.presses(CTRL_Z);
        terminal.sees("Stopped");
        terminal.prompts();
        await_stopped(pid, true);
        terminal.types("bg");
        terminal.prompts();
        await_stopped(pid, false);
        terminal.types("jobs");
        terminal.sees("Running");
        terminal.prompts();
        shell_reads(&mut terminal);
        is_held(&home);
        home.write("go", "");
        terminal.types("wait %1");
        terminal.exits(3);
        is_free(&home);
    }
}

#[test]
fn job_from_the_background_has_the_terminal_after_fg() {
    for line_end in BOTH {
        let home = Home::new();
        let script = "echo $$ >held; while [ ! -e go ]; do sleep 0.02; done; read line; echo \"got:$line\"";
        let (mut terminal, pid) = started(&home, script, &format!("{line_end} &"));
        terminal.prompts();
        terminal.types("fg");
        eventually("the foreground", || terminal.foreground() != terminal.leader());
        home.write("go", "");
        terminal.types("words");
        terminal.sees("got:words");
        terminal.exits(0);
        assert!(!is_alive(pid));
    }
}

#[test]
fn background_command_that_reads_is_stopped_until_fg() {
    let home = Home::new();
    let mut terminal = Terminal::with_shell(&home);
    terminal.types("fencepost run demo -- cat &");
    terminal.prompts();
    await_stopped(terminal.runner(), true);
    terminal.types("");
    terminal.sees("Stopped");
    terminal.prompts();
    is_held(&home);
    terminal.types("fg");
    terminal.sees("\r\n");
    terminal.types("words");
    terminal.sees("words\r\nwords\r\n");
    terminal.presses(CTRL_D);
    terminal.exits(0);
    is_free(&home);
}

/// Somebody else has the lock, and `fencepost run demo` waits for it in the foreground of a shell.
fn waiting(home: &Home, script: &str) -> (Running, Terminal) {
    home.write("script", script);
    let holder = home.start(["run", "demo", "--", "sh", "-c", "echo >other; exec sleep 1000"]);
    home.await_file("other");
    let mut terminal = Terminal::with_shell(home);
    terminal.types("fencepost run demo -- bash script");
    home.await_waiter("demo");
    (holder, terminal)
}

#[test]
fn ctrl_z_stops_the_wait_and_fg_goes_on_with_it() {
    let home = Home::new();
    let (holder, mut terminal) = waiting(&home, "read line; echo \"got:$line\"; exit 3");
    terminal.presses(CTRL_Z);
    terminal.sees("Stopped");
    terminal.prompts();
    shell_reads(&mut terminal);
    terminal.types("fg");
    home.await_waiter("demo");
    holder.kill();
    terminal.types("words");
    terminal.sees("got:words");
    terminal.exits(3);
}

#[test]
fn wait_that_goes_on_in_the_background_leaves_the_terminal_to_the_shell() {
    let home = Home::new();
    let (holder, mut terminal) = waiting(&home, PATIENT);
    terminal.presses(CTRL_Z);
    terminal.sees("Stopped");
    terminal.prompts();
    terminal.types("bg");
    terminal.prompts();
    holder.kill();
    home.await_line("held");
    shell_reads(&mut terminal);
    home.write("go", "");
    terminal.types("wait %1");
    terminal.exits(3);
}

#[test]
fn ctrl_c_ends_the_wait_and_leaves_no_waiter() {
    let home = Home::new();
    let (_holder, mut terminal) = waiting(&home, "touch ran");
    terminal.presses(CTRL_C);
    terminal.exits(130);
    let status = home.run(["status", "--json", "demo"]).exits(0);
    assert!(status.stdout.contains("\"waiters\":[]"), "{}", status.stdout);
    assert!(!home.path("ran").exists());
    assert!(terminal.processes().is_empty(), "{:?}", terminal.processes());
}

#[test]
fn command_sees_the_size_of_the_window_and_its_changes() {
    for line_end in BOTH {
        let home = Home::new();
        let script = "stty size >size; trap 'stty size >>size' WINCH; echo $$ >held; while [ ! -e go ]; do sleep 0.02; done";
        let (mut terminal, _) = counting(&home, script, line_end);
        assert_eq!(home.read("size"), "24 200\n");
        terminal.resize(40, 100);
        eventually("the trap", || home.read("size").lines().count() > 1);
        home.write("go", "");
        terminal.exits(0);
        assert_eq!(home.read("size"), "24 200\n40 100\n");
    }
}

/// A command that runs until the pager at the end of its pipeline was told to quit.
fn paged(home: &Home) -> Terminal {
    home.write("script", "seq 1000; while [ ! -e quit ]; do sleep 0.02; done");
    let pager =
        "head -n 1000 >all; echo $$ >paging; read key </dev/tty; echo \"key:$key\"; tail -n 1 all; >quit";
    home.write("pager", pager);
    let mut terminal = Terminal::with_shell(home);
    terminal.types("fencepost run demo -- bash script | sh pager");
    home.await_line("paging");
    terminal
}

#[test]
fn pager_at_the_end_of_the_pipeline_reads_keys() {
    let home = Home::new();
    let mut terminal = paged(&home);
    terminal.types("q");
    terminal.sees("key:q\r\n1000\r\n");
    terminal.exits(0);
}

#[test]
fn pager_reads_keys_after_fg_too() {
    let home = Home::new();
    let mut terminal = paged(&home);
    let pager = written_pid(&home, "paging");
    terminal.presses(CTRL_Z);
    terminal.sees("Stopped");
    terminal.prompts();
    terminal.types("fg");
    await_stopped(pager, false);
    terminal.types("q");
    terminal.sees("key:q\r\n1000\r\n");
    terminal.exits(0);
}

/// A shell of its own under `fencepost run demo`, with a job in its foreground.
fn nested(home: &Home) -> Terminal {
    let mut terminal = Terminal::with_shell(home);
    terminal.types("fencepost run demo -- env PS1='inner''> ' bash --noprofile --norc -i");
    terminal.sees("inner> ");
    terminal.types("sh -c 'echo $$ >job; exec sleep 1000'");
    home.await_line("job");
    terminal
}

#[test]
fn shell_under_the_lock_has_job_control_of_its_own() {
    let home = Home::new();
    let mut terminal = nested(&home);
    terminal.presses(CTRL_Z);
    terminal.sees("Stopped");
    terminal.sees("inner> ");
    terminal.types("fg");
    await_stopped(written_pid(&home, "job"), false);
    terminal.presses(CTRL_C);
    terminal.sees("inner> ");
    is_held(&home);
    terminal.types("exit 5");
    terminal.exits(5);
    shell_reads(&mut terminal);
    is_free(&home);
}

#[test]
fn shell_under_the_lock_suspends_to_the_outer_one() {
    let home = Home::new();
    let mut terminal = nested(&home);
    terminal.presses(CTRL_C);
    terminal.sees("inner> ");
    terminal.types("suspend");
    terminal.sees("Stopped");
    terminal.prompts();
    shell_reads(&mut terminal);
    terminal.types("fg");
    terminal.types("echo \"again:$((1 + 1))\"");
    terminal.sees("again:2");
    terminal.types("exit 5");
    terminal.exits(5);
}

#[test]
fn run_in_a_run_is_stopped_and_continued_as_one_job() {
    let home = Home::new();
    home.write("script", PATIENT);
    let mut terminal = Terminal::with_shell(&home);
    terminal.types("fencepost run outer -- fencepost run demo -- bash script");
    let pid = written_pid(&home, "held");
    for _ in 0..3 {
        terminal.presses(CTRL_Z);
        terminal.sees("Stopped");
        terminal.prompts();
        await_stopped(pid, true);
        terminal.types("fg");
        await_stopped(pid, false);
        eventually("the terminal", || terminal.foreground() == pid);
    }
    home.write("go", "");
    terminal.sees("two");
    terminal.exits(3);
}

#[test]
fn script_with_a_run_in_it_is_stopped_and_continued_as_one_job() {
    for line_end in BOTH {
        let home = Home::new();
        home.write("script", PATIENT);
        home.write("outer", &format!("fencepost run demo -- bash script{line_end}; echo \"after:$?\""));
        let mut terminal = Terminal::with_shell(&home);
        terminal.types("sh outer");
        let pid = written_pid(&home, "held");
        terminal.presses(CTRL_Z);
        terminal.sees("Stopped");
        terminal.prompts();
        await_stopped(pid, true);
        shell_reads(&mut terminal);
        terminal.types("fg");
        await_stopped(pid, false);
        home.write("go", "");
        terminal.sees("after:3");
        terminal.exits(0);
    }
}

#[test]
fn hang_up_reaches_the_command_and_frees_the_lock() {
    for line_end in BOTH {
        let home = Home::new();
        let script = "trap 'echo hup >>log; exit' HUP; echo $$ >held; while :; do sleep 0.02; done";
        let (mut terminal, pid) = counting(&home, script, line_end);
        terminal.hangs_up();
        eventually("the trap", || !home.read("log").is_empty());
        home.await_free("demo");
        eventually("the end of the session", || terminal.processes().is_empty());
        assert!(!is_alive(pid));
    }
}

#[test]
fn hang_up_ends_a_stopped_job() {
    for line_end in BOTH {
        let home = Home::new();
        // The shell sends a stopped job both.
        let script = "trap 'echo end >>log; exit' HUP TERM; echo $$ >held; while :; do sleep 0.02; done";
        let (mut terminal, pid) = started(&home, script, line_end);
        terminal.presses(CTRL_Z);
        terminal.sees("Stopped");
        terminal.prompts();
        await_stopped(pid, true);
        terminal.hangs_up();
        eventually("the trap", || !home.read("log").is_empty());
        home.await_free("demo");
        eventually("the end of the session", || terminal.processes().is_empty());
    }
}

#[test]
fn ctrl_z_without_a_shell_is_no_end() {
    let home = Home::new();
    home.write("script", &format!("trap 'echo cont >>log' CONT; {PATIENT}"));
    let mut terminal = Terminal::with(home.fencepost(["run", "demo", "--", "bash", "script"]));
    let pid = written_pid(&home, "held");
    terminal.presses(CTRL_Z);
    eventually("the command going on", || !home.read("log").is_empty());
    eventually("the terminal", || terminal.foreground() == pid);
    home.write("go", "");
    terminal.sees("two");
    assert_eq!(terminal.ends(), Some(3));
    is_free(&home);
}

#[test]
fn reader_that_no_shell_can_bring_to_the_foreground_gets_an_error() {
    let home = Home::new();
    let script = "while [ ! -e go ]; do sleep 0.02; done
        read line </dev/tty; echo $? >log; stty -echo </dev/tty; echo $? >>log";
    home.write("script", script);
    let mut terminal = Terminal::with_shell(&home);
    terminal.types("(fencepost run demo -- bash script 2>errors &)");
    // The subshell, which would make the job one of the shell's, has ended.
    terminal.prompts();
    home.write("go", "");
    eventually("the answers", || home.read("log") == "1\n1\n");
    home.await_free("demo");
    shell_reads(&mut terminal);
}

#[test]
fn shell_reads_again_after_a_sigkill_of_fencepost() {
    let home = Home::new();
    let (mut terminal, pid) = started(&home, PATIENT, "");
    eventually("the terminal", || terminal.foreground() == pid);
    send(terminal.runner(), Signal::KILL);
    terminal.sees("Killed");
    terminal.exits(137);
    shell_reads(&mut terminal);
    eventually("the end of the command", || !is_alive(pid));
    is_free(&home);
}

/// A shell without job control; it does not take the terminal itself.
fn plain_shell(home: &Home, script: &str) -> Terminal {
    let mut shell = home.command("sh");
    shell.args(["-c", script]);
    Terminal::with(shell)
}

#[test]
fn guardian_gives_the_terminal_back_after_a_sigkill_of_fencepost() {
    let home = Home::new();
    home.write("script", PATIENT);
    let script = "fencepost run demo -- bash script; while fencepost status demo >status; do sleep 0.02; done
        read line; echo \"read:$line\"";
    let mut terminal = plain_shell(&home, script);
    let pid = written_pid(&home, "held");
    eventually("the terminal", || terminal.foreground() == pid);
    send(terminal.runner(), Signal::KILL);
    terminal.types("words");
    terminal.sees("read:words");
}

#[test]
fn shell_has_the_terminal_again_after_a_command_that_was_not_found() {
    let home = Home::new();
    let mut terminal =
        plain_shell(&home, "fencepost run demo -- no-such-command; read line; echo \"read:$line\"");
    terminal.types("words");
    terminal.sees("read:words");
}

#[test]
fn shell_has_the_terminal_again_after_a_nested_shell_was_killed() {
    let home = Home::new();
    let script = "fencepost run demo -- bash --noprofile --norc -i; read line; echo \"read:$line\"";
    let mut terminal = plain_shell(&home, script);
    terminal.types(
        "echo $$ >shell; bash -c 'trap \"\" HUP; echo $$ >job; while [ ! -e go ]; do sleep 0.02; done'",
    );
    let job = written_pid(&home, "job");
    eventually("the terminal", || terminal.foreground() == job);
    send(written_pid(&home, "shell"), Signal::KILL);
    home.write("go", "");
    eventually("the end of the job", || !is_alive(job));
    home.await_free("demo");
    terminal.types("words");
    terminal.sees("read:words");
}

#[test]
fn ctrl_z_stops_the_job_when_only_a_background_process_is_left() {
    for line_end in BOTH {
        let home = Home::new();
        let script = "bash -c 'echo $$ >held; while [ ! -e go ]; do sleep 0.02; done' & exit 3";
        let (mut terminal, pid) = started(&home, script, line_end);
        eventually("the end of the command", || Process::of(pid).is_some_and(|process| process.is_adopted()));
        terminal.presses(CTRL_Z);
        terminal.sees("Stopped");
        terminal.prompts();
        await_stopped(pid, true);
        is_held(&home);
        terminal.types("fg");
        await_stopped(pid, false);
        home.write("go", "");
        terminal.exits(3);
    }
}

#[test]
fn background_process_that_is_left_reads_from_the_terminal() {
    for line_end in BOTH {
        let home = Home::new();
        let script = "bash -c 'echo $$ >held; read line </dev/tty; echo \"got:$line\"' & exit 3";
        let (mut terminal, _) = started(&home, script, line_end);
        terminal.types("words");
        terminal.sees("got:words");
        terminal.exits(3);
    }
}

#[test]
fn stopped_job_is_ended_before_its_lease_is() {
    for line_end in BOTH {
        let home = Home::new();
        let script =
            "trap 'echo ${EPOCHREALTIME/./} >ended; exit' TERM; echo $$ >held; while :; do sleep 0.02; done";
        home.write("script", script);
        let mut terminal = Terminal::with_shell(&home);
        terminal.types(&format!(
            "fencepost run --backend memory: --ttl 2s --grace 900ms demo -- bash script{line_end}"
        ));
        let pid = written_pid(&home, "held");
        terminal.presses(CTRL_Z);
        terminal.sees("Stopped");
        let stopped_at = now_micros();
        terminal.prompts();
        let ended: u64 = home.await_line("ended").parse().unwrap();
        assert!(ended < stopped_at + 2_000_000, "{ended} {stopped_at}");
        eventually("the end of the command", || !is_alive(pid));
        shell_reads(&mut terminal);
        terminal.types("fg");
        if line_end.is_empty() {
            terminal.sees("renewed");
        }
        terminal.exits(76);
    }
}

#[test]
fn runner_without_a_terminal_passes_stop_and_continue_on() {
    let home = Home::new();
    let run = home.start(["run", "demo", "--", "bash", "-c", PATIENT]);
    let pid = written_pid(&home, "held");
    run.signal(Signal::TSTP);
    await_stopped(pid, true);
    run.signal(Signal::CONT);
    await_stopped(pid, false);
    home.write("go", "");
    run.ends().exits(3);
}
