//! What is generated in the documentation: the README's table of promises, from the backends' own profiles.
//!
//! Invariant: a promise stands in the table only with the tests that prove it.

use std::fmt::Write;

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
        proofs: &["release_wakes_a_waiter"],
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
        name: "revoke",
        says: |profile| yes(profile.revoke),
        proofs: &["revoked_holder_hears_of_it_and_the_next_token_is_greater"],
    },
];

fn yes(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// The names of the tests that the table refers to.
pub fn proofs() -> impl Iterator<Item = &'static str> {
    ROWS.iter().flat_map(|row| row.proofs).copied()
}

/// `text` with the table of `profiles` between its two markers.
///
/// # Panics
/// When the text has no markers.
pub fn with_promises(text: &str, profiles: &[Profile]) -> String {
    let (before, rest) = text.split_once(BEGIN).expect("the README has the marker of its table");
    let (_, after) = rest.split_once(END).expect("the README has the end marker of its table");
    format!("{before}{BEGIN}{}{END}{after}", table(profiles))
}

fn table(profiles: &[Profile]) -> String {
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
        let _ = writeln!(table, " `{}` |", row.proofs.join("`, `"));
    }
    table
}
