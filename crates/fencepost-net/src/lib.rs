#![doc = include_str!("../README.md")]

mod address;
mod socket;
mod stream;
#[cfg(feature = "tls")]
pub mod tls;

pub use address::{Address, Authority, Login, decoded};
pub use socket::{KeepAlive, Raw, Socket, beside, resolve};
pub use stream::{Stream, Transport, Trust};
