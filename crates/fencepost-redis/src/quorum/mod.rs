//! Redlock without its network: what a quorum of independent nodes is asked, and what their answers prove.
//!
//! Every machine here is a pure step from an event to actions. None reads a clock or draws a random number, so the
//! simulator and the explorer in `tests/quorum/` run the very code that a driver runs. Invariant: what is believed
//! rests on a majority of one round, and a term is counted from before that round was sent.
//!
//! The theorems that the machines carry: **R1** two grants never share a token; **R2** what begins after a grant
//! returned gets a greater one (both without any assumption about time); **R3** one holder at a time.

mod attempt;
mod cancellation;
mod message;
mod nodes;
mod outcome;
mod pace;
mod seed;
mod tenure;
mod terms;

pub use attempt::Attempt;
pub use cancellation::Cancellation;
pub use message::{Action, Event, Reply, Request, Round};
pub use nodes::{NodeSet, Quorum};
pub use outcome::{Answer, Granted, Outcome, Refusal, Suspect, Why};
pub use pace::back_off;
pub use seed::{Basis, Decision, Reading, Seed, decide};
pub use tenure::{Loss, Tenure, Verdict};
pub use terms::{GREATEST_TOKEN, Terms};
