//! The processes of a command: its descendants, however they have left its group or session.
//!
//! Runner and guardian are sub-reapers, so a process that loses its parent becomes their child and cannot get away. The
//! lists in `/proc` may miss a process that is being born, so one empty reading proves nothing: the end is when the
//! kernel says that there is no child left.

use std::fs;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, getpgid, getpid, kill_process, waitid,
};

use super::channel::ExitStatus;
use crate::exit::Exit;

/// The children of `parent`, zombies included.
pub(super) fn children(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_pid();
    let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { return Vec::new() };
    let lists = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("children")));
    match lists.collect::<Result<Vec<_>, _>>() {
        Ok(lists) => lists.iter().flat_map(|list| list.split_ascii_whitespace()).filter_map(pid).collect(),
        // The thread has just ended, or the kernel was built without these lists.
        Err(_) => children_by_scan(parent),
    }
}

fn children_by_scan(parent: i32) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| pid(entry.file_name().to_str()?));
    pids.filter(|pid| stat(*pid).is_some_and(|(_, parent_pid)| parent_pid == parent)).collect()
}

/// The state of a process, and its parent.
fn stat(pid: Pid) -> Option<(char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    // The name in parentheses may contain anything, parentheses too.
    let mut words = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

fn pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

/// All descendants of `root`, without itself.
pub(super) fn descendants(root: Pid) -> Vec<Pid> {
    let mut found = children(root);
    let mut next = 0;
    while next < found.len() {
        let more = children(found[next]);
        found.extend(more.into_iter().filter(|pid| !found.contains(pid)).collect::<Vec<_>>());
        next += 1;
    }
    found
}

/// The descendants of this process that live, in the sense that they may still act.
pub(super) fn alive() -> Vec<Pid> {
    let living = |pid: &Pid| stat(*pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'));
    descendants(getpid()).into_iter().filter(living).collect()
}

/// Sends `signal` to every descendant of this process.
pub(super) fn signal_all(signal: Signal) {
    for pid in descendants(getpid()) {
        let _ = kill_process(pid, signal);
    }
}

/// Sends `signal` to every descendant of this process outside the process group `group`.
pub(super) fn signal_outside(group: Pid, signal: Signal) {
    for pid in descendants(getpid()).into_iter().filter(|pid| getpgid(Some(*pid)) != Ok(group)) {
        let _ = kill_process(pid, signal);
    }
}

/// Takes the exit status of one child that has ended.
pub(super) fn reap(child: Pid) {
    while matches!(waitid(WaitId::Pid(child), WaitIdOptions::EXITED), Err(rustix::io::Errno::INTR)) {}
}

/// Whether `child` has ended; its status stays with the kernel, and so its pid and group stay its own.
pub(super) fn has_ended(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(child), options), Ok(None))
}

/// How a child that has ended did so; see [`has_ended`].
pub(super) fn peek(child: Pid) -> ExitStatus {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(child), options) {
        Ok(Some(status)) => status_of(&status),
        _ => ExitStatus::Code(i32::from(Exit::BUG.0)),
    }
}

/// How a process has ended, from the kernel's words.
fn status_of(status: &WaitIdStatus) -> ExitStatus {
    let signal = status.terminating_signal().map(ExitStatus::Signal);
    signal.unwrap_or_else(|| ExitStatus::Code(status.exit_status().unwrap_or(i32::from(Exit::BUG.0))))
}

/// The signal that has stopped `child` since the last look.
pub(super) fn was_stopped(child: Pid) -> Option<i32> {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    waitid(WaitId::Pid(child), options).ok()??.stopping_signal()
}

/// Reaps every child that has ended, but for `kept`; whether any other child is left.
pub(super) fn reap_all_but(kept: &[Pid]) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let others = children(getpid()).into_iter().filter(|child| !kept.contains(child));
    others.fold(false, |left, child| left | matches!(waitid(WaitId::Pid(child), options), Ok(None)))
}

/// Whether the kernel knows of any child of this process.
pub(super) fn has_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, options), Err(rustix::io::Errno::CHILD))
}

/// Ends every descendant of this process but `kept`, and returns when none is left.
pub(super) fn kill_all_but(kept: &[Pid]) {
    while reap_all_but(kept) {
        for child in children(getpid()).into_iter().filter(|child| !kept.contains(child)) {
            for pid in descendants(child).into_iter().chain([child]) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        pause();
    }
}

/// What the kernel needs to end a process. A poll that waits for nothing is a pause that needs no clock.
fn pause() {
    let moment = rustix::event::Timespec { tv_sec: 0, tv_nsec: 300_000 };
    let _ = rustix::event::poll(&mut [], Some(&moment));
}
