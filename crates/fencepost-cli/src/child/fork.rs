//! The one audited place with `unsafe`: fork, and what must be undone before it.
//!
//! Both calls are sound only while the process has one thread, which each of them checks.

use std::io;

use rustix::process::Pid;

/// Forks this process: `None` in the child, the child's pid in the parent.
///
/// # Panics
/// When the process has more than one thread: the child would inherit locks that nobody can release.
pub(super) fn fork() -> io::Result<Option<Pid>> {
    assert!(is_single_threaded(), "a process is forked before it starts threads");
    // SAFETY: with one thread no lock of another thread can be held in the child, so the child may go on as this
    // process did. No handler and no `atexit` function is registered that would run twice.
    #[expect(unsafe_code, reason = "there is no safe fork; the guardian must share this process's memory")]
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Makes the kernel keep the exit status of children, where the parent had it ignored.
pub(super) fn keep_exit_statuses() {
    assert!(is_single_threaded(), "signal dispositions are changed before threads are started");
    // SAFETY: the default action is no function, so nothing of ours can run in a signal's context.
    #[expect(unsafe_code, reason = "there is no safe way back from an inherited SIG_IGN")]
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
}

/// Where that cannot be told, for want of descriptors, nothing has been done yet that would start a thread.
fn is_single_threaded() -> bool {
    std::fs::read_dir("/proc/self/task").map_or(true, |tasks| tasks.count() == 1)
}
