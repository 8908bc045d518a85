//! Where a server is not installed, the tests that need it are ignored by name; where it is, they are not.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;

use fencepost_core::{Fence, MemoryFence};
use fencepost_testkit::{FenceHarness, VirtualMemory};

struct Memory(Arc<MemoryFence>);

impl FenceHarness for Memory {
    fn start() -> Self {
        Self(Arc::default())
    }

    fn fence(&self) -> Arc<dyn Fence> {
        Arc::clone(&self.0) as _
    }
}

// These two configurations are known to the compiler, and one is never set where the tests run.
fencepost_testkit::conformance!(missing: VirtualMemory, if windows);
fencepost_testkit::fence_conformance!(missing_fence: Memory, if windows);
fencepost_testkit::fence_conformance!(installed_fence: Memory, if unix);

fn listed(arguments: &[&str]) -> BTreeSet<String> {
    let program = std::env::current_exe().expect("a program knows its own path");
    let output =
        Command::new(program).arg("--list").args(arguments).output().expect("a test can start itself");
    let text = String::from_utf8(output.stdout).expect("names are text");
    text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

#[test]
fn tests_of_a_server_that_is_not_installed_are_ignored_by_name() {
    let (all, ignored) = (listed(&[]), listed(&["--ignored"]));
    let of =
        |module: &str| all.iter().filter(|name| name.starts_with(module)).cloned().collect::<BTreeSet<_>>();
    let (missing, fences) = (of("missing::"), of("missing_fence::"));
    assert!(missing.len() > 50 && fences.len() > 10, "{all:?}");
    assert!(missing.is_subset(&ignored) && fences.is_subset(&ignored), "{ignored:?}");
    assert!(of("installed_fence::").len() == fences.len());
    assert!(of("installed_fence::").is_disjoint(&ignored));
}
