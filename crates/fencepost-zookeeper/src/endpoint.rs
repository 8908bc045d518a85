//! What a URL says: where the ensemble is, who we are, what everything is below of, and how leases are dealt with.

use std::time::Duration;

use fencepost_core::{BackendUrl, Result};
use fencepost_net::{Address, Authority, Login, Transport, Trust, decoded};

use crate::protocol::Access;

/// The port of clients, unless the URL names another.
const PORT: u16 = 2181;

/// The names of all options.
const OPTIONS: [&str; 6] = ["max_ttl", "acl", "tls", "ca", "cert", "key"];

/// An ensemble as a URL names it.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// Its members, or some of them.
    pub(crate) addresses: Vec<Address>,
    pub(crate) login: Option<Digest>,
    /// What every path begins with: empty, or `/a/b`.
    pub(crate) chroot: String,
    /// Whom we believe to be the server, where connections are encrypted.
    pub(crate) trust: Option<Trust>,
    /// Who may use the nodes that we make.
    pub(crate) access: Access,
    pub(crate) max_ttl: Duration,
}

/// A name and a password. Never shown.
#[derive(Clone)]
pub(crate) struct Digest(String);

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Digest")
    }
}

impl Digest {
    fn of(url: &BackendUrl, login: Login) -> Result<Option<Self>> {
        match (login.user, login.password) {
            (None, None) => Ok(None),
            (Some(user), Some(password)) if !user.contains(':') => {
                Ok(Some(Self(format!("{user}:{password}"))))
            }
            _ => Err(url.wrong("a login is a name and a password: zookeeper://name:password@host")),
        }
    }

    /// What proves who we are.
    pub(crate) fn proof(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Endpoint {
    /// What `url` says.
    ///
    /// # Errors
    /// `InvalidArgument` when it, or an option, is wrong.
    pub(crate) fn of(url: &BackendUrl) -> Result<Self> {
        url.accept_options(&OPTIONS)?;
        let Authority { login, addresses, path } = Authority::of(url, PORT)?;
        let login = Digest::of(url, login)?;
        let access = match url.option("acl") {
            None | Some("own") if login.is_some() => Access::Own,
            None | Some("open") => Access::Open,
            Some("own") => return Err(url.wrong("acl=own needs a login: zookeeper://name:password@host")),
            Some(other) => return Err(url.wrong(format!("acl={other:?} is neither open nor own"))),
        };
        let chroot = chroot(url, &path)?;
        Ok(Self { addresses, login, chroot, trust: trust(url)?, access, max_ttl: url.max_ttl()? })
    }

    /// How connections are made.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub(crate) async fn transport(&self) -> Result<Transport> {
        match &self.trust {
            None => Ok(Transport::Plain),
            Some(trust) => Transport::encrypted(trust, &[]).await,
        }
    }
}

fn chroot(url: &BackendUrl, path: &str) -> Result<String> {
    let path = decoded(url, path)?;
    let path = path.trim_end_matches('/');
    if path.is_empty() {
        return Ok(String::new());
    }
    if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(url.wrong(format!("/{path} is not a path of ZooKeeper")));
    }
    if path == "zookeeper" || path.starts_with("zookeeper/") {
        return Err(url.wrong("what is below /zookeeper is ZooKeeper's own"));
    }
    Ok(format!("/{path}"))
}

fn trust(url: &BackendUrl) -> Result<Option<Trust>> {
    let trust = Trust::of(url)?;
    if url.switch("tls", false)? {
        return Ok(Some(trust));
    }
    if trust != Trust::default() {
        return Err(url.wrong("ca, cert and key need tls=on"));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn endpoint(text: &str) -> Result<Endpoint> {
        Endpoint::of(&text.parse().unwrap())
    }

    #[test]
    fn members_login_and_chroot_are_read() {
        let found = endpoint("zookeeper://ann:p%40ss:w@a,b:2182/jobs/nightly/").unwrap();
        let addresses: Vec<String> = found.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["a:2181", "b:2182"]);
        assert_eq!(found.login.unwrap().proof(), b"ann:p@ss:w");
        assert_eq!((found.chroot.as_str(), found.access), ("/jobs/nightly", Access::Own));
        let found = endpoint("zookeeper://h").unwrap();
        assert_eq!((found.chroot.as_str(), found.access), ("", Access::Open));
    }

    #[test]
    fn options_are_read() {
        let found = endpoint("zookeeper://a:b@h?acl=open&tls=on&ca=/x/ca.pem&max_ttl=5m").unwrap();
        assert_eq!(found.access, Access::Open);
        assert_eq!(found.trust.unwrap().authorities, Some(PathBuf::from("/x/ca.pem")));
        assert_eq!(found.max_ttl, Duration::from_mins(5));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "zookeeper://ann@h",
            "zookeeper://a%3Ab:c@h",
            "zookeeper://h/a//b",
            "zookeeper://h/a/../b",
            "zookeeper://h/zookeeper/x",
            "zookeeper://h?acl=own",
            "zookeeper://h?acl=none",
            "zookeeper://h?ca=/x",
            "zookeeper://h?tls=on&cert=/x",
            "zookeeper://h?ttl=1s",
        ] {
            assert!(endpoint(text).is_err(), "{text}");
        }
    }

    #[test]
    fn password_is_never_shown() {
        assert!(!format!("{:?}", endpoint("zookeeper://ann:s3cret@h").unwrap()).contains("s3cret"));
    }
}
