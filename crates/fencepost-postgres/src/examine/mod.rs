//! What a look at the servers shows beside the locks: how they are set up, and what in that weakens a promise.
//!
//! Each look has connections of its own, on which nothing is written. Invariant: it leaves nothing behind, and a silent server
//! holds it up for no longer than [`LOOK_MOST`].

mod database;
mod durability;
mod facts;
mod guards;
mod limits;
mod sessions;

use std::time::Duration;

use fencepost_core::{Clock, Error, ErrorKind, Examination, Finding, Result, until};
use futures_util::future::join_all;

use crate::connection::Connection;
use crate::endpoint::{Endpoint, Host, Options};
use crate::failure::unavailable;

use facts::Facts;
pub(crate) use guards::weakness;

/// How long one host may take to be connected to and to say everything.
const LOOK_MOST: Duration = Duration::from_secs(7);

/// What the server is for.
#[derive(Clone, Copy)]
enum Purpose<'a> {
    Locks(&'a Options),
    Marks,
}

/// Examines the servers of locks.
///
/// # Errors
/// `Unavailable` when none of them can be reached.
pub(crate) async fn examine_locks(
    clock: &Clock,
    endpoint: &Endpoint,
    options: &Options,
) -> Result<Examination> {
    examine(clock, endpoint, Purpose::Locks(options)).await
}

/// Examines the servers of a fence.
///
/// # Errors
/// `Unavailable` when none of them can be reached.
pub(crate) async fn examine_marks(clock: &Clock, endpoint: &Endpoint) -> Result<Examination> {
    examine(clock, endpoint, Purpose::Marks).await
}

async fn examine(clock: &Clock, endpoint: &Endpoint, purpose: Purpose<'_>) -> Result<Examination> {
    let looks = endpoint.hosts.iter().map(|host| look(clock, endpoint, host, purpose));
    let (mut servers, mut findings, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    let mut has_primary = false;
    for (host, outcome) in endpoint.hosts.iter().zip(join_all(looks).await) {
        match outcome {
            Ok(look) => {
                has_primary |= !look.is_standby;
                servers.push(look.server);
                findings.extend(look.findings);
            }
            Err(error) => errors.push((host, error)),
        }
    }
    if servers.is_empty() {
        let first = errors.into_iter().next().map(|(_, error)| error);
        return Err(first.unwrap_or_else(|| unavailable("no host is named")));
    }
    findings.extend(errors.iter().map(|(host, error)| away(host, error)));
    findings.extend((!has_primary).then(|| no_primary(endpoint)));
    Ok(Examination::new(servers, findings))
}

fn away(host: &Host, error: &Error) -> Finding {
    Finding::failed(
        host,
        error,
        "if it is the primary, no lock can be acquired and no token sealed; if it is a standby, nobody takes over",
    )
}

fn no_primary(endpoint: &Endpoint) -> Finding {
    let hosts: Vec<_> = endpoint.hosts.iter().map(ToString::to_string).collect();
    Finding::serious(hosts.join(", "), "a standby, and no primary is named")
        .means("no lock can be acquired and no token sealed: only a primary takes writes")
        .remedy("name all hosts, postgres://h1,h2/db: the one that is the primary is used")
}

/// What one host has shown.
struct Look {
    server: String,
    is_standby: bool,
    findings: Vec<Finding>,
}

async fn look(clock: &Clock, endpoint: &Endpoint, host: &Host, purpose: Purpose<'_>) -> Result<Look> {
    let give_up_at = Some(clock.now().after(LOOK_MOST));
    let looked = until(clock, give_up_at, Box::pin(look_at(clock, endpoint, host, purpose))).await;
    looked.unwrap_or_else(|| Err(unavailable(format!("{host} has not answered for {LOOK_MOST:?}"))))
}

async fn look_at(clock: &Clock, endpoint: &Endpoint, host: &Host, purpose: Purpose<'_>) -> Result<Look> {
    let own = endpoint.startup_options.as_deref().unwrap_or_default();
    let connection = match Connection::open(clock, endpoint, host, own).await {
        // A pooler that knows no options is looked through without them.
        Err(error) if is_about_options(&error) => Connection::open(clock, endpoint, host, "").await?,
        opened => opened?,
    };
    let facts = Facts::read(clock, connection.client(), host).await?;
    let mut findings = durability::findings(&facts, purpose);
    findings.extend(limits::findings(&facts, endpoint));
    // A fence asks no clock.
    findings.extend(limits::clock(&facts).filter(|_| matches!(purpose, Purpose::Locks(_))));
    if !facts.is("is_standby") {
        findings.extend(database::findings(&facts, connection.client(), purpose).await?);
        match purpose {
            Purpose::Locks(options) => {
                findings.extend(sessions::findings(clock, endpoint, host, options, &facts).await);
            }
            Purpose::Marks => findings.extend(guards::findings(&facts, connection.client()).await?),
        }
    }
    Ok(Look { server: facts.server(), is_standby: facts.is("is_standby"), findings })
}

fn is_about_options(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable && error.to_string().contains("unsupported startup parameter")
}
