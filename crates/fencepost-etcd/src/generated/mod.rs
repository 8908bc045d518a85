//! The messages of etcd's protocol, written by `cargo xtask messages`.

#![expect(clippy::pedantic, clippy::enum_variant_names, unreachable_pub, reason = "the generator's style")]

include!("etcd.rs");
