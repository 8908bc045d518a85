//! What is generated is current, and what it refers to exists.

use std::fs;
use std::path::Path;

use xtask::docs::{Proofs, with_promises};
use xtask::guarantees::with_risks;

fn readme() -> String {
    fs::read_to_string(xtask::root().join("README.md")).expect("the page is there")
}

fn current(text: &str) -> String {
    let proofs = Proofs::find(xtask::root()).expect("every promise is proven by a test that exists");
    with_promises(text, &fencepost::profiles(), &proofs)
}

#[test]
fn readme_table_is_current() {
    assert_eq!(readme(), current(&readme()), "run `cargo xtask docs`");
}

#[test]
fn tables_of_what_is_guaranteed_are_current() {
    let page = fs::read_to_string(xtask::root().join("docs/guarantees.md")).expect("the page is there");
    let current = with_risks(&page, &fencepost::profiles());
    assert_eq!(page, current, "run `cargo xtask docs`");
    let stale = page.replace("no lease is timed", "all is well");
    assert!(stale != page && with_risks(&stale, &fencepost::profiles()) == page);
    for backend in fencepost::profiles().iter().filter(|profile| profile.backend != "memory") {
        assert!(page.contains(&format!("`{}`", backend.backend)), "{} is not in it", backend.backend);
    }
}

#[test]
fn stale_table_is_found() {
    let stale = readme().replace("this host only", "every host");
    assert_ne!(stale, current(&stale));
    let moved = readme().replace("conformance/waiting.rs", "conformance/queue.rs");
    assert!(moved != readme() && moved != current(&moved));
}

#[test]
fn every_link_leads_to_the_file_that_holds_the_test() {
    let readme = readme();
    let rows = readme.lines().filter(|line| line.starts_with("| "));
    let links: Vec<&str> = rows.flat_map(|row| row.split("[`").skip(1)).collect();
    assert!(links.len() >= 7, "{links:?}");
    for link in links {
        let (test, rest) = link.split_once("`](").unwrap();
        let path = rest.split(')').next().unwrap();
        let source = fs::read_to_string(xtask::root().join(path)).unwrap();
        assert!(source.contains(&format!("fn {test}(")), "{test} is not in {path}");
    }
}

#[test]
fn promise_without_its_test_is_refused() {
    let missing = Proofs::find(Path::new("/nowhere")).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    let empty = std::env::temp_dir().join(format!("fencepost-docs-{}", std::process::id()));
    for place in ["crates/fencepost-testkit/src/conformance", "crates/fencepost-cli/tests/cli"] {
        fs::create_dir_all(empty.join(place)).unwrap();
    }
    let missing = Proofs::find(&empty).unwrap_err().to_string();
    fs::remove_dir_all(&empty).unwrap();
    assert!(missing.starts_with("there is no test "), "{missing}");
}
