//! The surroundings of the process, as far as libpq looks at them. Apart, so that tests make up their own.
//!
//! Invariant: it is the only place in this crate that asks the operating system who and where we are.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};

/// What looks environment variables up.
pub(crate) type Variables = Box<dyn Fn(&str) -> Option<OsString> + Send + Sync>;

/// The variables, the user and the default directories of a process.
pub(crate) struct Environment {
    /// Gives the value of an environment variable.
    pub(crate) variable: Variables,
    /// The name of the user that the process runs as.
    pub(crate) user: Option<String>,
    pub(crate) home: Option<PathBuf>,
    /// Where a server on this machine has its socket unless it is told otherwise.
    pub(crate) socket_directory: PathBuf,
    /// Where the services of the whole machine are unless `PGSYSCONFDIR` says otherwise.
    pub(crate) service_directory: PathBuf,
}

impl Environment {
    /// The surroundings of this process.
    pub(crate) fn of_process() -> Self {
        let user = User::from_uid(Uid::effective()).ok().flatten();
        // Since PostgreSQL 15 HOME counts before the user's entry.
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        let home = home.or_else(|| user.as_ref().map(|user| user.dir.clone()));
        Self {
            variable: Box::new(|name| std::env::var_os(name)),
            user: user.map(|user| user.name),
            home,
            socket_directory: socket_directory(),
            service_directory: PathBuf::from(SERVICE_DIRECTORY),
        }
    }

    /// The file of this name in the user's home, whether there is one or not.
    pub(crate) fn in_home(&self, file: &str) -> Option<PathBuf> {
        self.home.as_ref().map(|home| home.join(file))
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}

/// Debian's libpq looks in the first, others in the second.
fn socket_directory() -> PathBuf {
    let directories = [Path::new("/var/run/postgresql"), Path::new("/tmp")];
    let found = directories.into_iter().find(|directory| directory.is_dir());
    found.unwrap_or(directories[0]).to_owned()
}

/// Where Debian's libpq looks; elsewhere it depends on how libpq was built.
const SERVICE_DIRECTORY: &str = "/etc/postgresql-common";
