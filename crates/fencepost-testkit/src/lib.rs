#![doc = include_str!("../README.md")]
//!
//! # Map of the code
//! - `harness`: what a backend's tests give to the suite
//! - `conformance`: the suite, one file a theme; `when` chooses, `stage` is what every case stands on
//! - `fence_suite`: the same for fences
//! - `worker`: worker processes of the cases; `history`: the checker of what several holders did
//! - `broken`: deliberately broken backends and fences, which prove that the suite finds defects
//! - `listener`: an observer that counts what it hears
//! - `virtual_memory`: the memory backend in virtual time, as a harness
//! - `servers`: real servers as child processes; `process` and `port` are what they stand on
//! - `proxy`: a proxy that loses, holds back and delays what passes between a client and a server

pub mod broken;
pub mod conformance;
pub mod fence_suite;
pub mod history;
pub mod proxy;
pub mod servers;

mod harness;
mod listener;
mod port;
mod process;
mod virtual_memory;
mod worker;

pub use fence_suite::FenceHarness;
pub use fencepost_core::block_on;
pub use harness::Harness;
pub use listener::Listener;
pub use virtual_memory::VirtualMemory;
pub use worker::work_as_told;

use std::panic::UnwindSafe;

/// The message of the panic in which `work` ends, if it does.
fn message_of(work: impl FnOnce() + UnwindSafe) -> Option<String> {
    let panic = std::panic::catch_unwind(work).err()?;
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .or_else(|| Some("a panic without words".to_owned()))
}
