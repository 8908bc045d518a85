//! What only Postgres does, on real servers: crashes and promotions, sessions, poolers, roles and their settings.

mod defaults;
mod examine;
mod failover;
mod first;
mod giving_up;
mod logbook;
mod loss;
mod names;
mod pause;
mod poolers;
mod process;
mod quarantine;
mod rights;
mod sequences;
mod sessions;
mod sharing;
mod silence;
mod slots;
mod stage;
#[cfg(feature = "tls")]
mod tls;
mod tokens;
mod upgrade;
mod waiting;
