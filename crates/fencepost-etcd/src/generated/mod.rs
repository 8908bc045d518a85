//! The messages of etcd's protocol, written by `cargo xtask messages`.

#![expect(clippy::pedantic, unreachable_pub, reason = "the generator's style")]

include!("etcd.rs");
