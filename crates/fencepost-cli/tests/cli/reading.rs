//! Whoever reads what the command says may see no colours, have no letters but ASCII, and a narrow screen.

use crate::pty::Terminal;
use crate::support::{Home, Outcome};

const ESCAPE: &str = "\u{1b}[";

/// The lines of commands that answer people, where nothing is set up.
const TALKING: [&str; 18] = [
    "--help",
    "status demo",
    "list",
    "history demo",
    "explain demo",
    "explain demo --offline",
    "explain --backend redis://127.0.0.1:1 demo",
    "explain --backend redlock://a,b,c demo --offline",
    "explain --backend postgres://h/db demo --offline",
    "explain --backend etcd://h demo --offline",
    "explain --backend zookeeper://h demo --offline",
    "doctor",
    "doctor --backend redis://127.0.0.1:1",
    "config check",
    "config schema",
    "fence show file:/tmp demo",
    "advise --on-overlap corrupts --can-pause yes --postgres no --databases many --sink-checks yes --hosts many",
    "advise --on-overlap corrupts --can-pause yes --postgres no --databases many --sink-checks no --hosts many",
];

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(' ')
}

#[track_caller]
fn assert_plain(line: &str, said: &Outcome) {
    for text in [&said.stdout, &said.stderr] {
        let odd = text.lines().find(|line| {
            !line.chars().all(|letter| letter == '\t' || letter.is_ascii_graphic() || letter == ' ')
        });
        assert_eq!(odd, None, "fencepost {line}");
    }
}

#[test]
fn everything_is_said_in_ascii_and_without_colours_to_a_file() {
    let home = Home::new();
    for line in TALKING {
        assert_plain(line, &Outcome::of(home.fencepost(words(line)).env("LC_ALL", "C").output().unwrap()));
    }
    for line in help_of(&home, "") {
        assert_plain(&line, &home.run(words(&line)));
    }
}

#[test]
fn names_that_are_not_ascii_stay_as_they_were_given() {
    let home = Home::new();
    let status = home.fencepost(["status", "übertrag/2026"]).env("LC_ALL", "C").output().unwrap();
    assert_eq!(Outcome::of(status).exits(1).stdout, "übertrag/2026 is free\n");
}

/// The command lines that ask for help, of the command and of all below it.
fn help_of(home: &Home, command: &str) -> Vec<String> {
    let ask = format!("{command} --help").trim_start().to_owned();
    let help = home.run(words(&ask)).exits(0).stdout;
    let below =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names =
        below.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    let names =
        names.filter(|name| *name != "help").map(|name| format!("{command} {name}").trim_start().to_owned());
    let deeper: Vec<String> = names.flat_map(|name| help_of(home, &name)).collect();
    [ask].into_iter().chain(deeper).collect()
}

#[test]
fn help_is_at_most_a_hundred_columns_wide() {
    let home = Home::new();
    let lines = help_of(&home, "");
    assert!(lines.len() > 20, "{lines:?}");
    for line in lines {
        let help = home.run(words(&line)).stdout;
        let long = help.lines().find(|line| line.chars().count() > 100);
        assert_eq!(long, None, "fencepost {line}");
    }
}

/// What the terminal shows of a command line that is wrong.
fn shown(home: &Home, line: &str, environment: &[(&str, &str)]) -> String {
    let mut command = home.fencepost(words(line));
    command.env("TERM", "xterm").envs(environment.iter().copied());
    let mut terminal = Terminal::with(command);
    terminal.sees("\r\n");
    terminal.ends();
    terminal.shown().to_owned()
}

#[test]
fn colours_are_for_terminals_that_have_them_and_users_who_want_them() {
    let home = Home::new();
    home.write("fencepost.toml", "[backend.x]\n");
    for line in ["status demo", "statsu", "status --backend nonsense demo", "--help"] {
        assert!(shown(&home, line, &[]).contains(ESCAPE), "{line}");
        let without = format!("--color never {line}");
        assert!(
            shown(&home, &format!("--color=always {line}"), &[("NO_COLOR", "1")]).contains(ESCAPE),
            "{line}"
        );
        for shown in [
            shown(&home, line, &[("NO_COLOR", "1")]),
            shown(&home, line, &[("TERM", "dumb")]),
            shown(&home, &without, &[]),
        ] {
            assert!(!shown.contains(ESCAPE), "{line}: {shown}");
        }
    }
}
