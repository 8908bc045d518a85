//! Where the configuration is looked for, and what of the process it depends on.
//!
//! Invariant: only a file that is not there lets the search go on. One that cannot be read ends it, since the next
//! place, or none at all, may mean a weaker lock.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::finding::{ConfigError, Finding, Severity};

/// A configuration is not larger.
const MOST_BYTES: u64 = 1024 * 1024;

const FILE_NAME: &str = "fencepost.toml";

/// What of the process the configuration depends on, so that a test can say it.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// The environment.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// The working directory; an empty path means the process's own.
    pub directory: &'a Path,
    /// The directory of the system-wide file.
    pub system: &'a Path,
}

impl Surroundings<'static> {
    /// Those of this process.
    pub fn of_process() -> Self {
        Self { variable: &|name| env::var_os(name), directory: Path::new(""), system: Path::new("/etc") }
    }
}

impl fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Surroundings<'_> {
    /// The first configuration that there is: its path and its text.
    pub(crate) fn find(&self, explicit: Option<&Path>) -> Result<Option<(PathBuf, String)>, ConfigError> {
        if let Some((path, why)) = self.named(explicit) {
            return match read(&path) {
                Ok(text) => Ok(Some((path, text))),
                Err(error) => Err(unreadable(&path, &error).hint(why).into()),
            };
        }
        for path in self.places() {
            match read(&path) {
                Ok(text) => return Ok(Some((path, text))),
                Err(error) if is_absent(&path, &error) => {}
                Err(error) => return Err(unreadable(&path, &error).into()),
            }
        }
        Ok(None)
    }

    /// The file that is named, and by whom.
    fn named(&self, explicit: Option<&Path>) -> Option<(PathBuf, &'static str)> {
        let by_flag = explicit.map(|path| (path.to_owned(), "--config names it"));
        let by_variable = || Some((self.path_in("FENCEPOST_CONFIG")?, "FENCEPOST_CONFIG names it"));
        by_flag.or_else(by_variable).map(|(path, why)| (self.directory.join(path), why))
    }

    /// Where a rule is to be written.
    pub(crate) fn place(&self, explicit: Option<&Path>) -> Result<PathBuf, ConfigError> {
        if let Some((path, _)) = self.named(explicit) {
            return Ok(path);
        }
        let found = self.find(None)?.map(|(path, _)| path);
        Ok(found.unwrap_or_else(|| self.directory.join(FILE_NAME)))
    }

    /// Every configuration that some job on this host may find.
    pub(crate) fn all(&self) -> Vec<Found> {
        let named = self.path_in("FENCEPOST_CONFIG").map(|path| self.directory.join(path));
        let paths = named.into_iter().chain(self.places());
        paths.map(Found).filter(|found| found.0.symlink_metadata().is_ok()).collect()
    }

    fn places(&self) -> impl Iterator<Item = PathBuf> {
        let here = Some(self.directory.join(FILE_NAME));
        let user = self.user_directory().map(|directory| directory.join("fencepost").join(FILE_NAME));
        [here, user, Some(self.system.join(FILE_NAME))].into_iter().flatten()
    }

    /// A relative `XDG_CONFIG_HOME` is invalid and to be ignored, says the [XDG specification].
    ///
    /// [XDG specification]: https://specifications.freedesktop.org/basedir-spec/latest/
    fn user_directory(&self) -> Option<PathBuf> {
        let absolute = |name| self.path_in(name).filter(|path| path.is_absolute());
        absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))
    }

    fn path_in(&self, name: &str) -> Option<PathBuf> {
        (self.variable)(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }
}

/// A file that is there.
pub(crate) struct Found(PathBuf);

impl Found {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn text(&self) -> Result<String, ConfigError> {
        read(&self.0).map_err(|error| unreadable(&self.0, &error).into())
    }

    /// Whether it is the file at `path`, by whatever name.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        let whole = |path: &Path| fs::canonicalize(path).ok();
        self.0 == path || whole(&self.0).is_some_and(|ours| Some(ours) == whole(path))
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(io::Error::new(ErrorKind::FileTooLarge, "it is larger than 1 MiB"));
    }
    Ok(text)
}

/// A link that leads nowhere is a configuration that somebody wanted.
fn is_absent(path: &Path, error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        && fs::symlink_metadata(path).is_err()
}

fn unreadable(path: &Path, error: &io::Error) -> Finding {
    Finding::new(Severity::Error, path, format!("cannot be read: {error}"))
}
