//! The page, read as markup: it is well-formed, it needs nothing else, and what comes from outside is text in it.

use std::time::Duration;

use super::*;
use crate::fault::Fault;
use crate::history::{History, Record, Row, Step};
use crate::strike::Effect;

/// One Redis under a pause, whose stale write was accepted, and a cell that was not run.
fn report() -> Report {
    let (pattern, record) =
        ("redis".parse().unwrap(), |at, worker, step| Record { at, worker, hold: 1, step });
    let claimed = |token| Step::Claimed { token: Some(token), holder: None, deadline: Some(900) };
    let write = |worker: usize| format!("w{worker}");
    let row = |sequence, worker, token| Row {
        sequence,
        event: 1,
        write: write(worker),
        based_on: "start".to_owned(),
        token: Some(token),
    };
    let records = vec![
        record(100, 0, claimed(5)),
        record(200, 0, Step::Paused),
        record(1_000, 1, claimed(6)),
        record(1_100, 1, Step::Writing { write: write(1) }),
        record(1_150, 1, Step::Accepted { write: write(1) }),
        record(1_200, 0, Step::Resumed),
        record(1_210, 0, Step::Writing { write: write(0) }),
        record(1_220, 0, Step::Accepted { write: write(0) }),
    ];
    let history = History { records, rows: vec![row(1, 1, 6), row(2, 0, 5)], total: 1, ..History::default() };
    let effect = Effect {
        from: 200,
        until: 1_200,
        hold: 1,
        what: "the holder is <stopped> & \"hurt\"".to_owned(),
        is_handed_over: true,
        recovery: Some(Duration::from_nanos(800)),
        ..Effect::default()
    };
    let tally = crate::check::check(&history);
    let pause = Cell { tally, effects: vec![effect], history, ..Cell::vacuous(pattern, Fault::Pause, "") };
    let pause = Cell { vacuous: None, ..pause }.judge();
    let missing = Cell::vacuous(pattern, Fault::Clock, "no <cc> & no clock");
    Report { seed: 7, cells: vec![pause, missing], sink: "SQLite".to_owned(), took: Duration::from_secs(3) }
}

#[test]
fn page_is_well_formed_and_no_text_becomes_markup() {
    let page = page(&report());
    let tags = tags(&page);
    let mut open = Vec::new();
    for tag in tags.iter().filter(|tag| !tag.ends_with('/') && !tag.starts_with('!')) {
        let name = tag.split(' ').next().unwrap();
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "{tag}"),
            None => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
    assert!(!page.contains("<stopped>") && page.contains("&lt;stopped&gt; &amp; &quot;hurt&quot;"));
    assert!(!page.contains("<cc>") && page.contains("no &lt;cc&gt; &amp; no clock"));
}

fn tags(page: &str) -> Vec<&str> {
    page.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()).collect()
}

#[test]
fn page_needs_no_network_and_no_script() {
    let page = page(&report()).replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for needle in ["http:", "https:", "src=", "<script", "<link", "@import", "@font-face", "url(h", "onclick"]
    {
        assert!(!page.contains(needle), "{needle}");
    }
}

#[test]
fn page_has_both_colour_schemes_and_a_look_on_paper() {
    let page = page(&report());
    for needle in ["color-scheme: light dark", "@media (prefers-color-scheme: dark)", "@media print"] {
        assert!(page.contains(needle), "{needle}");
    }
}

#[test]
fn what_is_wrong_is_told_by_shape_and_word_and_not_by_colour_alone() {
    let page = page(&report());
    assert!(page.contains("✗") && page.contains("1 stale accepted"), "the matrix");
    assert!(page.contains("<polygon class=\"stale\"") && page.contains(">T1 stale<"), "the picture");
    assert!(page.contains("wiped out what had been written since"), "the sentence");
}

#[test]
fn every_cell_leads_to_its_picture_or_to_why_it_has_none() {
    let page = page(&report());
    for place in ["redis-pause", "silent"] {
        assert!(page.contains(&format!("href=\"#{place}\"")) && page.contains(&format!("id=\"{place}\"")));
    }
}
