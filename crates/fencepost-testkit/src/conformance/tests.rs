//! The list is complete, and nothing that a profile claims is passed over in silence.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use fencepost_core::{Locks, VirtualTime};

use super::{CASES, run};
use crate::broken::{Broken, Defect};
use crate::harness::Harness;
use crate::virtual_memory::VirtualMemory;

#[test]
fn every_function_of_a_case_is_in_the_list() {
    let listed: BTreeSet<String> = CASES.iter().map(|case| case.name.to_owned()).collect();
    assert_eq!(listed.len(), CASES.len(), "a case is listed twice");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance");
    let mut written = BTreeSet::new();
    for entry in folder.read_dir().unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        written.extend(text.lines().filter_map(case_in).map(str::to_owned));
    }
    assert_eq!(written, listed);
}

/// A case is visible to the list and takes the stage alone.
fn case_in(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub(super) ")?;
    let line = line.strip_prefix("async ").unwrap_or(line);
    line.strip_prefix("fn ")?.strip_suffix("(stage: &Stage<'_>) {")
}

/// What its profile claims takes other processes, and it cannot start any.
fn alone() -> VirtualMemory {
    VirtualMemory::inside(|healthy| Arc::new(Broken::new(Arc::new(healthy), Defect::ReachesNobody)))
}

macro_rules! harness {
    ($name:ident, waived: $waived:expr) => {
        struct $name(VirtualMemory);

        impl Harness for $name {
            fn start() -> Self {
                Self(alone())
            }

            fn locks(&self) -> Locks {
                self.0.locks()
            }

            fn virtual_time(&self) -> Option<&VirtualTime> {
                self.0.virtual_time()
            }

            fn waived(_: &str) -> Option<&'static str> {
                $waived
            }
        }
    };
}

harness!(Silent, waived: None);
harness!(Waiving, waived: Some("there is no other process"));

fn outcome<H: Harness>(case: &str) -> Option<String> {
    crate::message_of(|| run::<H>(case, ""))
}

#[test]
fn claim_that_cannot_be_exercised_fails() {
    let message = outcome::<Silent>("increments_of_many_processes_do_not_overlap").unwrap();
    assert!(message.contains("cannot exercise it: give it an address"), "{message}");
}

#[test]
fn claim_that_cannot_be_exercised_is_waived_with_a_reason() {
    assert_eq!(outcome::<Waiving>("increments_of_many_processes_do_not_overlap"), None);
}

#[test]
fn waiver_of_a_case_that_runs_is_an_error() {
    let message = outcome::<Waiving>("lock_is_not_reentrant").unwrap();
    assert!(message.contains("and yet it runs: end the waiver"), "{message}");
}

#[test]
fn waiver_of_what_is_not_claimed_is_an_error() {
    let message = outcome::<Waiving>("stopped_holder_keeps_the_lock").unwrap();
    assert!(message.contains("and yet not claimed"), "{message}");
}

#[test]
fn case_that_is_not_claimed_is_passed_over() {
    assert_eq!(outcome::<Silent>("stopped_holder_keeps_the_lock"), None);
}
