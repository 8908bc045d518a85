//! The servers that the settings name, each with its port.
//!
//! Invariant: names, addresses and ports belong together by their place, exactly as libpq pairs them.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use fencepost_core::{BackendUrl, Result};

use crate::libpq::{Setting, Settings};

/// Where one server is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Host {
    Network {
        /// The name as it was written, which a certificate has to bear; the address where no name was given.
        name: String,
        /// Where to connect to instead of looking the name up.
        address: Option<IpAddr>,
        port: u16,
    },
    Socket {
        directory: PathBuf,
        port: u16,
    },
}

impl Host {
    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::Network { port, .. } | Self::Socket { port, .. } => *port,
        }
    }

    /// The path of the Unix socket, where it is one.
    pub(crate) fn socket_path(&self) -> Option<PathBuf> {
        match self {
            Self::Network { .. } => None,
            Self::Socket { directory, port } => Some(directory.join(format!(".s.PGSQL.{port}"))),
        }
    }

    /// How the password file calls it: a socket in its usual place is `localhost` there.
    pub(super) fn in_password_file(&self, socket_directory: &Path) -> Cow<'_, str> {
        match self {
            Self::Network { name, .. } => Cow::Borrowed(name),
            Self::Socket { directory, .. } if directory == socket_directory => Cow::Borrowed("localhost"),
            Self::Socket { directory, .. } => directory.to_string_lossy(),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network { name, port, .. } if name.contains(':') => write!(f, "[{name}]:{port}"),
            Self::Network { name, port, .. } => write!(f, "{name}:{port}"),
            Self::Socket { directory, port } => write!(f, "{}/.s.PGSQL.{port}", directory.display()),
        }
    }
}

/// The hosts in their order. Without any it is the socket in its usual place.
pub(super) fn read(url: &BackendUrl, settings: &Settings, socket_directory: &Path) -> Result<Vec<Host>> {
    let names = List::of(settings, "host");
    let addresses = List::of(settings, "hostaddr");
    let ports = List::of(settings, "port");
    let count = addresses.len().or(names.len()).unwrap_or(1);
    names.has_one_for_each(url, count, "addresses")?;
    if ports.len() != Some(1) {
        ports.has_one_for_each(url, count, "hosts")?;
    }
    let hosts = (0..count).map(|index| {
        let port = read_port(url, &ports, index)?;
        let name = names.item(index);
        match (addresses.item(index), name) {
            ("", "") => Ok(Host::Socket { directory: socket_directory.to_owned(), port }),
            ("", name) if name.starts_with('/') => Ok(Host::Socket { directory: PathBuf::from(name), port }),
            ("", name) if name.starts_with('@') => Err(names.wrong(url, "names an abstract socket").hint(
                "write the directory of the socket, such as ?host=/var/run/postgresql, or a host's name",
            )),
            ("", name) => Ok(Host::Network { name: name.to_owned(), address: None, port }),
            (text, name) => {
                let address = text.parse().map_err(|_| addresses.wrong(url, "is not an IP address"))?;
                let name = if name.is_empty() { text } else { name }.to_owned();
                Ok(Host::Network { name, address: Some(address), port })
            }
        }
    });
    hosts.collect()
}

/// A setting whose value has a part for each host.
struct List<'a> {
    setting: Option<&'a Setting>,
    items: Vec<&'a str>,
}

impl<'a> List<'a> {
    fn of(settings: &'a Settings, keyword: &str) -> Self {
        let setting = settings.filled(keyword);
        let items = setting.map(|setting| setting.value.split(',').collect()).unwrap_or_default();
        Self { setting, items }
    }

    /// How many parts there are, where the setting is there.
    fn len(&self) -> Option<usize> {
        self.setting.map(|_| self.items.len())
    }

    fn item(&self, index: usize) -> &'a str {
        self.items.get(index).copied().unwrap_or_default()
    }

    fn has_one_for_each(&self, url: &BackendUrl, count: usize, what: &str) -> Result<()> {
        match self.len() {
            Some(len) if len != count => {
                Err(self.wrong(url, format_args!("has {len} parts for {count} {what}")))
            }
            _ => Ok(()),
        }
    }

    fn wrong(&self, url: &BackendUrl, is: impl fmt::Display) -> fencepost_core::Error {
        self.setting.map_or_else(|| url.wrong(&is), |setting| setting.wrong(url, &is))
    }
}

/// The port of one host; a single one is that of all.
fn read_port(url: &BackendUrl, ports: &List, index: usize) -> Result<u16> {
    let index = if ports.len() == Some(1) { 0 } else { index };
    match ports.item(index).trim_ascii() {
        "" => Ok(PORT),
        text => {
            let port = text.parse().ok().filter(|port| *port != 0);
            port.ok_or_else(|| ports.wrong(url, "is not a port from 1 to 65535"))
        }
    }
}

const PORT: u16 = 5432;
