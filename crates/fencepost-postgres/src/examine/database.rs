//! The schema `fencepost`: whether it is there, whose it is, what this role may do in it, and whether it grants now.

use std::time::Duration;

use fencepost_core::{Finding, Result};
use tokio_postgres::Client;

use super::Purpose;
use super::facts::{Facts, rows};
use crate::schema::VERSION;

pub(super) async fn findings(facts: &Facts, client: &Client, purpose: Purpose<'_>) -> Result<Vec<Finding>> {
    if !facts.is("has_schema") {
        return Ok(vec![absent(facts, purpose)]);
    }
    if !facts.is("has_installation") {
        return Ok(vec![foreign(facts)]);
    }
    let Purpose::Locks(options) = purpose else { return Ok(Vec::new()) };
    if !facts.text("missing_rights").is_empty() {
        return Ok(vec![rights(facts)]);
    }
    let mut findings: Vec<Finding> = version(facts, client).await?.into_iter().collect();
    if options.has_quarantine {
        findings.extend(quarantine(facts, client, options.max_ttl).await?);
    } else {
        findings.push(quarantine_off(facts));
    }
    Ok(findings)
}

const INSTALL: &str = "`fencepost fence install --dry-run URL` prints the SQL for whoever may; with the grants that the role needs";

fn absent(facts: &Facts, purpose: Purpose<'_>) -> Finding {
    let (role, database) = (facts.text("role"), facts.text("database"));
    if facts.is("may_create") {
        let first = match purpose {
            Purpose::Locks(_) => "the first lock makes it",
            Purpose::Marks => "the first seal makes it",
        };
        return Finding::note(&facts.host, format!("the database {database} has no schema fencepost"))
            .means(format!("nothing was ever held or sealed there; {first}"))
            .remedy("nothing; look for a typing error in the URL if there should be one");
    }
    let evidence =
        format!("the database {database} has no schema fencepost, and the role {role} may not make it");
    Finding::serious(&facts.host, evidence)
        .means("no lock can be acquired and no token sealed there (exit 77)")
        .remedy(INSTALL)
}

fn foreign(facts: &Facts) -> Finding {
    Finding::serious(&facts.host, "the schema fencepost has no table installation: somebody else has made it, or only a part of it is left")
        .means("no lock can be acquired there before it is whole")
        .remedy(INSTALL)
}

fn rights(facts: &Facts) -> Finding {
    let evidence = format!("the role {} lacks {}", facts.text("role"), facts.text("missing_rights"));
    Finding::serious(&facts.host, evidence)
        .means("no lock can be acquired there by this role (exit 77)")
        .remedy(INSTALL)
}

async fn version(facts: &Facts, client: &Client) -> Result<Option<Finding>> {
    let rows = rows(client, "select version from fencepost.installation").await?;
    let found = rows.first().and_then(|row| row.get(0)?.parse::<i32>().ok()).unwrap_or_default();
    let evidence = format!("the schema fencepost has version {found}, and this build works with {VERSION}");
    Ok(match found.cmp(&VERSION) {
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Less => Some(
            Finding::note(&facts.host, evidence)
                .means("the next lock brings it up to date, if the role may")
                .remedy(INSTALL),
        ),
        std::cmp::Ordering::Greater => Some(
            Finding::serious(&facts.host, evidence)
                .means("no lock can be acquired there by this build")
                .remedy("use the newer fencepost that has made it"),
        ),
    })
}

fn quarantine_off(facts: &Facts) -> Finding {
    Finding::warning(&facts.host, "the URL says quarantine=off")
        .means("after a restart, a crash or a failover it grants at once, and two may hold a lock that it has forgotten")
        .remedy("leave quarantine=off out of the URL, but for tests")
}

/// Whether the server grants nothing for a while, or would when it is next asked. Nothing but looking: `fencepost.ready_in` would
/// begin it.
async fn quarantine(facts: &Facts, client: &Client, max_ttl: Duration) -> Result<Option<Finding>> {
    let sql = "select greatest(i.max_ttl_ms, 0), (
        select ceil(extract(epoch from ready_at - pg_catalog.clock_timestamp()) * 1000)::bigint
        from fencepost.incarnation where started = pg_catalog.pg_postmaster_start_time()
    ) from fencepost.installation i";
    let rows = rows(client, sql).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let number = |column| row.get(column).and_then(|text: &str| text.parse::<u64>().ok());
    let longest = number(0).map_or(max_ttl, Duration::from_millis).max(max_ttl);
    if row.get(1).is_none() {
        let evidence =
            "it has lost its locks since the last one was granted: restarted, crashed, or promoted";
        return Ok(Some(
            Finding::warning(&facts.host, evidence)
                .means(format!(
                    "the next acquisition begins a quarantine: nothing is granted for {:.1} s",
                    longest.as_secs_f64()
                ))
                .remedy("nothing, or acquire a lock there once before it matters"),
        ));
    }
    let left = number(1).filter(|left| *left > 0).map(Duration::from_millis);
    Ok(left.map(|left| {
        Finding::warning(&facts.host, format!("it is in quarantine for {:.1} s more", left.as_secs_f64()))
            .means("it grants nothing until every lease that it may have forgotten is over")
            .remedy("wait")
    }))
}
