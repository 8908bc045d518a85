//! `watch`: what becomes of locks, told as it happens, in lines, as JSON, and on a terminal.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use fencepost_testkit::servers::{EtcdCluster, RedisServer};
use rustix::process::Signal;
use serde_json::Value;

use crate::pty::{CTRL_C, CTRL_Z, Terminal};
use crate::support::{Home, SOON, eventually, json, send};

/// A watch whose lines are read as they come; it is killed when the test ends.
struct Watcher {
    child: Child,
    lines: Receiver<String>,
}

impl Watcher {
    fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, lines }
    }

    fn start(home: &Home, args: &[&str]) -> Self {
        Self::of(home.fencepost([&["watch", "-q"], args].concat()))
    }

    /// The next line, which must come soon.
    #[track_caller]
    fn next(&self) -> String {
        self.lines.recv_timeout(SOON).unwrap()
    }

    /// The next line, which must end so.
    #[track_caller]
    fn tells(&self, end: &str) -> String {
        let line = self.next();
        assert!(line.ends_with(end), "{end:?} was due, but {line:?}");
        line
    }

    /// The next line, which must be JSON and tell of this change.
    #[track_caller]
    fn object(&self, change: &str) -> Value {
        let line: Value = serde_json::from_str(&self.next()).unwrap();
        assert_eq!(line["change"], change, "{line}");
        line
    }

    fn signal(&self, signal: Signal) {
        send(i32::try_from(self.child.id()).unwrap(), signal);
    }

    fn code(&mut self) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt;
        eventually("the end of the watch", || self.child.try_wait().unwrap().is_some());
        let status = self.child.wait().unwrap();
        status.code().or(status.signal().map(|signal| 128 + signal))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A holder that ends when the file is there.
fn hold(home: &Home, lock: &str, name: &str) -> crate::support::Running {
    let script =
        format!("echo $FENCEPOST_TOKEN >{name}.token; while [ ! -e {name}.stop ]; do sleep 0.02; done");
    let run = home.start(["run", "--ttl", "2s", lock, "--", "sh", "-c", &script]);
    home.await_line(&format!("{name}.token"));
    run
}

/// The token of a holder that `hold` has started.
fn token(home: &Home, name: &str) -> String {
    home.read(&format!("{name}.token")).trim().to_owned()
}

#[test]
fn holders_are_told_in_their_order_as_they_come_and_go() {
    let home = Home::new();
    let first = hold(&home, "orders", "first");
    let other = hold(&home, "payments", "other");
    let watcher = Watcher::start(&home, &["ord"]);
    let line = watcher.next();
    let said = format!("Z orders held token {} by tester@", token(&home, "first"));
    assert!(line.contains(&said) && line.as_bytes()[26] == b'Z', "{line}");
    home.write("first.stop", "");
    first.ends().exits(0);
    watcher.tells(" orders free");
    let second = hold(&home, "orders", "second");
    assert!(watcher.next().contains(&format!("token {} by", token(&home, "second"))));
    // One that is killed leaves nothing behind, and neither does its command.
    second.kill();
    watcher.tells(" orders free");
    drop(other);
}

#[test]
fn waiters_are_told() {
    let home = Home::new();
    let _holder = hold(&home, "orders", "first");
    let watcher = Watcher::start(&home, &[]);
    watcher.next();
    let waiter = home.start(["run", "orders", "--", "true"]);
    let line = watcher.next();
    assert!(
        line.contains(" orders has 1 waiter: ") && line.contains(&format!("pid {}", waiter.pid())),
        "{line}"
    );
    waiter.kill();
    watcher.tells(" orders has no waiters any more");
}

#[test]
fn json_is_that_of_status_with_what_has_changed_when() {
    let home = Home::new();
    let holder = hold(&home, "orders", "first");
    let watcher = Watcher::start(&home, &["--json"]);
    let held = watcher.object("held");
    let mut status = json(&home.run(["status", "--json", "orders"]).exits(0));
    for key in ["at", "change", "error"] {
        status[key] = held[key].clone();
    }
    assert_eq!(held, status);
    let at = held["at"].as_str().unwrap();
    assert!(at.len() == 27 && at.ends_with('Z') && held["error"].is_null(), "{held}");
    home.write("first.stop", "");
    holder.ends().exits(0);
    let free = watcher.object("free");
    assert_eq!(
        (&free["state"], &free["lock"], &free["token"]),
        (&"free".into(), &"orders".into(), &Value::Null)
    );
}

#[test]
fn signal_ends_it_as_it_ends_others_and_a_reader_that_is_gone_quietly() {
    let home = Home::new();
    let _holder = hold(&home, "orders", "first");
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut watcher = Watcher::start(&home, &[]);
        watcher.next();
        watcher.signal(signal);
        assert_eq!(watcher.code(), Some(code));
    }
    // Nothing changes any more when its reader has had enough.
    let piped = home.shell("bash -c 'set -o pipefail; fencepost watch | head -1'").exits(0);
    assert!(piped.stdout.contains(" orders held ") && piped.stderr.is_empty(), "{piped:?}");
}

#[test]
fn every_backend_of_the_configuration_is_watched() {
    let home = Home::new();
    let (one, two) = (home.path("one").display().to_string(), home.path("two").display().to_string());
    home.write(
        "fencepost.toml",
        &"[backends.one]\nurl = \"file:one\"\n[backends.two]\nurl = \"file:two\"\n[backends.away]\nurl = \"redis://127.0.0.1:1\"\n\
         [[locks]]\nmatch = \"a/**\"\nbackend = \"one\"\n[[locks]]\nmatch = \"**\"\nbackend = \"two\"\n"
            .replace("file:one", &format!("file:{one}"))
            .replace("file:two", &format!("file:{two}")),
    );
    let _first = hold(&home, "a/1", "first");
    let _second = hold(&home, "b/2", "second");
    let watcher = Watcher::start(&home, &[]);
    let mut lines = [watcher.next(), watcher.next(), watcher.next()];
    lines.sort_by_key(|line| line[28..].to_owned());
    assert!(
        lines[0].contains(&format!(" a/1 at file:{one} held "))
            && lines[1].contains(&format!(" b/2 at file:{two} held ")),
        "{lines:?}"
    );
    assert!(lines[2].contains(" redis://127.0.0.1:1 cannot be reached: "), "{lines:?}");
}

#[test]
fn backend_that_cannot_be_reached_at_the_start_is_69_after_five_seconds() {
    let home = Home::on("redis://127.0.0.1:1");
    let before = crate::support::now_micros();
    let refused = home.run(["watch"]).exits(69);
    let took = crate::support::now_micros() - before;
    assert!((4_500_000..12_000_000).contains(&took), "{took} µs");
    assert!(refused.stdout.is_empty() && refused.stderr.contains("127.0.0.1:1"), "{refused:?}");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn restart_of_the_server_is_told_and_so_is_what_is_different_then() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let home = Home::on(&format!("{}?quarantine=off", server.url()));
    let first = hold(&home, "orders", "first");
    let watcher = Watcher::start(&home, &["--json"]);
    watcher.object("held");
    // It stays away until that is told: a restart may be over before anybody has looked.
    server.kill();
    let away = watcher.object("unreachable");
    assert!(away["error"].is_string() && away["lock"].is_null() && away["backend"] == "redis", "{away}");
    server.restart();
    watcher.object("reachable");
    home.write("first.stop", "");
    first.ends().exits(0);
    watcher.object("free");
    let second = hold(&home, "orders", "second");
    assert_eq!(watcher.object("held")["token"].to_string(), token(&home, "second"));
    drop(second);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn watch_outlives_the_member_that_it_was_connected_to() {
    let mut cluster = EtcdCluster::start();
    let leader = cluster.leader();
    let home = Home::on(&cluster.url_from(leader));
    let watcher = Watcher::start(&home, &[]);
    let first = hold(&home, "orders", "first");
    assert!(watcher.next().contains(" orders held "));
    cluster[leader].kill();
    home.write("first.stop", "");
    first.ends().exits(0);
    // Whether the change of the member is noticed depends on the moment.
    let told = std::iter::from_fn(|| Some(watcher.next()));
    let told: Vec<String> = told.take_while(|line| !line.ends_with(" orders free")).collect();
    assert!(told.iter().all(|line| line.contains(" reached")), "{told:?}");
}

fn shown(home: &Home, line: &str) -> Terminal {
    let mut terminal = Terminal::with_shell(home);
    terminal.types("stty -a >before; export TERM=xterm");
    terminal.prompts();
    terminal.types(line);
    terminal.sees("q: end.");
    terminal
}

/// What gives the terminal back.
const LEFT: &str = "\u{1b}[?25h\u{1b}[?1049l";

/// Waits for the exit code, and sees that the terminal is as it was.
fn ends_clean(terminal: &mut Terminal, home: &Home, code: i32) {
    terminal.sees(LEFT);
    terminal.exits(code);
    terminal.types("stty -a >after");
    terminal.prompts();
    assert_eq!(home.read("before"), home.read("after"));
}

#[test]
fn view_shows_changes_and_leaves_the_terminal_as_it_was() {
    for (keys, code) in [(CTRL_C, 130), ("q", 0), ("\u{1b}", 0)] {
        let home = Home::new();
        let mut terminal = shown(&home, "fencepost watch");
        terminal.sees("all locks: none is held");
        let holder = hold(&home, "orders", "first");
        terminal.sees("* orders");
        terminal.sees(&format!("held token {}", token(&home, "first")));
        home.write("first.stop", "");
        holder.ends().exits(0);
        terminal.sees("* orders");
        terminal.sees("orders free");
        terminal.presses(keys);
        ends_clean(&mut terminal, &home, code);
    }
}

#[test]
fn signal_ends_the_view_and_leaves_the_terminal_as_it_was() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let home = Home::new();
        let mut terminal = shown(&home, "fencepost watch");
        send(terminal.runner(), signal);
        ends_clean(&mut terminal, &home, code);
    }
}

#[test]
fn stopped_view_gives_the_terminal_to_the_shell_and_goes_on_when_it_is_continued() {
    let home = Home::new();
    let mut terminal = shown(&home, "fencepost watch");
    terminal.presses(CTRL_Z);
    terminal.sees(LEFT);
    terminal.prompts();
    terminal.types("stty -a >stopped");
    terminal.prompts();
    assert_eq!(home.read("before"), home.read("stopped"));
    let _holder = hold(&home, "orders", "first");
    terminal.types("fg");
    terminal.sees("* orders");
    terminal.presses("q");
    ends_clean(&mut terminal, &home, 0);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn view_counts_down_what_is_left_and_fits_a_narrow_terminal_without_colours() {
    let server = RedisServer::start();
    let home = Home::on(&format!("{}?quarantine=off", server.url()));
    let leased = home.run(["acquire", "--ttl", "60s", "orders"]).exits(0);
    assert!(leased.stdout.contains("lease"));
    let mut command = home.fencepost(["watch"]);
    command.env("TERM", "xterm").env("NO_COLOR", "1");
    let mut terminal = Terminal::with(command);
    for left in ["57s", "56s", "55s"] {
        terminal.sees(left);
    }
    terminal.resize(24, 40);
    terminal.sees("  orders\r\n");
    terminal.sees("s left, for ");
    let from = terminal.shown().rfind("  orders\r\n").unwrap();
    let narrow = terminal.shown()[from..].split("\r\n").map(|line| line.rsplit("\u{1b}[2K").next().unwrap());
    assert!(narrow.clone().all(|line| line.contains('\u{1b}') || line.chars().count() <= 40), "{narrow:?}");
    assert!(!terminal.shown().contains("\u{1b}[1m") && !terminal.shown().contains("\u{1b}[2m"));
    terminal.presses("q");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn dumb_terminal_gets_lines() {
    let home = Home::new();
    let mut terminal = Terminal::with_shell(&home);
    terminal.types("fencepost watch");
    let _holder = hold(&home, "orders", "first");
    terminal.sees(" orders held token ");
    terminal.presses(CTRL_C);
    terminal.exits(130);
    assert!(!terminal.shown().contains("\u{1b}[?1049h"));
}
