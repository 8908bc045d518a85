//! The faults of a run: drawn before it begins, each at its moment.

use crate::clock::MS;
use crate::node::State;
use crate::scenario::{Amnesia, Steps};
use crate::tally::Count;
use crate::world::{Stage, World};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// A connection breaks.
    Cut { client: usize, node: usize },
    /// A client stands still.
    Pause { client: usize, until: u64 },
    /// A client's process ends, and another begins.
    Die { client: usize },
    /// No message reaches a node or leaves it.
    Down { node: usize, until: u64 },
    /// A node remembers this state, and may fall back to it.
    Save { node: usize },
    /// A node begins anew, with older data or with none.
    Restart { node: usize, with_data: bool },
    /// A node's clock is stepped.
    Step { node: usize, by_ms: i64 },
}

pub(crate) fn schedule(stage: &mut Stage) {
    let weather = stage.weather;
    let most = weather.calm_from;
    for _ in 0..weather.cuts {
        let (client, node) = (stage.random.below(weather.clients), stage.random.below(weather.nodes));
        at_random(stage, Fault::Cut { client, node });
    }
    for _ in 0..weather.pauses {
        let client = stage.random.below(weather.clients);
        let at = stage.random.between(0, most);
        let until = at + stage.random.between(MS, weather.ttl_ms * MS * 2);
        stage.schedule(at, Fault::Pause { client, until });
    }
    for _ in 0..weather.outages {
        let node = stage.random.below(weather.nodes);
        let at = stage.random.between(0, most);
        let until = (at + stage.random.between(MS, weather.ttl_ms * MS * 3)).min(most);
        stage.schedule(at, Fault::Down { node, until });
    }
    for _ in 0..weather.restarts {
        let node = stage.random.below(weather.nodes);
        at_random(stage, Fault::Save { node });
        let with_data = stage.random.per_mille(300);
        at_random(stage, Fault::Restart { node, with_data });
    }
    for _ in 0..weather.deaths {
        let client = stage.random.below(weather.clients);
        at_random(stage, Fault::Die { client });
    }
    for _ in 0..weather.steps {
        let by_ms = stage.random.rate(i64::try_from(weather.ttl_ms * 2).expect("a short ttl"));
        if stage.scenario.steps != Steps::All {
            at_random(stage, Fault::Step { node: 0, by_ms });
            continue;
        }
        // One, or all at once: then a lock is free on a majority while its holder is still about to get it.
        let at = stage.random.between(0, most);
        let is_alone = stage.random.per_mille(500);
        let one = stage.random.below(weather.nodes);
        for node in (0..weather.nodes).filter(|node| !is_alone || *node == one) {
            stage.schedule(at, Fault::Step { node, by_ms: by_ms.abs() });
        }
    }
}

fn at_random(stage: &mut Stage, fault: Fault) {
    let at = stage.random.between(0, stage.weather.calm_from);
    stage.schedule(at, fault);
}

impl World {
    pub(crate) fn fault(&mut self, fault: Fault) {
        self.stage.trace(|| format!("fault: {fault:?}"));
        match fault {
            Fault::Cut { client, node } => {
                self.stage.tally.count(Count::CutConnection);
                self.stage.cut(client, node);
            }
            Fault::Pause { client, until } => self.clients[client].pause(&mut self.stage, until),
            Fault::Die { client } => {
                let nodes = self.nodes.len();
                self.clients[client].die(&mut self.stage);
                (0..nodes).for_each(|node| self.stage.cut(client, node));
            }
            Fault::Down { node, until } => {
                self.stage.tally.count(Count::NodeDown);
                self.stage.down_until[node] = self.stage.down_until[node].max(until);
            }
            Fault::Save { node } => self.snapshots[node] = self.nodes[node].clone(),
            Fault::Restart { node, with_data } => self.restart(node, with_data),
            Fault::Step { node, by_ms } => self.step(node, by_ms),
        }
    }

    /// Where the theorems are to hold, only as many nodes are without their data at a time as they allow.
    fn restart(&mut self, node: usize, with_data: bool) {
        let unready = self.nodes.iter().enumerate();
        let unready = unready.filter(|(other, entry)| *other != node && entry.state != State::Ready).count();
        let most = self.stage.quorum.majority() - 1;
        if self.stage.scenario.amnesia == Amnesia::Minority && unready >= most {
            return;
        }
        self.stage.tally.count(if with_data { Count::OldData } else { Count::LostData });
        let now = self.node_clocks[node].read(self.stage.now);
        let snapshot = with_data.then(|| self.snapshots[node].clone());
        self.nodes[node].restart(now, snapshot.as_ref());
        self.cut_all_of(node);
    }

    fn step(&mut self, node: usize, by_ms: i64) {
        self.stage.tally.count(Count::SteppedClock);
        let clock = &mut self.node_clocks[node];
        let before = clock.read(self.stage.now);
        clock.start = clock.start.saturating_add_signed(by_ms * 1_000_000);
        let after = clock.read(self.stage.now);
        let frees =
            self.nodes[node].record.is_some_and(|record| before < record.expires && after >= record.expires);
        if frees {
            self.stage.tally.count(Count::SteppedUnderHolder);
        }
    }
}
