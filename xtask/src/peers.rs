//! Installs the lock libraries that the benchmark measures beside ours, from their registries into a folder under `target`.
//!
//! Nothing of them is a part of the product, and no check needs them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Installs what is missing; the folder where they are.
///
/// # Errors
/// When a tool that installs them is not there or fails.
pub fn install(root: &Path) -> io::Result<PathBuf> {
    let (folder, sources) = (root.join("target/peers"), root.join("bench/peers"));
    std::fs::create_dir_all(folder.join("node"))?;
    let python = folder.join("python");
    if !python.join("bin/python").exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&python))?;
    }
    run(Command::new(python.join("bin/pip"))
        .args(["install", "--quiet", "--disable-pip-version-check", "--requirement"])
        .arg(sources.join("requirements.txt")))?;
    std::fs::copy(sources.join("package.json"), folder.join("node/package.json"))?;
    run(Command::new("npm").current_dir(folder.join("node")).args([
        "install",
        "--silent",
        "--no-audit",
        "--no-fund",
        "--no-package-lock",
    ]))?;
    run(Command::new("cargo")
        .args(["build", "--release", "--quiet", "--manifest-path"])
        .arg(sources.join("rust/Cargo.toml"))
        .arg("--target-dir")
        .arg(folder.join("rust")))?;
    Ok(folder)
}

fn run(command: &mut Command) -> io::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |why: String| io::Error::other(format!("the peers cannot be installed: {program} {why}"));
    let status = command.status().map_err(|error| failed(format!("cannot be started ({error})")))?;
    if status.success() {
        return Ok(());
    }
    Err(failed(format!("has failed ({status}); needed are python3 with venv, node with npm, and protoc")))
}
