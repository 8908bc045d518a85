//! The command line as a user meets it: real processes, signals, files, and a terminal.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod advise;
mod config;
mod doctor;
mod etcd;
mod everywhere;
mod exits;
mod explain;
mod faults;
mod fence;
mod fenced;
mod fencing_page;
mod files;
#[cfg(feature = "lab")]
mod lab;
mod limits;
mod look;
mod manual;
// The texts are those of the default build.
#[cfg(all(feature = "lab", feature = "tls"))]
mod messages;
mod objectstore;
mod operating_page;
mod page;
mod postgres;
mod pty;
mod publish;
mod reading;
mod redis;
mod run;
mod signals;
#[cfg(feature = "otlp")]
mod spans;
mod sqlite;
mod support;
mod terminal;
mod watch;
mod zookeeper;
