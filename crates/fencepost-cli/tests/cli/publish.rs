//! `fence publish`: results that become current in one step, whatever is killed when, and never one of an older holder.
//!
//! A failure prints `FENCEPOST_SEED=…`; set, the variable repeats the choices, though not the moments of the kernel.

use std::collections::hash_map::RandomState;
use std::fmt::Write;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fencepost::file::FileFence;
use fencepost::{Clock, ErrorKind, Fence, FencingToken, Stamp, StampHolder, block_on};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Home, Outcome, child_of, now_micros, send, sleep};

/// A home and a fence in it that is not there yet.
fn fenced() -> (Home, String) {
    let home = Home::new();
    let url = format!("file:{}", home.path("sink").display());
    (home, url)
}

fn assert_says(outcome: &Outcome, parts: &[&str]) {
    for part in parts {
        assert!(outcome.stderr.contains(part), "{part:?} in {outcome:?}");
    }
}

/// Numbers that are random enough to be anywhere.
struct Dice(u64);

impl Dice {
    #[expect(clippy::print_stdout, reason = "the seed stands in the output of a test that has failed")]
    fn new() -> Self {
        let seed = std::env::var("FENCEPOST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        println!("FENCEPOST_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A text that says its token at both ends and a checksum of what lies between.
fn text_of(token: u64) -> String {
    let body = format!("{token} ").repeat(5_000);
    format!("{token}\n{body}\n{} {token}\n", sum(&body))
}

fn sum(text: &str) -> u64 {
    text.bytes().fold(7, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
}

/// The token of a text, if it is whole.
fn token_of(text: &str) -> Option<u64> {
    let mut lines = text.strip_suffix('\n')?.split('\n');
    let (token, body, end) = (lines.next()?, lines.next()?, lines.next()?);
    (end == format!("{} {token}", sum(body))).then(|| token.parse().ok())?
}

/// The token of a directory, if it is whole.
fn token_in(folder: &Path) -> Option<u64> {
    let read = |part: &str| token_of(&fs::read_to_string(folder.join(part)).ok()?);
    let token = read("a")?;
    ["sub/b", "sub/c", "d"].iter().all(|part| read(part) == Some(token)).then_some(token)
}

fn make_folder(folder: &Path, token: u64) {
    fs::create_dir_all(folder.join("sub")).unwrap();
    for part in ["a", "sub/b", "sub/c", "d"] {
        fs::write(folder.join(part), text_of(token)).unwrap();
    }
}

fn seal(fence: &FileFence, token: u64) -> bool {
    let stamp = Stamp {
        lock: "demo".parse().unwrap(),
        token: FencingToken::try_from(token).unwrap(),
        holder: StampHolder::default(),
    };
    match block_on(fence.seal(&stamp)) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::Stale => false,
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn half_of_a_text_is_noticed() {
    let text = text_of(7);
    assert_eq!(token_of(&text), Some(7));
    for end in [0, 1, 2, 100, text.len() / 2, text.len() - 1] {
        assert_eq!(token_of(&text[..end]), None, "{end}");
    }
    let mut mixed = text_of(8);
    write!(mixed, "{text}").unwrap();
    assert_eq!(token_of(&mixed.replacen("8 8 ", "8 7 ", 1)), None);
}

#[test]
fn publisher_that_is_killed_at_any_instant_leaves_a_whole_result() {
    let ((home, url), mut dice) = (fenced(), Dice::new());
    let fence = FileFence::from_url(&url.parse().unwrap()).unwrap();
    let publish = |token: u64| {
        make_folder(&home.path("work"), token);
        assert!(seal(&fence, token));
        home.start(["fence", "publish", &url, "demo", "--token", &token.to_string(), "work"])
    };
    publish(1).ends().exits(0);
    // Where the kill comes too late or too early too often, the next ones come sooner or later.
    let (mut current, mut kept, mut within) = (1, 0, 20_000);
    for token in 2..=501 {
        let run = publish(token);
        sleep(Duration::from_micros(dice.below(within)));
        let has_ended = run.kill().success();
        let found = token_in(&home.path("sink/demo"));
        let is_allowed = found == Some(token) || (found == Some(current) && !has_ended);
        assert!(is_allowed, "{found:?} after {current}, while {token} was published");
        kept += u32::from(found == Some(current));
        within = if has_ended { within * 19 / 20 } else { within * 21 / 20 }.max(1_000);
        current = found.unwrap();
    }
    assert!((50..450).contains(&kept), "of 500 kills {kept} came before the result was current");
    publish(600).ends().exits(0);
    assert_eq!(token_in(&home.path("sink/demo")), Some(600));
    for (folder, left) in [(".staging", 0), (".results", 2)] {
        assert_eq!(
            fs::read_dir(home.path("sink").join(folder).join("demo")).unwrap().count(),
            left,
            "{folder}"
        );
    }
}

#[test]
fn racing_publishers_never_go_back_and_readers_never_see_half() {
    /// How many publish at once, and how many results each.
    const PUBLISHERS: u32 = 4;
    const EACH: u32 = 5;
    let (home, url) = fenced();
    let fence = FileFence::from_url(&url.parse().unwrap()).unwrap();
    assert!(seal(&fence, 1));
    fs::write(home.path("first"), text_of(1)).unwrap();
    home.run(["fence", "publish", &url, "demo", "--token", "1", "first"]).exits(0);
    let (is_over, current) = (AtomicBool::new(false), home.path("sink/demo"));
    let read = || {
        let (mut last, mut reads) = (0, 0);
        while !is_over.load(Ordering::Relaxed) {
            let text = fs::read_to_string(&current).expect("something was published");
            let token = token_of(&text).expect("a result is whole");
            assert!(token >= last, "{token} after {last}");
            (last, reads) = (token, reads + 1);
        }
        reads
    };
    let publish = |publisher: u32| {
        let work = format!("work-{publisher}");
        let mut published = 0;
        // How often one of them comes first is a matter of luck, and of the machine.
        for _ in 0..2_000 {
            if published == EACH {
                break;
            }
            // All rise with the clock, so that each competes with others that are close to it.
            let token = now_micros() + Clock::system().random() % 50_000;
            fs::write(home.path(&work), text_of(token)).unwrap();
            if seal(&fence, token) {
                let args = ["fence", "publish", &url, "demo", "--token", &token.to_string(), &work];
                let outcome = home.run(args);
                assert!(matches!(outcome.code, Some(0 | 79)), "{outcome:?}");
                published += u32::from(outcome.code == Some(0));
            }
        }
        published
    };
    std::thread::scope(|scope| {
        let readers = [scope.spawn(read), scope.spawn(read)];
        let publishers: Vec<_> =
            (0..PUBLISHERS).map(|publisher| scope.spawn(move || publish(publisher))).collect();
        let ended: Vec<_> = publishers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        // Also when one of them has failed.
        is_over.store(true, Ordering::Relaxed);
        let published: u32 = ended.into_iter().map(|published| published.unwrap()).sum();
        assert_eq!(published, PUBLISHERS * EACH);
        assert!(readers.map(|reader| reader.join().unwrap()).iter().all(|reads| *reads > 20));
    });
}

/// Negative control: what the readers would see of a publisher that copies in place, without a fence.
#[test]
fn copy_in_place_shows_halves_and_goes_back() {
    let home = Home::new();
    let (target, is_over) = (home.path("result"), AtomicBool::new(false));
    fs::write(&target, text_of(9_000)).unwrap();
    let seen_half = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = false;
            while !is_over.load(Ordering::Relaxed) && !seen {
                seen = token_of(&fs::read_to_string(&target).unwrap_or_default()).is_none();
            }
            seen
        });
        for token in (1..9_000).rev() {
            if reader.is_finished() {
                break;
            }
            fs::write(&target, text_of(token)).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    assert!(seen_half, "the readers of the other test would notice nothing");
    assert!(token_of(&fs::read_to_string(&target).unwrap()) < Some(9_000), "and an older one is current");
}

#[test]
fn command_of_a_run_publishes_with_what_the_run_gave_it() {
    let (home, url) = fenced();
    let script = "echo made >out; fencepost fence publish \"$0\" out";
    home.run(["run", "--fence", &url, "demo", "--", "sh", "-c", script, &url]).exits(0);
    assert_eq!(home.read("sink/demo"), "made\n");
    let answer =
        ["run", "--fence", &url, "demo", "--", "fencepost", "--json", "fence", "publish", &url, "out"];
    let answer: Value = serde_json::from_str(&home.run(answer).exits(0).stdout).unwrap();
    assert_eq!(
        (&answer["outcome"], &answer["fence"], &answer["lock"]),
        (&json!("published"), &json!("file"), &json!("demo"))
    );
    let unsealed = home.run(["run", "demo", "--", "fencepost", "fence", "publish", &url, "out"]);
    assert_says(&unsealed.exits(79), &["seal first"]);
    let other = home.run(["run", "demo", "--", "fencepost", "fence", "publish", &url, "other", "out"]);
    assert_says(&other.exits(64), &["no TOKEN"]);
}

/// B88: the holder is stopped, somebody else gets the lock, and the old command goes on to publish.
#[test]
fn stopped_holder_publishes_too_late_and_is_refused() {
    let (home, url) = fenced();
    let script = "echo old >old; touch ready; while [ ! -e go ]; do sleep 0.02; done; \
        fencepost fence publish \"$0\" old 2>said; echo $? >code";
    let args = ["run", "--on-lost", "warn", "--fence", &url, "demo", "--", "sh", "-c", script, &url];
    let old = home.start(args);
    home.await_file("ready");
    let runner = old.pid();
    let command = child_of(child_of(runner));
    send(command, Signal::STOP);
    // Its lock is given to somebody else: here by another directory of locks, as after a failover.
    let next = "echo new >new; fencepost fence publish \"$0\" new";
    let elsewhere = format!("file:{}", home.path("elsewhere").display());
    let args = ["run", "--backend", &elsewhere, "--fence", &url, "demo", "--", "sh", "-c", next, &url];
    home.run(args).exits(0);
    assert_eq!(home.read("sink/demo"), "new\n");
    home.write("go", "");
    send(command, Signal::CONT);
    assert_eq!(home.await_line("code"), "79");
    assert!(home.read("said").contains("is stale"), "{}", home.read("said"));
    assert_eq!(home.read("sink/demo"), "new\n");
    drop(old.ends());
}

#[test]
fn names_and_paths_may_be_awkward() {
    let (home, url) = fenced();
    for (lock, path, name) in [
        ("a b/ü", "with space", "a%20b%2F%C3%BC"),
        ("-", "new\nline", "-"),
        ("..", "-dash", "%2E."),
        (&"x".repeat(1_000), "\u{1f600}", ""),
    ] {
        home.write(path, path);
        home.run(["fence", "seal", "--", &url, lock, "5"]).exits(0);
        home.run(["fence", "publish", "--token", "5", "--", &url, lock, path]).exits(0);
        if !name.is_empty() {
            assert_eq!(home.read(&format!("sink/{name}")), path);
        }
    }
    home.write("last", "last");
    home.run(["fence", "publish", &url, "a b/ü", "last", "--token", "5"]).exits(0);
    home.run(["fence", "publish", &url, "a b/ü", "--token", "5", "last"]).exits(0);
    assert_eq!(home.read("sink/a%20b%2F%C3%BC"), "last");
}

#[test]
fn what_cannot_be_published_says_why() {
    let (home, url) = fenced();
    home.run(["fence", "seal", &url, "demo", "5"]).exits(0);
    home.write("work", "good");
    let publish = |what: &[&str]| home.run(["fence", "publish", "--token", "5"].iter().chain(what));
    publish(&[&url, "demo", "work"]).exits(0);
    assert_says(&publish(&[&url, "demo", "nothing"]).exits(64), &["nothing", "No such file"]);
    assert_says(&publish(&[&url, "demo", "/dev/null"]).exits(64), &["a device"]);
    assert_says(&publish(&[&url, "work"]).exits(64), &["no LOCK"]);
    assert_says(&publish(&[&url, "a\nb", "work"]).exits(64), &["control character"]);
    for elsewhere in ["redis://127.0.0.1:1", "postgres://127.0.0.1:1/x"] {
        assert_says(&publish(&[elsewhere, "demo", "work"]).exits(64), &["is no directory", "file:/"]);
    }
    publish(&[&url]).exits(64);
    publish(&[&url, "a", "b", "c"]).exits(64);
    home.shell("chmod 700 .; mkdir secret; echo x >secret/x; chmod 600 secret/x; chmod 755 secret; chmod -R go+rwX sink").exits(0);
    if let Some(denied) = home.as_nobody(&["fence", "publish", &url, "demo", "secret", "--token", "5"]) {
        assert_says(&denied.exits(77), &["secret/x", "Permission denied"]);
    }
    assert_eq!(home.read("sink/demo"), "good");
}

/// Root may write and remove everything, and so would not notice.
#[test]
fn read_only_folders_are_published_and_removed_by_a_plain_user() {
    let (home, url) = fenced();
    make_folder(&home.path("work"), 1);
    home.shell("chmod 755 .; chmod -R a+rX work; chmod 555 work work/sub").exits(0);
    for token in ["1", "2", "3", "4"] {
        let Some(sealed) = home.as_nobody(&["fence", "seal", &url, "demo", token]) else { return };
        sealed.exits(0);
        home.as_nobody(&["fence", "publish", &url, "demo", "work", "--token", token]).unwrap().exits(0);
    }
    assert_eq!(token_in(&home.path("sink/demo")), Some(1));
    assert_eq!(fs::read_dir(home.path("sink/.results/demo")).unwrap().count(), 2);
}

#[test]
fn full_disk_leaves_the_current_result() {
    let (home, url) = fenced();
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "only root can make a small disk, and CI must prove this");
        return;
    }
    // In a name space of its own, which takes the small disk with it.
    let script = "mkdir sink && mount -t tmpfs -o size=1m none sink && echo good >good && dd if=/dev/zero of=big bs=1M count=4 2>dd \
        && fencepost fence seal $0 demo 5 && fencepost fence publish $0 demo --token 5 good || exit 1
        fencepost fence publish $0 demo --token 5 big; echo $?; cat sink/demo; find sink/.staging -type f | wc -l
        fencepost fence publish $0 demo --token 5 good; echo $?";
    let outcome =
        Outcome::of(home.command("unshare").args(["--mount", "sh", "-c", script, &url]).output().unwrap());
    assert_eq!(outcome.stdout, "69\ngood\n0\n0\n", "{outcome:?}");
    assert_says(&outcome, &["No space left on device"]);
}

#[test]
fn whole_result_can_be_read_while_others_are_published() {
    let (home, url) = fenced();
    make_folder(&home.path("work"), 1);
    home.run(["fence", "seal", &url, "demo", "1"]).exits(0);
    home.run(["fence", "publish", &url, "demo", "--token", "1", "work"]).exits(0);
    let opened = fs::canonicalize(home.path("sink/demo")).unwrap();
    make_folder(&home.path("work"), 2);
    home.run(["fence", "seal", &url, "demo", "2"]).exits(0);
    home.run(["fence", "publish", &url, "demo", "--token", "2", "work"]).exits(0);
    assert_eq!((token_in(&opened), token_in(&home.path("sink/demo"))), (Some(1), Some(2)));
    assert_eq!(token_in(&home.path("work")), Some(2), "what was published stays as it is");
}
