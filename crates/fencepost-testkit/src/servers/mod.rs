//! Real servers as child processes of a test: on 127.0.0.1, in a temporary directory, on a port that the kernel chose.
//!
//! Invariant: no server outlives the value that stands for it, nor this process, however it ends.

mod certificates;
mod clock;
mod etcd;
mod moto;
mod pgbouncer;
mod postgres;
mod redis;
mod resp;
mod s3;
mod sentinel;
mod zookeeper;

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use fencepost_core::Clock;

pub use certificates::Certificates;
pub use clock::SteppedClock;
pub use etcd::{EtcdCluster, EtcdServer, EtcdSetup};
pub use moto::MotoServer;
pub use pgbouncer::{PgBouncer, PoolMode};
pub use postgres::{PostgresClient, PostgresServer, PostgresSetup, psql};
pub use redis::{RedisServer, RedisSetup};
pub use resp::{RedisClient, Reply};
pub use s3::{Fate, Ignored, S3Server};
pub use sentinel::RedisSentinel;
pub use zookeeper::{
    ZooKeeperClient, ZooKeeperEnsemble, ZooKeeperNode, ZooKeeperServer, ZooKeeperSetup, ZooKeeperStay,
    missing_archive,
};

use crate::block_on;

/// Cargo's folder for this crate, for archives from which servers start sooner, if it is ours alone.
///
/// A program that was installed has left its build folder, perhaps below `/tmp`, where anybody can make one of the same name: what
/// lies there would be run with our rights.
fn folder() -> Option<&'static Path> {
    is_ours(Path::new(env!("OUT_DIR"))).then_some(Path::new(env!("OUT_DIR")))
}

fn is_ours(folder: &Path) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    folder.symlink_metadata().is_ok_and(|metadata| {
        metadata.is_dir() && metadata.uid() == ours && metadata.mode() & OTHERS_WRITE == 0
    })
}

const OTHERS_WRITE: u32 = 0o002;

/// Waits until `condition` holds, looking every few milliseconds.
///
/// # Panics
/// When it does not hold within half a minute; `what` says what was waited for.
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    assert!(holds_within(LONGEST_WAIT, condition), "within {LONGEST_WAIT:?} it was not seen that {what}");
}

/// Whether `condition` holds within `limit`.
fn holds_within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let clock = Clock::system();
    let end = clock.now().after(limit);
    while !condition() {
        if clock.now() >= end {
            return false;
        }
        block_on(clock.sleep(BETWEEN_LOOKS));
    }
    true
}

/// Whether a program that the servers here need is installed: `redis-server`, `postgres`, `setpriv`, `cc`.
pub fn is_installed(program: &str) -> bool {
    postgres::programs::newest(program).or_else(|| find(program)).is_some()
}

/// Where a program is installed.
///
/// # Panics
/// When it is not; a test that needs it is to be ignored then, as the README says.
fn installed(program: &str) -> PathBuf {
    find(program).unwrap_or_else(|| panic!("{program} is not installed; ./test installs it"))
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian has servers in a folder that is on the path of root alone.
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Where a server writes what it says; what is there stays.
fn log_to(file: &Path) -> Stdio {
    let options = File::options().append(true).create(true).open(file);
    options.expect("a file can be made in a temporary directory").into()
}

/// Longer than any server takes on a busy machine.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Short beside the time that a server takes to start.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn folder_that_others_could_have_filled_is_not_ours() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        assert!(is_ours(folder.path()));
        let link = folder.path().join("link");
        symlink(folder.path(), &link).expect("a link can be made");
        assert!(!is_ours(&link) && !is_ours(&folder.path().join("nowhere")));
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("it is ours");
        assert!(!is_ours(folder.path()));
    }
}
