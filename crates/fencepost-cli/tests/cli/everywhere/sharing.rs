//! `run --shared`: readers together, writers alone, and each reader's own end.

use std::fs;

use fencepost::Profile;
use serde_json::Value;

use super::{Place, most_at_once};
use crate::support::{Home, Running, all_end, eventually, json};

on_every_backend!(
    readers_run_together_and_writers_alone,
    readers_are_shown_and_each_ends_alone,
    reader_can_be_taken_away_from_the_others,
    reader_keeps_no_history_and_seals_nothing_whatever_the_rule_says,
);

fn shares(profile: &Profile) -> bool {
    profile.share
}

fn readers_run_together_and_writers_alone(place: &Place) {
    if !place.offers(shares, &["--shared"]) {
        return;
    }
    let home = &place.home;
    // Two readers that wait for each other.
    let meets = |own: &str, other: &str| format!("touch {own}; while [ ! -e {other} ]; do sleep 0.02; done");
    let meet = [meets("a", "b"), meets("b", "a")];
    all_end(
        meet.iter().map(|script| home.start(["run", "--shared", "demo", "--", "sh", "-c", script])).collect(),
        0,
    );

    let work = "echo +$0$$ >>log; sleep 0.05; echo -$0$$ >>log";
    for _ in 0..3 {
        let run = |args: &[&str], who| {
            home.start(["run"].iter().chain(args).chain(&["demo", "--", "sh", "-c", work, who]))
        };
        let runs = (0..6).map(|number| if number % 3 == 2 { run(&[], "w") } else { run(&["--shared"], "r") });
        all_end(runs.collect(), 0);
    }
    let log = home.read("log");
    assert_eq!(log.lines().count(), 3 * 6 * 2, "each has run");
    assert_eq!(most_at_once(&log, |who| who.starts_with('w')), 1, "writers are alone:\n{log}");
    let mut inside = 0;
    for line in log.lines() {
        match &line[..2] {
            "+r" => inside += 1,
            "-r" => inside -= 1,
            _ => assert_eq!(inside, 0, "a writer beside readers:\n{log}"),
        }
    }
}

fn tokens(status: &Value) -> Vec<u64> {
    status["readers"].as_array().unwrap().iter().map(|reader| reader["token"].as_u64().unwrap()).collect()
}

fn token(home: &Home, name: &str) -> u64 {
    home.read(name).split(' ').next().unwrap().parse().unwrap()
}

fn readers_are_shown_and_each_ends_alone(place: &Place) {
    if !place.offers(shares, &["--shared"]) {
        return;
    }
    let home = &place.home;
    assert_eq!(place.status("demo")["readers"], Value::Array(Vec::new()));
    let one = place.start_holder("one", &["--shared"]);
    let other = place.start_holder("other", &["--shared"]);
    let status = place.status("demo");
    assert_eq!(tokens(&status), [token(home, "one"), token(home, "other")]);
    assert_eq!((&status["state"], &status["token"]), (&"held".into(), &token(home, "one").into()));
    for (reader, run) in status["readers"].as_array().unwrap().iter().zip([&one, &other]) {
        let label = reader["label"].as_str().unwrap();
        assert!(label.ends_with(&format!("sh (fencepost pid {})", run.pid())), "{reader}");
        let keys: Vec<_> = reader.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["holder", "label", "remaining_ms", "since", "token"]);
    }
    let text = home.run(["status", "demo"]).exits(0).stdout;
    assert!(text.starts_with("demo is held by 2 readers: tester@"), "{text}");
    assert_eq!(text.matches("\n  reads: tester@").count(), 2, "{text}");
    assert_eq!(home.run(["list"]).exits(0).stdout, text);
    let refused = home.run(["run", "-n", "demo", "--", "true"]).exits(75);
    assert!(refused.stderr.contains("not acquired: demo is held by 2 readers: "), "{refused:?}");

    one.kill();
    eventually("one reader", || tokens(&place.status("demo")) == [token(home, "other")]);
    home.run(["run", "-n", "demo", "--", "true"]).exits(75);
    place.end("other", other);
    home.run(["run", "--wait", "20s", "demo", "--", "true"]).exits(0);
    // A reader that was killed behind the back of its runner leaves nothing to the writer either.
    home.await_free("demo");
}

fn reader_can_be_taken_away_from_the_others(place: &Place) {
    if !place.offers(shares, &["--shared"]) || !place.profile.revoke {
        return;
    }
    let home = &place.home;
    let readers: Vec<Running> =
        ["one", "two", "three"].map(|name| place.start_holder(name, &["--shared"])).into();
    let revoke = |token: u64| {
        home.run(["revoke", "demo", "--token", &token.to_string(), "--reason", "it is late", "--yes"])
    };
    revoke(token(home, "three") + 1).exits(1);
    assert_eq!(tokens(&place.status("demo")).len(), 3, "nobody was meant");
    revoke(token(home, "two")).exits(0);
    let [one, two, three] = readers.try_into().ok().unwrap();
    let stopped = two.ends().exits(76);
    assert!(stopped.stderr.contains("it is late"), "{stopped:?}");
    eventually("two readers", || tokens(&place.status("demo")) == [token(home, "one"), token(home, "three")]);
    place.end("one", one);
    place.end("three", three);
    home.run(["run", "--wait", "20s", "demo", "--", "true"]).exits(0);
}

fn reader_keeps_no_history_and_seals_nothing_whatever_the_rule_says(place: &Place) {
    if !place.offers(shares, &["--shared"]) {
        return;
    }
    let home = &place.home;
    fs::create_dir(home.path("marks")).unwrap();
    let marks = format!("file:{}", home.path("marks").display());
    place.configure(&format!("history = true\nfence = [{marks:?}, \"postgres://127.0.0.1:1/x\"]"));
    let run = |args: &[&str]| {
        let command = ["demo", "--", "sh", "-c", "echo $FENCEPOST_TOKEN $PGOPTIONS"];
        home.run(["run"].iter().chain(args).chain(&command))
    };
    let said = run(&["--shared"]).exits(0).stdout;
    let read: u64 = said.trim().parse().expect("a token, and nothing for Postgres");
    home.run(["fence", "show", &marks, "demo"]).exits(1);
    run(&["-n"]).exits(69);
    place.configure(&format!("history = true\nfence = [{marks:?}]"));
    let written: u64 = run(&["--wait", "20s"]).exits(0).stdout.trim().parse().unwrap();
    assert!(read < written);
    run(&["--wait", "20s", "--shared"]).exits(0);
    let mark = home.run(["fence", "show", "--json", &marks, "demo"]).exits(0).stdout;
    assert!(mark.contains(&written.to_string()), "{mark}");
    let history = json(&home.run(["history", "--json", "demo"]).exits(0));
    let kept = history["grants"].as_array().unwrap().iter();
    assert!(kept.map(|grant| grant["token"].as_u64()).all(|token| token != Some(read)), "{history}");
}
