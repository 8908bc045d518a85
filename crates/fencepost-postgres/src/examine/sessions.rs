//! Whether a lock gets a session of its own, with the settings that it needs.

use fencepost_core::{Clock, ErrorKind, Finding, Result};

use super::facts::Facts;
use crate::endpoint::{Endpoint, Host, Options};
use crate::pooler;
use crate::session::answered;
use crate::settings::Terms;
use crate::standing;

/// Opens a session as a lock does, and looks at it.
pub(super) async fn findings(
    clock: &Clock,
    endpoint: &Endpoint,
    host: &Host,
    options: &Options,
    facts: &Facts,
) -> Vec<Finding> {
    let mut findings: Vec<Finding> = options.has_pooler.then(|| pooled(facts)).into_iter().collect();
    match open(clock, endpoint, host, options).await {
        Ok(()) => {}
        // That is said of the schema already.
        Err(error) if error.kind() == ErrorKind::Denied => {}
        Err(error) => {
            let finding = Finding::serious(&facts.host, error.to_string())
                .means("no lock can be acquired there: a lock lasts as long as a session of its own");
            findings.push(finding.remedy(error.advice().unwrap_or("connect to the server itself")));
        }
    }
    findings
}

async fn open(clock: &Clock, endpoint: &Endpoint, host: &Host, options: &Options) -> Result<()> {
    let terms = Terms { ttl: options.max_ttl, on_pause: options.on_pause };
    let reached = Box::pin(pooler::reach(clock, endpoint, host, options, terms)).await?;
    let facts = answered(clock, standing::Facts::read(reached.client())).await?;
    facts.check(host, terms)?;
    reached.seen_to_be_own(clock, endpoint, host, &facts).await.map(drop)
}

fn pooled(facts: &Facts) -> Finding {
    Finding::warning(&facts.host, "the URL says pooler=session: a pooler stands in front of the server")
        .means("the pooler's settings, and not the server's, decide how soon a holder whose host vanished is noticed; until then its lock stays taken")
        .remedy("connect to the server itself; else set tcp_keepalive and tcp_user_timeout in the pooler, to about the ttl")
}
