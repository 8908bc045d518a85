//! Every run of a few attempts on three nodes: whatever the order of messages, whoever gives up, whatever expires.
//!
//! It drives the real `Attempt`. A state is a node of a graph; a move is something that the adversary lets happen.
//! Two states that differ only in the numbering of the nodes count as one, and a state is remembered by a hash of 64
//! bits: with a million states, one in ten million explorations would overlook a state.

use std::collections::VecDeque;
use std::fmt::Write;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use fencepost_core::{FencingToken, Moment};
use fencepost_redis::quorum::{
    Action, Answer, Attempt, Decision, Event, Outcome, Quorum, Reading, Reply, Request, Round, Terms, decide,
};

use crate::hash::{Bits, Keys, Mixed};
use crate::node::{Node, Rules, State as NodeState};

const NODES: usize = 3;
const TTL: Duration = Duration::from_secs(1);
/// What a node is waited for, with this ttl.
const PATIENCE: Duration = Duration::from_millis(50);

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) rules: Rules,
    pub(crate) attempts: usize,
    /// Which tokens an attempt may propose first: up to this one. What others write is below, equal to or above it.
    pub(crate) first_tokens: u64,
    /// Whether locks are kept for their ttl. Without it they may expire at any moment, and only tokens are judged.
    pub(crate) timed: bool,
    /// Whether what is sent first may arrive last, as on connections that are cut. Otherwise each keeps its order.
    pub(crate) reorders: bool,
    /// Whether refusals reach the client. One that does not is lost, and the client gives up by its patience instead;
    /// so without them the same tokens are given out, by fewer paths.
    pub(crate) refusals: bool,
    /// Whether one node may lose its data, once; and whether it then gets a floor before it grants again.
    pub(crate) amnesia: Option<Repair>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repair {
    None,
    Reseed,
}

/// Something that the adversary lets happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// An attempt begins, and proposes this token first: any clock is thinkable.
    Begin(usize, u64),
    /// A request reaches its node. Its number is that of its round.
    Request { attempt: usize, node: usize, number: usize },
    /// An answer reaches its attempt.
    Reply { attempt: usize, node: usize, number: usize },
    /// The patience of an attempt is at its end.
    Wake(usize),
    /// The lock on a node runs out.
    Expire(usize),
    /// A holder's deadline comes, or it gives the lock back.
    End(usize),
    /// A node loses its data.
    Forget(usize),
    /// It is given a floor.
    Seed(usize),
}

/// What an exploration came to.
#[derive(Default)]
pub(crate) struct Explored {
    /// The states, by their hashes.
    pub(crate) states: Keys,
    /// How many were visited: more, where those are told apart that are alike.
    pub(crate) visited: usize,
    /// In how many of them every attempt has succeeded.
    pub(crate) all_granted: usize,
    /// In how many an attempt has proposed a second time.
    pub(crate) proposed_again: usize,
    /// What is wrong, and the way there.
    pub(crate) violation: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Waiting,
    Running,
    Failed,
    Held,
    Ended,
}

/// At most three rounds: lock and propose, propose, propose again.
const ROUNDS: usize = 3;

#[derive(Clone, Hash)]
struct Runner {
    attempt: Attempt,
    stage: Stage,
    /// How often its patience has ended.
    waits: u32,
    rounds: [Option<(Round, Request)>; ROUNDS],
    requests: [[bool; ROUNDS]; NODES],
    replies: [[Option<Reply>; ROUNDS]; NODES],
    token: u64,
    /// Which attempts had returned when it began, as bits.
    returned_before: u8,
    /// Whether it was under way, or held the lock, when a node lost its data.
    ran_at_loss: bool,
}

#[derive(Clone, Hash)]
struct State {
    nodes: [Node; NODES],
    runners: Vec<Runner>,
    has_lost: bool,
    is_forgetful: bool,
}

impl Explored {
    fn add(&mut self, state: &State) {
        self.visited += 1;
        let is_granted = |runner: &Runner| matches!(runner.stage, Stage::Held | Stage::Ended);
        self.all_granted += usize::from(state.runners.iter().all(is_granted));
        let is_again = |runner: &Runner| runner.rounds[ROUNDS - 1].is_some();
        self.proposed_again += usize::from(state.runners.iter().any(is_again));
    }
}

impl Bounds {
    /// Explores everything, breadth first, so that a counter-example is as short as it can be.
    pub(crate) fn explore(self) -> Explored {
        let (mut explored, seen) = self.explore_by(State::key, |_| {});
        explored.states = seen;
        explored
    }

    /// The same without taking states for one that differ in the numbering of the nodes, or in what no machine looks
    /// at. The states that it reports are hashed as the others are, so that both can be compared.
    pub(crate) fn explore_each(self) -> Explored {
        let mut states = Keys::default();
        let (explored, _) = self.explore_by(State::full_key, |state| {
            states.insert(state.key());
        });
        Explored { states, ..explored }
    }

    fn explore_by(self, key: fn(&State) -> u64, mut visit: impl FnMut(&State)) -> (Explored, Keys) {
        let start = State::new(self);
        let mut explored = Explored::default();
        let mut seen = Keys::default();
        seen.insert(key(&start));
        explored.add(&start);
        visit(&start);
        let mut ways: Vec<(u32, Move)> = vec![(0, Move::Begin(0, 0))];
        let mut queue = VecDeque::from([(start, 0_u32)]);
        while let Some((state, from)) = queue.pop_front() {
            for step in state.moves(self) {
                let mut next = state.clone();
                if let Some(wrong) = next.make(step, self) {
                    explored.violation = Some(format!("{wrong}:\n{}", self.tell(&ways, from, step)));
                    return (explored, seen);
                }
                if seen.insert(key(&next)) {
                    explored.add(&next);
                    visit(&next);
                    ways.push((from, step));
                    let index = u32::try_from(ways.len() - 1).expect("fewer states than that");
                    queue.push_back((next, index));
                }
            }
        }
        (explored, seen)
    }

    /// The way to a violation, line by line.
    fn tell(self, ways: &[(u32, Move)], from: u32, last: Move) -> String {
        let mut steps = vec![last];
        let mut at = from;
        while at != 0 {
            let (before, step) = ways[at as usize];
            steps.push(step);
            at = before;
        }
        let mut state = State::new(self);
        let mut way = String::new();
        for step in steps.into_iter().rev() {
            let _ = writeln!(way, "  {}", state.describe(step));
            state.make(step, self);
        }
        way
    }
}

impl State {
    fn new(bounds: Bounds) -> Self {
        let runner = Runner {
            attempt: Attempt::new(terms(0)),
            stage: Stage::Waiting,
            waits: 0,
            rounds: [None; ROUNDS],
            requests: [[false; ROUNDS]; NODES],
            replies: [[None; ROUNDS]; NODES],
            token: 0,
            returned_before: 0,
            ran_at_loss: false,
        };
        let nodes = [(); NODES].map(|()| Node::new(bounds.rules));
        Self {
            nodes,
            runners: vec![runner; bounds.attempts],
            has_lost: false,
            is_forgetful: bounds.amnesia.is_some(),
        }
    }

    fn moves(&self, bounds: Bounds) -> Vec<Move> {
        let mut moves = Vec::with_capacity(24);
        for (attempt, runner) in self.runners.iter().enumerate() {
            match runner.stage {
                // Attempts are alike, so the order of their numbers is that of their beginnings.
                Stage::Waiting if attempt == 0 || self.runners[attempt - 1].stage != Stage::Waiting => {
                    moves.extend((1..=bounds.first_tokens).map(|token| Move::Begin(attempt, token)));
                }
                Stage::Running => moves.push(Move::Wake(attempt)),
                Stage::Held if bounds.timed => moves.push(Move::End(attempt)),
                _ => {}
            }
            for node in 0..NODES {
                let requests = (0..ROUNDS).filter(|number| runner.requests[node][*number]);
                let most = if bounds.reorders { ROUNDS } else { 1 };
                moves.extend(requests.take(most).map(|number| Move::Request { attempt, node, number }));
                let replies = (0..ROUNDS).filter(|number| runner.replies[node][*number].is_some());
                moves.extend(replies.map(|number| Move::Reply { attempt, node, number }));
            }
        }
        for node in 0..NODES {
            if self.may_expire(node, bounds) {
                moves.push(Move::Expire(node));
            }
        }
        moves.extend(self.moves_of_loss(bounds));
        moves
    }

    fn moves_of_loss(&self, bounds: Bounds) -> Option<Move> {
        let repair = bounds.amnesia?;
        if !self.has_lost {
            return Some(Move::Forget(0));
        }
        // The quarantine is at its end, and with it the window and the lease of whoever the node had acknowledged.
        let may_seed = repair == Repair::Reseed && self.nodes[0].state == NodeState::Unseeded;
        let is_over = |runner: &Runner| matches!(runner.stage, Stage::Failed | Stage::Ended);
        let all_over = self.runners.iter().all(|runner| !runner.ran_at_loss || is_over(runner));
        (may_seed && all_over).then_some(Move::Seed(0))
    }

    /// With time, the lock of an attempt that is under way outlasts its window, and that of a holder its deadline where
    /// it acknowledged the token; every other may be at its end.
    fn may_expire(&self, node: usize, bounds: Bounds) -> bool {
        let Some(record) = self.nodes[node].record else { return false };
        let runner = &self.runners[record.holder as usize];
        match runner.stage {
            _ if !bounds.timed => true,
            Stage::Running => false,
            Stage::Held => !record.prolonged || self.nodes[node].counter != runner.token,
            Stage::Waiting | Stage::Failed | Stage::Ended => true,
        }
    }

    /// Makes a move; says what is wrong after it.
    fn make(&mut self, step: Move, bounds: Bounds) -> Option<String> {
        match step {
            Move::Begin(attempt, token) => {
                self.runners[attempt].attempt = Attempt::new(terms(token));
                let is_back = |runner: &Runner| matches!(runner.stage, Stage::Held | Stage::Ended);
                let back = self.runners.iter().enumerate().filter(|(_, runner)| is_back(runner));
                self.runners[attempt].returned_before = back.map(|(index, _)| 1 << index).sum();
                self.runners[attempt].stage = Stage::Running;
                self.feed(attempt, Event::Began, bounds)
            }
            Move::Request { attempt, node, number } => {
                self.reach(attempt, node, number, bounds);
                None
            }
            Move::Reply { attempt, node, number } => {
                let runner = &mut self.runners[attempt];
                let reply = runner.replies[node][number].take().expect("it is under way");
                let (round, _) = runner.rounds[number].expect("it was sent");
                self.feed(attempt, Event::Replied { node, round, reply }, bounds)
            }
            Move::Wake(attempt) => {
                self.runners[attempt].waits += 1;
                self.feed(attempt, Event::Woke, bounds)
            }
            Move::Expire(node) => {
                self.nodes[node].record = None;
                None
            }
            Move::End(attempt) => {
                self.runners[attempt].stage = Stage::Ended;
                None
            }
            Move::Forget(node) => self.forget(node, bounds),
            Move::Seed(node) => self.seed(node),
        }
    }

    fn reach(&mut self, attempt: usize, node: usize, number: usize, bounds: Bounds) {
        let runner = &mut self.runners[attempt];
        runner.requests[node][number] = false;
        let (_, request) = runner.rounds[number].expect("it was sent");
        let holder = u32::try_from(attempt).expect("few attempts");
        let reply = self.nodes[node].serve(0, holder, u64::MAX, request);
        let is_refusal = !matches!(reply, Reply::Granted { .. } | Reply::Acked | Reply::Stale { .. });
        let is_awaited = runner.stage == Stage::Running
            && Some(runner.attempt.round()) == runner.rounds[number].map(|sent| sent.0);
        if is_awaited && (bounds.refusals || !is_refusal) {
            runner.replies[node][number] = Some(reply);
        }
    }

    fn feed(&mut self, attempt: usize, event: Event, bounds: Bounds) -> Option<String> {
        let runner = &mut self.runners[attempt];
        let now = Moment::from_nanos(0).after(PATIENCE * runner.waits);
        let mut outcome = None;
        for action in runner.attempt.step(now, event) {
            match action {
                Action::Send { node, round, request } => runner.send(node, round, request),
                Action::WakeAt(_) => {}
                Action::Done(done) => outcome = Some(done),
            }
        }
        let outcome = outcome?;
        runner.replies = [[None; ROUNDS]; NODES];
        match outcome {
            Outcome::NotGranted(_) => {
                runner.stage = Stage::Failed;
                None
            }
            Outcome::Granted(granted) => {
                runner.stage = Stage::Held;
                runner.token = granted.token.get();
                self.judge(attempt, bounds)
            }
        }
    }

    /// R1 to R3, when `new` has just become the holder.
    fn judge(&self, new: usize, bounds: Bounds) -> Option<String> {
        let ours = &self.runners[new];
        for (other, theirs) in self.runners.iter().enumerate().filter(|(other, _)| *other != new) {
            if !matches!(theirs.stage, Stage::Held | Stage::Ended) {
                continue;
            }
            if theirs.token == ours.token {
                return Some(format!("R1: attempts {other} and {new} both have token {}", ours.token));
            }
            if ours.returned_before & (1 << other) != 0 && theirs.token > ours.token {
                return Some(format!(
                    "R2: attempt {new} began after {other} had returned, and its token is smaller"
                ));
            }
            if bounds.timed && theirs.stage == Stage::Held {
                return Some(format!("R3 (i): attempts {other} and {new} hold the lock at once"));
            }
            if bounds.timed && theirs.token > ours.token {
                return Some(format!("R3 (ii): attempt {new} holds after {other}, and its token is smaller"));
            }
        }
        None
    }

    fn forget(&mut self, node: usize, bounds: Bounds) -> Option<String> {
        self.nodes[node] = Node::new(bounds.rules);
        if bounds.amnesia == Some(Repair::Reseed) {
            self.nodes[node].state = NodeState::Unseeded;
        }
        for runner in &mut self.runners {
            runner.ran_at_loss = matches!(runner.stage, Stage::Running | Stage::Held);
        }
        self.has_lost = true;
        None
    }

    fn seed(&mut self, node: usize) -> Option<String> {
        let readings: Vec<Reading> = self.nodes.iter_mut().map(|node| node.read(0)).collect();
        let quorum = Quorum::of(NODES).expect("an odd number");
        let Decision::Seed(seed) = decide(quorum, node, &readings) else {
            return Some("it is not seeded".into());
        };
        self.nodes[node].seed(0, 0, seed.floor.map_or(0, FencingToken::get));
        None
    }

    /// What makes the state what it is, the same for all numberings of the nodes.
    fn key(&self) -> u64 {
        let mut columns: [u128; NODES] = std::array::from_fn(|node| self.column(node));
        // A node that may lose its data is not like the others.
        if self.is_forgetful {
            columns[1..].sort_unstable();
        } else {
            columns.sort_unstable();
        }
        let mut hash = Mixed::default();
        for column in columns {
            hash.write_u128(column);
        }
        for runner in &self.runners {
            hash.write_u64(runner.bits());
        }
        hash.write_u8(u8::from(self.has_lost));
        hash.finish()
    }

    fn full_key(&self) -> u64 {
        let mut hash = Mixed::default();
        self.hash(&mut hash);
        hash.finish()
    }

    /// All that concerns one node.
    fn column(&self, index: usize) -> u128 {
        let node = &self.nodes[index];
        let mut bits = Bits::default();
        bits.push(
            4,
            node.record.map_or(0, |record| u64::from(record.holder) * 2 + u64::from(record.prolonged) + 1),
        );
        bits.push(4, node.record.map_or(0, |record| record.token));
        bits.push(4, node.counter);
        bits.push(3, u64::from(node.written_by));
        bits.push(4, node.floor);
        bits.push(1, u64::from(node.state == NodeState::Unseeded));
        for runner in &self.runners {
            let answer = runner.attempt.answers().nth(index).filter(|_| runner.listens_to(index));
            bits.push(7, answer.map_or(0, code_of_answer));
            for number in 0..ROUNDS {
                bits.push(1, u64::from(runner.requests[index][number]));
                bits.push(7, runner.replies[index][number].map_or(0, code_of_reply));
            }
        }
        bits.0
    }

    fn describe(&self, step: Move) -> String {
        match step {
            Move::Begin(attempt, token) => {
                format!("attempt {attempt} begins: lock on all nodes, and propose {token}")
            }
            Move::Request { attempt, node, number } => {
                let (_, request) = self.runners[attempt].rounds[number].expect("it was sent");
                let holder = u32::try_from(attempt).expect("few attempts");
                let reply = self.nodes[node].clone().serve(0, holder, u64::MAX, request);
                format!("node {node} does {request:?} of attempt {attempt}: {reply:?}")
            }
            Move::Reply { attempt, node, number } => {
                let reply = self.runners[attempt].replies[node][number].expect("it is under way");
                format!("attempt {attempt} hears from node {node}: {reply:?}")
            }
            Move::Wake(attempt) => format!("attempt {attempt} waits no longer"),
            Move::Expire(node) => format!("the lock on node {node} runs out"),
            Move::End(attempt) => format!("attempt {attempt} stops holding"),
            Move::Forget(node) => format!("node {node} loses its data"),
            Move::Seed(node) => format!("node {node} is given its floor"),
        }
    }
}

impl Runner {
    fn send(&mut self, node: usize, round: Round, request: Request) {
        let known = self.rounds.iter().position(|sent| sent.is_some_and(|(sent, _)| sent == round));
        let number =
            known.or_else(|| self.rounds.iter().position(Option::is_none)).expect("three rounds at most");
        self.rounds[number] = Some((round, request));
        self.requests[node][number] = true;
        // What is still to come of an earlier round is not listened to.
        self.replies[node][..number].fill(None);
    }

    fn listens_to(&self, node: usize) -> bool {
        !self.attempt.is_over() && self.attempt.answered().contains(node)
    }

    fn bits(&self) -> u64 {
        let mut bits = Bits::default();
        bits.push(3, self.stage as u64);
        bits.push(3, u64::from(self.waits));
        bits.push(4, self.token);
        bits.push(3, u64::from(self.returned_before));
        bits.push(1, u64::from(self.ran_at_loss));
        for sent in self.rounds {
            let code = match sent {
                None => 0,
                Some((_, Request::Propose(token))) => token.get(),
                Some((_, Request::Lock(token))) => 16 + token.get(),
                Some((_, other)) => unreachable!("no attempt asks for {other:?}"),
            };
            bits.push(5, code);
        }
        u64::try_from(bits.0).expect("few bits")
    }
}

fn terms(floor: u64) -> Terms {
    Terms::new(Quorum::of(NODES).expect("an odd number"), TTL, floor).expect("a small floor")
}

fn code_of_answer(answer: Answer) -> u64 {
    match answer {
        Answer::Said(reply) => code_of_reply(reply),
        Answer::Silent | Answer::Unreachable => 127,
    }
}

fn code_of_reply(reply: Reply) -> u64 {
    let small = |counter: Option<FencingToken>| {
        let counter = counter.map_or(0, FencingToken::get);
        assert!(counter < 16, "the counters of few attempts are small");
        counter
    };
    match reply {
        Reply::Granted { counter } => 16 + small(counter),
        Reply::Stale { counter } => 32 + small(counter),
        // For how long changes nothing of what an attempt does.
        Reply::Busy { token, .. } => 48 + small(token),
        Reply::Acked => 2,
        Reply::NoLock => 3,
        Reply::Unseeded => 4,
        other => unreachable!("no node is asked for {other:?} here"),
    }
}
