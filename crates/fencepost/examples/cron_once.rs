//! A job that several hosts start, and one of them does, once in its period:
//! `cargo run -p fencepost --example cron_once -- URL 2026-11-29T12:00`.
//!
//! Whoever plans the job says which period it is for, so that nobody's clock has to be right.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use fencepost::{ErrorKind, MarkOn, Period, Result};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let (place, period) = (next("file:"), next("2026-11-29T12:00"));
    let period: Period = period.parse()?;
    let lock = fencepost::connect(&place)?.lock("cron/report")?.once_per(period, MarkOn::Success);
    fencepost::block_on(async {
        let lease = match lock.acquire().await {
            Err(error) if error.kind() == ErrorKind::AlreadyDone => {
                println!("nothing to do: {error}");
                return Ok(());
            }
            lease => lease?,
        };
        println!("working with token {}", lease.token());
        // Work that fails is released instead, and may be done again in the period.
        lease.complete().await?;
        println!("done");
        Ok(())
    })
}
