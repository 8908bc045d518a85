//! The dependency law: which crate of the workspace may know which.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::{Spanned, Table, Value};

use super::Finding;
use super::backends::BACKENDS;
use super::tree::{File, Tree};

/// Backends know the core alone, the core knows no backend, and no library knows the tools of the tests.
pub(super) fn dependency(tree: &Tree) -> Vec<Finding> {
    let renamed = tree.file("Cargo.toml").map(workspace_names).unwrap_or_default();
    manifests(tree).flat_map(|(name, file)| unlawful(name, file, &renamed)).collect()
}

fn manifests(tree: &Tree) -> impl Iterator<Item = (&str, &File)> {
    let files = tree.files().filter(|file| file.path.matches('/').count() == 2);
    files
        .filter(|file| file.path.ends_with("/Cargo.toml"))
        .filter_map(|file| Some((file.crate_name()?, file)))
}

fn unlawful(name: &str, file: &File, renamed: &BTreeMap<String, String>) -> Vec<Finding> {
    let manifest: Manifest = match toml::from_str(&file.text) {
        Ok(manifest) => manifest,
        Err(error) => return vec![Finding::new(file, 1, format!("is no manifest: {}", error.message()))],
    };
    let broken = manifest
        .dependencies()
        .filter(|(key, entry)| !may_know(name, package(key.get_ref(), entry, renamed)));
    broken
        .map(|(key, _)| {
            let line = 1 + file.text[..key.span().start].matches('\n').count();
            Finding::new(file, line, format!("{name} must not depend on `{}`", key.get_ref()))
        })
        .collect()
}

fn may_know(name: &str, other: &str) -> bool {
    if other != "fencepost" && !other.starts_with("fencepost-") {
        return true;
    }
    match name {
        "fencepost-core" => false,
        "fencepost-advisor" | "fencepost-http" | "fencepost-metrics" | "fencepost-net"
        | "fencepost-tracing" => other == "fencepost-core",
        "fencepost-policy" => ["fencepost-core", "fencepost-advisor"].contains(&other),
        name if BACKENDS.contains(&name) => ["fencepost-core", "fencepost-net"].contains(&other),
        "xtask" => true,
        "fencepost-lab" => other != "fencepost-cli",
        "fencepost-cli" => other != "fencepost-testkit",
        _ => !["fencepost-testkit", "fencepost-lab", "fencepost-cli"].contains(&other),
    }
}

/// The package behind a dependency's key, which may be a name of its own.
fn package<'a>(key: &'a str, entry: &'a Value, renamed: &'a BTreeMap<String, String>) -> &'a str {
    let own = entry.get("package").and_then(Value::as_str);
    own.or_else(|| renamed.get(key).map(String::as_str)).unwrap_or(key)
}

/// The packages that the workspace gives another name.
fn workspace_names(root: &File) -> BTreeMap<String, String> {
    let root: Table = toml::from_str(&root.text).unwrap_or_default();
    let table =
        root.get("workspace").and_then(|workspace| workspace.get("dependencies")).and_then(Value::as_table);
    let entries = table.into_iter().flatten();
    entries
        .filter_map(|(key, entry)| Some((key.clone(), entry.get("package")?.as_str()?.to_owned())))
        .collect()
}

type Dependencies = BTreeMap<Spanned<String>, Value>;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Manifest {
    #[serde(default)]
    dependencies: Dependencies,
    #[serde(default)]
    build_dependencies: Dependencies,
    #[serde(default)]
    target: BTreeMap<String, Target>,
}

/// What is needed on some systems only.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Target {
    #[serde(default)]
    dependencies: Dependencies,
    #[serde(default)]
    build_dependencies: Dependencies,
}

impl Manifest {
    /// All but those of tests.
    fn dependencies(&self) -> impl Iterator<Item = (&Spanned<String>, &Value)> {
        let targets = self
            .target
            .values()
            .flat_map(|target| target.dependencies.iter().chain(&target.build_dependencies));
        self.dependencies.iter().chain(&self.build_dependencies).chain(targets)
    }
}
