//! What is generated is current, and what it refers to exists.

use std::fs;
use std::path::Path;

#[test]
fn readme_table_is_current() {
    let readme = fs::read_to_string(xtask::root().join("README.md")).unwrap();
    let current = xtask::docs::with_promises(&readme, &fencepost::profiles());
    assert_eq!(readme, current, "run `cargo xtask docs`");
}

#[test]
fn stale_table_is_found() {
    let readme = fs::read_to_string(xtask::root().join("README.md")).unwrap();
    let stale = readme.replace("this host only", "every host");
    assert_ne!(stale, xtask::docs::with_promises(&stale, &fencepost::profiles()));
}

#[test]
fn every_promise_is_proven_by_a_test_that_exists() {
    let places = ["crates/fencepost-testkit/src/conformance", "crates/fencepost-cli/tests/cli"];
    let source: String = places.iter().map(|place| read_all(&xtask::root().join(place))).collect();
    for proof in xtask::docs::proofs() {
        assert!(source.contains(&format!("fn {proof}(")), "there is no test {proof}");
    }
}

fn read_all(directory: &Path) -> String {
    let entries = fs::read_dir(directory).expect("the tests are there");
    entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok()).collect()
}
