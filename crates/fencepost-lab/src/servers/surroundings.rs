//! What the lab needs of the machine beside the servers themselves, looked at before it would be missed.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use fencepost_testkit::servers::is_installed;

use super::Done;

/// Refuses where a program is not installed.
pub(super) fn expect_installed(program: &str, package: &str) -> Done {
    if is_installed(program) {
        return Ok(());
    }
    Err(format!("{program} is not installed; the package {package} has it"))
}

/// Refuses where no server's clock can be set.
pub(super) fn expect_clock() -> Done {
    if has_clock() {
        return Ok(());
    }
    Err("a server's clock is set by a library that is compiled on the spot, and there is no C compiler"
        .to_owned())
}

/// Whether servers can have clocks of their own.
pub(super) fn has_clock() -> bool {
    static COMPILES: OnceLock<bool> = OnceLock::new();
    *COMPILES.get_or_init(|| is_installed("cc") && compiles(INCLUDES).unwrap_or(false))
}

/// Whether Postgres can be started with its files in a folder.
pub(crate) fn expect_postgres(folder: &Path) -> Done {
    expect_installed("postgres", "postgresql")?;
    expect_installed("setpriv", "util-linux")?;
    // Postgres does not run as root, and another user has to come as far as to his own files.
    let is_open = |folder: &Path| {
        let mode = std::fs::metadata(folder).map_or(0, |folder| folder.permissions().mode());
        mode & 0o001 != 0
    };
    let closed = folder.ancestors().find(|folder| !is_open(folder));
    match closed.filter(|_| rustix::process::geteuid().is_root()) {
        Some(closed) => Err(format!(
            "the user who runs Postgres cannot enter {}; name another place with TMPDIR",
            closed.display()
        )),
        None => Ok(()),
    }
}

fn compiles(source: &str) -> std::io::Result<bool> {
    let mut compiler = Command::new("cc")
        .args(["-fsyntax-only", "-x", "c", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut input) = compiler.stdin.take() {
        input.write_all(source.as_bytes())?;
    }
    Ok(compiler.wait()?.success())
}

/// A compiler without the C library's headers is none.
const INCLUDES: &str = "#include <fcntl.h>\n#include <sys/mman.h>\n#include <sys/syscall.h>\nint shifted;\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_that_only_root_can_enter_is_no_place_for_postgres() {
        let folder = tempfile::tempdir().unwrap();
        let with_mode = |mode| {
            std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).unwrap();
            expect_postgres(folder.path())
        };
        if rustix::process::geteuid().is_root() && is_installed("postgres") {
            assert!(with_mode(0o700).unwrap_err().contains("TMPDIR"));
            assert_eq!(with_mode(0o711), Ok(()));
        }
    }

    #[test]
    fn program_that_is_not_installed_is_named_with_its_package() {
        let why = expect_installed("no-such-server", "a-package").unwrap_err();
        assert_eq!(why, "no-such-server is not installed; the package a-package has it");
    }
}
