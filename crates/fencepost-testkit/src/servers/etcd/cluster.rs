//! Several etcd servers that are one cluster.

use std::ops::{Index, IndexMut};

use super::{EtcdServer, EtcdSetup, Ports, peer_url};
use crate::servers::wait_until;

/// A cluster of etcd servers, each of which may be stopped or killed.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<EtcdServer>,
}

impl EtcdCluster {
    /// Three members.
    ///
    /// # Panics
    /// As [`EtcdSetup::start`].
    pub fn start() -> Self {
        Self::of(3, &EtcdSetup::default())
    }

    /// So many members.
    ///
    /// # Panics
    /// As [`EtcdSetup::start`].
    pub fn of(count: usize, setup: &EtcdSetup) -> Self {
        let ports: Vec<Ports> = (0..count).map(|_| Ports::reserve()).collect();
        let each = ports.iter().enumerate().map(|(index, ports)| format!("m{index}={}", peer_url(ports)));
        let names = each.collect::<Vec<_>>().join(",");
        let members = ports.into_iter().enumerate();
        let members =
            members.map(|(index, ports)| EtcdServer::new(&format!("m{index}"), ports, &names, setup));
        let mut members: Vec<EtcdServer> = members.collect();
        // None of them is ready before there is a majority.
        members.iter_mut().for_each(EtcdServer::launch);
        members.iter_mut().for_each(EtcdServer::wait_until_ready);
        Self { members }
    }

    /// `etcd://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3`, the member with the number `first` at the front.
    pub fn url_from(&self, first: usize) -> String {
        let count = self.members.len();
        let addresses = (0..count).map(|next| self.members[(first + next) % count].address().to_string());
        format!("etcd://{}", addresses.collect::<Vec<_>>().join(","))
    }

    /// All members, in their order.
    pub fn url(&self) -> String {
        self.url_from(0)
    }

    /// How many members there are, whether they run or not.
    pub fn count(&self) -> usize {
        self.members.len()
    }

    /// The number of the leader; waits until there is one.
    ///
    /// # Panics
    /// When there is none within half a minute.
    pub fn leader(&self) -> usize {
        let mut leader = None;
        wait_until("the cluster has a leader", || {
            leader = self.members.iter().position(EtcdServer::is_leader);
            leader.is_some()
        });
        leader.expect("it was seen")
    }

    /// The number of a member that does not lead.
    ///
    /// # Panics
    /// When there is no leader within half a minute.
    pub fn follower(&self) -> usize {
        (self.leader() + 1) % self.count()
    }

    /// Starts whoever was killed, and lets nobody stand still.
    ///
    /// # Panics
    /// When the cluster does not become whole.
    pub fn heal(&mut self) {
        for member in &mut self.members {
            if member.is_running() {
                member.go_on();
            } else {
                member.launch();
            }
        }
        self.members.iter_mut().for_each(EtcdServer::wait_until_ready);
    }
}

impl Index<usize> for EtcdCluster {
    type Output = EtcdServer;

    fn index(&self, member: usize) -> &EtcdServer {
        &self.members[member]
    }
}

impl IndexMut<usize> for EtcdCluster {
    fn index_mut(&mut self, member: usize) -> &mut EtcdServer {
        &mut self.members[member]
    }
}
