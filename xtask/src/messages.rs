//! What is generated in the code: the messages of etcd's protocol, from a small description of our own.
//!
//! It is checked in, so that whoever builds fencepost needs no generator and no `protoc`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the messages of etcd lie.
pub fn generated(root: &Path) -> PathBuf {
    root.join("crates/fencepost-etcd/src/generated/etcd.rs")
}

/// Writes the messages.
///
/// # Errors
/// When the description is wrong or a file cannot be written.
pub fn write(root: &Path) -> io::Result<()> {
    fs::write(generated(root), read(root)?)
}

/// The messages as they are generated now.
///
/// # Errors
/// When the description is wrong or a file cannot be written.
pub fn read(root: &Path) -> io::Result<String> {
    let folder = root.join("xtask/proto/etcd");
    let described = protox::compile(["etcd.proto"], [folder]).map_err(io::Error::other)?;
    let output = tempfile::tempdir()?;
    prost_build::Config::new().out_dir(output.path()).compile_fds(described)?;
    fs::read_to_string(output.path().join("etcd.rs"))
}
