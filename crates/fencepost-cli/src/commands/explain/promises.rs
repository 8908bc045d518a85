//! What happens under each fault, by the table of the advisor, and where the lock is not seen at all.

use fencepost::{Profile, Scope};
use fencepost_advisor::{Risk, risks};
use serde::Serialize;

/// What happens under one fault.
#[derive(Debug, Serialize)]
pub(super) struct Promise {
    pub(super) fault: &'static str,
    pub(super) two_may_overlap: &'static str,
    pub(super) what_happens: String,
}

/// What is promised under each fault, where the lock has a fence or none.
pub(super) fn promises(profile: &Profile, is_fenced: bool) -> Vec<Promise> {
    let told = risks(profile, is_fenced).into_iter().map(|risk| Promise::told(&risk, is_fenced));
    told.chain(elsewhere(profile.scope)).collect()
}

impl Promise {
    fn told(risk: &Risk, is_fenced: bool) -> Self {
        let fenced =
            risk.older_write.filter(|_| is_fenced).map(|write| format!("; {write}")).unwrap_or_default();
        Self {
            fault: risk.fault.name(),
            two_may_overlap: if risk.two_may_overlap { "yes" } else { "no" },
            what_happens: format!("{}{fenced}", risk.what_happens),
        }
    }
}

/// Where the lock is not seen. No fence knows of that.
fn elsewhere(scope: Scope) -> impl Iterator<Item = Promise> {
    let rows = [
        (scope == Scope::Process, "other runs", "another process does not see this lock at all"),
        (scope <= Scope::Host, "other hosts", "a job on another host does not see this lock at all"),
        (
            scope == Scope::Server,
            "other databases",
            "the same name in another database of the server is another lock",
        ),
    ];
    let told = |(_, fault, what_happens): (bool, &'static str, &str)| Promise {
        fault,
        two_may_overlap: "yes",
        what_happens: what_happens.to_owned(),
    };
    rows.into_iter().filter(|(is_so, ..)| *is_so).map(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_says_what_happens_under_every_fault() {
        for profile in fencepost::profiles() {
            for fault in ["no fault", "pause", "crash", "partition", "clock jump", "restart"] {
                let count = promises(&profile, false).iter().filter(|promise| promise.fault == fault).count();
                assert_eq!(count, 1, "{fault} on {}", profile.backend);
            }
        }
    }

    #[test]
    fn fence_is_named_where_two_may_overlap_and_only_there() {
        for profile in fencepost::profiles() {
            let told = promises(&profile, true);
            for promise in &told {
                let is_named = promise.what_happens.contains("the fence refuses");
                // What is known of other servers says nothing of a fence.
                let is_due = promise.two_may_overlap == "yes" && !promise.fault.starts_with("other ");
                assert_eq!(is_named, is_due, "{promise:?}");
            }
            let unfenced = promises(&profile, false);
            assert!(unfenced.iter().all(|promise| !promise.what_happens.contains("the fence refuses")));
        }
    }
}
