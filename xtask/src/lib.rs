//! The workspace's own tools. `tidy` holds the tree to the rules of `CONTRIBUTING.md`; `docs` writes what is generated in
//! the documentation and `messages` what is generated in the code; `simulate` runs the quorum's logic very often, and `lab` the lab.

use std::path::Path;

pub mod docs;
pub mod guarantees;
pub mod lab;
pub mod messages;
pub mod peers;
pub mod picture;
pub mod simulate;
pub mod tidy;

/// The root of the workspace.
///
/// # Panics
/// Never: this crate lies in a folder of the root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in a folder of the workspace")
}
