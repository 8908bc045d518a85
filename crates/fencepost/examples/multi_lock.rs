//! Several locks, all or none: `cargo run -p fencepost --example multi_lock -- URL FROM TO`.
//!
//! They are taken in the order of their names, whatever order they are asked for in, so that a transfer from A to B and one from B to A
//! never wait for each other. Each has a token of its own.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use fencepost::{Clock, Lock, Result, Wait, release_all};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let (place, from, to) = (next("file:"), next("alice"), next("bob"));
    let locks = fencepost::connect(&place)?;
    let both = [locks.lock(&format!("account/{from}"))?, locks.lock(&format!("account/{to}"))?];
    fencepost::block_on(async {
        let soon = Clock::system().now().after(Duration::from_secs(30));
        let leases = Lock::acquire_all(&both, Wait::Until(soon)).await?;
        for lease in &leases {
            lease.check()?;
            println!("{} with token {}", lease.lock(), lease.token());
        }
        println!("moved from {from} to {to}");
        for error in release_all(leases).await {
            println!("{error}");
        }
        Ok(())
    })
}
