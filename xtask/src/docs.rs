//! What is generated in the documentation: the README's table of promises, from the backends' own profiles.
//!
//! Invariant: a promise stands in the table only with the tests that prove it, and with links to the files that hold them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use fencepost::Profile;

const BEGIN: &str = "<!-- promises: written by `cargo xtask docs` -->\n";
const END: &str = "<!-- /promises -->\n";

/// A row of the table: what it is about, what a profile says about it, and the tests that prove it.
struct Row {
    name: &'static str,
    says: fn(&Profile) -> &'static str,
    proofs: &'static [&'static str],
}

const ROWS: &[Row] = &[
    Row {
        name: "reaches",
        says: |profile| profile.scope.describe(),
        proofs: &["lock_of_another_process_is_refused_and_seen"],
    },
    Row {
        name: "a lease",
        says: |profile| profile.expiry.describe(),
        proofs: &["lock_of_a_killed_holder_comes_free"],
    },
    Row {
        name: "tokens",
        says: |profile| profile.tokens.describe(),
        proofs: &["tokens_grow_over_two_hundred_acquisitions"],
    },
    Row {
        name: "a waiter is",
        says: |profile| profile.waiting.describe(),
        proofs: &["release_wakes_a_waiter", "waiters_are_served_in_order"],
    },
    Row {
        name: "on loss",
        says: |profile| profile.loss.describe(),
        proofs: &["run_ends_its_work_when_the_lease_is_lost", "removed_token_record_is_a_lost_lease"],
    },
    Row {
        name: "hold at least",
        says: |profile| yes(profile.rest),
        proofs: &["released_lock_rests_and_is_then_free"],
    },
    Row {
        name: "shared by readers",
        says: |profile| yes(profile.share),
        proofs: &[
            "readers_and_writers_of_many_tasks_do_not_overlap",
            "reader_goes_behind_a_writer_that_waits",
        ],
    },
    Row {
        name: "slots for N",
        says: |profile| yes(profile.slots),
        proofs: &["as_many_hold_a_slot_as_there_are"],
    },
    Row {
        name: "once per period, history",
        says: |profile| yes(profile.logbook),
        proofs: &["period_of_many_attempts_is_begun_once", "lease_that_is_gone_writes_no_logbook"],
    },
    Row {
        name: "revoke",
        says: Profile::describe_revoke,
        proofs: &["revoked_holder_hears_of_it_and_the_next_token_is_greater"],
    },
];

fn yes(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// Where the cases of the conformance suite are, and the tests of the command.
const PLACES: [&str; 2] = ["crates/fencepost-testkit/src/conformance", "crates/fencepost-cli/tests/cli"];

/// The tests that the table refers to, each with the file that holds it, from the root of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proofs(BTreeMap<&'static str, String>);

impl Proofs {
    /// Looks for them in the tree below `root`.
    ///
    /// # Errors
    /// A test that is not there, and a folder that cannot be read.
    pub fn find(root: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        for place in PLACES {
            for entry in fs::read_dir(root.join(place))? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                if Path::new(&name).extension().is_some_and(|extension| extension == "rs") {
                    let path = format!("{place}/{name}");
                    files.push((fs::read_to_string(root.join(&path))?, path));
                }
            }
        }
        files.sort();
        let proofs = ROWS.iter().flat_map(|row| row.proofs);
        proofs.map(|proof| Ok((*proof, holder(proof, &files)?))).collect::<io::Result<_>>().map(Self)
    }

    fn link(&self, proof: &str) -> String {
        format!("[`{proof}`]({})", self.0[proof])
    }
}

/// The file that holds the test `proof`.
fn holder(proof: &str, files: &[(String, String)]) -> io::Result<String> {
    let signature = format!("fn {proof}(");
    let found = files.iter().find(|(text, _)| text.contains(&signature));
    found.map(|(_, path)| path.clone()).ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("there is no test {proof}, which proves a promise"))
    })
}

/// `text` with the table of `profiles` between its two markers.
///
/// # Panics
/// When the text has no markers.
pub fn with_promises(text: &str, profiles: &[Profile], proofs: &Proofs) -> String {
    let (before, rest) = text.split_once(BEGIN).expect("the README has the marker of its table");
    let (_, after) = rest.split_once(END).expect("the README has the end marker of its table");
    format!("{before}{BEGIN}{}{END}{after}", table(profiles, proofs))
}

fn table(profiles: &[Profile], proofs: &Proofs) -> String {
    let mut table = String::from("| |");
    for profile in profiles {
        let _ = write!(table, " `{}` |", profile.backend);
    }
    table += " proven by |\n|---|";
    table += &"---|".repeat(profiles.len() + 1);
    table.push('\n');
    for row in ROWS {
        let _ = write!(table, "| {} |", row.name);
        for profile in profiles {
            let _ = write!(table, " {} |", (row.says)(profile));
        }
        let links: Vec<String> = row.proofs.iter().map(|proof| proofs.link(proof)).collect();
        let _ = writeln!(table, " {} |", links.join(", "));
    }
    table
}
