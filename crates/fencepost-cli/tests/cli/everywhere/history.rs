//! `fencepost history`: who held a lock, and how that ended.

use serde_json::Value;

use super::Place;
use crate::support::{Home, json};

on_every_backend!(last_grants_are_shown_with_how_they_ended);

fn history(home: &Home) -> Value {
    json(&home.run(["history", "--json", "demo"]).exits(0))
}

fn last_grants_are_shown_with_how_they_ended(place: &Place) {
    let home = &place.home;
    if !place.profile.logbook {
        assert!(home.run(["history", "demo"]).exits(64).stderr.contains(place.profile.backend));
        return;
    }
    let nothing = home.run(["history", "demo"]).exits(0);
    assert_eq!(nothing.stdout, "");
    assert!(nothing.stderr.contains("`history = true`"), "{nothing:?}");
    home.run(["run", "--once-per", "tick-7", "demo", "--", "true"]).exits(0);
    assert!(history(home)["grants"].as_array().unwrap().is_empty() && history(home)["last_slot"] == "tick-7");
    place.configure("history = 4");
    assert!(home.run(["history", "other"]).exits(0).stderr.contains("has not been granted"));

    let run = |script: &str, code| {
        home.run(["run", "--report", "report", "demo", "--", "sh", "-c", script]).exits(code)
    };
    run("true", 0);
    let first = home.json("report");
    run("true", 0);
    run("exit 3", 3);
    place.start_holder("killed", &[]).kill();
    let holder = place.start_holder("held", &["--wait", "20s"]);
    // A reader and whoever asks for a slot are not among them.
    let shown = history(home);
    assert_eq!((&shown["lock"], &shown["backend"]), (&"demo".into(), &place.profile.backend.into()));
    let grants = shown["grants"].as_array().unwrap();
    assert_eq!(grants.len(), 4, "no more than the rule says: {shown}");
    assert!(grants.iter().all(|grant| grant["token"] != first["token"]), "{shown}");
    assert!(grants.is_sorted_by_key(|grant| grant["token"].as_u64().unwrap()), "{shown}");
    let ended: Vec<_> =
        grants.iter().map(|grant| (grant["ended"].as_str(), grant["held"].as_bool().unwrap())).collect();
    assert_eq!(ended, [(Some("completed"), false), (Some("released"), false), (None, false), (None, true)]);
    for (grant, has_ended) in grants.iter().zip([true, true, false, false]) {
        assert_eq!(grant["to"].is_string(), has_ended, "{grant}");
        assert!(grant["label"].as_str().unwrap().starts_with("tester@"), "{grant}");
    }
    let text = home.run(["history", "demo"]).exits(0).stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].trim_start().starts_with("TOKEN")
            && lines[3].contains("not given back: lost, revoked or crashed"),
        "{text}"
    );
    assert!(lines[4].contains("  held  ") && lines[5].starts_with("done: tick-7"), "{text}");
    place.end("held", holder);
}
