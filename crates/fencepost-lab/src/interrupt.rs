//! Ctrl-C and its relatives: the lab then ends what it has started, and removes what it has made, before it ends itself.
//!
//! The signals are blocked before any thread is started, and read by one thread. Programs that the lab starts get them unblocked.

use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::signal::{SigSet, Signal};

static COME: AtomicI32 = AtomicI32::new(0);

/// Has the signals that end a program remembered instead. To be called before there is a second thread.
pub(crate) fn listen() {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        signals.add(signal);
    }
    if signals.thread_block().is_err() {
        return;
    }
    std::thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            COME.store(signal as i32, Ordering::Release);
        }
    });
}

/// Whether the lab was told to end.
pub(crate) fn has_come() -> bool {
    number().is_some()
}

/// The number of the signal that told the lab to end.
pub(crate) fn number() -> Option<i32> {
    Some(COME.load(Ordering::Acquire)).filter(|number| *number != 0)
}
