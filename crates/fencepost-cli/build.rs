//! Tells the tests whether the programs that they need are installed; in continuous integration they have to be.

use std::path::{Path, PathBuf};

fn main() {
    for (name, program) in PROGRAMS {
        let found = folders().map(|folder| folder.join(program)).find(|file| file.is_file());
        println!("cargo::rustc-check-cfg=cfg({name})");
        if found.is_some() || std::env::var("CI").is_ok_and(|value| value == "true") {
            println!("cargo::rustc-cfg={name}");
        }
        // A file that is not there is looked for at each build.
        println!("cargo::rerun-if-changed={}", found.unwrap_or_else(|| PathBuf::from(program)).display());
    }
    println!("cargo::rustc-check-cfg=cfg(zookeeper_server)");
    if Path::new(ZOOKEEPER).is_file() || std::env::var("CI").is_ok_and(|value| value == "true") {
        println!("cargo::rustc-cfg=zookeeper_server");
    }
    println!("cargo::rerun-if-changed={ZOOKEEPER}");
    println!("cargo::rerun-if-env-changed=CI");
    println!("cargo::rerun-if-env-changed=PATH");
}

/// Where programs lie. Debian has folders for servers that are on nobody's path, or on that of root alone.
fn folders() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let of_versions = versions.map(|version| version.path().join("bin"));
    on_path.into_iter().chain([Path::new("/usr/sbin").to_owned()]).chain(of_versions)
}

const PROGRAMS: [(&str, &str); 5] = [
    ("etcd_server", "etcd"),
    ("redis_server", "redis-server"),
    ("postgres_server", "postgres"),
    ("pgbouncer_server", "pgbouncer"),
    ("sqlite_shell", "sqlite3"),
];

/// No program: Debian has it as an archive of Java classes.
const ZOOKEEPER: &str = "/usr/share/java/zookeeper.jar";
