//! A lock as the configuration wants it: `cargo run -p fencepost --example policy --features policy -- ledger/2026-11`.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use fencepost::Policy;

fn main() -> fencepost::Result<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "demo".to_owned());
    let policy = Policy::load()?;
    fencepost::block_on(async {
        let lock = policy.lock(&name)?;
        lock.run(async |lease| println!("{name}: working with token {}", lease.token())).await
    })
}
