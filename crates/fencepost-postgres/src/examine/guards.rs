//! Whether writes are checked: the guards of all locks.

use fencepost_core::{Finding, Result};
use tokio_postgres::Client;

use super::facts::{Facts, rows};

/// The locks that guard a table, and what weakens each.
const GUARDS: &str = "
    select f.lock, weak
    from (
        select distinct g.lock from fencepost.guarded_locks() g
            join pg_catalog.pg_trigger t on t.tgfoid = 'fencepost.require()'::pg_catalog.regprocedure
                and t.tgname in ('fencepost_guard_' || g.id, 'fencepost_guard_' || g.id || '_truncate')
    ) as f left join lateral fencepost.findings(f.lock) as weak on true
    order by 1, 2";

pub(super) async fn findings(facts: &Facts, client: &Client) -> Result<Vec<Finding>> {
    if !facts.is("has_installation") {
        return Ok(vec![unguarded(facts)]);
    }
    if facts.text("missing_rights").contains("usage on schema") {
        return Ok(vec![closed(facts)]);
    }
    let guards = rows(client, GUARDS).await?;
    if guards.is_empty() {
        return Ok(vec![unguarded(facts)]);
    }
    let weak = guards.iter().filter_map(|row| Some(weakness(&facts.host, row.get(0)?, row.get(1)?)));
    Ok(weak.collect())
}

/// What is found of a guard, in the words of the schema.
pub(crate) fn weakness(about: &str, lock: &str, evidence: &str) -> Finding {
    Finding::serious(about, evidence)
        .means("these writes are accepted from a stale holder, and from whoever shows no stamp")
        .remedy(format!("as the owner of the table: fencepost fence install URL --table TABLE --lock {lock}"))
}

fn closed(facts: &Facts) -> Finding {
    let role = facts.text("role");
    Finding::serious(&facts.host, format!("the role {role} may not use the schema fencepost"))
        .means("it can seal no token, so no command that needs this fence starts; its writes to guarded tables are checked all the same")
        .remedy(format!("GRANT USAGE ON SCHEMA fencepost TO {role}"))
}

fn unguarded(facts: &Facts) -> Finding {
    Finding::warning(&facts.host, "no table is guarded by any lock")
        .means("only a program that calls fencepost.check() itself is fenced: a write of any other is accepted from a stale holder too")
        .remedy("fencepost fence install URL --table TABLE --lock LOCK, as the owner of the table")
}
