//! The generated messages are those of their description.

use std::fs;

#[test]
fn messages_of_etcd_are_current() {
    let checked_in = fs::read_to_string(xtask::messages::generated(xtask::root())).unwrap();
    let current = xtask::messages::read(xtask::root()).unwrap();
    assert!(checked_in == current, "run `cargo xtask messages`");
}
