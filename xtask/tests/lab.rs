//! What `cargo xtask lab` reads and writes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use xtask::lab::{Sums, Task, task};
use xtask::picture;

fn report(stale: u64, broken: &str) -> serde_json::Value {
    let text = format!(
        r#"{{"seed":1,"cells":[
            {{"pattern":"redis","fault":"pause","grants":9,"stale_accepted":{stale},"stale_refused":0,"lost_updates":0,
              "overlaps":0,"vacuous":null,"broken":[{broken}]}},
            {{"pattern":"file","fault":"clock","grants":0,"vacuous":"no server","broken":[]}}]}}"#
    );
    serde_json::from_str(&text).unwrap()
}

#[test]
fn arguments_are_read() {
    assert_eq!(task(&["--minutes", "30"]), Some(Task::Runs { minutes: 30, seed: 1 }));
    assert_eq!(task(&["--screenshot"]), Some(Task::Screenshot));
    assert_eq!(task(&["--picture"]), Some(Task::Picture));
    assert_eq!((task(&["--minutes"]), task(&["--hours", "1"])), (None, None));
}

#[test]
fn page_sums_up_all_runs() {
    let mut sums = Sums::default();
    sums.add(&report(1, ""));
    sums.add(&report(2, ""));
    let page = sums.page(1, 2, Duration::from_secs(61));
    assert!(page.contains("seeds 1 to 2") && page.contains("2 minutes, 18 grants"), "{page}");
    assert!(page.contains("Broken promises: 0.") && page.contains("| `redis` | 3 a |"), "{page}");
    assert!(page.contains("| `file` |") && page.contains("–"), "{page}");
}

#[test]
fn broken_promise_stands_in_the_page() {
    let mut sums = Sums::default();
    sums.add(&report(1, "\"an event was processed again\""));
    assert!(sums.page(1, 1, Duration::ZERO).contains("**1 broken**"));
}

#[test]
fn picture_is_cut_out_of_the_page_with_its_titles() {
    let page = "<style>.a {}</style><svg><defs>D</defs></svg>\
        <section class=\"cell\" id=\"a\"><h2>redis under pause</h2><svg class=\"lanes\" viewBox=\"0 0 1000 90\" role=\"img\">ONE</svg></section>\
        <section class=\"cell\" id=\"b\"><h2>redis+fence under pause</h2><svg class=\"lanes\" viewBox=\"0 0 1000 80\">TWO</svg></section>";
    let drawn = picture::of(page).unwrap();
    assert!(drawn.contains("viewBox=\"0 0 1000 242\"") && drawn.contains("<defs>D</defs>"), "{drawn}");
    assert!(drawn.contains(">redis under pause</text>") && drawn.contains(">ONE</svg>"), "{drawn}");
    assert!(drawn.contains(">redis+fence under pause</text>") && drawn.contains(">TWO</svg>"), "{drawn}");
    assert_eq!(picture::of("<style></style><defs></defs>"), None);
}
