//! Which file is found, and that an error never makes the search go on.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use fencepost_policy::{ConfigError, Policy, Surroundings};
use tempfile::TempDir;

/// A host of its own: a working directory, a home, a directory of the system, and an environment.
struct Host {
    root: TempDir,
    variables: BTreeMap<&'static str, OsString>,
}

impl Host {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("there is room for a directory");
        let variables = BTreeMap::from([("HOME", root.path().join("home").into_os_string())]);
        Self { root, variables }
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    fn set(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.variables.insert(name, value.into());
    }

    fn write(&self, relative: &str) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().expect("it has a parent")).expect("it can be made");
        fs::write(path, "[defaults]\nttl = \"30s\"\n").expect("it can be written");
    }

    fn find(&self, explicit: Option<&Path>) -> Result<Option<Policy>, ConfigError> {
        let variable = |name: &str| self.variables.get(name).cloned();
        let (directory, system) = (self.path("here"), self.path("etc"));
        Policy::find_in(
            &Surroundings { variable: &variable, directory: &directory, system: &system },
            explicit,
        )
    }

    /// The path of what is found, relative to the host.
    fn found(&self) -> Option<String> {
        let policy = self.find(None).expect("the search succeeds")?;
        let path = policy.path().strip_prefix(self.root.path()).expect("it is on the host");
        Some(path.to_string_lossy().into_owned())
    }

    fn refusal(&self, explicit: Option<&Path>) -> String {
        let error = self.find(explicit).expect_err("the search fails").to_string();
        error.replace(&*self.root.path().to_string_lossy(), "")
    }
}

#[test]
fn nearer_files_are_found_first() {
    let mut host = Host::new();
    assert_eq!(host.found(), None);
    host.write("etc/fencepost.toml");
    assert_eq!(host.found().unwrap(), "etc/fencepost.toml");
    host.write("home/.config/fencepost/fencepost.toml");
    assert_eq!(host.found().unwrap(), "home/.config/fencepost/fencepost.toml");
    host.write("xdg/fencepost/fencepost.toml");
    host.set("XDG_CONFIG_HOME", host.path("xdg"));
    assert_eq!(host.found().unwrap(), "xdg/fencepost/fencepost.toml");
    host.write("here/fencepost.toml");
    assert_eq!(host.found().unwrap(), "here/fencepost.toml");
    host.write("named.toml");
    host.set("FENCEPOST_CONFIG", host.path("named.toml"));
    assert_eq!(host.found().unwrap(), "named.toml");
    host.write("here/flag.toml");
    let flag = host.find(Some(Path::new("flag.toml"))).unwrap().unwrap();
    assert_eq!(flag.path(), host.path("here/flag.toml"));
}

#[test]
fn empty_variables_count_as_unset_and_relative_directories_are_ignored() {
    let mut host = Host::new();
    host.write("home/.config/fencepost/fencepost.toml");
    host.write("here/xdg/fencepost/fencepost.toml");
    host.set("FENCEPOST_CONFIG", "");
    for directory in ["", "xdg"] {
        host.set("XDG_CONFIG_HOME", directory);
        assert_eq!(host.found().unwrap(), "home/.config/fencepost/fencepost.toml");
    }
    host.set("HOME", "");
    assert_eq!(host.found(), None);
}

#[test]
fn named_file_has_to_be_there() {
    let mut host = Host::new();
    host.write("etc/fencepost.toml");
    assert_eq!(
        host.refusal(Some(Path::new("/none.toml"))),
        "/none.toml: cannot be read: No such file or directory (os error 2)\n  = help: --config names it"
    );
    host.set("FENCEPOST_CONFIG", host.path("none.toml"));
    assert_eq!(
        host.refusal(None),
        "/none.toml: cannot be read: No such file or directory (os error 2)\n  = help: FENCEPOST_CONFIG names it"
    );
}

#[test]
fn file_that_cannot_be_read_ends_the_search() {
    let host = Host::new();
    host.write("etc/fencepost.toml");
    fs::create_dir_all(host.path("here/fencepost.toml")).unwrap();
    assert_eq!(host.refusal(None), "/here/fencepost.toml: cannot be read: Is a directory (os error 21)");
    fs::remove_dir(host.path("here/fencepost.toml")).unwrap();
    symlink("nowhere", host.path("here/fencepost.toml")).unwrap();
    assert_eq!(
        host.refusal(None),
        "/here/fencepost.toml: cannot be read: No such file or directory (os error 2)"
    );
    fs::remove_file(host.path("here/fencepost.toml")).unwrap();
    fs::write(host.path("here/fencepost.toml"), b"a = \"\xff\"").unwrap();
    assert!(host.refusal(None).contains("UTF-8"));
    fs::write(host.path("here/fencepost.toml"), vec![b'#'; 1024 * 1024 + 1]).unwrap();
    assert_eq!(host.refusal(None), "/here/fencepost.toml: cannot be read: it is larger than 1 MiB");
}

#[test]
fn place_that_is_no_directory_has_no_file() {
    let host = Host::new();
    fs::write(host.path("home"), "").unwrap();
    assert_eq!(host.found(), None);
}

#[test]
fn rule_is_written_where_the_configuration_is_found_or_named() {
    let mut host = Host::new();
    let place = |host: &Host, explicit: Option<&Path>| {
        let variable = |name: &str| host.variables.get(name).cloned();
        let (directory, system) = (host.path("here"), host.path("etc"));
        let surroundings = Surroundings { variable: &variable, directory: &directory, system: &system };
        let path = Policy::place_in(&surroundings, explicit).unwrap();
        path.strip_prefix(host.root.path()).unwrap().to_string_lossy().into_owned()
    };
    assert_eq!(place(&host, None), "here/fencepost.toml");
    host.write("etc/fencepost.toml");
    assert_eq!(place(&host, None), "etc/fencepost.toml");
    host.write("here/fencepost.toml");
    assert_eq!(place(&host, None), "here/fencepost.toml");
    host.set("FENCEPOST_CONFIG", host.path("named.toml"));
    assert_eq!(place(&host, None), "named.toml");
    assert_eq!(place(&host, Some(Path::new("flag.toml"))), "here/flag.toml");
}

#[test]
fn other_configurations_of_the_host_are_seen_once() {
    let mut host = Host::new();
    for path in ["here/fencepost.toml", "etc/fencepost.toml", "home/.config/fencepost/fencepost.toml"] {
        host.write(path);
    }
    fs::write(host.path("broken.toml"), "[[").unwrap();
    host.set("FENCEPOST_CONFIG", host.path("broken.toml"));
    let variable = |name: &str| host.variables.get(name).cloned();
    let (directory, system) = (host.path("here"), host.path("etc"));
    let surroundings = Surroundings { variable: &variable, directory: &directory, system: &system };
    let policy = Policy::parse(&host.path("here/../here/fencepost.toml"), "").unwrap();
    let others = policy.others_in(&surroundings);
    let found: Vec<bool> = others.iter().map(Result::is_ok).collect();
    assert_eq!(found, [false, true, true], "{others:?}");
}
