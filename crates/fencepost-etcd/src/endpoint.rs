//! What a URL says: where the members are, who we are there, whom we trust, and where our keys lie.

use std::time::Duration;

use fencepost_core::{BackendUrl, Result};
use fencepost_net::{Address, Authority, Login, Trust, decoded};

/// How to reach a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// The members to ask, in this order; at least one.
    pub(crate) addresses: Vec<Address>,
    pub(crate) login: Login,
    /// Whom we trust, where connections are encrypted.
    pub(crate) trust: Option<Trust>,
    /// What every key of ours begins with, such as `/team/fencepost/`.
    pub(crate) root: String,
    pub(crate) max_ttl: Duration,
}

impl Endpoint {
    /// # Errors
    /// `InvalidArgument` that says which part is wrong.
    pub(crate) fn of(url: &BackendUrl) -> Result<Self> {
        let is_encrypted = url.scheme() == "etcds";
        url.accept_options(if is_encrypted { &["max_ttl", "ca", "cert", "key"] } else { &["max_ttl"] })?;
        let authority = Authority::of(url, PORT)?;
        if authority.login.password.is_some() && authority.login.user.is_none() {
            return Err(url.wrong("there is a password and no user").hint("write etcd://user:password@host"));
        }
        for (index, address) in authority.addresses.iter().enumerate() {
            if authority.addresses[..index].contains(address) {
                return Err(url.wrong(format!("the member {address} is named twice")));
            }
        }
        let trust = is_encrypted.then(|| Trust::of(url)).transpose()?;
        let root = root(url, &authority.path)?;
        let (addresses, login, max_ttl) = (authority.addresses, authority.login, url.max_ttl()?);
        Ok(Self { addresses, login, trust, root, max_ttl })
    }
}

/// The port of clients.
const PORT: u16 = 2379;

fn root(url: &BackendUrl, path: &str) -> Result<String> {
    let path = decoded(url, path)?;
    let path = path.trim_matches('/');
    if path.chars().any(char::is_control) {
        return Err(url.wrong("the prefix contains a control character"));
    }
    Ok(if path.is_empty() { "/fencepost/".to_owned() } else { format!("/{path}/fencepost/") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str) -> Result<Endpoint> {
        Endpoint::of(&text.parse().unwrap())
    }

    #[test]
    fn parts_of_a_url_are_read() {
        let found =
            endpoint("etcds://ann:p%40ss@a,b:7000/team/x/?ca=/c%20a.pem&cert=c&key=k&max_ttl=5m").unwrap();
        let addresses: Vec<String> = found.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["a:2379", "b:7000"]);
        assert_eq!(found.login.password.as_deref(), Some("p@ss"));
        assert_eq!(found.root, "/team/x/fencepost/");
        assert_eq!(found.max_ttl, Duration::from_mins(5));
        let trust = found.trust.unwrap();
        assert_eq!(trust.authorities, Some("/c a.pem".into()));
        assert_eq!(trust.identity, Some(("c".into(), "k".into())));
        let plain = endpoint("etcd://").unwrap();
        assert_eq!((plain.root.as_str(), plain.trust), ("/fencepost/", None));
    }

    #[test]
    fn odd_urls_are_refused() {
        for text in [
            "etcd:h",
            "etcd://h:x",
            "etcd://a,a:2379",
            "etcd://:pw@h",
            "etcd://h?ca=x",
            "etcd://h?quarantine=off",
            "etcds://h?cert=x",
            "etcds://h?key=x",
            "etcds://h?insecure=on",
            "etcd://h?max_ttl=60",
            "etcd://h/a%00b",
        ] {
            assert!(endpoint(text).is_err(), "{text}");
        }
    }
}
