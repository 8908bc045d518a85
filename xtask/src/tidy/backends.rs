//! Every backend's crate looks the same, so that whoever knows one knows all.

use super::Finding;
use super::tree::{File, Tree};

/// A backend has a README with the same headings, a profile, and the conformance suite.
pub(super) fn backend(tree: &Tree) -> Vec<Finding> {
    let manifests = BACKENDS.iter().filter_map(|name| tree.file(&format!("crates/{name}/Cargo.toml")));
    manifests.flat_map(|manifest| backend_of(tree, manifest)).collect()
}

fn backend_of(tree: &Tree, manifest: &File) -> Vec<Finding> {
    let name = manifest.crate_name().expect("the manifest lies in the crate's folder");
    let readme = readme(tree, name);
    let suite = format!("crates/{name}/tests/conformance.rs");
    let suite = (!tree.has(&suite))
        .then(|| Finding::new(manifest, 1, format!("{name} has no `tests/conformance.rs`")));
    let profile = (!FENCES.contains(&name) && !has_profile(tree, name))
        .then(|| Finding::new(manifest, 1, format!("{name} has no `pub const PROFILE`")));
    [readme, suite, profile].into_iter().flatten().collect()
}

fn readme(tree: &Tree, name: &str) -> Option<Finding> {
    let path = format!("crates/{name}/README.md");
    let text = tree.file(&path).map_or("", |file| &file.text);
    let headings = text.lines().filter_map(|line| line.strip_prefix("## ")).map(str::trim_end);
    let found: Vec<&str> = headings.filter(|heading| HEADINGS.contains(heading)).collect();
    (found != HEADINGS).then(|| {
        let message = format!("needs the headings `## {}`, in this order", HEADINGS.join("`, `## "));
        Finding::at(&path, 1, message)
    })
}

fn has_profile(tree: &Tree, name: &str) -> bool {
    let mut sources = tree.sources().filter(|(file, _)| file.is_in_src() && file.crate_name() == Some(name));
    sources.any(|(_, source)| source.lines_of(&["pub", "const", "PROFILE", ":"]).next().is_some())
}

/// The crates of backends and fences.
pub(super) const BACKENDS: &[&str] = &[
    "fencepost-etcd",
    "fencepost-file",
    "fencepost-objectstore",
    "fencepost-postgres",
    "fencepost-redis",
    "fencepost-sqlite",
    "fencepost-zookeeper",
];

/// Those that hold no lock and so promise nothing about one.
const FENCES: &[&str] = &["fencepost-objectstore", "fencepost-sqlite"];

const HEADINGS: [&str; 5] =
    ["What it promises", "How it works", "What it does not promise", "Options", "Operating notes"];
