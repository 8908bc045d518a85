//! The part of a URL between its scheme and its options: who we are, where the servers are, and what lies there.

use std::fmt;

use fencepost_core::{BackendUrl, Result};
use percent_encoding::percent_decode_str;

/// One server's address, as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The name or number of the host, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            return write!(f, "[{}]:{}", self.host, self.port);
        }
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// How to log in to a server. Never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// The name of the user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

/// `//user:password@host:port,host:port/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Who we are; empty where nothing is said.
    pub login: Login,
    /// The servers, in their order; the local host where none is named.
    pub addresses: Vec<Address>,
    /// What stands behind the first slash after the hosts, as it was written.
    pub path: String,
}

impl Authority {
    /// The authority of a URL, whose hosts have `port` unless they say otherwise.
    ///
    /// # Errors
    /// `InvalidArgument` that says which part is wrong.
    pub fn of(url: &BackendUrl, port: u16) -> Result<Self> {
        let rest = url.body().strip_prefix("//").ok_or_else(|| url.wrong("write // before the host"))?;
        let (login, rest) = rest.rsplit_once('@').map_or((None, rest), |(login, rest)| (Some(login), rest));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let login = login.map(|login| read_login(url, login)).transpose()?.unwrap_or_default();
        Ok(Self { login, addresses: read_addresses(url, hosts, port)?, path: path.to_owned() })
    }
}

/// The text behind percent-encoding.
///
/// # Errors
/// `InvalidArgument` where it is not UTF-8.
pub fn decoded(url: &BackendUrl, text: &str) -> Result<String> {
    let text = percent_decode_str(text).decode_utf8().map_err(|_| url.wrong("it is not UTF-8"))?;
    Ok(text.into_owned())
}

fn read_addresses(url: &BackendUrl, hosts: &str, port: u16) -> Result<Vec<Address>> {
    if hosts.is_empty() {
        return Ok(vec![Address { host: "127.0.0.1".to_owned(), port }]);
    }
    hosts.split(',').map(|host| read_address(url, host, port)).collect()
}

fn read_address(url: &BackendUrl, text: &str, default: u16) -> Result<Address> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or(rest))),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        None => default,
        Some(port) => port
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(|| url.wrong(format!("{port:?} is not a port")))?,
    };
    if host.is_empty() {
        return Err(url.wrong("a host is missing"));
    }
    Ok(Address { host: host.to_owned(), port })
}

fn read_login(url: &BackendUrl, text: &str) -> Result<Login> {
    let (user, password) =
        text.split_once(':').map_or((text, None), |(user, password)| (user, Some(password)));
    let user = Some(decoded(url, user)?).filter(|user| !user.is_empty());
    Ok(Login { user, password: password.map(|password| decoded(url, password)).transpose()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(text: &str) -> Result<Authority> {
        Authority::of(&text.parse().unwrap(), 2379)
    }

    #[test]
    fn parts_of_a_url_are_read() {
        let found = authority("etcd://ann:p%40ss:w@a:7000,[::1],b/deep/er").unwrap();
        let addresses: Vec<String> = found.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["a:7000", "[::1]:2379", "b:2379"]);
        assert_eq!(found.login.user.as_deref(), Some("ann"));
        assert_eq!(found.login.password.as_deref(), Some("p@ss:w"));
        assert_eq!(found.path, "deep/er");
        assert_eq!(authority("etcd://").unwrap().addresses[0].to_string(), "127.0.0.1:2379");
    }

    #[test]
    fn odd_authorities_are_refused() {
        for text in [
            "etcd:h",
            "etcd://h:x/0",
            "etcd://h:0",
            "etcd://h:70000",
            "etcd://a,,b",
            "etcd://:1/",
            "etcd://%ff@h",
        ] {
            assert!(authority(text).is_err(), "{text}");
        }
    }

    #[test]
    fn login_is_never_shown() {
        let found = authority("etcd://ann:s3cret@h").unwrap();
        assert!(!format!("{found:?}").contains("s3cret"));
    }
}
