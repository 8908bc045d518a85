//! Random faults of nodes and of clients, and the check that nobody who believes in a lease is alone in it, and tokens grow.
//!
//! Beside it stands what the same check finds where the two things are switched off that make it so.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_core::{Clock, Lease, VirtualTime};
use fencepost_testkit::block_on;
use fencepost_testkit::history::{Hold, faults};
use fencepost_testkit::servers::wait_until;

use super::client::{Client, NAMES};
use super::nodes::{Nodes, key, lock, ms, now, pass, take};

const CLIENTS: usize = 4;

/// What was held of each lock.
type Holds = Vec<(String, Hold)>;

/// What was done to whom, and how often.
#[derive(Debug, Default)]
struct Tally(BTreeMap<&'static str, usize>);

impl Tally {
    fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }
}

/// Random numbers that a seed repeats.
struct Dice(Clock);

impl Dice {
    fn new() -> Self {
        let given = std::env::var("FENCEPOST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| Clock::system().random());
        println!("FENCEPOST_SEED={seed}");
        Self(VirtualTime::new(seed).clock())
    }

    fn below(&self, most: usize) -> usize {
        usize::try_from(self.0.random() % most as u64).expect("it is small")
    }

    /// Different nodes, at most a minority of five.
    fn minority(&self) -> Vec<usize> {
        let (first, count) = (self.below(5), 1 + self.below(2));
        (0..count).map(|index| (first + index * (1 + self.below(4))) % 5).collect()
    }
}

/// The holds of one lock each, once both reports of a hold are one.
fn of_each_lock(holds: Holds) -> Vec<(String, Vec<Hold>)> {
    let mut all: BTreeMap<(String, String), Hold> = BTreeMap::new();
    for (name, hold) in holds {
        let longest = all.entry((name, hold.holder.to_string())).or_insert(hold);
        if hold.ended > longest.ended {
            *longest = hold;
        }
    }
    let of = |name: &str| all.iter().filter(|((its, _), _)| its == name).map(|(_, hold)| *hold).collect();
    NAMES.iter().map(|name| ((*name).to_owned(), of(name))).collect()
}

/// What is wrong with what was held.
fn wrong(holds: Holds) -> Vec<String> {
    of_each_lock(holds).iter().flat_map(|(_, holds)| faults(holds)).collect()
}

/// Does something to a minority of the nodes, and waits until they are well again.
fn hurt_nodes(nodes: &mut Nodes, dice: &Dice, tally: &mut Tally) {
    let victims = dice.minority();
    let kind = dice.below(6);
    match kind {
        0..3 => {
            tally.count("nodes stopped");
            for node in &victims {
                nodes.servers[*node].stop();
            }
            pass(ms([50, 300, 900, 2_500][dice.below(4)]));
            for node in &victims {
                nodes.servers[*node].go_on();
            }
            return;
        }
        3 => {
            tally.count("nodes killed and restarted with their data");
            for node in &victims {
                nodes.servers[*node].kill();
            }
            pass(ms([0, 200, 800][dice.below(3)]));
            for node in &victims {
                nodes.servers[*node].restart();
            }
        }
        _ => {
            tally.count("nodes restarted empty");
            for node in &victims {
                nodes.servers[*node].restart_empty();
            }
        }
    }
    // Another loss before that could take the data of a majority.
    wait_until("the nodes are ready again", || victims.iter().all(|node| nodes.is_ready(*node)));
}

/// Does something to a client.
fn hurt_client(clients: &mut [Client], url: &str, dice: &Dice, tally: &mut Tally, holds: &mut Holds) {
    let victim = dice.below(clients.len());
    if dice.below(3) == 0 {
        tally.count("clients killed");
        holds.extend(std::mem::replace(&mut clients[victim], Client::start(url)).kill());
    } else {
        tally.count("clients stopped");
        clients[victim].stop();
        pass(ms([20, 300, 1_100][dice.below(3)]));
        clients[victim].go_on();
    }
}

fn start_clients(url: &str) -> Vec<Client> {
    (0..CLIENTS).map(|_| Client::start(url)).collect()
}

fn is_taken(nodes: &Nodes, node: usize) -> bool {
    NAMES.iter().any(|name| nodes.keys(node).contains(&key(name, "l")))
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn nobody_shares_a_lock_under_random_faults() {
    let seconds = std::env::var("FENCEPOST_CHAOS_SECONDS").ok().and_then(|text| text.parse().ok());
    let for_long = Duration::from_secs(seconds.unwrap_or(20));
    let dice = Dice::new();
    let mut nodes = Nodes::durable(5);
    let url = nodes.url("max_ttl=1s");
    nodes.make_ready(&nodes.locks("max_ttl=1s"));
    let (mut clients, mut holds, mut tally) = (start_clients(&url), Vec::new(), Tally::default());
    let began = now();
    while now().since(began) < for_long {
        match dice.below(2) {
            0 => hurt_nodes(&mut nodes, &dice, &mut tally),
            _ => hurt_client(&mut clients, &url, &dice, &mut tally, &mut holds),
        }
        pass(ms([0, 50, 200][dice.below(3)]));
    }
    for client in clients {
        holds.extend(client.end());
    }
    pass(ms(1_050));
    let counts: Vec<(String, usize)> =
        of_each_lock(holds.clone()).into_iter().map(|(name, holds)| (name, holds.len())).collect();
    println!("{counts:?} holds, {tally:?}");
    let wrong = wrong(holds);
    assert!(wrong.is_empty(), "{} faults: {}", wrong.len(), wrong.join("; "));
    assert!((0..5).all(|node| !is_taken(&nodes, node)), "nobody has it, and no ttl is as long as that");
    assert!(counts.iter().all(|(_, count)| *count > 20), "{counts:?}");
    assert!(tally.0.len() >= 4 && tally.0.values().sum::<usize>() >= 8, "{tally:?}");
}

/// Restarts four of five nodes without their data, again and again, while the lock is held.
fn lose_majorities(options: &str, times: usize) -> Vec<String> {
    let mut nodes = Nodes::start(5);
    let (clients, mut holds) = (start_clients(&nodes.url(options)), Vec::new());
    for round in 0..times {
        wait_until("somebody has a lock", || (0..5).all(|node| is_taken(&nodes, node)));
        for node in 0..4 {
            nodes.servers[(round + node) % 5].restart_empty();
        }
    }
    wait_until("somebody has a lock again", || (0..5).all(|node| is_taken(&nodes, node)));
    pass(ms(500));
    for client in clients {
        holds.extend(client.end());
    }
    println!("{options}: {} reports of holds", holds.len());
    wrong(holds)
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn majority_that_forgets_lets_nobody_share_a_lock() {
    let wrong = lose_majorities("max_ttl=1s", 3);
    assert!(wrong.is_empty(), "{} faults: {}", wrong.len(), wrong.join("; "));
}

/// Without the quarantine two hold the lock, and without the floor from the wall clock the second gets the first one's token.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn same_check_finds_what_a_majority_that_forgets_breaks_without_its_two_guards() {
    let options = "quarantine=off&test_floor=off";
    let mut nodes = Nodes::start(5);
    let (ann, bob) = (nodes.locks(options), nodes.locks(options));
    let ttl = Duration::from_secs(30);
    let (first, second) = (lock(&ann, NAMES[0], ttl), lock(&bob, NAMES[0], ttl));
    let asked = now();
    let forgotten = take(&first);
    let held_since = now();
    for server in &mut nodes.servers[..4] {
        server.restart_empty();
    }
    let asked_again = now();
    let mut got = None;
    wait_until("the lock is given a second time", || {
        got = block_on(second.try_acquire()).ok().flatten();
        got.is_some()
    });
    let (got, given_again) = (got.expect("it was given"), now());
    forgotten.check().expect("its holder has not heard of anything");
    let hold = |lease: &Lease, asked, granted| {
        let ended = now();
        (NAMES[0].to_owned(), Hold { asked, granted, ended, token: lease.token(), holder: lease.holder() })
    };
    let wrong = wrong(vec![hold(&forgotten, asked, held_since), hold(&got, asked_again, given_again)]);
    let has = |what: &str| wrong.iter().any(|fault| fault.contains(what));
    assert!(has("overlap") && has("was given twice"), "{wrong:?}");
}
