#![doc = include_str!("../README.md")]
//!
//! # Map of the code
//! - `layer`: the layer, and the service that it puts in front
//! - `header`: the header `Fencing-Token`, written and read; `refusal`: what a caller is told

mod header;
mod layer;
mod refusal;

pub use header::{FENCING_TOKEN, fencing_header};
pub use layer::{FencingLayer, FencingService};
pub use refusal::status_of;
