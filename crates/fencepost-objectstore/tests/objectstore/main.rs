//! What only fences in object stores do: conditions, pointers, answers that are lost, and a control that has none of it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod control;
mod lost;
mod pointer;
mod probe;
mod race;
mod refusing;
mod support;
