//! What only Redis does, on real servers: losses of data, faults of the network, hand-over, and load.

mod clock;
mod cost;
mod examine;
mod fence;
mod finality;
mod functions;
mod hand_over;
mod load;
mod logbook;
mod network;
mod quarantine;
mod replication;
mod sentinel;
mod sharing;
mod stage;
#[cfg(feature = "tls")]
mod tls;
mod tokens;
mod waiting;
