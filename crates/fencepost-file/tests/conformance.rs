//! The suites that every backend and every fence runs, on files.

use std::sync::Arc;

use fencepost_core::{BackendUrl, Clock, Fence, Locks};
use fencepost_file::{FileBackend, FileFence};
use fencepost_testkit::{FenceHarness, Harness};

struct Files(tempfile::TempDir);

fn url(directory: &tempfile::TempDir) -> BackendUrl {
    let text = format!("file:{}", directory.path().display());
    text.parse().expect("a temporary directory makes a URL")
}

impl Harness for Files {
    fn start() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory can be made"))
    }

    fn locks(&self) -> Locks {
        Self::from_address(&url(&self.0).to_string())
    }

    fn address(&self) -> Option<String> {
        Some(url(&self.0).to_string())
    }

    fn from_address(address: &str) -> Locks {
        let url = address.parse().expect("an address is a URL");
        Locks::new(FileBackend::from_url(&url, Clock::system()).expect("the URL names a directory"))
    }
}

impl FenceHarness for Files {
    fn start() -> Self {
        <Self as Harness>::start()
    }

    fn fence(&self) -> Arc<dyn Fence> {
        Arc::new(FileFence::from_url(&url(&self.0)).expect("the URL names a directory"))
    }
}

fencepost_testkit::conformance!(file: Files);
fencepost_testkit::fence_conformance!(fence: Files);
