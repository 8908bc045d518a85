//! What a database shows of itself: whether it can be written, where it lies, and whether anything in it is guarded.
//!
//! What each connection sets for itself (`synchronous`, `journal_mode=OFF`) is not seen from outside. Invariant: nothing is
//! written.

use std::path::Path;

use fencepost_core::{Examination, Finding, LockName, Result};
use rustix::fs::Access;

use crate::database::Session;
use crate::fence::SqliteFence;
use crate::guards::{self, Guard};
use crate::schema;

impl SqliteFence {
    pub(crate) async fn look(&self) -> Result<Examination> {
        let mut findings = of_file(self.0.path());
        let (version, guarded) = self.0.work(|session| Ok((version(session)?, of_guards(session)?))).await?;
        findings.extend(guarded);
        Ok(Examination::new(vec![format!("SQLite {version} in {}", self.0.path().display())], findings))
    }
}

fn version(session: &Session<'_>) -> Result<String> {
    session.look(|connection| connection.query_row("SELECT sqlite_version()", [], |row| row.get(0)))
}

/// What the guards of all locks lack.
fn of_guards(session: &Session<'_>) -> Result<Vec<Finding>> {
    let guards = if schema::is_there(session)? { Guard::of(session, None)? } else { Vec::new() };
    if guards.is_empty() {
        let path = session.path().display();
        let finding = Finding::warning(&path, "no table is guarded by any lock").means(
            "only a program that looks at the mark itself is fenced: a write of any other is accepted from a stale holder too",
        );
        let install = format!("fencepost fence install sqlite:{path} --table TABLE --lock LOCK");
        return Ok(vec![finding.remedy(install)]);
    }
    let mut locks: Vec<LockName> = guards.iter().filter_map(|guard| guard.lock().parse().ok()).collect();
    locks.sort();
    locks.dedup();
    let found = locks.iter().map(|lock| guards::findings(session, lock)).collect::<Result<Vec<_>>>()?;
    let mut found: Vec<Finding> = found.into_iter().flatten().collect();
    // What concerns all of them is said by each.
    found.dedup();
    Ok(found)
}

fn of_file(path: &Path) -> Vec<Finding> {
    [of_access(path), of_file_system(path)].into_iter().flatten().collect()
}

/// The file is not opened for that: closing it would end all locks that this process has on it.
fn of_access(path: &Path) -> Option<Finding> {
    let all = Access::READ_OK | Access::WRITE_OK;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let closed = [(path, all), (folder, all | Access::EXEC_OK)];
    let (closed, _) =
        closed.into_iter().find(|(path, access)| rustix::fs::access(*path, *access).is_err())?;
    Some(
        Finding::serious(path.display(), format!("this process may not write {}", closed.display()))
            .means("no token can be sealed there, so no command that needs this fence starts")
            .remedy("give this user the file and its directory to write: SQLite makes its journal beside the file"),
    )
}

fn of_file_system(path: &Path) -> Option<Finding> {
    let kind = u64::try_from(rustix::fs::statfs(path).ok()?.f_type).unwrap_or_default() & 0xffff_ffff;
    if matches!(kind, TMPFS | RAMFS) {
        let found = Finding::warning(path.display(), "it is on a file system in memory");
        return Some(
            found
                .means("a reboot removes data and marks together, and former holders are accepted then")
                .remedy("keep the file on a disk"),
        );
    }
    let (_, name) = NETWORK.iter().find(|(number, _)| *number == kind)?;
    Some(
        Finding::serious(path.display(), format!("it is on {name}, a file system of the network"))
            .means("SQLite's own locks may not work there: two writers at once can damage the file and pass by the fence")
            .remedy("keep the file on a local disk, or the data in Postgres"),
    )
}

/// The numbers of file systems, from `statfs(2)`.
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
const NETWORK: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9P"),
    (0x5346_414f, "AFS"),
    (0x00c3_6400, "Ceph"),
];
