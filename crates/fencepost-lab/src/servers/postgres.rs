//! A Postgres server, and a standby of it that can be made to miss a grant and take its place.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use fencepost_testkit::servers::{PostgresServer, PostgresSetup};

use super::surroundings::{expect_clock, expect_installed, has_clock};
use super::{Done, LockServers, PLAIN, QUARANTINE, pass};
use crate::fault::Loss;

/// One Postgres server.
#[derive(Debug)]
pub(super) struct OnePostgres {
    server: PostgresServer,
    /// A standby that receives nothing any more.
    copy: Option<PostgresServer>,
}

impl OnePostgres {
    pub(super) fn start() -> Result<Self, String> {
        let setup = PostgresSetup::default();
        let server = if has_clock() { setup.own_clock().try_start() } else { setup.try_start() }?;
        Ok(Self { server, copy: None })
    }
}

impl LockServers for OnePostgres {
    fn addresses(&self) -> Vec<SocketAddr> {
        vec![(Ipv4Addr::LOCALHOST, self.server.port()).into()]
    }

    fn url(&self, addresses: &[SocketAddr]) -> String {
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("postgres://postgres@{}/postgres?{QUARANTINE}&{PLAIN}", hosts.join(","))
    }

    fn copy(&mut self) -> Done {
        expect_installed("pg_basebackup", "postgresql-client")?;
        let copy = self.server.try_standby()?;
        copy.try_stop_receiving()?;
        self.copy = Some(copy);
        Ok(())
    }

    fn step_clock(&mut self, by: Duration) -> Done {
        expect_clock()?;
        self.server.step_clock_forward(by);
        Ok(())
    }

    fn step_clock_back(&mut self, by: Duration) -> Done {
        self.server.step_clock_back(by);
        Ok(())
    }

    fn restart(&mut self, after: Duration) -> Done {
        self.server.kill();
        pass(after);
        self.server.try_restart()
    }

    fn lose(&mut self, how: Loss) -> Done {
        match (how, self.copy.take()) {
            (Loss::OldCopy, Some(copy)) => {
                copy.try_promote()?;
                self.server = copy;
                Ok(())
            }
            _ => self.server.try_restart_empty(),
        }
    }
}
