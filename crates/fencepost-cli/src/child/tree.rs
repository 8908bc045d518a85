//! The processes of a command: its descendants, however they have left its group or session.
//!
//! Runner and guardian are sub-reapers, so a process that loses its parent becomes their child and cannot get away. The
//! lists in `/proc` may miss a process that is being born, so one empty reading proves nothing: the end is when the
//! kernel says that there is no child left.

use std::fs;
use std::time::Duration;

use fencepost::Clock;

use rustix::event::Timespec;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, getpid, kill_process, waitid};

use super::channel::ExitStatus;
use crate::exit::Exit;

/// The process group of a process, or of this one; none where it lies in another pid namespace, as that of a process
/// which was started in a container from outside does.
pub(super) fn group_of(process: Option<Pid>) -> Option<Pid> {
    let process = process.map(|pid| nix::unistd::Pid::from_raw(pid.as_raw_pid()));
    Pid::from_raw(nix::unistd::getpgid(process).ok()?.as_raw())
}

/// Whether `/proc` tells of the processes that this one sees: it may be that of another pid namespace.
pub(super) fn is_visible() -> bool {
    let itself = fs::read_link("/proc/self").ok();
    itself.is_some_and(|itself| itself.as_os_str() == getpid().as_raw_pid().to_string().as_str())
}

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

/// Sends SIGKILL to the children of this process, many times in a row and nothing between: processes that hand on to a
/// child and end are caught only by whoever is quicker, and each of them becomes a child of this process.
pub(super) fn kill_children() {
    for _ in 0..KILL_BURST {
        let children = children(getpid());
        if children.is_empty() {
            return;
        }
        for child in children {
            let _ = kill_process(child, Signal::KILL);
        }
    }
}

/// How many rounds of SIGKILL are sent in a row.
const KILL_BURST: usize = 30;

/// Sends `signal` to every descendant of this process outside the process group `group`.
pub(super) fn signal_outside(group: Pid, signal: Signal) {
    for pid in descendants(getpid()).into_iter().filter(|pid| group_of(Some(*pid)) != Some(group)) {
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
    stopped(WaitId::Pid(child))
}

/// The signal that has stopped a child of the process group `group` since the last look.
pub(super) fn was_group_stopped(group: Pid) -> Option<i32> {
    stopped(WaitId::Pgid(Some(group)))
}

fn stopped(children: WaitId<'_>) -> Option<i32> {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    waitid(children, options).ok()??.stopping_signal()
}

/// Reaps every child that has ended, but for `kept`; whether any other child is left.
///
/// A child that ends hands its own children to this process, so it is looked again until nothing was reaped.
pub(super) fn reap_all_but(kept: &[Pid]) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    loop {
        let (mut reaped, mut left) = (false, false);
        for child in children(getpid()).into_iter().filter(|child| !kept.contains(child)) {
            match waitid(WaitId::Pid(child), options) {
                Ok(Some(_)) => reaped = true,
                Ok(None) => left = true,
                Err(_) => {}
            }
        }
        if !reaped {
            return left;
        }
    }
}

/// Whether a child but `kept` is left, by a look at every process: the lists of children may miss one that is being
/// born.
fn is_any_left_but(kept: &[Pid]) -> bool {
    has_children() && children_by_scan(getpid().as_raw_pid()).iter().any(|child| !kept.contains(child))
}

/// Whether the kernel knows of any child of this process.
pub(super) fn has_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, options), Err(rustix::io::Errno::CHILD))
}

/// How long a process may survive SIGKILL before the user is told.
pub(super) const UNKILLABLE_AFTER: Duration = Duration::from_secs(2);

/// How long to wait between two rounds of SIGKILL: first what a kernel needs to end a process, then, for one that is
/// stuck in the kernel, less often.
pub(super) const KILL_ROUNDS: [Duration; 2] = [Duration::from_micros(300), Duration::from_millis(20)];

/// Ends every descendant of this process but `kept`, and returns when none is left. Those that SIGKILL has not ended in
/// time are named to `stuck`, once.
pub(super) fn kill_all_but(kept: &[Pid], stuck: impl FnOnce(&[Pid])) {
    let (since, mut stuck) = (Clock::system().now(), Some(stuck));
    while reap_all_but(kept) || is_any_left_but(kept) {
        let ours = children(getpid()).into_iter().filter(|child| !kept.contains(child));
        let all: Vec<_> = ours.flat_map(|child| descendants(child).into_iter().chain([child])).collect();
        for pid in &all {
            let _ = kill_process(*pid, Signal::KILL);
        }
        if kept.is_empty() {
            kill_children();
        }
        if Clock::system().now().since(since) >= UNKILLABLE_AFTER
            && let Some(stuck) = stuck.take()
        {
            stuck(&all);
        }
        pause(KILL_ROUNDS[usize::from(stuck.is_none())]);
    }
}

/// A poll that waits for nothing: a pause that needs no thread, since there may be none to start.
fn pause(duration: Duration) {
    let moment = Timespec { tv_sec: 0, tv_nsec: i64::from(duration.subsec_nanos()) };
    let _ = rustix::event::poll(&mut [], Some(&moment));
}

/// Processes by their numbers.
pub(super) fn pids(processes: &[Pid]) -> Vec<i32> {
    processes.iter().map(|pid| pid.as_raw_pid()).collect()
}
