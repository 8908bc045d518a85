//! Puts rules into the configuration, in one step: the file has all of them or is as it was.
//!
//! Invariant: who reads the file to change it has the new one, which is locked, until that is in its place; so no rule of
//! another writer is lost.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fencepost_advisor::FILL_IN;
use fencepost_policy::{Amended, Policy, amended};

use crate::args::Global;
use crate::commands::alone::alone;
use crate::commands::place::misconfigured;
use crate::exit::Exit;
use crate::printer::Printer;

/// Puts `rules` into the configuration that would be found, or that is named; it is made if it is not there.
pub(super) fn write(global: &Global, rules: &[String], printer: Printer) -> Result<(), Exit> {
    let path = Policy::place(global.config.as_deref()).map_err(|error| misconfigured(&error, printer))?;
    let unwritable = |error: io::Error| {
        printer.error(format_args!("{} cannot be written: {error}", path.display()));
        Exit::CONFIG
    };
    let new = New::alone(&path).map_err(unwritable)?;
    let before = existing(&path).map_err(unwritable)?;
    let mut text = before.clone().unwrap_or_default();
    let mut steps = Vec::new();
    for rule in rules {
        let step = amended(&path, &text, rule).map_err(|error| misconfigured(&error, printer))?;
        text.clone_from(&step.text);
        steps.push(step);
    }
    new.replace(before.as_deref(), &text).map_err(unwritable)?;
    for step in &steps {
        tell(&path, step, printer);
    }
    if before.is_none() {
        printer.note(format_args!("{} is new", path.display()));
    }
    warn_of_places(&path, rules, &steps, printer);
    Ok(())
}

fn existing(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound && path.symlink_metadata().is_err() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The file that is to replace the configuration. One writer at a time has it, and it is gone when this is.
#[derive(Debug)]
struct New {
    file: File,
    at: PathBuf,
    /// What it replaces.
    place: PathBuf,
    is_placed: bool,
}

impl New {
    fn alone(path: &Path) -> io::Result<Self> {
        let place = if path.exists() { fs::canonicalize(path)? } else { path.to_owned() };
        let name =
            place.file_name().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "it is no file"))?;
        let at = place.with_file_name(format!(".{}.new", name.to_string_lossy()));
        let mut options = OpenOptions::new();
        // A link that somebody put there is not followed.
        options.write(true).create(true).mode(0o666).custom_flags(libc::O_NOFOLLOW);
        let file = alone(&at, &options, LOOKS)?;
        // One that was left by a writer that was killed will do; one that somebody else has, or has a link to, will not.
        let (uid, links) = file.metadata().map(|there| (there.uid(), there.nlink()))?;
        if uid != rustix::process::geteuid().as_raw() || links != 1 {
            let what = format!("{} is in the way, and is not ours", at.display());
            return Err(io::Error::new(ErrorKind::AlreadyExists, what));
        }
        Ok(Self { file, at, place, is_placed: false })
    }

    /// Puts the whole new text in the place of the old one, if that is still there.
    fn replace(mut self, before: Option<&str>, text: &str) -> io::Result<()> {
        self.fill(before.is_some(), text)?;
        unchanged(&self.place, before)?;
        fs::rename(&self.at, &self.place)?;
        self.is_placed = true;
        let directory = self.place.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }

    fn fill(&self, is_there: bool, text: &str) -> io::Result<()> {
        let mut file = &self.file;
        if is_there {
            let (old, new) = (fs::metadata(&self.place)?, file.metadata()?);
            if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
                std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid()))?;
            }
            file.set_permissions(Permissions::from_mode(old.permissions().mode() & 0o7777))?;
        }
        file.set_len(0)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }
}

impl Drop for New {
    /// It is locked until this has ended, so it is the one that is removed. Once it is in its place another may be there.
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = fs::remove_file(&self.at);
        }
    }
}

/// Somebody may have changed it meanwhile, whose rules would be lost.
fn unchanged(path: &Path, before: Option<&str>) -> io::Result<()> {
    if existing(path)?.as_deref() == before {
        return Ok(());
    }
    Err(io::Error::other("it was changed meanwhile; run the command again"))
}

fn tell(path: &Path, step: &Amended, printer: Printer) {
    let glob = &step.glob;
    let before =
        step.before.as_ref().map(|glob| format!(", before the one for {glob:?}")).unwrap_or_default();
    let backend = if step.reused { "which was there" } else { "which is new" };
    let path = path.display();
    printer.note(format_args!(
        "{path} has a rule for {glob:?}{before}, on the backend {:?} ({}), {backend}",
        step.backend, step.url
    ));
}

/// A place that is not known is no place, and must not pass for one.
fn warn_of_places(path: &Path, rules: &[String], steps: &[Amended], printer: Printer) {
    let is_open = |(rule, step): (&String, &Amended)| {
        let mut lines = rule.lines().filter(|line| line.contains(FILL_IN));
        lines.any(|line| line.starts_with("fence") || !step.reused)
    };
    if rules.iter().zip(steps).any(is_open) {
        printer.warn(format_args!("nothing runs with a rule whose URL has {FILL_IN}"));
        printer.hint(format_args!(
            "write your own in its place in {}; `fencepost config check` says what is left",
            path.display()
        ));
    }
}

/// How often it is looked whether another writer has finished: for ten seconds, since each syncs the disk.
const LOOKS: u32 = 2_000;
