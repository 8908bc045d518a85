//! The text files of the workspace, those in Rust already parsed.
//!
//! Git says which files belong to it: the tracked ones and those that are new and not ignored. Without git it is every
//! file outside `target`.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use super::source::Source;

/// The text files of a workspace.
#[derive(Debug)]
pub struct Tree {
    files: Vec<File>,
}

impl Tree {
    /// The tree below `root`.
    ///
    /// # Errors
    /// When a folder or a file cannot be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        let paths = match listed_by_git(root) {
            Some(paths) => paths,
            None => walked(root)?,
        };
        let mut files = Vec::new();
        for path in paths {
            if let Some(text) = text_of(&root.join(&path))? {
                files.push(File::new(path, text));
            }
        }
        Ok(Self { files })
    }

    /// A tree of the given paths and texts.
    pub fn of<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let files = files.into_iter().map(|(path, text)| File::new(path.to_owned(), text.to_owned()));
        Self { files: files.collect() }
    }

    /// Whether it has the file `path`.
    pub fn has(&self, path: &str) -> bool {
        self.file(path).is_some()
    }

    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }

    /// The files in Rust that parse.
    pub(super) fn sources(&self) -> impl Iterator<Item = (&File, &Source)> {
        self.files.iter().filter_map(|file| Some((file, file.source.as_ref()?.as_ref().ok()?)))
    }

    /// The same without generated files, whose shape and names come from elsewhere.
    pub(super) fn written_sources(&self) -> impl Iterator<Item = (&File, &Source)> {
        self.sources().filter(|(file, _)| !file.is_generated())
    }
}

/// One text file.
#[derive(Debug)]
pub(super) struct File {
    /// From the root of the workspace, with `/`.
    pub(super) path: String,
    pub(super) text: String,
    /// Of a file in Rust, what the parser made of it.
    pub(super) source: Option<syn::Result<Source>>,
}

impl File {
    fn new(path: String, text: String) -> Self {
        let is_rust = Path::new(&path).extension().is_some_and(|extension| extension == "rs");
        let source = is_rust.then(|| Source::parse(&text));
        Self { path, text, source }
    }

    /// The name of the crate that it belongs to.
    pub(super) fn crate_name(&self) -> Option<&str> {
        match self.path.split_once('/')? {
            ("crates", rest) => rest.split('/').next(),
            ("xtask", _) => Some("xtask"),
            _ => None,
        }
    }

    /// Whether it is a part of the crate itself, and not a test or an example beside it.
    pub(super) fn is_in_src(&self) -> bool {
        self.crate_name().is_some() && self.path.contains("/src/")
    }

    /// Whether all of it is test code.
    pub(super) fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    pub(super) fn is_generated(&self) -> bool {
        self.path.contains("/src/generated/")
    }

    /// Whether it is the first file of a crate that has its documentation there.
    pub(super) fn is_crate_root(&self) -> bool {
        ["/src/lib.rs", "/src/main.rs"].iter().any(|end| self.path.ends_with(end))
            || self.path.contains("/examples/")
    }

    /// The lines with their numbers.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(arguments).current_dir(root).output().ok()?;
    let listed = String::from_utf8(output.stdout).ok()?;
    let mut paths: Vec<String> = listed.split_terminator('\0').map(str::to_owned).collect();
    paths.sort();
    paths.dedup();
    // A tree that was unpacked inside another repository, which ignores it, has nothing listed.
    (output.status.success() && !paths.is_empty()).then_some(paths)
}

fn walked(root: &Path) -> io::Result<Vec<String>> {
    let (mut paths, mut folders) = (Vec::new(), vec![String::new()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let path = format!("{folder}{}", entry.file_name().to_string_lossy());
            match entry.file_type()? {
                kind if kind.is_dir() && !is_foreign(&path) => folders.push(path + "/"),
                kind if kind.is_file() => paths.push(path),
                _ => {}
            }
        }
    }
    paths.sort();
    Ok(paths)
}

fn is_foreign(folder: &str) -> bool {
    matches!(folder, "target" | ".git")
}

/// `None` for what is no text, and for a tracked file that was deleted.
fn text_of(path: &Path) -> io::Result<Option<String>> {
    if !path.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Ok(None);
    }
    Ok(String::from_utf8(fs::read(path)?).ok())
}
