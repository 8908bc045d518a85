//! What is wrong with a directory is found: each finding on one that really is so, and none on one that is well.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use fencepost_core::{Backend, Clock, Examination, Fence, Finding, Severity, block_on};
use fencepost_file::{FileBackend, FileFence};
use tempfile::TempDir;

/// A directory on the disk that the tests are built on, where nobody sweeps.
fn well() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A look at a directory of locks, which makes nothing.
#[track_caller]
fn examined(path: &Path, options: &str) -> Examination {
    let url = format!("file:{}{options}", path.display()).parse().unwrap();
    let before = path.exists();
    let examination = block_on(FileBackend::from_url(&url, Clock::system()).unwrap().examine()).unwrap();
    assert_eq!(path.exists(), before);
    examination
}

fn examined_fence(path: &Path) -> Examination {
    let url = format!("file:{}", path.display()).parse().unwrap();
    block_on(FileFence::from_url(&url).unwrap().examine()).unwrap()
}

#[track_caller]
fn found<'a>(examination: &'a Examination, severity: Severity, evidence: &str) -> &'a Finding {
    let finding = examination.findings.iter().find(|finding| finding.evidence.contains(evidence));
    let finding = finding.unwrap_or_else(|| panic!("{evidence:?} in {examination:#?}"));
    assert_eq!(finding.severity, severity, "{finding:?}");
    assert!(!finding.consequence.is_empty() && !finding.remedy.is_empty(), "{finding:?}");
    finding
}

#[test]
fn directory_that_is_well_has_no_finding() {
    let directory = well();
    for mode in [0o700, 0o2770] {
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
        for examination in [examined(directory.path(), "?fsync=on"), examined_fence(directory.path())] {
            assert!(examination.findings.is_empty(), "{examination:#?}");
        }
    }
}

#[test]
fn directory_that_is_not_there_is_noted_and_not_made() {
    let directory = well();
    let missing = directory.path().join("a/b");
    let examination = examined(&missing, "");
    found(&examination, Severity::Note, "does not exist");
    assert_eq!(examination.findings.len(), 1, "{examination:#?}");
    fs::write(directory.path().join("a"), "").unwrap();
    found(&examined(&missing, ""), Severity::Serious, "is not a directory");
}

#[test]
fn directory_that_is_swept_is_found() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    found(&examined(directory.path(), ""), Severity::Warning, "it is below /tmp");
    found(&examined_fence(directory.path()), Severity::Serious, "it is below /tmp");
    // However it is called.
    let elsewhere = well();
    let link = elsewhere.path().join("link");
    std::os::unix::fs::symlink(directory.path(), &link).unwrap();
    found(&examined(&link, ""), Severity::Warning, "it is below /tmp");
}

#[test]
fn directory_that_a_reboot_empties_is_found() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    found(&examined(directory.path(), ""), Severity::Warning, "it is on tmpfs");
    let durable = examined(directory.path(), "?fsync=on");
    let finding = found(&durable, Severity::Serious, "it is on tmpfs");
    assert!(finding.consequence.starts_with("fsync=on promises"), "{finding:?}");
    found(&examined_fence(directory.path()), Severity::Serious, "it is on tmpfs");
}

#[test]
fn directory_that_everybody_may_write_is_found() {
    let directory = well();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    found(&examined(directory.path(), ""), Severity::Warning, "mode 0777");
    found(&examined_fence(directory.path()), Severity::Serious, "mode 0777");
    // Where only its owner may remove a file.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    assert_eq!(examined(directory.path(), "").findings, []);
}
