//! `advise`: by flags, on a terminal, and into a configuration that `run` then obeys.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use fencepost::{BackendUrl, Clock};
use rustix::process::Signal;

use crate::pty::{CTRL_C, CTRL_Z, Terminal};
use crate::support::{Home, json, send};

/// The answers of a pipeline on one Postgres whose overlap corrupts.
const LEDGER: [&str; 12] = [
    "--on-overlap",
    "corrupts",
    "--can-pause",
    "yes",
    "--postgres",
    "yes",
    "--databases",
    "one",
    "--sink-checks",
    "yes",
    "--hosts",
    "many",
];

/// Those of a job on one host.
const BACKUP: [&str; 12] = [
    "--on-overlap",
    "wasteful",
    "--can-pause",
    "yes",
    "--postgres",
    "no",
    "--databases",
    "one",
    "--sink-checks",
    "no",
    "--hosts",
    "one",
];

fn advise<'a>(answers: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [&["advise"], answers, more].concat()
}

const ENTER: &str = "\r";
const DOWN: &str = "\u{1b}[B";
const LEFT: &str = "\u{1b}[D";
const ESCAPE: &str = "\u{1b}";

#[test]
fn answers_by_flags_give_advice() {
    let home = Home::new();
    let advice = home.run(advise(&LEDGER, &[])).exits(0);
    assert!(advice.stdout.starts_with("Use postgres with a fence.\n"), "{}", advice.stdout);
    assert!(advice.stdout.contains("\nrequire = \"durable\"\n"), "{}", advice.stdout);
    assert!(advice.stdout.lines().all(|line| line.chars().count() <= 80), "{}", advice.stdout);
    assert_eq!(advice.stderr, "");
    assert!(!home.path("fencepost.toml").exists());
}

#[test]
fn advice_as_json_has_its_keys_and_no_others() {
    let home = Home::new();
    let advice = json(
        &home
            .run(advise(&LEDGER, &["--json", "--match", "ledger/**", "--because", "the \"audit\""]))
            .exits(0),
    );
    let keys: Vec<_> = advice.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["alternatives", "fence", "pattern", "reasons", "risks", "rule", "warnings"]);
    assert_eq!((&advice["pattern"], &advice["fence"]), (&"postgres".into(), &true.into()));
    assert_eq!(advice["reasons"].as_array().unwrap().len(), 6);
    let faults: Vec<_> = advice["risks"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(
        faults,
        ["clock_jump", "crash", "data_loss", "no_fault", "partition", "pause", "server_restart"]
    );
    assert_eq!(advice["risks"]["pause"]["two_may_overlap"], "yes");
    let rule = advice["rule"].as_str().unwrap();
    assert!(
        rule.contains("match = \"ledger/**\"") && rule.contains("because = \"the \\\"audit\\\"\""),
        "{rule}"
    );
    for alternative in advice["alternatives"].as_array().unwrap() {
        let keys: Vec<_> = alternative.as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys, ["change", "direction", "fence", "pattern"]);
    }
}

#[test]
fn password_in_a_url_is_neither_shown_nor_written() {
    let home = Home::new();
    let url = "postgres://app:hunter2@db/ledger";
    for flag in ["--backend", "--fence"] {
        for more in [&[][..], &["--json"], &["--write", "--match", "a"]] {
            let refused = home.run(advise(&LEDGER, &[&[flag, url], more].concat())).exits(64);
            assert!(refused.stderr.contains("${VAR}"), "{}", refused.stderr);
            assert!(!(refused.stdout + &refused.stderr).contains("hunter2"));
        }
    }
    home.write("list.toml", &format!("[[partitions]]\nmatch = \"a\"\nfence = \"{url}\"\n"));
    let refused = home.run(advise(&LEDGER, &["--from", "list.toml"])).exits(78);
    assert!(!(refused.stdout + &refused.stderr).contains("hunter2"));
    assert_eq!(files(&home), ["list.toml"]);
    let place = "postgres://app:${PW}@db/ledger";
    let written = home
        .run(advise(&LEDGER, &["--write", "--match", "a", "--backend", place, "--fence", place]))
        .exits(0);
    assert_eq!(written.stderr.matches("warning").count(), 0, "{}", written.stderr);
    assert_eq!(home.read("fencepost.toml").matches(place).count(), 2);
}

#[test]
fn missing_answers_are_named_where_nobody_can_be_asked() {
    let home = Home::new();
    let refused = home.run(["advise", "--on-overlap", "corrupts", "--hosts", "many"]).exits(64);
    for flag in ["--can-pause yes|no", "--postgres yes|no", "--databases one|many", "--sink-checks yes|no"] {
        assert!(refused.stderr.contains(flag), "{}", refused.stderr);
    }
    assert!(
        !refused.stderr.contains("--on-overlap") && !refused.stderr.contains("--hosts"),
        "{}",
        refused.stderr
    );
    home.run(["advise"]).exits(64);
    home.run(["advise", "--on-overlap", "maybe"]).exits(64);
    assert!(home.run(advise(&LEDGER, &["--write"])).exits(64).stderr.contains("--match"));
    home.run(advise(&LEDGER, &["--match", "a**"])).exits(64);
}

#[test]
fn what_is_not_known_is_taken_at_its_worse() {
    let home = Home::new();
    let unknown: Vec<&str> =
        LEDGER.iter().map(|word| if word.starts_with("--") { word } else { "unknown" }).collect();
    let advice = home.run(advise(&unknown, &[])).exits(0).stdout;
    for part in ["No lock makes this safe", "Not answered", "--on-overlap, --can-pause"] {
        assert!(advice.split_whitespace().collect::<Vec<_>>().join(" ").contains(part), "{advice}");
    }
}

/// What the advisor assumes of a URL is what its backend promises, as far as that is judged: for every backend that the
/// features of this build bring, and with every option that weakens one.
#[test]
fn assumed_profiles_are_those_of_the_backends() {
    let judged = |profile: &fencepost::Profile| {
        (profile.scope, profile.timing, profile.tokens, profile.expiry, profile.tie, profile.quarantine)
    };
    let (mut seen, mut weakened) = (Vec::new(), 0);
    for (url, is_built) in BACKENDS {
        let url: BackendUrl = url.parse().unwrap();
        let backend = fencepost::connect_url(&url, &Clock::system());
        assert_eq!(backend.is_ok(), *is_built, "{url}: {backend:?}");
        let Ok(locks) = backend else { continue };
        let (promised, kind) = (fencepost_advisor::promised(&url).unwrap(), locks.profile().backend);
        assert_eq!(judged(&promised), judged(locks.profile()), "{url}");
        let counted = locks.profile().cost.is_none() || promised.cost == locks.profile().cost;
        assert!(counted, "{url}: what it costs is assumed as {:?}", promised.cost);
        let plain = fencepost::profiles().into_iter().find(|profile| profile.backend == kind).unwrap();
        weakened += usize::from(judged(&plain) != judged(locks.profile()));
        seen.push(kind);
    }
    let options = BACKENDS.iter().filter(|(url, is_built)| *is_built && url.contains('?')).count();
    assert_eq!(weakened, options, "an option that weakens nothing proves nothing");
    for profile in fencepost::profiles() {
        assert!(seen.contains(&profile.backend), "{} is compared too", profile.backend);
    }
}

/// Backends, each with whether the features of this build bring it.
const BACKENDS: &[(&str, bool)] = &[
    ("memory:", true),
    ("file:/locks", cfg!(feature = "file")),
    ("redis://h", cfg!(feature = "redis")),
    ("redis://h?quarantine=off", cfg!(feature = "redis")),
    ("redlock://a,b,c", cfg!(feature = "redis")),
    ("redlock://a,b,c?quarantine=off", cfg!(feature = "redis")),
    ("postgres://h/d", cfg!(feature = "postgres")),
    ("postgres://h/d?on_pause=expire", cfg!(feature = "postgres")),
    ("postgres://h/d?quarantine=off", cfg!(feature = "postgres")),
    ("postgres://h/d?quarantine=off&on_pause=expire", cfg!(feature = "postgres")),
    ("etcd://h", cfg!(feature = "etcd")),
    ("zookeeper://h", cfg!(feature = "zookeeper")),
];

fn asked(home: &Home, line: &str) -> Terminal {
    let mut terminal = Terminal::with_shell(home);
    terminal.types("stty -a >before; export TERM=xterm");
    terminal.prompts();
    terminal.types(line);
    terminal.sees("1 of ");
    terminal
}

/// Waits for the exit code, and sees that the terminal is as it was.
fn ends_clean(terminal: &mut Terminal, home: &Home, code: i32) {
    terminal.sees("\u{1b}[?25h\u{1b}[?1049l");
    terminal.exits(code);
    terminal.types("stty -a >after");
    terminal.prompts();
    assert_eq!(home.read("before"), home.read("after"));
}

#[test]
fn questions_are_asked_one_by_one_with_arrows_letters_and_numbers() {
    let home = Home::new();
    let mut terminal = asked(&home, "fencepost advise --hosts many | tee advice");
    terminal.sees("> 1 absorbed");
    terminal.presses(DOWN);
    terminal.sees("> 2 wasteful");
    terminal.presses("j");
    terminal.sees("> 3 corrupts");
    terminal.presses(ENTER);
    terminal.sees("2 of 5");
    terminal.presses("kk");
    terminal.sees("> 2 no");
    terminal.presses(LEFT);
    terminal.sees("> 3 corrupts");
    terminal.presses(ENTER);
    terminal.sees("> 2 no");
    terminal.presses("1");
    terminal.sees("> 1 yes");
    terminal.presses(ENTER);
    terminal.sees("3 of 5");
    terminal.presses(ENTER);
    terminal.sees("4 of 5");
    terminal.presses(ENTER);
    terminal.sees("5 of 5");
    terminal.presses(ENTER);
    terminal.sees(
        "the same without questions: fencepost advise --on-overlap corrupts --can-pause yes --postgres yes",
    );
    terminal.sees("Use postgres with a fence.");
    terminal.prompts();
    terminal.types("stty -a >after");
    terminal.prompts();
    assert_eq!(home.read("before"), home.read("after"));
}

#[test]
fn escape_and_ctrl_c_end_with_130_and_leave_the_terminal_as_it_was() {
    for key in [ESCAPE, CTRL_C, "q"] {
        let home = Home::new();
        let mut terminal = asked(&home, "fencepost advise");
        terminal.presses(key);
        ends_clean(&mut terminal, &home, 130);
    }
}

#[test]
fn signal_leaves_the_terminal_as_it_was() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let home = Home::new();
        let mut terminal = asked(&home, "fencepost advise");
        send(terminal.runner(), signal);
        ends_clean(&mut terminal, &home, code);
    }
}

#[test]
fn stopped_command_gives_the_terminal_to_the_shell_and_asks_on_when_it_is_continued() {
    for by_key in [true, false] {
        let home = Home::new();
        let mut terminal = asked(&home, "fencepost advise");
        terminal.presses(DOWN);
        terminal.sees("> 2 wasteful");
        if by_key {
            terminal.presses(CTRL_Z);
        } else {
            send(terminal.runner(), Signal::TSTP);
        }
        terminal.sees("\u{1b}[?25h\u{1b}[?1049l");
        terminal.prompts();
        terminal.types("stty -a >stopped");
        terminal.prompts();
        assert_eq!(home.read("before"), home.read("stopped"));
        terminal.types("fg");
        terminal.sees("> 2 wasteful");
        terminal.presses("q");
        ends_clean(&mut terminal, &home, 130);
    }
}

#[test]
fn narrow_terminal_without_colours_is_asked_too() {
    let home = Home::new();
    let mut command = home.fencepost(["advise"]);
    command.env("TERM", "xterm").env("NO_COLOR", "1");
    let mut terminal = Terminal::with(command);
    terminal.sees("1 of 6");
    terminal.resize(24, 40);
    terminal.sees("What happens if two workers process the\r\n");
    for _ in 0..6 {
        terminal.sees("Esc: end.");
        terminal.presses(&format!("9{ENTER}"));
    }
    terminal.sees("Use file.");
    assert_eq!(terminal.ends(), Some(0));
    let shown = terminal.shown();
    let narrow = &shown[shown.find("happens if two workers process the\r\n").unwrap()..];
    let long = narrow.split("\r\n").map(|line| line.rsplit("\u{1b}[2K").next().unwrap()).find(|line| {
        line.chars().count() > 40
            && !line.contains('\u{1b}')
            && !line.contains("# ")
            && !line.contains("fencepost advise --")
    });
    assert_eq!(long, None);
    assert!(!shown.contains("\u{1b}[1m") && !shown.contains("\u{1b}[2m"), "{shown}");
}

#[test]
fn dumb_terminal_is_asked_line_by_line() {
    let home = Home::new();
    let mut terminal = Terminal::with_shell(&home);
    terminal.types("fencepost advise --hosts one --databases one --postgres no");
    terminal.sees("What happens if two workers process the same partition at once?");
    terminal.sees("Number, 1 to 4: ");
    terminal.types("9");
    terminal.sees("Number, 1 to 4: ");
    terminal.types("3");
    terminal.sees("Number, 1 to 3: ");
    terminal.types("yes");
    terminal.sees("Number, 1 to 3: ");
    terminal.types("3");
    terminal.sees("Use file.");
    terminal.exits(0);
    terminal.types("fencepost advise");
    terminal.sees("Number, 1 to 4: ");
    terminal.presses(crate::pty::CTRL_D);
    terminal.sees("there was no answer");
    terminal.exits(64);
    terminal.types("fencepost advise");
    terminal.sees("Number, 1 to 4: ");
    terminal.presses(CTRL_C);
    terminal.exits(130);
}

#[test]
fn written_rule_is_sound_and_run_obeys_it() {
    let home = Home::new();
    let locks = format!("file:{}", home.path("shared").display());
    let written =
        home.run(advise(&BACKUP, &["--write", "--match", "backup/*", "--backend", &locks])).exits(0);
    assert!(written.stderr.contains("a rule for \"backup/*\""), "{}", written.stderr);
    home.run(["config", "check"]).exits(0);
    let run = home.run(["run", "--report", "report", "backup/daily", "--", "true"]).exits(0);
    let told =
        format!("fencepost: locks are kept in a new directory, {locks}, and hold for this host only\n");
    assert_eq!(run.stderr, told);
    assert_eq!(home.json("report")["backend"], "file");
    assert!(home.path("shared").is_dir());
    home.run(["run", "backups", "--", "true"]).exits(78);
}

#[test]
fn rule_is_put_among_others_without_touching_them() {
    let home = Home::new();
    let text = "# Ours.\n\n[backends.here] # a remark\nurl = \"file:/var/lib/fencepost\"\n\n[[locks]]   # all\nmatch = '**'\nbackend = \"here\"\n";
    home.write("real.toml", text);
    symlink("real.toml", home.path("fencepost.toml")).unwrap();
    fs::set_permissions(home.path("real.toml"), fs::Permissions::from_mode(0o640)).unwrap();
    let written = home.run(advise(&BACKUP, &["--write", "--match", "backup/*", "-q"])).exits(0);
    assert_eq!(written.stderr, "");
    let new = home.read("real.toml");
    let rule =
        &new[new.find("[[locks]]\nmatch = \"backup/*\"").unwrap()..new.find("[[locks]]   # all").unwrap()];
    assert_eq!(new.replace(rule, ""), text);
    assert!(rule.contains("backend = \"here\""), "{rule}");
    assert!(fs::symlink_metadata(home.path("fencepost.toml")).unwrap().is_symlink());
    assert_eq!(fs::metadata(home.path("real.toml")).unwrap().permissions().mode() & 0o7777, 0o640);
    assert_eq!(files(&home), ["fencepost.toml", "real.toml"], "nothing is left beside it");
}

fn files(home: &Home) -> Vec<String> {
    let entries = fs::read_dir(home.path("")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn no_rule_of_many_writers_at_once_is_lost() {
    for is_there in [false, true] {
        let home = Home::new();
        if is_there {
            home.write("fencepost.toml", "# Ours.\n");
        }
        // What a writer leaves that was killed.
        home.write(".fencepost.toml.new", "[[half of a rule");
        let glob = |number| format!("job-{number}/*");
        let writer = |number| home.start(advise(&BACKUP, &["--write", "--match", &glob(number)]));
        let writers: Vec<_> = (0..24).map(writer).collect();
        for writer in writers {
            writer.ends().exits(0);
        }
        let text = home.read("fencepost.toml");
        for number in 0..24 {
            assert_eq!(text.matches(&format!("{:?}", glob(number))).count(), 1, "{text}");
        }
        assert_eq!(text.contains("# Ours."), is_there);
        assert_eq!(files(&home), ["fencepost.toml"], "nothing is left beside it");
    }
}

#[test]
fn new_file_that_somebody_linked_elsewhere_is_not_written_to() {
    let home = Home::new();
    home.write("precious", "precious");
    symlink("precious", home.path(".fencepost.toml.new")).unwrap();
    home.run(advise(&BACKUP, &["--write", "--match", "a"])).exits(78);
    fs::remove_file(home.path(".fencepost.toml.new")).unwrap();
    fs::hard_link(home.path("precious"), home.path(".fencepost.toml.new")).unwrap();
    home.run(advise(&BACKUP, &["--write", "--match", "a"])).exits(78);
    assert_eq!((home.read("precious").as_str(), home.path("fencepost.toml").exists()), ("precious", false));
}

#[test]
fn refused_rule_leaves_the_file_as_it_was() {
    let home = Home::new();
    home.run(advise(&BACKUP, &["--write", "--match", "backup/*"])).exits(0);
    let before = home.read("fencepost.toml");
    let refused = home.run(advise(&LEDGER, &["--write", "--match", "backup/*"])).exits(78);
    assert!(refused.stderr.contains("there is a rule for \"backup/*\" already"), "{}", refused.stderr);
    home.run(advise(&LEDGER, &["--write", "--match", "a**"])).exits(64);
    home.run(advise(&LEDGER, &["--write", "--match", "a", "--fence", "reddis://h"])).exits(64);
    home.run(advise(&LEDGER, &["--write", "--match", "a", "--backend", "redis://h"])).exits(64);
    home.run(advise(&LEDGER, &["--write", "--match", "a", "--fence", "no-such-fence"])).exits(78);
    assert_eq!(home.read("fencepost.toml"), before);
    home.write("broken.toml", "[[locks]");
    home.run(advise(&BACKUP, &["--write", "--match", "a", "--config", "broken.toml"])).exits(78);
    assert_eq!(home.read("broken.toml"), "[[locks]");
    home.run(advise(&BACKUP, &["--write", "--match", "a", "--config", "none/fencepost.toml"])).exits(78);
}

#[test]
fn written_rule_uses_no_backend_that_is_weaker_than_the_advice() {
    let home = Home::new();
    let weak = "[backends.pg]\nurl = \"postgres://app:hunter2@db/x?quarantine=off\"\n";
    home.write("fencepost.toml", weak);
    let written = home.run(advise(&LEDGER, &["--write", "--match", "a"])).exits(0);
    let said = "on the backend \"postgres\" (postgres://fill-in.invalid/database), which is new";
    assert!(written.stderr.contains(said), "{}", written.stderr);
    home.write("fencepost.toml", &weak.replace("?quarantine=off", ""));
    let written = home.run(advise(&LEDGER, &["--write", "--match", "a"])).exits(0);
    let said = "on the backend \"pg\" (postgres://app:***@db/x), which was there";
    assert!(written.stderr.contains(said), "{}", written.stderr);
    for option in ["quarantine=off", "on_pause=expire"] {
        let refused =
            home.run(advise(&LEDGER, &["--backend", &format!("postgres://db/x?{option}")])).exits(64);
        assert!(refused.stderr.contains("--backend is too weak"), "{}", refused.stderr);
    }
}

#[test]
fn rule_whose_server_is_not_known_runs_nothing() {
    let home = Home::new();
    let written = home.run(advise(&LEDGER, &["--write", "--match", "ledger/**"])).exits(0);
    assert!(
        written.stderr.contains("nothing runs with a rule whose URL has fill-in.invalid"),
        "{}",
        written.stderr
    );
    let checked = home.run(["config", "check"]).exits(78);
    assert!(checked.stderr.contains("the URL of the backend is not filled in yet"), "{}", checked.stderr);
    assert!(checked.stderr.contains("the URL of the fence is not filled in yet"), "{}", checked.stderr);
    let run = home.run(["run", "ledger/1", "--", "true"]).exits(78);
    assert!(run.stderr.contains("fill-in.invalid"), "{}", run.stderr);
    assert!(!home.locks().exists(), "it has become no lock on this host");
}

#[test]
fn fence_that_was_named_is_in_the_rule_also_unasked() {
    let home = Home::new();
    home.write("fencepost.toml", "[fences.marks]\nurl = \"file:/marks\"\n");
    home.run(advise(&BACKUP, &["--write", "--match", "a", "--fence", "marks"])).exits(0);
    home.run(advise(&LEDGER, &["--write", "--match", "b", "--fence", "postgres://app@db/ledger"])).exits(0);
    let text = home.read("fencepost.toml");
    assert!(
        text.contains("fence = [\"marks\"]") && text.contains("fence = [\"postgres://app@db/ledger\"]"),
        "{text}"
    );
}

#[test]
fn write_on_a_terminal_asks_for_the_locks() {
    let home = Home::new();
    let mut terminal = Terminal::with_shell(&home);
    terminal.types(&format!("fencepost advise {} --write", BACKUP.join(" ")));
    terminal.sees("Which locks is the rule for?");
    terminal.types("backup**");
    terminal.sees("`**` must stand between slashes");
    terminal.sees("Which locks is the rule for?");
    terminal.types("backup/*");
    terminal.sees("a rule for \"backup/*\"");
    terminal.exits(0);
    assert!(home.read("fencepost.toml").contains("match = \"backup/*\""));
}

const PARTITIONS: &str = r#"
[[partitions]]
match = "**"
on_overlap = "absorbed"
[[partitions]]
match = "ledger/**"
on_overlap = "corrupts"
databases = "many"
sink_checks = true
fence = "file:/marks"
because = "the audit"
[[partitions]]
match = "local/*"
hosts = "one"
"#;

#[test]
fn many_partitions_become_a_table_and_a_configuration() {
    let home = Home::new();
    home.write("partitions.toml", PARTITIONS);
    let flags = ["--from", "partitions.toml", "--hosts", "many", "--postgres", "no"];
    let shown = home.run(advise(&flags, &[])).exits(0).stdout;
    let table: Vec<&str> =
        shown.lines().take(3).map(|line| line.trim_end_matches("see below").trim_end()).collect();
    assert_eq!(table, ["**         redis", "ledger/**  etcd with a fence", "local/*    file"]);
    let json = json(&home.run(advise(&flags, &["--json"])).exits(0));
    assert_eq!(json["partitions"][1]["match"], "ledger/**");
    let configuration = json["configuration"].as_str().unwrap();
    assert!(shown.ends_with(configuration), "{shown}");
    let globs: Vec<&str> = configuration.lines().filter(|line| line.starts_with("match")).collect();
    assert_eq!(globs, ["match = \"ledger/**\"", "match = \"local/*\"", "match = \"**\""]);
    assert!(!home.path("fencepost.toml").exists());
    home.run(advise(&flags, &["--write"])).exits(0);
    assert_eq!(home.read("fencepost.toml"), configuration);
    let again = home.run(advise(&flags, &["--write"])).exits(78);
    assert!(again.stderr.contains("there is a rule for \"**\" already"), "{}", again.stderr);
    assert_eq!(home.read("fencepost.toml"), configuration);
}

#[test]
fn list_of_partitions_that_is_wrong_is_shown_where() {
    let home = Home::new();
    home.write("partitions.toml", "[[partitions]]\nmatch = \"a\"\non_overlap = \"corrupt\"\n");
    let refused = home.run(["advise", "--from", "partitions.toml"]).exits(78);
    assert!(refused.stderr.contains("partitions.toml:3:14"), "{}", refused.stderr);
    assert!(refused.stderr.contains("did you mean `corrupts`?"), "{}", refused.stderr);
    home.run(["advise", "--from", "none.toml"]).exits(64);
    home.run(["advise", "--from", "partitions.toml", "--backend", "redis://h"]).exits(64);
    home.run(["advise", "--from", "partitions.toml", "--match", "a"]).exits(64);
}
