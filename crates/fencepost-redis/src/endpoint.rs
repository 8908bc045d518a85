//! What a URL says: where the servers are, who we are there, and how careful to be.

use std::fmt;
use std::time::Duration;

use fencepost_core::{BackendUrl, Result};
use fencepost_net::{Address, Authority, Login, decoded};

/// Where the server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    At(Address),
    /// Wherever the sentinels say that the server of this name is.
    Sentinels {
        sentinels: Vec<Address>,
        name: String,
    },
}

impl fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => address.fmt(f),
            Self::Sentinels { name, .. } => write!(f, "the sentinels' {name}"),
        }
    }
}

/// How to reach one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) whereabouts: Whereabouts,
    pub(crate) login: Login,
    pub(crate) database: u32,
    pub(crate) is_tls: bool,
}

/// What the options of a URL say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) max_ttl: Duration,
    pub(crate) has_quarantine: bool,
    /// How many replicas must have a grant before it counts.
    pub(crate) replicas: u32,
    /// Whether the server is one node of a quorum.
    pub(crate) is_node: bool,
    /// Whether the server is a fence, and so no incarnation of it matters.
    pub(crate) is_fence: bool,
}

impl Options {
    pub(crate) fn of(url: &BackendUrl) -> Result<Self> {
        let replicas = match url.option("replicas") {
            None => 0,
            Some(text) => text.parse().map_err(|_| url.wrong(format!("replicas={text:?} is no number")))?,
        };
        let is_node = url.kind() == "redlock";
        Ok(Self {
            max_ttl: url.max_ttl()?,
            has_quarantine: url.switch("quarantine", true)?,
            replicas,
            is_node,
            is_fence: false,
        })
    }
}

impl Endpoint {
    /// The endpoints that a URL names, which are several for `redlock:` alone.
    ///
    /// # Errors
    /// `InvalidArgument` that says which part is wrong.
    pub(crate) fn all(url: &BackendUrl) -> Result<Vec<Self>> {
        let has_sentinels = url.scheme().contains("sentinel");
        let port = if has_sentinels { SENTINEL_PORT } else { PORT };
        let Authority { login, addresses, path } = Authority::of(url, port)?;
        let is_tls = url.scheme() == "rediss" || url.scheme() == "rediss+sentinel";
        if has_sentinels {
            let (name, database) = path.split_once('/').unwrap_or((&path, ""));
            if name.is_empty() {
                return Err(url
                    .wrong("the name of the server that the sentinels watch is missing")
                    .hint("write it after the sentinels, such as redis+sentinel://s1,s2,s3/master"));
            }
            let whereabouts = Whereabouts::Sentinels { sentinels: addresses, name: decoded(url, name)? };
            return Ok(vec![Self { whereabouts, login, database: read_database(url, database)?, is_tls }]);
        }
        let database = read_database(url, &path)?;
        let at =
            |address| Self { whereabouts: Whereabouts::At(address), login: login.clone(), database, is_tls };
        Ok(addresses.into_iter().map(at).collect())
    }

    /// The one endpoint of a URL.
    pub(crate) fn one(url: &BackendUrl) -> Result<Self> {
        let mut all = Self::all(url)?;
        match (all.pop(), all.is_empty()) {
            (Some(endpoint), true) => Ok(endpoint),
            _ => {
                Err(url.wrong("it names several servers").hint("several independent servers are redlock://"))
            }
        }
    }
}

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

fn read_database(url: &BackendUrl, text: &str) -> Result<u32> {
    match text.trim_end_matches('/') {
        "" => Ok(0),
        text => text.parse().map_err(|_| url.wrong(format!("{text:?} is not the number of a database"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(text: &str) -> Result<Vec<Endpoint>> {
        Endpoint::all(&text.parse().unwrap())
    }

    #[test]
    fn parts_of_a_url_are_read() {
        let endpoint = Endpoint::one(&"redis://ann:p%40ss:w@cache:7000/3".parse().unwrap()).unwrap();
        assert_eq!(endpoint.whereabouts.to_string(), "cache:7000");
        assert_eq!(endpoint.login.user.as_deref(), Some("ann"));
        assert_eq!(endpoint.login.password.as_deref(), Some("p@ss:w"));
        assert_eq!((endpoint.database, endpoint.is_tls), (3, false));
        assert!(Endpoint::one(&"rediss://:pw@[::1]/".parse().unwrap()).unwrap().is_tls);
        assert_eq!(endpoints("redlock://a:1,b:2,[::1]:3").unwrap().len(), 3);
    }

    #[test]
    fn sentinels_need_a_name() {
        let Whereabouts::Sentinels { sentinels, name } =
            &endpoints("redis+sentinel://s1,s2:1/orders").unwrap()[0].whereabouts.clone()
        else {
            panic!("the URL names sentinels")
        };
        assert_eq!((sentinels[0].port, sentinels[1].port, name.as_str()), (26379, 1, "orders"));
        assert!(endpoints("redis+sentinel://s1,s2").is_err());
    }

    #[test]
    fn odd_urls_are_refused() {
        for text in [
            "redis:h",
            "redis://h:x/0",
            "redis://h:0",
            "redis://h:70000",
            "redis://h/zero",
            "redis://a,,b",
            "redis://:1/",
        ] {
            assert!(endpoints(text).is_err(), "{text}");
        }
        assert!(Endpoint::one(&"redis://a,b".parse().unwrap()).is_err());
        for option in
            ["max_ttl=60", "max_ttl=0s", "max_ttl=50ms", "max_ttl=25h", "replicas=two", "quarantine=no"]
        {
            assert!(Options::of(&format!("redis://h?{option}").parse().unwrap()).is_err(), "{option}");
        }
    }
}
