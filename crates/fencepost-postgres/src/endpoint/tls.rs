//! How far a connection is encrypted, and whom it trusts.
//!
//! Invariant: a mode that verifies the server has certificates to verify it with. What the files hold is read by who
//! connects.

use std::path::{Path, PathBuf};

use fencepost_core::{BackendUrl, Result};

use super::choice;
use super::hosts::Host;
use crate::libpq::{Environment, Settings};

/// How much encryption is asked for, as [libpq's `sslmode`](https://www.postgresql.org/docs/current/libpq-ssl.html).
/// A Unix socket is never encrypted, whatever the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SslMode {
    /// None.
    Disable,
    /// None at first; then, where the server insists.
    Allow,
    /// At first; then none, where the server or the attempt refuses it.
    Prefer,
    /// Always, without a look at who it is, unless there are [`Roots`].
    Require,
    /// Always, with a server that an authority vouches for.
    VerifyCa,
    /// Always, with a server that an authority vouches for under the name that was asked for.
    VerifyFull,
}

/// The authorities that may vouch for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    /// Nobody; the server is not verified.
    None,
    /// Those that the system trusts.
    System,
    /// Those of a file. It verifies the server in every mode that encrypts.
    File(PathBuf),
}

/// What we show to a server that asks who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Whether the password's proof is bound to the encrypted channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChannelBinding {
    Disable,
    Prefer,
    Require,
}

/// How to encrypt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) mode: SslMode,
    pub(crate) roots: Roots,
    pub(crate) identity: Option<Identity>,
    pub(crate) channel_binding: ChannelBinding,
    /// What the user should know about it.
    pub(crate) warning: Option<String>,
}

pub(super) fn read(
    url: &BackendUrl,
    settings: &Settings,
    environment: &Environment,
    hosts: &[Host],
) -> Result<Tls> {
    let roots = read_roots(settings, environment);
    let mode = read_mode(url, settings, &roots)?;
    let is_networked = hosts.iter().any(|host| matches!(host, Host::Network { .. }));
    if mode >= SslMode::VerifyCa && roots == Roots::None && is_networked {
        let hint = "write ~/.postgresql/root.crt, name a file by sslrootcert=FILE, or trust whom the system \
                    trusts by sslrootcert=system";
        return Err(url.wrong("there is no root certificate to verify the server with").hint(hint));
    }
    let binding = settings.setting("channel_binding");
    let binding = binding.map(|binding| choice(url, binding, CHANNEL_BINDINGS)).transpose()?;
    Ok(Tls {
        warning: list_of_revoked(environment).filter(|_| matches!(roots, Roots::File(_))),
        mode,
        roots,
        identity: read_identity(settings, environment),
        channel_binding: binding.unwrap_or(ChannelBinding::Prefer),
    })
}

/// A file that is named has to be there when it is used; the one in the user's home counts if it is there now.
fn read_roots(settings: &Settings, environment: &Environment) -> Roots {
    match settings.text("sslrootcert") {
        Some("system") => Roots::System,
        Some(file) => Roots::File(PathBuf::from(file)),
        None => found(environment, "root.crt").map_or(Roots::None, Roots::File),
    }
}

/// The authorities of the system vouch for anybody, so that only the name tells one server from another.
fn read_mode(url: &BackendUrl, settings: &Settings, roots: &Roots) -> Result<SslMode> {
    let default = if *roots == Roots::System { SslMode::VerifyFull } else { SslMode::Prefer };
    let Some(setting) = settings.setting("sslmode") else { return Ok(default) };
    let mode = choice(url, setting, MODES)?;
    if *roots == Roots::System && mode != SslMode::VerifyFull {
        return Err(setting
            .wrong(url, "is too weak for sslrootcert=system")
            .hint("use sslmode=verify-full, which is what counts when there is no sslmode"));
    }
    Ok(mode)
}

fn read_identity(settings: &Settings, environment: &Environment) -> Option<Identity> {
    let certificate = settings.text("sslcert").map(PathBuf::from);
    let certificate = certificate.or_else(|| found(environment, "postgresql.crt"))?;
    let key = settings.text("sslkey").map(PathBuf::from);
    let key = key.or_else(|| environment.in_home(&in_folder("postgresql.key")))?;
    Some(Identity { certificate, key })
}

/// libpq would read the list where it verifies a server.
fn list_of_revoked(environment: &Environment) -> Option<String> {
    let list = found(environment, "root.crl")?;
    Some(format!("the list of revoked certificates {} is not read", list.display()))
}

fn found(environment: &Environment, file: &str) -> Option<PathBuf> {
    environment.in_home(&in_folder(file)).filter(|file| Path::exists(file))
}

fn in_folder(file: &str) -> String {
    format!(".postgresql/{file}")
}

const MODES: &[(&str, SslMode)] = &[
    ("disable", SslMode::Disable),
    ("allow", SslMode::Allow),
    ("prefer", SslMode::Prefer),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::VerifyCa),
    ("verify-full", SslMode::VerifyFull),
];

const CHANNEL_BINDINGS: &[(&str, ChannelBinding)] = &[
    ("disable", ChannelBinding::Disable),
    ("prefer", ChannelBinding::Prefer),
    ("require", ChannelBinding::Require),
];
