//! What a system needs before it can be a fence, and taking it away again: a single place that knows the kinds.

use fencepost_core::{BackendUrl, ErrorKind, LockName, Result};

use crate::missing;

/// What is to be prepared, or taken away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installation {
    /// The table to which writes need a valid token, where the fence is a database.
    pub table: Option<String>,
    /// The lock whose token it is.
    pub lock: Option<LockName>,
    /// Whether to say only what would be done.
    pub dry_run: bool,
}

/// Prepares the system behind a URL to be a fence; says step by step what was done, or in a dry run what would be. What is there
/// already stays as it is.
///
/// # Cancel safety
/// A dropped call may have done a part of it; the next one does the rest.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] when the URL is wrong or its kind of fence has no tables; [`ErrorKind::Unsupported`] when this
/// build has no such fence.
pub async fn install_fence(url: &BackendUrl, installation: &Installation) -> Result<Vec<String>> {
    match url.kind() {
        #[cfg(feature = "file")]
        "file" => {
            refuse_table(url, installation)?;
            install_file(&crate::file::FileFence::from_url(url)?, installation.dry_run)
        }
        _ => Err(missing(url, "fence")),
    }
}

/// Takes away what [`install_fence`] has made, or in a dry run says how.
///
/// # Cancel safety
/// A dropped call may have done a part of it; the next one does the rest.
///
/// # Errors
/// Those of [`install_fence`], and [`ErrorKind::Unsupported`] where nothing is taken away but by hand.
pub async fn uninstall_fence(url: &BackendUrl, installation: &Installation) -> Result<Vec<String>> {
    match url.kind() {
        #[cfg(feature = "file")]
        "file" => {
            refuse_table(url, installation)?;
            let fence = crate::file::FileFence::from_url(url)?;
            let what = format!(
                "{fence} holds marks, and may hold locks; without its marks former holders could write again"
            );
            Err(fencepost_core::Error::new(ErrorKind::Unsupported, "uninstall the fence", what)
                .hint("`fencepost fence forget` removes one mark; remove the directory by hand when nobody uses it any more"))
        }
        _ => Err(missing(url, "fence")),
    }
}

#[cfg(feature = "file")]
fn install_file(fence: &crate::file::FileFence, dry_run: bool) -> Result<Vec<String>> {
    let directory = fence.directory().display();
    let is_there = fence.directory().is_dir();
    if !dry_run {
        fence.prepare()?;
    }
    Ok(vec![match (is_there, dry_run) {
        (true, _) => format!("the directory {directory} is there already"),
        (false, true) => format!("would make the directory {directory}"),
        (false, false) => format!("made the directory {directory}"),
    }])
}

#[cfg(feature = "file")]
fn refuse_table(url: &BackendUrl, installation: &Installation) -> Result<()> {
    match installation.table {
        Some(_) => Err(url.wrong("a fence in a directory has no tables").hint("leave --table out")),
        None => Ok(()),
    }
}
