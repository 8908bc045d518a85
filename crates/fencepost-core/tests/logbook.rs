//! What becomes of a grant whose caller is gone before the logbook is written.

use std::sync::Arc;

use fencepost_testkit::broken::{Broken, Defect};
use fencepost_testkit::{VirtualMemory, conformance};

#[test]
fn grant_whose_caller_is_gone_while_the_logbook_is_read_is_given_back() {
    let slow = VirtualMemory::inside(|memory| {
        Arc::new(Broken::new(Arc::new(memory), Defect::ReadsTheLogbookSlowly))
    });
    let failure = conformance::failure("dropped_acquire_of_a_period_leaves_no_holder", &slow, "");
    assert_eq!(failure, None);
}
