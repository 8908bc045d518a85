//! What is said about everything that goes wrong, as users read it: each message from a real run, all of them in `messages.txt`.
//!
//! After a change of wording: set `RENEW=1`, run this test, and read the difference as somebody who has never seen fencepost.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::{Home, Outcome};

/// The page while it is written: each command line with what it answers.
struct Page {
    home: Home,
    text: String,
}

impl Page {
    fn new() -> Self {
        Self { home: Home::new(), text: String::new() }
    }

    fn chapter(&mut self, name: &str) {
        let _ = write!(self.text, "{}== {name}\n\n", if self.text.is_empty() { "" } else { "\n" });
    }

    fn says(&mut self, line: &str) {
        let outcome = self.home.run(words(line));
        self.writes(line, &outcome);
    }

    fn all_say(&mut self, lines: &[&str]) {
        for line in lines {
            self.says(line);
        }
    }

    fn writes(&mut self, line: &str, outcome: &Outcome) {
        let code = outcome.code.unwrap();
        assert!(!outcome.stderr.is_empty() || !outcome.stdout.is_empty(), "{line}: nothing is said");
        let said = self.scrubbed(&format!("{}{}", outcome.stdout, outcome.stderr));
        let _ = write!(self.text, "$ fencepost {line}\n{said}[{code}]\n\n");
    }

    /// Without what is different in each run: the folder of the test, the host, times and tokens.
    fn scrubbed(&self, said: &str) -> String {
        let folder = self.home.path("").display().to_string();
        // A build with more fences names more.
        let said = said.replace(", sqlite:, s3:, gs: and az:", " and sqlite:");
        let said = without_pids(&said.replace(folder.trim_end_matches('/'), "/HERE"));
        let mut lines =
            said.lines().map(|line| line.split(' ').map(scrubbed_word).collect::<Vec<_>>().join(" "));
        lines.by_ref().map(|line| line + "\n").collect()
    }
}

/// The arguments of a line; two `'` enclose one with blanks.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        match index % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

fn without_pids(said: &str) -> String {
    let Some((before, rest)) = said.split_once(OF_A_RUN) else { return said.to_owned() };
    let rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
    format!("{before}{OF_A_RUN}PID{}", without_pids(rest))
}

/// What stands in a label before the process.
const OF_A_RUN: &str = "(fencepost pid ";

fn scrubbed_word(word: &str) -> String {
    let bare = word.trim_end_matches([',', ';', '.', ':']);
    let end = &word[bare.len()..];
    let is_number = bare.len() >= 15 && bare.bytes().all(|byte| byte.is_ascii_digit());
    match bare {
        _ if is_number => format!("TOKEN{end}"),
        _ if bare.starts_with("tester@") => format!("tester@HOST{end}"),
        _ if bare.len() == 27 && bare.ends_with('Z') && bare.contains('T') => format!("TIME{end}"),
        _ => word.to_owned(),
    }
}

fn usage(page: &mut Page) {
    page.chapter("The command line");
    page.all_say(&[
        "nonsense",
        "statsu demo",
        "--json",
        "run",
        "run nightly ./job.sh",
        "run demo --",
        "run --no-such-flag demo -- true",
        "run --no-wiat demo -- true",
        "run --wait 1s -n demo -- true",
        "run --shared --slots 2 demo -- true",
        "run --slot-on start demo -- true",
        "run --ttl 1s --ttl 2s demo -- true",
        "run --on-lost x demo -- true",
        "run --wait",
        "run demo demo -- true",
        "status demo demo",
        "-q -v status demo",
        "--color sometimes status demo",
        "lift demo",
        "revoke demo",
        "completions tcsh",
        "man nonsense",
        "advise --on-overlap corrupts",
        "advise --on-overlap x",
        "advise --from nowhere",
    ]);
}

fn values(page: &mut Page) {
    page.chapter("Names, durations, numbers");
    page.all_say(&[
        "run '' -- true",
        "run 'a\nb' -- true",
        &format!("run {} -- true", "x".repeat(1025)),
        "run --ttl 30 demo -- true",
        "run --ttl 5x demo -- true",
        "run --ttl '' demo -- true",
        "run --ttl 0s demo -- true",
        "run --ttl 9999999h demo -- true",
        "run --wait 0 demo -- true",
        "run --grace 16s demo -- true",
        "run --slots 0 demo -- true",
        "run --once-per '' demo -- true",
        "run -E 256 demo -- true",
        "lift demo --to 0",
        "lift demo --to x",
        "lift demo --to 9223372036854775808",
        "renew demo --lease nonsense",
    ]);
    page.all_say(&["lab --patterns x", "lab --faults x", "lab --rounds 0", "lab --seed x"]);
    let outcome = page.home.run(words(&format!("run {} -- true", "x ".repeat(101))));
    page.writes("run LOCK-1 ... LOCK-101 -- true", &outcome);
}

fn urls(page: &mut Page) {
    page.chapter("URLs");
    for url in [
        "nonsense",
        "mysql://h/db",
        "file:relative",
        "file:/tmp?fsinc=on",
        "file:/tmp?fsync=perhaps",
        "redis://h:99999",
        "redis://h/x",
        "redis://a,b",
        "redis://h?max_ttl=60",
        "redis://h?replicas=x",
        "redis+sentinel://h",
        "redlock://a",
        "redlock://a,a,b",
        "postgres://h/db?pooler=x",
        "postgres://h/db?on_pause=x",
        "etcd://h?x=1",
        "zookeeper://h?acl=x",
        "zookeeper://h/a//b",
        "sqlite:/srv/ledger.db",
        "s3://bucket/prefix",
    ] {
        page.says(&format!("status --backend {url} demo"));
    }
    for url in ["etcd://h", "memory:", "redlock://a,b,c", "file:", "sqlite:", "sqlite:ledger.db"] {
        page.says(&format!("fence show {url} demo"));
    }
    page.says("acquire demo --ttl 1m");
    page.says("run --shared --backend redlock://a,b,c demo -- true");
    page.says("run --ttl 2m --backend redis://127.0.0.1:1 demo -- true");
}

fn unreachable(page: &mut Page) {
    page.chapter("Servers that do not answer");
    for url in [
        "redis://127.0.0.1:1",
        "rediss://127.0.0.1:1",
        "redis+sentinel://127.0.0.1:1/main",
        "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
        "postgres://ann@127.0.0.1:1/db",
        "etcd://127.0.0.1:1",
        "etcds://127.0.0.1:1",
        "zookeeper://127.0.0.1:1",
    ] {
        page.says(&format!("run -n --backend {url} demo -- true"));
        page.says(&format!("list --backend {url}"));
    }
    page.says("run -n --backend redis://ann:secret@127.0.0.1:1 demo -- true");
    page.says("run -n --wait 1s --backend redis://127.0.0.1:1 demo -- true");
    page.says("run --wait 1s --backend redis://127.0.0.1:1 demo -- true");
    page.says("run -n --fence redis://127.0.0.1:1 demo -- true");
    page.says("fence install postgres://ann@127.0.0.1:1/db --table t --lock demo");
    page.says("doctor --backend redis://127.0.0.1:1");
}

fn files(page: &mut Page) {
    page.chapter("Files and programs");
    page.home.write("plain", "text\n");
    page.home.write("script", "#!/nowhere/sh\n");
    fs::set_permissions(page.home.path("script"), fs::Permissions::from_mode(0o755)).unwrap();
    page.all_say(&[
        "run --report /nonexistent/report demo -- true",
        "run --events /nonexistent/events demo -- true",
        "run --metrics-file /nonexistent/metrics demo -- true",
        "run demo -- nosuchprogram",
        "run demo -- 'echo hi'",
        "run demo -- ./plain",
        "run demo -- ./script",
        "run demo -- .",
        "status --backend file:/nowhere/at/all demo",
        "run -n --backend file:/proc/nowhere demo -- true",
        "fence install sqlite:/nonexistent/ledger.db --table t --lock demo",
    ]);
    page.says(&format!("run -n --backend file:{} demo -- true", page.home.path("plain").display()));
    fs::create_dir_all(page.home.locks().join("odd.lock")).unwrap();
    page.says("run -n odd -- true");
    fs::create_dir(page.home.path("denied")).unwrap();
    fs::set_permissions(page.home.path("denied"), fs::Permissions::from_mode(0o700)).unwrap();
    let line = format!("run -n --backend file:{} demo -- true", page.home.path("denied").display());
    if let Some(outcome) = page.home.as_nobody(&words(&line).iter().map(String::as_str).collect::<Vec<_>>()) {
        page.writes(&line, &outcome);
    }
}

fn configurations(page: &mut Page) {
    page.chapter("The configuration");
    page.says("status --config nowhere.toml demo");
    let rule = |more: &str| {
        format!(
            "[backends.here]\nurl = \"file:/HERE/locks\"\n\n[[locks]]\nmatch = \"ledger/**\"\nbackend = \"here\"\n{more}"
        )
    };
    for (what, text) in [
        ("no TOML", "[[locks\n".to_owned()),
        ("an unknown key", rule("tll = \"5m\"\n")),
        ("an unknown backend", rule("").replace("backend = \"here\"", "backend = \"there\"")),
        ("a duration without a unit", rule("ttl = \"30\"\n")),
        ("a wrong glob", rule("").replace("ledger/**", "ledger**")),
        ("an unknown URL", rule("").replace("file:", "fiel:")),
        ("a variable that is not set", rule("").replace("/HERE/locks", "${PLACE}")),
        (
            "a rule that is weaker than its answers",
            rule("on_overlap = \"corrupts\"\ndatabases = \"many\"\nhosts = \"many\"\n"),
        ),
        ("a lock that no rule matches", rule("")),
    ] {
        page.home.write("fencepost.toml", &text);
        let lock = if what.starts_with("a lock") { "ledgr/1" } else { "ledger/1" };
        let outcome = page.home.run(["run", lock, "--", "true"]);
        page.writes(&format!("run {lock} -- true   # {what}"), &outcome);
    }
    fs::remove_file(page.home.path("fencepost.toml")).unwrap();
}

fn outcomes(page: &mut Page) {
    page.chapter("Locks that are held, lost, or late");
    let holder =
        page.home.start(["run", "held", "--", "sh", "-c", "echo $FENCEPOST_TOKEN >token; exec sleep 60"]);
    let token = page.home.await_line("token");
    page.all_say(&[
        "run -n held -- true",
        "run --wait 10ms held -- true",
        "revoke held --token 7 --reason test --yes",
        "revoke held --token 7 --reason test",
        "run --max-runtime 50ms slow -- sleep 60",
    ]);
    page.home.run(["revoke", "held", "--token", &token, "--reason", "the test says so", "--yes"]).exits(0);
    page.writes("run held -- sleep 60", &holder.ends());
}

fn fences(page: &mut Page) {
    page.chapter("Fences");
    fs::create_dir(page.home.path("sink")).unwrap();
    let fence = format!("file:{}", page.home.path("sink").display());
    page.home.run(["fence", "seal", &fence, "demo", "8", "--holder", "a"]).exits(0);
    for line in [
        "check URL",
        "check URL demo",
        "check URL demo 0",
        "check URL demo 7 --holder a",
        "check URL demo 9 --holder a",
        "check URL demo 8 --holder b",
        "seal URL demo 7 --holder a",
        "check URL other 7 --holder a",
        "show URL other",
        "forget URL other",
        "install URL --table t --lock demo",
        "publish URL demo nowhere --token 8 --holder a",
        "publish URL demo nowhere --token 7 --holder a",
        "publish URL demo a b",
        "publish redis://h demo nowhere --token 7",
    ] {
        page.says(&format!("fence {}", line.replace("URL", &fence)));
    }
    page.home.write("sink/demo.mark", "no mark\n");
    page.says(&format!("fence check {fence} demo 8 --holder a"));
}

fn written() -> String {
    let mut page = Page::new();
    for chapter in [usage, values, urls, unreachable, files, configurations, outcomes, fences] {
        chapter(&mut page);
    }
    page.text.replace(&page.home.path("").display().to_string(), "/HERE/")
}

#[test]
fn every_message_reads_as_it_was_agreed() {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/messages.txt");
    let now = written();
    if std::env::var_os("RENEW").is_some() {
        fs::write(&path, &now).unwrap();
    }
    let agreed = fs::read_to_string(&path).unwrap_or_default();
    let changed: Vec<_> =
        now.lines().zip(agreed.lines()).filter(|(now, agreed)| now != agreed).take(5).collect();
    assert!(
        now == agreed,
        "other than agreed: {changed:#?}\nIf that is better: RENEW=1 cargo nextest run -p fencepost-cli -E 'test(agreed)'"
    );
}

/// The shape of every message: one line that begins in lower case and ends without a full stop, in letters of ASCII.
#[test]
fn messages_have_one_shape() {
    let text = include_str!("messages.txt");
    for line in text.lines() {
        assert!(line.is_ascii(), "{line}");
        let Some(said) = line.strip_prefix("fencepost: ") else { continue };
        let said = ["error: ", "warning: ", "hint: "]
            .iter()
            .find_map(|kind| said.strip_prefix(kind))
            .unwrap_or(said);
        assert!(!said.ends_with('.') && !said.starts_with(' '), "{line}");
        let first = said.chars().next().unwrap();
        let is_name = said.starts_with("SQLite")
            || said.split([':', ' ']).next().unwrap().chars().all(char::is_uppercase);
        assert!(!first.is_uppercase() || is_name, "{line}");
        assert!(!said.contains("cannot cannot") && !said.contains("secret"), "{line}");
    }
}
