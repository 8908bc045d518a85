//! Three `ZooKeeper` servers that elect a leader. Each reaches the others' quorum port through a proxy of its own.
//!
//! A follower's connection to its leader can so be cut off, while clients reach both of them, and the votes go on.

use std::net::SocketAddr;
use std::time::Duration;

use super::{ZooKeeperServer, ZooKeeperSetup};
use crate::port::Port;
use crate::proxy::{Mode, Proxy};
use crate::servers::{LONGEST_WAIT, holds_within, wait_until};

/// A running ensemble of three.
#[derive(Debug)]
pub struct ZooKeeperEnsemble {
    members: Vec<ZooKeeperServer>,
    links: Vec<Link>,
    _ports: Vec<Port>,
}

/// How one member reaches the quorum port of another.
#[derive(Debug)]
struct Link {
    from: usize,
    to: usize,
    proxy: Proxy,
}

impl ZooKeeperEnsemble {
    /// An ensemble whose members notice within five seconds that another one is silent.
    ///
    /// # Panics
    /// As [`ZooKeeperSetup::start`].
    pub fn start() -> Self {
        ZooKeeperSetup::default().start_ensemble()
    }

    /// One of the members: 0, 1 or 2.
    pub fn member(&self, index: usize) -> &ZooKeeperServer {
        &self.members[index]
    }

    /// The same, to be killed or restarted.
    pub fn member_mut(&mut self, index: usize) -> &mut ZooKeeperServer {
        &mut self.members[index]
    }

    /// `zookeeper://` with all members.
    pub fn url(&self) -> String {
        let all: Vec<String> = self.members.iter().map(|member| member.address().to_string()).collect();
        format!("zookeeper://{}", all.join(","))
    }

    /// Which member leads.
    ///
    /// # Panics
    /// When none does for half a minute.
    pub fn leader(&self) -> usize {
        let mut leader = None;
        wait_until("a member leads", || {
            leader = self.members.iter().position(ZooKeeperServer::leads);
            leader.is_some()
        });
        leader.expect("it was waited for")
    }

    /// The members that do not lead.
    ///
    /// # Panics
    /// When none leads.
    pub fn followers(&self) -> [usize; 2] {
        let leader = self.leader();
        [(leader + 1) % MEMBERS, (leader + 2) % MEMBERS]
    }

    /// Lets nothing pass between a member and the others' quorum ports. They notice after a while; its clients do not.
    pub fn cut_off(&self, member: usize) {
        self.set(member, Mode::Blackhole);
    }

    /// Ends what [`cut_off`](Self::cut_off) has begun.
    pub fn rejoin(&self, member: usize) {
        self.set(member, Mode::Pass);
    }

    /// Has a member hear of everything, and be heard, so much later.
    pub fn lag(&self, member: usize, by: Duration) {
        self.set(member, Mode::Delay(by));
    }

    /// Kills a member, and starts it again with its data. Waits until it serves.
    ///
    /// # Panics
    /// As [`ZooKeeperSetup::start`].
    pub fn restart(&mut self, member: usize) {
        self.members[member].restart();
    }

    fn set(&self, member: usize, mode: Mode) {
        for link in self.links.iter().filter(|link| link.from == member || link.to == member) {
            link.proxy.set(mode);
        }
    }

    pub(super) fn from_setup(setup: &ZooKeeperSetup) -> Self {
        let reserve = || (0..MEMBERS).map(|_| Port::reserve()).collect::<Vec<Port>>();
        let (quorum, votes) = (reserve(), reserve());
        let pairs = (0..MEMBERS).flat_map(|from| (0..MEMBERS).map(move |to| (from, to)));
        let links: Vec<Link> = pairs
            .filter(|(from, to)| from != to)
            .map(|(from, to)| Link { from, to, proxy: Proxy::start(quorum[to].address()) })
            .collect();
        let members = (0..MEMBERS).map(|index| {
            let reached_at = |to: usize| match links.iter().find(|link| (link.from, link.to) == (index, to)) {
                Some(link) => link.proxy.address(),
                None => quorum[to].address(),
            };
            let setup = ZooKeeperSetup {
                settings: LIMITS.iter().map(ToString::to_string).chain(setup.settings.clone()).collect(),
                ..setup.clone()
            };
            let others: Vec<String> =
                (0..MEMBERS).map(|to| named(to, reached_at(to), votes[to].address())).collect();
            let others: Vec<&str> = others.iter().map(String::as_str).collect();
            setup.settings(&others).prepare(Port::reserve(), index + 1)
        });
        let members = members.collect();
        let ports = quorum.into_iter().chain(votes).collect();
        let mut ensemble = Self { members, links, _ports: ports };
        ensemble.launch();
        ensemble
    }

    fn launch(&mut self) {
        for member in &mut self.members {
            member.launch();
        }
        for member in &mut self.members {
            member.wait_until_ready();
        }
        assert!(
            holds_within(LONGEST_WAIT, || self.members.iter().any(ZooKeeperServer::leads)),
            "nobody leads; the first member said:\n{}",
            self.members[0].log()
        );
    }
}

fn named(index: usize, quorum: SocketAddr, votes: SocketAddr) -> String {
    format!("server.{}={}:{}:{}", index + 1, quorum.ip(), quorum.port(), votes.port())
}

const MEMBERS: usize = 3;
/// In ticks: how long a follower may take to follow, and how long it may be silent.
const LIMITS: [&str; 2] = ["initLimit=50", "syncLimit=25"];
