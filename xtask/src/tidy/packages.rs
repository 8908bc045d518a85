//! What a published package needs, and nothing that it reads may lie outside of it.

use serde::Deserialize;
use toml::{Table, Value};

use super::Finding;
use super::tree::{File, Tree};

/// A manifest below `crates` has what a registry shows and asks for, those beside it are not published, and a dependency on a crate of
/// the workspace has the workspace's version.
pub(super) fn package(tree: &Tree) -> Vec<Finding> {
    let version = tree.file("Cargo.toml").and_then(|file| Some(workspace(file)?.package?.version));
    let manifests = tree.files().filter(|file| file.path.ends_with("Cargo.toml"));
    let files = tree.sources().filter(|(file, _)| file.path.starts_with("crates/") && file.is_in_src());
    let outside = files.flat_map(|(file, source)| {
        let lines = [source.lines_of(&["include_str", "!"]), source.lines_of(&["include_bytes", "!"])];
        let read = lines.into_iter().flatten().filter(|line| !source.is_test(*line) && leaves(file, *line));
        read.map(|line| Finding::new(file, line, "it reads a file that is not in the package"))
            .collect::<Vec<_>>()
    });
    manifests.flat_map(|file| missing(file, version.as_deref())).chain(outside).collect()
}

/// Whether the line goes up by more folders than there are between the file and its manifest.
fn leaves(file: &File, line: usize) -> bool {
    let folders = file.path.matches('/').count() - 2;
    let text = file.text.lines().nth(line - 1).unwrap_or_default();
    text.contains(&"../".repeat(folders + 1))
}

fn missing(file: &File, version: Option<&str>) -> Vec<Finding> {
    let Ok(manifest) = toml::from_str::<Table>(&file.text) else { return Vec::new() };
    let of_package = match manifest.get("package") {
        Some(Value::Table(package)) if file.path.starts_with("crates/") => lacks(package),
        Some(Value::Table(package)) if package.get("publish") != Some(&Value::Boolean(false)) => {
            vec!["publish = false: only what lies in crates is published".to_owned()]
        }
        _ => Vec::new(),
    };
    let of_workspace = version.into_iter().flat_map(|version| unversioned(&manifest, version));
    of_package
        .into_iter()
        .chain(of_workspace)
        .map(|what| Finding::new(file, 1, format!("lacks {what}")))
        .collect()
}

/// What the package of a crate that is published lacks.
fn lacks(package: &Table) -> Vec<String> {
    let filled = |key: &str| match package.get(key) {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(entries)) => (1..=5).contains(&entries.len()),
        Some(Value::Table(table)) => table.get("workspace") == Some(&Value::Boolean(true)),
        _ => false,
    };
    let missing = NEEDED.iter().filter(|key| !filled(key)).map(|key| format!("`{key}` of a package"));
    let hidden =
        package.get("publish").map(|_| "its publication: others that are published depend on it".to_owned());
    missing.chain(hidden).collect()
}

/// The crates of the workspace that have no version, or another one.
fn unversioned(manifest: &Table, version: &str) -> Vec<String> {
    let dependencies = manifest.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let own = dependencies.and_then(Value::as_table).into_iter().flatten();
    own.filter(|(_, entry)| entry.get("path").is_some())
        .filter(|(_, entry)| entry.get("version").and_then(Value::as_str) != Some(version))
        .map(|(name, _)| format!("version = {version:?} of `{name}`"))
        .collect()
}

fn workspace(file: &File) -> Option<Workspace> {
    toml::from_str::<Root>(&file.text).ok().map(|root| root.workspace)
}

#[derive(Deserialize)]
struct Root {
    workspace: Workspace,
}

#[derive(Deserialize)]
struct Workspace {
    package: Option<Package>,
}

#[derive(Deserialize)]
struct Package {
    version: String,
}

const NEEDED: [&str; 10] = [
    "authors",
    "categories",
    "description",
    "edition",
    "exclude",
    "keywords",
    "license",
    "readme",
    "rust-version",
    "version",
];
