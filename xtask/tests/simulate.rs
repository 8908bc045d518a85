//! The command that `cargo xtask simulate` runs.

use std::ffi::OsStr;
use std::path::Path;

use xtask::simulate::command;

fn environment(arguments: &[&str]) -> Option<Vec<(String, String)>> {
    let text = |text: &OsStr| text.to_string_lossy().into_owned();
    let command = command(Path::new("."), arguments)?;
    Some(command.get_envs().filter_map(|(name, value)| Some((text(name), text(value?)))).collect())
}

#[test]
fn seeds_are_handed_to_the_tests() {
    let pair = |name: &str, value: &str| Some(vec![(name.to_owned(), value.to_owned())]);
    assert_eq!(environment(&[]), pair("FENCEPOST_SEEDS", "1000000"));
    assert_eq!(environment(&["--seeds", "5"]), pair("FENCEPOST_SEEDS", "5"));
    assert_eq!(environment(&["--seed", "7"]), pair("FENCEPOST_SEED", "7"));
}

#[test]
fn what_is_no_number_is_refused() {
    assert_eq!(environment(&["--seeds", "many"]), None);
    assert_eq!(environment(&["7"]), None);
}
