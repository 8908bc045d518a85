//! The one experiment that everybody should see: one Redis, and a holder that is stopped, without and with the fence.

use crate::report::Report;
use crate::run::{Plan, Stopped, run};
use crate::watch::Unwatched;

/// Tells it, line by line.
///
/// # Errors
/// Those of [`run`].
pub fn story(plan: &Plan, _tell: &mut dyn FnMut(&str)) -> Result<Report, Stopped> {
    run(plan, &mut Unwatched)
}
