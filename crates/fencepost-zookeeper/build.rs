//! Tells the tests whether the server that they need is installed; in continuous integration it has to be.

use std::path::Path;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(zookeeper_server)");
    if Path::new(JAR).is_file() || std::env::var("CI").is_ok_and(|value| value == "true") {
        println!("cargo::rustc-cfg=zookeeper_server");
    }
    println!("cargo::rerun-if-env-changed=CI");
    // A file that is not there is looked for at each build.
    println!("cargo::rerun-if-changed={JAR}");
}

/// The server is no program: Debian has it as an archive of Java classes.
const JAR: &str = "/usr/share/java/zookeeper.jar";
