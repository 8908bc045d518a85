//! Tells the tests whether the server that they need is installed; in continuous integration it has to be.

use std::path::PathBuf;

fn main() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&path).map(|folder| folder.join("etcd"));
    let found = files.find(|file| file.is_file());
    println!("cargo::rustc-check-cfg=cfg(etcd_server)");
    if found.is_some() || std::env::var("CI").is_ok_and(|value| value == "true") {
        println!("cargo::rustc-cfg=etcd_server");
    }
    println!("cargo::rerun-if-env-changed=CI");
    println!("cargo::rerun-if-env-changed=PATH");
    // A file that is not there is looked for at each build.
    println!("cargo::rerun-if-changed={}", found.unwrap_or_else(|| PathBuf::from("etcd")).display());
}
