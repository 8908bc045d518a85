#![doc = include_str!("../README.md")]
//!
//! # Map of the code
//! - `fence`: the trait
//! - `publish`: results behind a pointer that is fenced
//! - `envelope`: what stands in the object of a lock
//! - `store`: reading it, and changing it by conditional puts alone
//! - `probe`: whether the store honours conditions
//! - `place`: the URL, and the client that it means
//! - `transport`, `runtime`: HTTP, and the one thread on which it runs
//! - `failure`: what the client's errors mean

mod envelope;
mod failure;
mod fence;
mod place;
mod probe;
mod publish;
mod runtime;
mod store;
mod transport;

pub use fence::ObjectStoreFence;
pub use object_store;
