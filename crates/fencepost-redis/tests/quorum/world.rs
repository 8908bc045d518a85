//! A run: nodes, clients and the network between them, in virtual time, all from one seed.
//!
//! The order of requests and answers on one connection is kept. A connection can be cut; what travels on it then gets
//! lost, or reaches the node later, after what was sent on the next one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use fencepost_redis::quorum::{Quorum, Reading, Reply, Request, Round};

use crate::client::{Client, Timer};
use crate::clock::{LocalClock, MS};
use crate::fault::{self, Fault};
use crate::history::{History, Violation};
use crate::node::{Holder, MAX_TTL, Node, nanos};
use crate::random::Random;
use crate::scenario::{Scenario, Steps, Weather};
use crate::tally::{Count, Tally};

/// What a node is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    Quorum { holder: Holder, ttl: u64, round: Round, request: Request },
    Read { serial: u32 },
    Seed { incarnation: u32, floor: u64 },
}

/// What it answers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told {
    Quorum { holder: Holder, round: Round, reply: Reply },
    Broken { holder: Holder, round: Round },
    Read { serial: u32, reading: Reading, incarnation: u32 },
    Seeded(bool),
}

/// One connection of a client to a node; the generation tells it from the one after a cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) client: usize,
    pub(crate) node: usize,
    generation: u32,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    ToNode { link: Link, late: bool, ask: Ask },
    ToClient { link: Link, told: Told },
    Timer { client: usize, timer: Timer },
    Fault(Fault),
}

struct Entry {
    at: u64,
    serial: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.serial == other.serial
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

#[derive(Clone, Default)]
struct Connection {
    generation: u32,
    last_request: u64,
    last_answer: u64,
    outstanding: Vec<(Holder, Round)>,
}

/// Everything around the clients: what they reach while they act.
pub(crate) struct Stage {
    pub(crate) now: u64,
    pub(crate) scenario: Scenario,
    pub(crate) weather: Weather,
    pub(crate) quorum: Quorum,
    pub(crate) random: Random,
    pub(crate) history: History,
    pub(crate) tally: Tally,
    tracing: bool,
    queue: BinaryHeap<Reverse<Entry>>,
    serial: u64,
    connections: Vec<Connection>,
    /// Until when no message gets through to a node.
    pub(crate) down_until: Vec<u64>,
    holders: Holder,
}

/// A run.
pub(crate) struct World {
    pub(crate) stage: Stage,
    pub(crate) nodes: Vec<Node>,
    pub(crate) node_clocks: Vec<LocalClock>,
    pub(crate) clients: Vec<Client>,
    /// Older states of the nodes, to which they may fall back.
    pub(crate) snapshots: Vec<Node>,
    /// Whom each incarnation of a node has cancelled, and until when on its clock it must remember that.
    cancelled: BTreeMap<(usize, u32, Holder), u64>,
}

impl Stage {
    pub(crate) fn send(&mut self, client: usize, node: usize, ask: Ask) {
        let latency = self.latency();
        let (now, index) = (self.now, client * self.quorum.nodes() + node);
        let connection = &mut self.connections[index];
        if let Ask::Quorum { holder, round, .. } = ask {
            connection.outstanding.push((holder, round));
        }
        connection.last_request = (connection.last_request + 1).max(now + latency);
        let (at, generation) = (connection.last_request, connection.generation);
        if self.loses_message(node) {
            return;
        }
        self.push(at, Event::ToNode { link: Link { client, node, generation }, late: false, ask });
    }

    pub(crate) fn wake(&mut self, at: u64, client: usize, timer: Timer) {
        self.push(at.max(self.now), Event::Timer { client, timer });
    }

    pub(crate) fn schedule(&mut self, at: u64, fault: Fault) {
        self.push(at, Event::Fault(fault));
    }

    pub(crate) fn new_holder(&mut self) -> Holder {
        self.holders += 1;
        self.holders
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.now >= self.weather.calm_from
    }

    pub(crate) fn trace(&self, what: impl FnOnce() -> String) {
        if self.tracing {
            println!("{:>6}.{:06} ms  {}", self.now / MS, self.now % MS, what());
        }
    }

    /// Cuts a connection: the client hears of it for each request that it waits for.
    pub(crate) fn cut(&mut self, client: usize, node: usize) {
        let index = client * self.quorum.nodes() + node;
        let connection = &mut self.connections[index];
        connection.generation += 1;
        let generation = connection.generation;
        // The next connection does not wait for what was slow on this one.
        connection.last_request = self.now;
        let outstanding = std::mem::take(&mut connection.outstanding);
        connection.last_answer = connection.last_answer.max(self.now);
        for (holder, round) in outstanding {
            self.answer(Link { client, node, generation }, Told::Broken { holder, round });
        }
    }

    fn answer(&mut self, link: Link, told: Told) {
        let latency = self.latency();
        let now = self.now;
        let connection = &mut self.connections[link.client * self.quorum.nodes() + link.node];
        connection.last_answer = (connection.last_answer + 1).max(now + latency);
        let at = connection.last_answer;
        self.push(at, Event::ToClient { link, told });
    }

    fn is_current(&self, link: Link) -> bool {
        self.connections[link.client * self.quorum.nodes() + link.node].generation == link.generation
    }

    fn settle(&mut self, link: Link, told: &Told) {
        if let Told::Quorum { holder, round, .. } = told {
            let connection = &mut self.connections[link.client * self.quorum.nodes() + link.node];
            let place = connection.outstanding.iter().position(|entry| entry == &(*holder, *round));
            place.map(|place| connection.outstanding.swap_remove(place));
        }
    }

    fn loses_message(&mut self, node: usize) -> bool {
        let is_lost =
            self.now < self.down_until[node] || (!self.is_calm() && self.random.per_mille(self.weather.loss));
        if is_lost {
            self.tally.count(Count::LostMessage);
        }
        is_lost
    }

    fn latency(&mut self) -> u64 {
        let ordinary = self.random.between(MS / 10, MS);
        if !self.is_calm() && self.random.per_mille(self.weather.slowness) {
            return ordinary + self.random.between(0, self.weather.slowest);
        }
        ordinary
    }

    fn push(&mut self, at: u64, event: Event) {
        self.serial += 1;
        self.queue.push(Reverse(Entry { at, serial: self.serial, event }));
    }
}

impl World {
    pub(crate) fn new(scenario: Scenario, seed: u64, tracing: bool) -> Self {
        let mut random = Random::new(seed);
        let weather = Weather::draw(scenario, &mut random);
        let count = weather.nodes;
        let node_clocks: Vec<LocalClock> = (0..count).map(|_| LocalClock::draw(&mut random)).collect();
        let clients: Vec<Client> =
            (0..weather.clients).map(|client| Client::draw(client, &weather, &mut random)).collect();
        let mut nodes = vec![Node::new(scenario.rules); count];
        if weather.first_installation {
            nodes.iter_mut().zip(&node_clocks).for_each(|(node, clock)| node.restart(clock.read(0), None));
        }
        let mut stage = Stage {
            now: 0,
            scenario,
            quorum: Quorum::of(count).expect("an odd number"),
            history: History::default(),
            tally: Tally::EMPTY,
            tracing,
            queue: BinaryHeap::new(),
            serial: 0,
            connections: vec![Connection::default(); count * weather.clients],
            down_until: vec![0; count],
            holders: 0,
            weather,
            random,
        };
        fault::schedule(&mut stage);
        for client in 0..clients.len() {
            let at = stage.random.between(0, 20 * MS);
            stage.wake(at, client, Timer::Act(0));
        }
        let snapshots = nodes.clone();
        Self { stage, nodes, node_clocks, clients, snapshots, cancelled: BTreeMap::new() }
    }

    /// Lets everything happen, and gives what was wrong.
    pub(crate) fn run(mut self) -> (Vec<Violation>, Tally) {
        while let Some(Reverse(entry)) = self.stage.queue.pop() {
            self.stage.now = entry.at;
            self.stage.tally.count(Count::Events);
            self.happen(entry.event);
            if self.stage.now > self.stage.weather.calm_from + LONGEST_CALM {
                break;
            }
        }
        self.check_the_end();
        (self.stage.history.violations(), self.stage.tally)
    }

    pub(crate) fn cut_all_of(&mut self, node: usize) {
        (0..self.clients.len()).for_each(|client| self.stage.cut(client, node));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::ToNode { link, late, ask } => self.reach_node(link, late, ask),
            Event::ToClient { link, .. } if self.is_paused(link.client) => {
                let until = self.clients[link.client].paused_until;
                self.stage.push(until, event);
            }
            Event::Timer { client, .. } if self.is_paused(client) => {
                let until = self.clients[client].paused_until;
                self.stage.push(until, event);
            }
            Event::ToClient { link, told } => {
                if self.stage.is_current(link) {
                    self.stage.settle(link, &told);
                    self.clients[link.client].hear(&mut self.stage, link.node, told);
                }
            }
            Event::Timer { client, timer } => self.clients[client].wake(&mut self.stage, timer),
            Event::Fault(fault) => self.fault(fault),
        }
    }

    fn is_paused(&self, client: usize) -> bool {
        self.stage.now < self.clients[client].paused_until
    }

    fn reach_node(&mut self, link: Link, late: bool, ask: Ask) {
        let is_current = self.stage.is_current(link);
        if !is_current && !late {
            // On a connection that was cut: lost, or on its way for longer than the next connection takes.
            if self.stage.random.per_mille(500) {
                let most = self.stage.weather.ttl_ms * MS * 5 / 4;
                let at = self.stage.now + self.stage.random.between(0, most);
                self.stage.push(at, Event::ToNode { link, late: true, ask });
            }
            return;
        }
        if late {
            self.stage.tally.count(Count::RequestAfterItsConnection);
        }
        let now = self.node_clocks[link.node].read(self.stage.now);
        let told = self.serve(link, now, ask);
        self.stage.trace(|| format!("node {} from client {}: {ask:?} -> {told:?}", link.node, link.client));
        if is_current && !self.stage.loses_message(link.node) {
            self.stage.answer(link, told);
        }
    }

    fn serve(&mut self, link: Link, now: u64, ask: Ask) -> Told {
        let must_remember = self.must_remember(link.node);
        let node = &mut self.nodes[link.node];
        match ask {
            Ask::Quorum { holder, ttl, round, request } => {
                let reply = node.serve(now, holder, ttl, request);
                let key = (link.node, node.incarnation, holder);
                match (request, reply) {
                    (Request::Cancel, _) => {
                        self.cancelled.insert(key, now + nanos(MAX_TTL));
                    }
                    (_, Reply::Cancelled) => self.stage.tally.count(Count::CancelledGrant),
                    (Request::Lock(_), Reply::Granted { .. } | Reply::Acked)
                        if must_remember && self.cancelled.get(&key).is_some_and(|until| now < *until) =>
                    {
                        let wrong = Violation::GrantedAfterCancel { node: link.node, holder };
                        self.stage.history.wrong.push(wrong);
                    }
                    _ => {}
                }
                Told::Quorum { holder, round, reply }
            }
            Ask::Read { serial } => {
                Told::Read { serial, reading: node.read(now), incarnation: node.incarnation }
            }
            Ask::Seed { incarnation, floor } => Told::Seeded(node.seed(now, incarnation, floor)),
        }
    }

    /// A clock that is stepped forward ends a node's memory of whom it cancelled, as it ends leases; stepping it back
    /// does not bring that memory back.
    fn must_remember(&self, node: usize) -> bool {
        match self.stage.scenario.steps {
            Steps::None => true,
            Steps::OneWithinSlack | Steps::One => node != 0,
            Steps::All => false,
        }
    }

    fn check_the_end(&mut self) {
        for client in self.clients.iter().filter(|client| !client.is_finished()) {
            self.stage.history.wrong.push(Violation::NotLive { client: client.number });
        }
        // Each step back lengthens what is recorded, by two ttls at most.
        let weather = &self.stage.weather;
        let later = self.stage.now + (weather.ttl_ms * (1 + 2 * weather.steps) + 10) * MS;
        for (index, node) in self.nodes.iter_mut().enumerate() {
            node.pass(self.node_clocks[index].read(later));
            if let Some(record) = node.record {
                self.stage.history.wrong.push(Violation::LeftBehind { node: index, holder: record.holder });
            }
        }
    }
}

/// By then everybody has had the lock, if nothing goes wrong any more.
const LONGEST_CALM: u64 = 60_000 * MS;
