//! What a system needs before it can be a fence, and taking it away again: a single place that knows the kinds.

use fencepost_core::{BackendUrl, Error, ErrorKind, LockName, Result};

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

/// Prepares the system behind a URL to be a fence; says step by step what was done, or in a dry run what would be. What
/// is there already stays as it is.
///
/// # Cancel safety
/// A dropped call may have done a part of it; the next one does the rest.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] when the URL is wrong, or its kind of fence has no tables; [`ErrorKind::Unsupported`]
/// when this build has no such fence.
pub async fn install_fence(url: &BackendUrl, installation: &Installation) -> Result<Vec<String>> {
    match (url.kind(), &installation.table) {
        ("file" | "redis" | "redlock" | "s3" | "gs" | "az", Some(_)) => Err(without_tables(url)),
        #[cfg(feature = "file")]
        ("file", None) => install_directory(&crate::file::FileFence::from_url(url)?, installation.dry_run),
        #[cfg(feature = "redis")]
        ("redis" | "redlock", None) => {
            let fence = redis(url)?;
            if installation.dry_run {
                return Ok(vec![fence.installation().to_owned()]);
            }
            fence.install().await
        }
        #[cfg(feature = "postgres")]
        ("postgres", table) => {
            let fence = postgres(url)?;
            let guarded = table.as_deref().zip(installation.lock.as_ref());
            if installation.dry_run {
                return Ok(vec![fence.installation(guarded)]);
            }
            fence.install(guarded).await
        }
        #[cfg(feature = "sqlite")]
        ("sqlite", table) => {
            let fence = crate::sqlite::SqliteFence::from_url(url)?;
            let guarded = table.as_deref().zip(installation.lock.as_ref());
            if installation.dry_run {
                return Ok(vec![fence.installation(guarded).await?]);
            }
            fence.install(guarded).await
        }
        #[cfg(feature = "objectstore")]
        ("s3" | "gs" | "az", None) => {
            let fence = crate::objectstore::ObjectStoreFence::from_url(url)?;
            if installation.dry_run {
                return Ok(vec![format!("would try whether {fence} honours conditional puts")]);
            }
            fence.probe().await?;
            Ok(vec![format!("{fence} honours conditional puts; there is nothing to install")])
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
/// Those of [`install_fence`], and [`ErrorKind::Unsupported`] where only hands take it away.
pub async fn uninstall_fence(url: &BackendUrl, installation: &Installation) -> Result<Vec<String>> {
    match (url.kind(), &installation.table) {
        ("file" | "redis" | "redlock" | "s3" | "gs" | "az", Some(_)) => Err(without_tables(url)),
        ("file" | "s3" | "gs" | "az", None) => {
            let what = format!("{url} holds the marks, without which former holders could write again");
            Err(Error::new(ErrorKind::Unsupported, "uninstall the fence", what).hint(
                "`fencepost fence forget` removes one mark; remove the rest by hand when nobody uses it any more",
            ))
        }
        #[cfg(feature = "redis")]
        ("redis" | "redlock", None) => {
            let fence = redis(url)?;
            if installation.dry_run {
                return Ok(vec![fence.uninstallation().to_owned()]);
            }
            fence.uninstall().await
        }
        #[cfg(feature = "postgres")]
        ("postgres", table) => {
            let fence = postgres(url)?;
            if installation.dry_run {
                return Ok(vec![fence.uninstallation(table.as_deref())]);
            }
            fence.uninstall(table.as_deref()).await
        }
        #[cfg(feature = "sqlite")]
        ("sqlite", table) => {
            let fence = crate::sqlite::SqliteFence::from_url(url)?;
            if installation.dry_run {
                return Ok(vec![fence.uninstallation(table.as_deref()).await?]);
            }
            fence.uninstall(table.as_deref()).await
        }
        _ => Err(missing(url, "fence")),
    }
}

#[cfg(feature = "postgres")]
fn postgres(url: &BackendUrl) -> Result<crate::postgres::PostgresFence> {
    crate::postgres::PostgresFence::from_url(url, fencepost_core::Clock::system())
}

#[cfg(feature = "redis")]
fn redis(url: &BackendUrl) -> Result<crate::redis::RedisFence> {
    crate::redis::RedisFence::from_url(url, fencepost_core::Clock::system())
}

fn without_tables(url: &BackendUrl) -> Error {
    url.wrong("this kind of fence has no tables").hint("leave --table out")
}

/// Makes the directory of a fence.
#[cfg(feature = "file")]
fn install_directory(fence: &crate::file::FileFence, dry_run: bool) -> Result<Vec<String>> {
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
