//! What only fences in object stores do: conditions, pointers, answers that are lost, and a control that has none of it.

#![expect(clippy::unwrap_used, reason = "the helpers of a test panic as its assertions do")]

mod control;
mod lost;
mod pointer;
mod probe;
mod race;
mod refusing;
mod support;
