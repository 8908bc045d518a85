//! What a URL says together with libpq's conventions: where the servers are, who we are there, and how to connect.
//!
//! Invariant: reading one touches no network, and neither `Debug` nor an error shows a password.

mod hosts;
mod options;
mod tls;
mod written;

use std::path::PathBuf;
use std::time::Duration;

use fencepost_core::{BackendUrl, Error, Result};

pub(crate) use hosts::Host;
pub(crate) use options::{Options, PausePolicy};
pub(crate) use tls::{ChannelBinding, SslMode, Tls};
#[cfg(feature = "tls")]
pub(crate) use tls::{Identity, Roots};

use crate::libpq::{Answer, Environment, Password, PasswordFile, Question, Setting, Settings};

/// Which servers will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The first that answers.
    Any,
    /// The first that accepts writes in its sessions.
    ReadWrite,
    /// The first that is not a standby.
    Primary,
}

/// How to reach a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// The servers to try, in this order; at least one.
    pub(crate) hosts: Vec<Host>,
    pub(crate) database: String,
    pub(crate) user: String,
    /// Options for the server as the user wrote them, such as `-c work_mem=8MB`. Ours go after them.
    pub(crate) startup_options: Option<String>,
    pub(crate) tls: Tls,
    /// How long to try one server.
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) target: Target,
    password: Option<Password>,
    password_file: Option<PasswordFile>,
    socket_directory: PathBuf,
}

impl Endpoint {
    /// What `url` says, and the service and the environment where it is silent.
    ///
    /// # Errors
    /// `InvalidArgument` that says which part is wrong, and where it was written.
    pub(crate) fn of(url: &BackendUrl, environment: &Environment) -> Result<Self> {
        let settings = Settings::gather(url, written::settings(url)?, environment)?;
        let hosts = hosts::read(url, &settings, &environment.socket_directory)?;
        let user = settings.text("user").or(environment.user.as_deref()).map(str::to_owned);
        let user = user.ok_or_else(|| {
            url.wrong("the user that this process runs as has no name")
                .hint("write a user before the host, such as postgres://ann@db/orders, or set PGUSER")
        })?;
        let file = settings.text("passfile").map(PathBuf::from).or_else(|| environment.in_home(".pgpass"));
        Ok(Self {
            tls: tls::read(url, &settings, environment, &hosts)?,
            hosts,
            database: settings.text("dbname").unwrap_or(&user).to_owned(),
            user,
            startup_options: settings
                .text("options")
                .map(without_stamps)
                .filter(|options| !options.is_empty()),
            connect_timeout: connect_timeout(url, &settings)?,
            target: target(url, &settings)?,
            password: settings.text("password").map(Password::new),
            password_file: file.map(PasswordFile),
            socket_directory: environment.socket_directory.clone(),
        })
    }

    /// What to log in with at a host: the password that was given, or else that of the password file, which is read
    /// now.
    pub(crate) fn password_for(&self, host: &Host) -> Answer {
        if self.password.is_some() {
            return Answer { password: self.password.clone(), warning: None };
        }
        let Some(file) = &self.password_file else { return Answer::default() };
        let question = Question {
            host: &host.in_password_file(&self.socket_directory),
            port: host.port(),
            database: &self.database,
            user: &self.user,
        };
        file.answer(&question)
    }
}

/// Options without the stamps of a run around this process. They are for the programs that write; and where nothing else is
/// left, a pooler that takes no options can be used.
fn without_stamps(options: &str) -> String {
    let Some((before, stamps)) = options.split_once(STAMPS) else { return options.to_owned() };
    let after = stamps.split_once(char::is_whitespace).map_or("", |(_, after)| after);
    format!("{before}{after}").trim_end().to_owned()
}

fn connect_timeout(url: &BackendUrl, settings: &Settings) -> Result<Option<Duration>> {
    let Some(setting) = settings.setting("connect_timeout") else { return Ok(None) };
    let seconds: i32 = setting.value.trim_ascii().parse().map_err(|_| {
        setting.wrong(url, "is not a number of seconds").hint("0 or nothing at all waits without an end")
    })?;
    let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
    Ok(seconds.map(|seconds| Duration::from_secs(seconds).max(SHORTEST_CONNECT_TIMEOUT)))
}

fn target(url: &BackendUrl, settings: &Settings) -> Result<Target> {
    let Some(setting) = settings.setting("target_session_attrs") else { return Ok(Target::Any) };
    match setting.value.as_str() {
        "read-only" | "standby" | "prefer-standby" => Err(setting
            .wrong(url, "asks for a standby, and only a primary can hold a lock")
            .hint("use target_session_attrs=read-write where one of several hosts is the primary")),
        _ => choice(url, setting, TARGETS),
    }
}

/// What the value of a setting means.
fn choice<T: Copy>(url: &BackendUrl, setting: &Setting, choices: &[(&str, T)]) -> Result<T> {
    let found = choices.iter().find(|(name, _)| *name == setting.value);
    found.map(|(_, choice)| *choice).ok_or_else(|| none_of(url, setting, choices))
}

fn none_of<T>(url: &BackendUrl, setting: &Setting, choices: &[(&str, T)]) -> Error {
    let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
    setting.wrong(url, format_args!("is none of {}", names.join(", ")))
}

const TARGETS: &[(&str, Target)] =
    &[("any", Target::Any), ("read-write", Target::ReadWrite), ("primary", Target::Primary)];

/// libpq waits no less, since it rounds to seconds.
const SHORTEST_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How `run` begins what it adds to the options of others; no white space is in it.
const STAMPS: &str = "-c fencepost.stamps=";

#[cfg(test)]
mod tests;
