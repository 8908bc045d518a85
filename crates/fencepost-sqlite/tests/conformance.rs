//! The suite that every fence runs, on a database in each of the two ways in which SQLite commits.

use std::sync::Arc;

use fencepost_core::Fence;
use fencepost_sqlite::SqliteFence;
use fencepost_testkit::FenceHarness;
use rusqlite::Connection;

struct Journal(tempfile::TempDir);

struct Log(tempfile::TempDir);

/// A database with a commit mode that the file remembers.
fn database(mode: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let connection = Connection::open(directory.path().join("a.db")).expect("a database can be made");
    connection.pragma_update(None, "journal_mode", mode).expect("SQLite knows the mode");
    connection.execute_batch("CREATE TABLE account (total)").expect("a new database can be written");
    directory
}

fn fence(directory: &tempfile::TempDir) -> Arc<dyn Fence> {
    let url = format!("sqlite:{}/a.db", directory.path().display());
    let url = url.parse().expect("a temporary directory makes a URL");
    Arc::new(SqliteFence::from_url(&url).expect("the URL names a file"))
}

impl FenceHarness for Journal {
    fn start() -> Self {
        Self(database("DELETE"))
    }

    fn fence(&self) -> Arc<dyn Fence> {
        fence(&self.0)
    }
}

impl FenceHarness for Log {
    fn start() -> Self {
        Self(database("WAL"))
    }

    fn fence(&self) -> Arc<dyn Fence> {
        fence(&self.0)
    }
}

fencepost_testkit::fence_conformance!(journal: Journal);
fencepost_testkit::fence_conformance!(log: Log);
