//! `run --slots`: no more at once than there are slots, each a lock of its own.

use super::{Place, most_at_once};
use crate::support::{Running, all_end, child_of};

on_every_backend!(
    no_more_run_at_once_than_there_are_slots,
    each_slot_is_a_lock_of_its_own_and_comes_free_when_its_holder_is_killed,
);

const SLOTS: &str = "3";

fn no_more_run_at_once_than_there_are_slots(place: &Place) {
    if !place.offers(|profile| profile.slots, &["--slots", SLOTS]) {
        return;
    }
    let work = "echo +$FENCEPOST_SLOT >>log; sleep 0.05; echo -$FENCEPOST_SLOT >>log";
    for _ in 0..3 {
        let run = |_| place.home.start(["run", "--slots", SLOTS, "demo", "--", "sh", "-c", work]);
        all_end((0..6).map(run).collect(), 0);
    }
    let log = place.home.read("log");
    assert_eq!(log.lines().count(), 3 * 6 * 2, "each has run");
    assert!(most_at_once(&log, |_| true) <= 3, "more at once than there are slots:\n{log}");
    for slot in ["0", "1", "2"] {
        assert!(most_at_once(&log, |who| who == slot) <= 1, "two in slot {slot}:\n{log}");
    }
}

fn each_slot_is_a_lock_of_its_own_and_comes_free_when_its_holder_is_killed(place: &Place) {
    if !place.offers(|profile| profile.slots, &["--slots", SLOTS]) {
        return;
    }
    let home = &place.home;
    let names = ["a", "b", "c"];
    let report = |name: &str| format!("{name}.report");
    let start = |name| place.start_holder(name, &["--slots", SLOTS, "--report", &report(name)]);
    let mut holders: Vec<Running> = names.map(start).into();
    let told = |name: &str| home.read(name).split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>();
    let mut numbers: Vec<String> = Vec::new();
    for name in names {
        let [token, lock, slot] = told(name).try_into().unwrap();
        assert_eq!(lock, format!("demo#{slot}"));
        assert_eq!(place.status(&lock)["token"].to_string(), token);
        numbers.push(slot);
    }
    numbers.sort();
    assert_eq!(numbers, ["0", "1", "2"]);
    let refused = home.run(["run", "-n", "--slots", SLOTS, "demo", "--", "true"]).exits(75);
    assert_eq!(refused.stderr.matches("not acquired: demo#").count(), 3, "{refused:?}");
    // The lock itself is another one, and so is one that was asked for inside.
    let script = "echo $FENCEPOST_LOCK-$FENCEPOST_SLOT-";
    assert_eq!(home.run(["run", "-n", "demo", "--", "sh", "-c", script]).exits(0).stdout, "demo--\n");
    let inner = [
        "run",
        "-n",
        "--slots",
        "2",
        "inner",
        "--",
        "fencepost",
        "run",
        "-n",
        "other",
        "--",
        "sh",
        "-c",
        script,
    ];
    assert_eq!(home.run(inner).exits(0).stdout, "other--\n");

    let killed = holders.remove(1);
    let guardian = child_of(killed.pid());
    killed.kill();
    let slot = told("b")[2].clone();
    let next = home.run([
        "run",
        "--wait",
        "20s",
        "--slots",
        SLOTS,
        "demo",
        "--",
        "sh",
        "-c",
        "echo $FENCEPOST_SLOT",
    ]);
    assert_eq!(next.exits(0).stdout.trim(), slot, "the slot that came free; its guardian was {guardian}");
    for (name, holder) in ["a", "c"].into_iter().zip(holders) {
        place.end(name, holder);
        assert_eq!(home.json(&report(name))["lock"], told(name)[1]);
        assert_eq!(home.json(&report(name))["locks"][0]["lock"], told(name)[1]);
    }
}
