//! The outcome as one HTML page: the matrix, and a picture of each cell.

use crate::report::Report;

/// The page.
pub fn page(report: &Report) -> String {
    report.json()
}
