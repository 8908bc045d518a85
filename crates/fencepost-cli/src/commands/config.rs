//! `fencepost config check`: what is wrong with the configuration, before a job finds out.

use fencepost_policy::{Policy, Severity};

use super::place::misconfigured;
use crate::args::Global;
use crate::exit::Exit;
use crate::printer::Printer;

/// Checks the configuration that would be used; exit 0 when it is sound, 78 when it is not.
pub(crate) fn check(global: &Global, printer: Printer) -> Exit {
    let policy = match Policy::find(global.config.as_deref()) {
        Ok(Some(policy)) => policy,
        Ok(None) => {
            printer.note("there is no configuration; every lock is in the default directory of this host");
            return Exit::OK;
        }
        Err(error) => return misconfigured(&error, printer),
    };
    let findings = policy.check();
    for finding in &findings {
        match finding.severity() {
            Severity::Error => printer.error(finding),
            _ => printer.warn(finding),
        }
    }
    if findings.iter().any(|finding| finding.severity() == Severity::Error) {
        return Exit::CONFIG;
    }
    let (rules, backends) = (policy.rules().len(), policy.backends().len());
    printer.data(&format!("{}: sound ({rules} rules, {backends} backends)", policy.path().display()));
    Exit::OK
}
