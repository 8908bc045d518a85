//! What a look at the servers shows beside the locks: how they are set up, and what in that weakens a promise.
//!
//! Each look has a connection of its own, on which nothing is learned and nothing written, so that it works where no lock could
//! be acquired. Invariant: it leaves nothing behind, and a silent server holds it up for no longer than [`LOOK_MOST`].

mod clocks;
mod facts;
mod nodes;
mod persistence;
mod quarantine;
mod replication;
mod sentinels;
mod setup;

use std::time::Duration;

use fencepost_core::{Clock, Examination, Finding, Result, Severity, until};
use fencepost_net::Address;

use crate::endpoint::{Endpoint, Options, Whereabouts};
use crate::failure::unavailable;

use facts::Facts;
pub(crate) use nodes::examine_nodes;

/// How long one server may take to be connected to and to say everything.
const LOOK_MOST: Duration = Duration::from_secs(4);

/// Examines the one server of a lock or a fence.
///
/// # Errors
/// `Unavailable` when it cannot be reached.
pub(crate) async fn examine(clock: &Clock, endpoint: &Endpoint, options: &Options) -> Result<Examination> {
    let (address, mut findings) = match &endpoint.whereabouts {
        Whereabouts::At(address) => (address.clone(), Vec::new()),
        Whereabouts::Sentinels { sentinels, name } => {
            sentinels::examine(clock, sentinels, name, endpoint.is_tls).await?
        }
    };
    let facts = look(clock, endpoint, &address, options).await?;
    findings.extend(of_server(&facts, options));
    Ok(Examination::new(vec![facts.server()], findings))
}

/// Whether a server may drop marks, by the memory section of its `INFO`.
pub(crate) fn drops_marks(memory: &str, about: &str) -> Option<Finding> {
    let field = |name: &str| {
        memory.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default()
    };
    let finding = setup::eviction(about, true, field);
    finding.filter(|finding| finding.severity > Severity::Note)
}

/// Looks at one server, within the time for it.
async fn look(clock: &Clock, endpoint: &Endpoint, address: &Address, options: &Options) -> Result<Facts> {
    let give_up_at = Some(clock.now().after(LOOK_MOST));
    let facts = until(clock, give_up_at, Box::pin(Facts::read(clock, endpoint, address, options))).await;
    facts.unwrap_or_else(|| Err(unavailable(format!("{address} has not answered for {LOOK_MOST:?}"))))
}

/// What one server shows, whatever it is for.
fn of_server(facts: &Facts, options: &Options) -> Vec<Finding> {
    let mut findings = setup::findings(facts, options);
    findings.extend(persistence::findings(facts, options));
    findings.extend(replication::findings(facts, options));
    // A fence asks no clock, and works during a quarantine.
    if !options.is_fence {
        findings.extend(clocks::of_server(facts));
        findings.extend(quarantine::findings(facts, options));
    }
    findings
}
