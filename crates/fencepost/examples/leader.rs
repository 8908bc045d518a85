//! Stays elected as long as it can, and steps down in time: `cargo run -p fencepost --example leader -- URL [TERMS]`.
//!
//! A leader is who holds a lock. What it must not do is go on when it may not be one any more, so its work ends at `lost`, which comes
//! before anybody else can have been elected, and it waits for its turn again.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use fencepost::{ErrorKind, Lock, Result};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let place = arguments.next().unwrap_or_else(|| "file:".to_owned());
    let terms = arguments.next().and_then(|terms| terms.parse().ok()).unwrap_or(u32::MAX);
    let lock = fencepost::connect(&place)?.lock("leader")?.ttl(Duration::from_secs(3));
    fencepost::block_on(async {
        for _ in 0..terms {
            lead(&lock).await?;
        }
        Ok(())
    })
}

/// Waits to be elected, and leads until the lease is lost or the work is done.
async fn lead(lock: &Lock) -> Result<()> {
    let led = lock.run(async |lease| {
        println!("elected, term {}", lease.token());
        // `run` drops this future when the lease is lost. Work that blocks has to look at `lease.check()` by itself.
        work().await;
    });
    match led.await {
        Err(error) if error.kind() == ErrorKind::Lost => println!("stepped down: {error}"),
        led => led?,
    }
    Ok(())
}

async fn work() {
    fencepost::Clock::system().sleep(Duration::from_millis(200)).await;
    println!("term ended");
}
