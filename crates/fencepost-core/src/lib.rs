#![doc = include_str!("../README.md")]
//!
//! # Map of the code
//! - `backend`: the two traits that a backend implements, and the data that crosses them
//! - `locks`, `lock`, `lease`: what users hold, before and after the grant
//! - `changes`: what becomes of locks while somebody watches
//! - `logbook`: what holders leave for those to come: the last grants, and the last period that was done
//! - `keeper`: when to renew and when a lease is lost, as a pure state machine; `deadline`: the arithmetic
//! - `clock`, `poll`, `watch`, `lead`: time, timers and descriptors, the background thread, and time in virtual time
//! - `telling`: how observers are told of an attempt and its lease
//! - `name`, `token`, `error`, `profile`, `fence`, `event`, `examine`, `label`, `url`: the vocabulary
//! - `memory`: the reference backend

pub mod label;
pub mod memory;

mod backend;
mod changes;
mod clock;
mod deadline;
mod error;
mod event;
mod examine;
mod fence;
mod keeper;
mod lead;
mod lease;
mod lock;
mod locks;
mod logbook;
mod name;
mod poll;
mod profile;
mod telling;
mod token;
mod url;
mod watch;

pub use backend::{
    AcquireRequest, Backend, Claim, Descriptor, Grant, Handover, LockState, Mode, Reader, Renewal, Revoked,
    Status, Wait, Waiter,
};
pub use changes::{Change, ChangeKind, Watch};
#[doc(hidden)]
pub use clock::lock;
pub use clock::{Clock, Moment, Sleep, VirtualTime};
pub use deadline::{Cadence, Deadline, default_grace};
pub use error::{Error, ErrorKind, LossReason, Result};
pub use event::{Attempt, Event, Observer};
pub use examine::{Ahead, Examination, Finding, Severity, TtlRange};
pub use fence::{Fence, Mark, MemoryFence, Stamp, StampHolder};
pub use lead::block_on;
pub use lease::Lease;
pub use lock::{DEFAULT_TTL, Lock, release_all};
pub use locks::Locks;
pub use logbook::{Ended, Logbook, MarkOn, PastGrant, Period};
pub use memory::MemoryBackend;
pub use name::{LockName, NamePrefix};
pub use poll::{Raced, arm, race, until};
pub use profile::{Assured, Connections, Cost, Expiry, Loss, Profile, Scope, Tie, Timing, Tokens, Waiting};
pub use token::{FencingToken, HolderId};
pub use url::BackendUrl;
pub use watch::Watched;
