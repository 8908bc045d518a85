//! What stands in the URL itself: `postgres://user:password@host:port,host:port/database?option=value`.
//!
//! Invariant: where a password could be taken for something else, and so be shown, the URL is refused.

use fencepost_core::{BackendUrl, Error, Result};
use percent_encoding::percent_decode_str;

use crate::libpq::{Origin, Setting};

/// The settings of a URL, those that count first: the options before the body.
///
/// # Errors
/// `InvalidArgument` that says which part is wrong.
pub(super) fn settings(url: &BackendUrl) -> Result<Vec<Setting>> {
    let body = url.body().strip_prefix("//").ok_or_else(|| url.wrong("write // before the host"))?;
    let (authority, database) = body.split_once('/').unwrap_or((body, ""));
    refuse_at_signs(url, authority, database)?;
    refuse_what_is_ours(url)?;
    url.accept_options(&[OWN, KEYWORDS].concat())?;
    let (login, hosts) = authority.split_once('@').unwrap_or(("", authority));
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let (names, ports) = read_hosts(url, hosts)?;
    let mut settings = Vec::new();
    for (name, value) in url.options() {
        if let Some(keyword) = KEYWORDS.iter().find(|keyword| **keyword == name) {
            settings.push(setting(url, keyword, value)?);
        }
    }
    let body =
        [("user", user), ("password", password), ("host", &names), ("port", &ports), ("dbname", database)];
    // What is empty is not there: the service and the environment have their say.
    for (keyword, text) in body.into_iter().filter(|(_, text)| !text.is_empty()) {
        settings.push(setting(url, keyword, text)?);
    }
    Ok(settings)
}

/// An `@` that is out of its place may stand after a password that holds a `/`, a `?` or an `@`. What comes before it
/// would be taken for a host or an option, and shown.
fn refuse_at_signs(url: &BackendUrl, authority: &str, database: &str) -> Result<()> {
    let is_in_options = url.options().any(|(name, value)| name.contains('@') || value.contains('@'));
    if authority.matches('@').count() > 1 || database.contains('@') || is_in_options {
        let hint = "in a password, a database's name or an option write @ as %40, / as %2F and ? as %3F";
        // It is not clear what to hide in such a URL, so that all of it is.
        let hidden = url.clone().shown_as(format!("{}://***", url.scheme()));
        return Err(hidden.wrong("an @ stands where it cannot").hint(hint));
    }
    Ok(())
}

fn refuse_what_is_ours(url: &BackendUrl) -> Result<()> {
    let ours = url.options().find_map(|(name, _)| OURS.iter().find(|(option, _)| *option == name));
    ours.map_or(Ok(()), |(option, reason)| {
        Err(url.wrong(format!("there is no option {option:?}")).hint(*reason))
    })
}

/// The names and the ports of the hosts, each separated by commas.
fn read_hosts(url: &BackendUrl, text: &str) -> Result<(String, String)> {
    let hosts: Vec<_> = text.split(',').map(|host| read_host(url, host)).collect::<Result<_>>()?;
    let (names, ports): (Vec<_>, Vec<_>) = hosts.into_iter().unzip();
    Ok((names.join(","), ports.join(",")))
}

fn read_host<'a>(url: &BackendUrl, text: &'a str) -> Result<(&'a str, &'a str)> {
    let Some(text) = text.strip_prefix('[') else { return Ok(text.split_once(':').unwrap_or((text, ""))) };
    let (address, rest) = text.split_once(']').ok_or_else(|| url.wrong("the ] of an address is missing"))?;
    match (address, rest, rest.strip_prefix(':')) {
        ("", ..) => Err(url.wrong("an address is missing between [ and ]")),
        (_, "", _) => Ok((address, "")),
        (_, _, Some(port)) => Ok((address, port)),
        _ => Err(url.wrong("only a port can stand after ]")),
    }
}

fn setting(url: &BackendUrl, keyword: &'static str, text: &str) -> Result<Setting> {
    let value = decoded(text).map_err(|flaw| wrong_encoding(url, keyword, flaw))?;
    Ok(Setting { keyword, value, origin: Origin::Url })
}

fn wrong_encoding(url: &BackendUrl, keyword: &str, flaw: &str) -> Error {
    url.wrong(format!("the {keyword} {flaw}")).hint("write a % that stands for itself as %25")
}

/// The text without its percent encoding, or what is wrong with that.
fn decoded(text: &str) -> Result<String, &'static str> {
    for part in text.split('%').skip(1) {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match digits {
            None => return Err("has a % without two hexadecimal digits"),
            Some("00") => return Err("has a %00"),
            Some(_) => {}
        }
    }
    percent_decode_str(text).decode_utf8().map(Into::into).map_err(|_| "is not UTF-8")
}

/// fencepost's own options.
const OWN: &[&str] = &["max_ttl", "quarantine", "on_pause", "pooler"];

/// libpq's keywords that a URL may have.
const KEYWORDS: &[&str] = &[
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "passfile",
    "service",
    "options",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "channel_binding",
    "connect_timeout",
    "target_session_attrs",
];

const NAMES_ITSELF: &str = "fencepost sets it, so that its sessions can be told from others";
const KEEPS_ALIVE: &str = "fencepost sets the keep-alive of its connections itself, by the ttl";
const READS_NO_LISTS: &str = "fencepost reads no lists of revoked certificates";

/// libpq's keywords that a URL may not have, and why.
const OURS: &[(&str, &str)] = &[
    ("application_name", NAMES_ITSELF),
    ("fallback_application_name", NAMES_ITSELF),
    ("keepalives", KEEPS_ALIVE),
    ("keepalives_idle", KEEPS_ALIVE),
    ("keepalives_interval", KEEPS_ALIVE),
    ("keepalives_count", KEEPS_ALIVE),
    ("tcp_user_timeout", KEEPS_ALIVE),
    ("sslcrl", READS_NO_LISTS),
    ("sslcrldir", READS_NO_LISTS),
];
