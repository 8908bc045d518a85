//! The tables of `docs/guarantees.md`: what each backend lets happen under each fault, from the advisor's one table.

use std::fmt::Write;

use fencepost::Profile;
use fencepost_advisor::{Fault, Risk, risks};

const BEGIN: &str = "<!-- risks: written by `cargo xtask docs` -->\n";
const END: &str = "<!-- /risks -->\n";

/// `text` with the tables of `profiles` between its two markers.
///
/// # Panics
/// When the text has no markers.
pub fn with_risks(text: &str, profiles: &[Profile]) -> String {
    let (before, rest) = text.split_once(BEGIN).expect("the page has the marker of its tables");
    let (_, after) = rest.split_once(END).expect("the page has the end marker of its tables");
    format!("{before}{BEGIN}{}{END}{after}", tables(profiles))
}

fn tables(profiles: &[Profile]) -> String {
    let lasting: Vec<&Profile> = profiles.iter().filter(|profile| profile.backend != "memory").collect();
    Fault::ALL.into_iter().map(|fault| table(fault, &lasting)).collect()
}

/// One fault: the backends to which the same happens share a row.
fn table(fault: Fault, profiles: &[&Profile]) -> String {
    let mut rows: Vec<(Risk, Vec<&str>)> = Vec::new();
    for profile in profiles {
        let Some(risk) = risks(profile, false).into_iter().find(|risk| risk.fault == fault) else { continue };
        match rows.iter_mut().find(|(seen, _)| *seen == risk) {
            Some((_, backends)) => backends.push(profile.backend),
            None => rows.push((risk, vec![profile.backend])),
        }
    }
    let mut table =
        format!("### {}\n\n| backend | two may overlap | what happens |\n|---|---|---|\n", title(fault));
    for (risk, backends) in rows {
        let backends: Vec<String> = backends.iter().map(|backend| format!("`{backend}`")).collect();
        let overlap = if risk.two_may_overlap { "**yes**" } else { "no" };
        let _ = writeln!(table, "| {} | {overlap} | {} |", backends.join(", "), risk.what_happens);
    }
    table.push('\n');
    table
}

fn title(fault: Fault) -> String {
    let name = fault.name();
    let (first, rest) = name.split_at(1);
    first.to_uppercase() + rest
}
