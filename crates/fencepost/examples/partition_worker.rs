//! A worker of a stream, with one lock and one fence for each partition:
//! `cargo run -p fencepost --example partition_worker --features policy -- file:/srv/totals PARTITION…`
//!
//! It reads the total of a partition, adds what has come, and publishes it. The configuration says where the locks of `stream/*` are; the
//! directory of the totals guards itself. A worker that was paused past its lease is refused there, and destroys nothing.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::path::{Path, PathBuf};

use fencepost::{BackendUrl, ErrorKind, Lease, Policy, Result};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let totals: BackendUrl = arguments.next().unwrap_or_else(|| "file:/srv/totals".to_owned()).parse()?;
    let policy = Policy::load()?;
    fencepost::block_on(async {
        for partition in arguments {
            let lock = policy.lock(&format!("stream/{partition}"))?.fence(fencepost::fence(&totals)?);
            // The fence is sealed: whoever had the partition before can publish nothing any more.
            let lease = lock.acquire().await?;
            match add_one(&lease, &totals).await {
                Err(error) if error.kind() == ErrorKind::Stale => println!("too late: {error}"),
                added => added?,
            }
            lease.release().await?;
        }
        Ok(())
    })
}

/// Reads the total, adds to it, and publishes it.
async fn add_one(lease: &Lease, totals: &BackendUrl) -> Result<()> {
    let published = PathBuf::from(totals.expose().trim_start_matches("file:")).join(lease.lock().canonical());
    let before = std::fs::read_to_string(published).ok().and_then(|text| text.trim().parse().ok());
    let total = before.unwrap_or(0_u64) + 1;
    let new = std::env::temp_dir().join(format!("{}-{}", lease.holder(), lease.token()));
    write(&new, total)?;
    // Before each step that must not happen twice; the fence decides all the same.
    lease.check()?;
    let published = lease.heed(fencepost::publish(totals, &lease.stamp(), &new).await);
    // The result is a copy, and this one is not needed any more.
    drop(std::fs::remove_file(&new));
    println!("{}: {total} in {}", lease.lock(), published?.display());
    Ok(())
}

fn write(path: &Path, total: u64) -> Result<()> {
    std::fs::write(path, format!("{total}\n")).map_err(|error| {
        fencepost::Error::new(ErrorKind::Unavailable, "write the total", path.display().to_string())
            .caused_by(error)
    })
}
