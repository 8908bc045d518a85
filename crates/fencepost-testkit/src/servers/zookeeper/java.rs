//! The Java that runs ZooKeeper, made to start quickly: little memory, one compiler, and the classes as an earlier start has left them.
//!
//! The classes lie in an archive with what the build of this crate makes, and go with it. Whoever finds none makes one, while the
//! others wait for it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::ask;
use crate::port::Port;
use crate::process::Process;
use crate::servers::{LONGEST_WAIT, folder, holds_within, installed};

/// A command that runs a server with the settings in `file`, and with more memory where that is asked for, bound to this process.
///
/// # Panics
/// When Java or ZooKeeper is not installed.
pub(super) fn command(file: &Path, memory_mib: Option<u32>) -> Command {
    let mut command = Process::bound(&installed("java"));
    if let Some(archive) = archive() {
        command.arg(format!("-XX:SharedArchiveFile={}", archive.display()));
    }
    run(&mut command, file, memory_mib);
    command
}

/// An archive of Java classes that is not installed, and the package that has it.
pub fn missing_archive() -> Option<(&'static str, &'static str)> {
    JARS.into_iter().find(|(jar, _)| !Path::new(jar).is_file())
}

fn run(command: &mut Command, file: &Path, memory_mib: Option<u32>) {
    if let Some((jar, package)) = missing_archive() {
        panic!("{jar} is not installed; the package {package} has it");
    }
    // Of two the last one counts.
    command.args(OPTIONS).args(memory_mib.map(|most| format!("-Xmx{most}m")));
    command.arg("-cp").arg(JARS.map(|(jar, _)| jar).join(":")).arg(MAIN).arg(file);
}

/// The archive of classes, unless there is no place for it.
fn archive() -> Option<PathBuf> {
    let folder = folder()?;
    let archive = folder.join("zookeeper.jsa");
    if !archive.is_file() {
        let turn = File::create(folder.join("zookeeper.turn")).ok()?;
        turn.lock().ok()?;
        if !archive.is_file() {
            make(&archive);
        }
    }
    archive.is_file().then_some(archive)
}

/// Runs a server until it serves, and has it leave its classes when it ends.
fn make(archive: &Path) {
    let folder = tempfile::tempdir().expect("a temporary directory can be made");
    let (port, file, made) =
        (Port::reserve(), folder.path().join("zoo.cfg"), folder.path().join("zookeeper.jsa"));
    let settings = super::settings(&folder.path().join("data"), &port, &[]);
    fs::write(&file, settings).expect("a file can be made there");
    let mut command = Process::bound(&installed("java"));
    command.arg(format!("-XX:ArchiveClassesAtExit={}", made.display()));
    run(&mut command, &file, None);
    let mut process = Process::start_bound({
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    });
    holds_within(LONGEST_WAIT, || ask(port.address(), "srvr").is_ok_and(|answer| answer.contains("Mode:")));
    process.signal(rustix::process::Signal::TERM);
    holds_within(LONGEST_WAIT, || process.has_ended());
    // Beside its place first, so that nobody sees a half of it; the folders may be on different file systems.
    let beside = archive.with_extension("new");
    if fs::copy(&made, &beside).is_ok() {
        // Without it, a server starts more slowly.
        let _ = fs::rename(&beside, archive);
    }
}

/// Where Debian has them. The first one names what it needs itself, but for what TLS and a log need.
const JARS: [(&str, &str); 3] = [
    ("/usr/share/java/zookeeper.jar", "libzookeeper-java"),
    ("/usr/share/java/slf4j-simple.jar", "libslf4j-java"),
    ("/usr/share/java/netty-codec.jar", "libnetty-java"),
];
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
/// An election in which one member is a round ahead of the other leaves the latter to lead nobody, for ten seconds unless it is told
/// to wait for less.
const OPTIONS: [&str; 8] = [
    "-Xshare:auto",
    "-Xlog:disable",
    "-Xmx64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dzookeeper.leader.maxTimeToWaitForEpoch=500",
    "-Dzookeeper.forceSync=no",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];
