//! What URL, service and environment say together.
//!
//! Invariant: the first that says anything about a keyword counts, also where it says nothing by an empty value.

use std::fmt;
use std::path::PathBuf;

use fencepost_core::{BackendUrl, Error, Result};

use super::environment::Environment;
use super::service;

/// Where a setting was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Url,
    Service { file: PathBuf, line: usize },
    Variable(&'static str),
}

/// One parameter of a connection and its value.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) keyword: &'static str,
    pub(crate) value: String,
    pub(crate) origin: Origin,
}

impl Setting {
    /// An error that names the setting, shows its value, and says that it `is` something wrong. Not for a password.
    pub(crate) fn wrong(&self, url: &BackendUrl, is: impl fmt::Display) -> Error {
        let Self { keyword, value, origin } = self;
        url.wrong(match origin {
            Origin::Url => format!("{keyword}={value:?} {is}"),
            Origin::Variable(name) => format!("{name}={value:?} {is}"),
            Origin::Service { file, line } => {
                format!("{keyword}={value:?} in {}, line {line}, {is}", file.display())
            }
        })
    }
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Setting({} of {:?})", self.keyword, self.origin)
    }
}

/// All settings, the ones that count first.
#[derive(Clone, Debug)]
pub(crate) struct Settings(Vec<Setting>);

impl Settings {
    /// Adds to what the URL says what the service that it names and the environment say.
    ///
    /// # Errors
    /// `InvalidArgument` for a service that is missing or broken, a variable that is not UTF-8, and a demand that
    /// fencepost cannot meet.
    pub(crate) fn gather(url: &BackendUrl, said: Vec<Setting>, environment: &Environment) -> Result<Self> {
        let mut settings = Self(said);
        let named = settings.setting("service").map(|service| service.value.clone());
        let named = named.map_or_else(|| variable(url, environment, "PGSERVICE"), |named| Ok(Some(named)))?;
        if let Some(name) = named {
            settings.0.extend(service::settings(url, &name, environment)?);
        }
        for (keyword, name) in VARIABLES {
            if let Some(value) = variable(url, environment, name)? {
                settings.0.push(Setting { keyword, value, origin: Origin::Variable(name) });
            }
        }
        settings.refuse_demands(url)?;
        Ok(settings)
    }

    /// What counts for a keyword, even if its value is empty.
    pub(crate) fn setting(&self, keyword: &str) -> Option<&Setting> {
        self.0.iter().find(|setting| setting.keyword == keyword)
    }

    /// What counts for a keyword, where the value is not empty.
    pub(crate) fn filled(&self, keyword: &str) -> Option<&Setting> {
        self.setting(keyword).filter(|setting| !setting.value.is_empty())
    }

    /// The value that counts for a keyword, where it is not empty.
    pub(crate) fn text(&self, keyword: &str) -> Option<&str> {
        self.filled(keyword).map(|setting| setting.value.as_str())
    }

    fn refuse_demands(&self, url: &BackendUrl) -> Result<()> {
        let demand = DEMANDS.iter().find_map(|(keyword, reason)| Some((self.filled(keyword)?, reason)));
        demand.map_or(Ok(()), |(setting, reason)| {
            Err(setting.wrong(url, format_args!("asks for what fencepost does not do: {reason}")))
        })
    }
}

/// The keyword of this name, where it says something to us.
pub(super) fn keyword(name: &str) -> Option<&'static str> {
    VARIABLES.iter().map(|(keyword, _)| *keyword).find(|keyword| *keyword == name)
}

/// Whether libpq knows a keyword that says nothing to us.
pub(super) fn is_idle(name: &str) -> bool {
    IDLE.contains(&name)
}

/// The value of an environment variable.
pub(super) fn variable(url: &BackendUrl, environment: &Environment, name: &str) -> Result<Option<String>> {
    let value = (environment.variable)(name).map(std::ffi::OsString::into_string);
    value.transpose().map_err(|_| url.wrong(format!("the environment variable {name} is not UTF-8")))
}

/// The keywords that count here, and the environment variable of each.
const VARIABLES: &[(&str, &str)] = &[
    ("host", "PGHOST"),
    ("hostaddr", "PGHOSTADDR"),
    ("port", "PGPORT"),
    ("dbname", "PGDATABASE"),
    ("user", "PGUSER"),
    ("password", "PGPASSWORD"),
    ("passfile", "PGPASSFILE"),
    ("options", "PGOPTIONS"),
    ("sslmode", "PGSSLMODE"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslcert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
    ("sslcrl", "PGSSLCRL"),
    ("sslcrldir", "PGSSLCRLDIR"),
    ("channel_binding", "PGCHANNELBINDING"),
    ("connect_timeout", "PGCONNECT_TIMEOUT"),
    ("target_session_attrs", "PGTARGETSESSIONATTRS"),
    ("requirepeer", "PGREQUIREPEER"),
    ("require_auth", "PGREQUIREAUTH"),
];

/// Keywords that make a connection safer. To pass over them would make it less safe than its user believes.
const DEMANDS: &[(&str, &str)] = &[
    ("sslcrl", "it reads no lists of revoked certificates"),
    ("sslcrldir", "it reads no lists of revoked certificates"),
    ("requirepeer", "it does not check which user runs the server"),
    ("require_auth", "it does not choose how the server asks for a password"),
];

/// Keywords that a service may have and that change nothing here: what fencepost sets itself, and what only matters
/// to libpq.
const IDLE: &[&str] = &[
    "application_name",
    "fallback_application_name",
    "client_encoding",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
    "replication",
    "gssencmode",
    "krbsrvname",
    "gsslib",
    "gssdelegation",
    "sslcompression",
    "sslcertmode",
    "sslnegotiation",
    "sslpassword",
    "sslsni",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "min_protocol_version",
    "max_protocol_version",
    "load_balance_hosts",
];
