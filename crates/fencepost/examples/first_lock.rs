//! The first lock: `cargo run -p fencepost --example first_lock`. Start it twice: the second waits for the first.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

fn main() -> fencepost::Result<()> {
    // A directory of this host; `redis://…`, `postgres://…`, `etcd://…` are used alike.
    let place = std::env::args().nth(1).unwrap_or_else(|| "file:".to_owned());
    let locks = fencepost::connect(&place)?;
    let lock = locks.lock("first")?.ttl(Duration::from_secs(10));

    // Any async runtime will do, and none is needed.
    fencepost::block_on(async {
        let lease = lock.acquire().await?;
        println!("holding {} with token {}", lease.lock(), lease.token());
        for step in 1..=3 {
            // Before each step that must not happen twice. It sends nothing.
            lease.check()?;
            println!("step {step}");
        }
        lease.release().await?;
        println!("given back");
        Ok(())
    })
}
