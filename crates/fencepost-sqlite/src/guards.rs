//! The guards of tables: three triggers each, which refuse a write without the stamp that is the mark.
//!
//! What is done and what a dry run prints is the same text. Invariant: a guard is made or taken away as a whole.

use std::fmt;

use fencepost_core::{Error, ErrorKind, Finding, LockName, Result};
use rusqlite::{Connection, OptionalExtension};

use crate::database::Session;
use crate::fence::SqliteFence;
use crate::schema;

/// What a guard looks at; each has a trigger.
const VERBS: [&str; 3] = ["insert", "update", "delete"];

impl SqliteFence {
    /// Makes what the fence needs in the database, and the file, where they are missing, and guards `table` by the lock if
    /// one is given: from then on a write to it needs a valid stamp. Says what was done.
    ///
    /// # Cancel safety
    /// A dropped call has done all of it or nothing.
    ///
    /// # Errors
    /// `Denied` where the file is not to be written; `InvalidArgument` where there is no such table.
    pub async fn install(&self, guarded: Option<(&str, &LockName)>) -> Result<Vec<String>> {
        let guarded = guarded.map(|(table, lock)| (table.to_owned(), lock.clone()));
        self.0.work_on_any(move |session| session.change(|session| install(session, guarded))).await
    }

    /// The SQL that [`install`](Self::install) runs.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Errors
    /// `InvalidArgument` where there is no such table.
    pub async fn installation(&self, guarded: Option<(&str, &LockName)>) -> Result<String> {
        let Some((table, lock)) = guarded else { return Ok(transaction(schema::SQL)) };
        let (table, lock) = (table.to_owned(), lock.clone());
        let planned = self.0.work(move |session| Guard::planned(session, &table, &lock)).await?;
        Ok(transaction(&format!("{}\n{}", schema::SQL, planned.installation())))
    }

    /// Takes the guards of a table away, or with `None` those of all tables; says which. The marks stay.
    ///
    /// # Cancel safety
    /// A dropped call has taken away all of them or none.
    ///
    /// # Errors
    /// `Denied` where the file is not to be written; `InvalidArgument` where there is no such table.
    pub async fn uninstall(&self, table: Option<&str>) -> Result<Vec<String>> {
        let table = table.map(ToOwned::to_owned);
        self.0.work(move |session| session.change(|session| uninstall(session, table.as_deref()))).await
    }

    /// The SQL that [`uninstall`](Self::uninstall) runs.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Errors
    /// `InvalidArgument` where there is no such table.
    pub async fn uninstallation(&self, table: Option<&str>) -> Result<String> {
        let table = table.map(ToOwned::to_owned);
        let guards = self.0.work(move |session| Guard::of(session, table.as_deref())).await?;
        Ok(transaction(&guards.iter().map(Guard::removal).collect::<String>()))
    }
}

fn install(session: &Session<'_>, guarded: Option<(String, LockName)>) -> Result<Vec<String>> {
    let was_there = schema::ensure(session)?;
    let tables =
        if was_there { "the tables of the fence are there already" } else { "made the tables of the fence" };
    let mut done = vec![tables.to_owned()];
    if let Some((table, lock)) = guarded {
        let guard = Guard::planned(session, &table, &lock)?;
        session.run(|connection| connection.execute_batch(&guard.installation()))?;
        done.push(format!("writes to {} need the token of lock {lock}", guard.table));
    }
    Ok(done)
}

fn uninstall(session: &Session<'_>, table: Option<&str>) -> Result<Vec<String>> {
    let guards = Guard::of(session, table)?;
    for guard in &guards {
        session.run(|connection| connection.execute_batch(&guard.removal()))?;
    }
    let freed =
        |guard: &Guard| format!("writes to {} need no token of lock {} any more", guard.table, guard.lock);
    Ok(guards.iter().map(freed).collect())
}

fn transaction(sql: &str) -> String {
    format!("BEGIN IMMEDIATE;\n{sql}COMMIT;")
}

/// What weakens the fence of a lock: a trigger that is not there, or not on the table that is to be guarded.
pub(crate) fn findings(session: &Session<'_>, lock: &LockName) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    if !schema::is_there(session)? {
        return Ok(findings);
    }
    let guards = Guard::of(session, None)?;
    let of_lock: Vec<_> = guards.iter().filter(|guard| guard.lock == lock.as_str()).collect();
    if !of_lock.is_empty() && !session.look(|connection| has_trigger(connection, SHOW, "fencepost_stamp"))? {
        let path = session.path().display();
        let evidence = format!("the trigger {SHOW} is gone");
        findings.push(
            Finding::serious(&path, evidence)
                .means("stamps are not checked when they are shown, and a stale holder writes")
                .remedy(format!("fencepost fence uninstall sqlite:{path}, and install every guard again")),
        );
    }
    for guard in of_lock {
        findings.extend(guard.finding(session)?);
    }
    Ok(findings)
}

/// The trigger that checks a stamp when it is shown.
const SHOW: &str = "fencepost_show";

/// One table that one lock guards.
pub(crate) struct Guard {
    id: i64,
    lock: String,
    /// The table under its present name.
    table: String,
}

impl Guard {
    /// The guard that is there, or is to be made.
    fn planned(session: &Session<'_>, table: &str, lock: &LockName) -> Result<Self> {
        let name = session.look(|connection| table_called(connection, table))?;
        let table = name.filter(|name| !is_ours(name)).ok_or_else(|| no_table(table))?;
        let guards = if schema::is_there(session)? { Self::of(session, None)? } else { Vec::new() };
        let next = 1 + guards.iter().map(|guard| guard.id).max().unwrap_or_default();
        let present = guards.into_iter().find(|guard| guard.is_of(&table) && guard.lock == lock.as_str());
        Ok(present.unwrap_or_else(|| Self { id: next, lock: lock.as_str().to_owned(), table }))
    }

    /// The guards of a table, or of all.
    pub(crate) fn of(session: &Session<'_>, table: Option<&str>) -> Result<Vec<Self>> {
        let mut guards = if schema::is_there(session)? { session.look(all)? } else { Vec::new() };
        let Some(table) = table else { return Ok(guards) };
        guards.retain(|guard| guard.is_of(table));
        if guards.is_empty() && session.look(|connection| table_called(connection, table))?.is_none() {
            return Err(no_table(table));
        }
        Ok(guards)
    }

    /// The lock whose token a write needs.
    pub(crate) fn lock(&self) -> &str {
        &self.lock
    }

    /// SQLite compares names without regard to the case of ASCII letters.
    fn is_of(&self, table: &str) -> bool {
        self.table.eq_ignore_ascii_case(table)
    }

    fn trigger(&self, verb: &str) -> String {
        format!("fencepost_guard_{}_{verb}", self.id)
    }

    fn installation(&self) -> String {
        let (id, table, lock) = (self.id, identifier(&self.table), literal(&self.lock));
        let guarded = literal(&self.table);
        let missing = literal(&format!(
            "fencepost FP001: no stamp for lock \"{}\" in this transaction: a write to {} needs one",
            self.lock, self.table
        ));
        let stale = literal(&format!(
            "fencepost FP002: a stale stamp for lock \"{}\": fencepost_fence says who holds it by now",
            self.lock
        ));
        let mut sql = format!("INSERT OR REPLACE INTO fencepost_guard VALUES ({id}, {lock}, {guarded});\n");
        for verb in VERBS {
            let filled = format!(
                include_str!("../sql/guard.sql"),
                id = id,
                verb = verb,
                table = table,
                lock = lock,
                missing = missing,
                stale = stale
            );
            // Without the file's heading.
            sql.extend(filled.find("DROP").map(|begin| &filled[begin..]));
        }
        sql
    }

    fn removal(&self) -> String {
        let triggers = VERBS.map(|verb| format!("DROP TRIGGER IF EXISTS {};\n", self.trigger(verb)));
        format!("{}DELETE FROM fencepost_guard WHERE id = {};\n", triggers.concat(), self.id)
    }

    fn finding(&self, session: &Session<'_>) -> Result<Option<Finding>> {
        let is_there = |verb: &&str| {
            session.look(|connection| has_trigger(connection, &self.trigger(verb), &self.table))
        };
        if session.look(|connection| table_called(connection, &self.table))?.is_none() {
            return Ok(None);
        }
        let mut missing = Vec::new();
        for verb in VERBS {
            if !is_there(&verb)? {
                missing.push(verb);
            }
        }
        let (table, path) = (&self.table, session.path().display());
        let evidence = match missing[..] {
            [] => return Ok(None),
            [_, _, _] => {
                format!("{table} has no guard any more, since it was made anew or its triggers were dropped")
            }
            _ => format!("the guard of {table} does not check {}", missing.join(" and ")),
        };
        let install = format!("fencepost fence install sqlite:{path} --table {table} --lock {}", self.lock);
        let means = "these writes are accepted from a stale holder, and from whoever shows no stamp";
        Ok(Some(Finding::serious(&path, evidence).means(means).remedy(install)))
    }
}

/// All guards. Triggers go along with a table that is renamed; where another has its old name by then, it is that one which is
/// to be guarded.
fn all(connection: &Connection) -> rusqlite::Result<Vec<Guard>> {
    let sql = "
        SELECT g.id, g.lock, coalesce(
            (SELECT s.name FROM sqlite_master s WHERE s.type = 'table' AND s.name = g.guarded COLLATE NOCASE),
            (SELECT s.tbl_name FROM sqlite_master s
                WHERE s.type = 'trigger' AND s.name LIKE 'fencepost\\_guard\\_' || g.id || '\\_%' ESCAPE '\\'),
            g.guarded
        )
        FROM fencepost_guard g ORDER BY 3, g.id";
    let guard =
        |row: &rusqlite::Row<'_>| Ok(Guard { id: row.get(0)?, lock: row.get(1)?, table: row.get(2)? });
    connection.prepare(sql)?.query_map([], guard)?.collect()
}

/// The name of a table as it was made.
fn table_called(connection: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name = ?1 COLLATE NOCASE";
    connection.query_row(sql, [name], |row| row.get(0)).optional()
}

fn has_trigger(connection: &Connection, name: &str, table: &str) -> rusqlite::Result<bool> {
    let sql =
        "SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name = ?1 AND tbl_name = ?2 COLLATE NOCASE";
    connection.prepare(sql)?.exists([name, table])
}

fn is_ours(table: &str) -> bool {
    let table = table.to_ascii_lowercase();
    table.starts_with("fencepost_") || table.starts_with("sqlite_")
}

fn no_table(table: &str) -> Error {
    let what = format!("there is no table {table:?} whose writes can be checked");
    Error::new(ErrorKind::InvalidArgument, "guard the table", what)
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn identifier(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guard({} of {:?} on {:?})", self.id, self.lock, self.table)
    }
}
