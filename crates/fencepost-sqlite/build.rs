//! Tells the tests whether the programs that they need are installed; in continuous integration they have to be.

use std::path::PathBuf;

fn main() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    for (name, program) in PROGRAMS {
        let found = folders.iter().map(|folder| folder.join(program)).find(|file| file.is_file());
        println!("cargo::rustc-check-cfg=cfg({name})");
        if found.is_some() || std::env::var("CI").is_ok_and(|value| value == "true") {
            println!("cargo::rustc-cfg={name}");
        }
        // A file that is not there is looked for at each build.
        println!("cargo::rerun-if-changed={}", found.unwrap_or_else(|| PathBuf::from(program)).display());
    }
    println!("cargo::rerun-if-env-changed=CI");
    println!("cargo::rerun-if-env-changed=PATH");
}

/// The one of Python is that of the system, whatever else is on the path.
const PROGRAMS: [(&str, &str); 2] = [("sqlite_shell", "sqlite3"), ("python", "/usr/bin/python3")];
