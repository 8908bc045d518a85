//! What a run is like: which rules hold, what is broken on purpose, and which faults a seed draws.

use crate::clock::MS;
use crate::node::Rules;
use crate::random::Random;

/// What all runs of one test have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    /// The test, for the command that replays a seed.
    pub(crate) name: &'static str,
    pub(crate) rules: Rules,
    pub(crate) floor: Floor,
    pub(crate) flaw: Flaw,
    pub(crate) amnesia: Amnesia,
    pub(crate) steps: Steps,
}

/// Whether tokens are lifted to the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Floor {
    Never,
    /// To a number near the last tokens: below, equal or above. That is what a node is proposed first.
    Near,
    Sometimes,
    Always,
}

/// What a client does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// It counts the term from when the answer came.
    CountsFromTheAnswer,
    /// It adds up the acknowledgements of several rounds of renewals.
    MixesRounds,
    /// It seeds no node.
    SeedsNever,
    /// It lets a node out of its quarantine without a floor: the usual delayed restart.
    SeedsNothing,
    /// It does not wait for a node that may remember, as long as a majority answers.
    SeedsTooSoon,
}

/// How many nodes may be without their data at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amnesia {
    None,
    Minority,
    All,
}

/// Whose clocks are stepped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Steps {
    None,
    /// Those of node 0, and a lease counts only while it has a slack of one.
    OneWithinSlack,
    /// Those of node 0, and every lease counts: wrong.
    One,
    /// Those of all nodes. No lease counts, so that only tokens are judged: R1 and R2 know no time.
    All,
}

impl Scenario {
    /// As it should be, with every fault that R1 to R3 allow.
    pub(crate) const RIGHT: Self = Self {
        name: "",
        rules: Rules::RIGHT,
        floor: Floor::Sometimes,
        flaw: Flaw::None,
        amnesia: Amnesia::Minority,
        steps: Steps::None,
    };

    pub(crate) const fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Without floors from the clock, which would hide what the counters get wrong.
    pub(crate) const fn broken(rules: Rules) -> Self {
        Self { rules, floor: Floor::Near, amnesia: Amnesia::None, ..Self::RIGHT }
    }
}

/// What one seed draws. Each fault is missing from some seeds, so that none hides what another would show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub(crate) nodes: usize,
    pub(crate) clients: usize,
    pub(crate) ttl_ms: u64,
    /// How long a client rests between two leases, at most.
    pub(crate) rest_ms: u64,
    /// How long it holds one, at most, unless it is idle.
    pub(crate) hold_ms: u64,
    pub(crate) floor: bool,
    /// From then on there are no faults.
    pub(crate) calm_from: u64,
    /// How many messages in a thousand get lost.
    pub(crate) loss: u64,
    /// How many in a thousand are slow.
    pub(crate) slowness: u64,
    /// How slow, at most.
    pub(crate) slowest: u64,
    /// How many clients in a thousand hold until their deadline and never renew.
    pub(crate) idleness: u64,
    /// How far apart the wall clocks of the clients are, at most.
    pub(crate) skew_ms: u64,
    pub(crate) first_installation: bool,
    pub(crate) cuts: u64,
    pub(crate) pauses: u64,
    pub(crate) outages: u64,
    pub(crate) restarts: u64,
    pub(crate) deaths: u64,
    pub(crate) steps: u64,
}

impl Weather {
    pub(crate) fn draw(scenario: Scenario, random: &mut Random) -> Self {
        let mut some =
            |chance: u64, most: u64| if random.per_mille(chance) { random.between(1, most) } else { 0 };
        let wild = if some(200, 2) > 0 { 4 } else { 1 };
        let (loss, slowness, idleness) = (some(500, 40 * wild), some(600, 100 * wild), some(500, 1_000));
        let (cuts, pauses, outages) = (some(500, 40), some(500, 8), some(400, 5));
        let restarts = if scenario.amnesia == Amnesia::None { 0 } else { some(600, 5) };
        let steps = match scenario.steps {
            Steps::None => 0,
            Steps::OneWithinSlack | Steps::One => some(900, 8),
            Steps::All => some(950, 80),
        };
        let deaths = some(300, 3);
        let first_installation = scenario.amnesia != Amnesia::None && some(50, 2) > 0;
        // With all memory gone the clocks alone order the tokens, so they agree to within the quarantine.
        let skew_ms = if scenario.amnesia == Amnesia::All { 900 } else { 100_000 };
        let weather = Self {
            nodes: [3, 3, 3, 3, 3, 3, 5, 5, 5, 7][random.below(10)],
            clients: 2 + random.below(4),
            rest_ms: random.between(2, 600),
            ttl_ms: random.between(200, 1_500),
            floor: match scenario.floor {
                Floor::Never | Floor::Near => false,
                Floor::Sometimes => random.per_mille(500),
                Floor::Always => true,
            },
            calm_from: random.between(1_500, 5_000) * MS,
            loss,
            slowness,
            slowest: random.between(5, 800) * MS,
            idleness,
            skew_ms,
            first_installation,
            cuts,
            pauses,
            outages,
            restarts,
            deaths,
            steps,
            hold_ms: 0,
        };
        let weather = Self { hold_ms: 2 * weather.ttl_ms, ..weather };
        let is_storm = scenario.steps == Steps::All && random.per_mille(300);
        if is_storm { weather.storm(random) } else { weather }
    }

    /// Locks come free all the time, and whoever is slow does not notice.
    fn storm(self, random: &mut Random) -> Self {
        Self {
            clients: 5,
            calm_from: 1_500 * MS,
            steps: random.between(100, 1_000),
            slowness: 300,
            slowest: 40 * MS,
            rest_ms: 5,
            hold_ms: 5,
            idleness: 0,
            ..self
        }
    }
}
