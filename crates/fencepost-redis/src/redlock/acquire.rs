//! Acquiring on a quorum: attempt, wait until it is worth another attempt, and leave nothing behind.
//!
//! A node tells the first of those who wait there when its lock is free, and keeps it for that one for an instant; so a release
//! wakes one waiter, at all nodes the same unless they disagree about who came first.

use std::sync::Arc;
use std::time::Duration;

use fencepost_core::Event::{Noticed, Quarantined};
use fencepost_core::{AcquireRequest, Error, ErrorKind, FencingToken, HolderId, Moment, Result, Wait, until};
use futures_util::stream::{SelectAll, select_all};
use futures_util::{FutureExt, StreamExt};

use super::candidate::{Candidate, Going, Waiter, worst};
use super::claim::{RedlockClaim, leave_all};
use super::exchange::{Exchange, stragglers_most};
use super::nodes::Nodes;
use crate::failure::unavailable;
use crate::queue::{ONE_TRY_MOST, RECONNECT_MOST};
use crate::quorum::{
    self, Answer, Event, Granted, NodeSet, Outcome, Refusal, Reply, Tenure, Terms, Why, back_off,
};
use crate::server::{Attended, Note};

/// How long a reservation of a node lasts (`claim_among_others.lua`), and what is added so that it is over then.
const CLAIM_AND_MORE: Duration = Duration::from_millis(255);

/// How long a waiter whose turn has come at one node waits for the news from a majority of them.
const OTHERS_MOST: Duration = Duration::from_millis(5);

/// The part of the ttl that may go by until the nodes beyond a majority have acknowledged a grant.
const STRAGGLERS_PART: u32 = 16;

/// When one who has others before it looks by itself: whoever is first looks sooner, and signs of life hand on what has run out.
const BEHIND_OTHERS: Duration = Duration::from_secs(2);

/// The pause before the next attempt where time alone does not help.
const PAUSE: Duration = Duration::from_millis(100);

/// How often the pause after a split vote is doubled.
const MOST_DOUBLINGS: u32 = 7;

/// How long a process that ends waits until what it gives up is cancelled.
const CANCEL_MOST: Duration = Duration::from_millis(300);

/// Acquires the lock as the request says.
///
/// # Cancel safety
/// Dropping it cancels the attempt on all nodes, in the background.
///
/// # Errors
/// `Contended` when a majority has it taken, or is in quarantine, and the wait is over; `Unavailable` when no majority can be
/// reached, with what each node said. What a minority has granted is no lock.
pub(super) async fn acquire(nodes: &Nodes, request: &AcquireRequest) -> Result<RedlockClaim> {
    let clock = nodes.clock();
    let now = clock.now();
    let patience = request.wait.give_up_at(now).filter(|_| request.wait != Wait::No);
    let give_up_at = patience.map(|at| at.max(now.after(ONE_TRY_MOST)));
    let waiter = Waiter::new(request.holder, nodes);
    let mut wait = Waiting {
        request,
        candidate: Arc::new(Candidate::new(nodes, request, &waiter, HolderId::draw(clock))),
        standing: None,
        has_reached: false,
        unreached_since: None,
        splits: 0,
        suspected: None,
        has_told: false,
        is_over: false,
    };
    let outcome = until(clock, give_up_at, wait.run()).await;
    wait.is_over = outcome.as_ref().is_some_and(Result::is_ok);
    outcome.unwrap_or_else(|| Err(wait.out_of_time()))
}

/// One wait for one lock. Dropped before its end it is cancelled on all nodes.
struct Waiting<'a> {
    request: &'a AcquireRequest,
    candidate: Arc<Candidate>,
    /// The error of a wait that ends now.
    standing: Option<Error>,
    /// Whether a majority has ever answered.
    has_reached: bool,
    unreached_since: Option<Moment>,
    /// How many votes were split one after the other.
    splits: u32,
    /// What may be somebody's lease; seen once more, it is taken for one.
    suspected: Option<FencingToken>,
    /// Whether the observer has been told of a quarantine.
    has_told: bool,
    is_over: bool,
}

type Notes<'a> = SelectAll<futures_util::stream::BoxStream<'a, (usize, Note)>>;

impl Waiting<'_> {
    fn nodes(&self) -> &Nodes {
        &self.candidate.nodes
    }

    /// Terms for as long as anything of an attempt may be left on a node.
    fn lasting_terms(&self) -> Result<Terms> {
        let lasts = self.request.ttl.max(self.request.at_least.unwrap_or_default());
        Terms::new(self.nodes().quorum(), lasts, 0)
    }

    fn terms(&self) -> Result<Terms> {
        let ttl = Duration::from_millis(u64::try_from(self.request.ttl.as_millis()).unwrap_or(u64::MAX));
        Terms::new(self.nodes().quorum(), ttl, self.nodes().floor())
    }

    async fn run(&mut self) -> Result<RedlockClaim> {
        let nodes = self.nodes().clone();
        nodes.connect().await?;
        // On the lists before the first request: the turn may come right behind its answer.
        let mut attended = attend(&self.candidate, self.request.wait);
        let mut heard = notes(&mut attended);
        loop {
            let terms = self.terms()?;
            let began = nodes.clock().now();
            let (outcome, exchange) = attempt(&self.candidate, terms).await;
            let took = nodes.clock().now().since(began);
            match outcome {
                Outcome::Granted(granted) => return Ok(self.claim(terms, granted, exchange).await),
                Outcome::NotGranted(refusal) => {
                    self.stand(&refusal)?;
                    let free_at = self.worth_a_look_at(&refusal);
                    self.begin_anew(terms);
                    self.wait(free_at, took, &mut heard).await?;
                }
            }
        }
    }

    /// The claim to what was granted, once the nodes beyond the majority have answered as well, or could have: their
    /// acknowledgements are the slack.
    async fn claim(&self, terms: Terms, granted: Granted, mut exchange: Exchange) -> RedlockClaim {
        self.candidate.win();
        let mut tenure = Tenure::new(terms, granted);
        let took = self.nodes().clock().now().since(granted.counted_from);
        let most = stragglers_most(took).min(terms.ttl() / STRAGGLERS_PART);
        let ask = |node, request| Arc::clone(&self.candidate).ask(node, request);
        exchange.linger(most, self.nodes().promising(), &mut tenure, ask).await;
        RedlockClaim::new(Arc::clone(&self.candidate), terms, tenure, self.request.observer.as_ref())
    }

    /// Ends the attempt that has failed, and makes another one of the same waiter.
    fn begin_anew(&mut self, terms: Terms) {
        let clock = self.nodes().clock().clone();
        let terms = self.lasting_terms().unwrap_or(terms);
        let mut leaving = leave_all(&self.candidate, terms, Going::Withdraws, None).boxed();
        // What can be sent at once is: the next attempt would find its place taken by this one.
        if (&mut leaving).now_or_never().is_none() {
            clock.serve(leaving);
        }
        let (waiter, holder) = (&self.candidate.waiter, HolderId::draw(&clock));
        self.candidate = Arc::new(Candidate::new(self.nodes(), self.request, waiter, holder));
    }

    /// Takes note of a refusal; an error where waiting is of no use.
    fn stand(&mut self, refusal: &Refusal) -> Result<()> {
        let errors = (0..refusal.answers.len()).filter_map(|node| self.error_of(node));
        let kind = match refusal.why {
            Why::Contended | Why::Outvoted | Why::Quarantined => ErrorKind::Contended,
            Why::Exhausted => ErrorKind::Unexpected,
            Why::Late => ErrorKind::Unavailable,
            Why::Unreachable => worst(errors).map_or(ErrorKind::Unavailable, |error| error.kind()),
        };
        let what = format!("{}: {}", reason(refusal.why), self.answers(&refusal.answers));
        let error = Error::new(kind, "acquire the lock", what.clone());
        if let (Why::Quarantined, false, Some(observer)) =
            (refusal.why, self.has_told, &self.request.observer)
        {
            self.has_told = true;
            observer.observe(&self.request.name, &Quarantined);
            observer.observe(&self.request.name, &Noticed { what });
        }
        self.standing = Some(error.clone());
        let now = self.nodes().clock().now();
        if refusal.why != Why::Unreachable {
            self.has_reached = true;
            self.unreached_since = None;
        }
        let is_worth_waiting = match refusal.why {
            Why::Contended | Why::Outvoted | Why::Quarantined | Why::Late => true,
            Why::Exhausted => false,
            // Where no majority could ever be reached the caller decides how long to try. One that is silent may be busy.
            Why::Unreachable => {
                let unreachable =
                    refusal.answers.iter().filter(|answer| **answer == Answer::Unreachable).count();
                let is_hopeless = !self.has_reached && unreachable > self.nodes().quorum().minority();
                !is_hopeless && now.since(*self.unreached_since.get_or_insert(now)) < RECONNECT_MOST
            }
        };
        if self.request.wait == Wait::No || !is_worth_waiting { Err(error) } else { Ok(()) }
    }

    /// What each node said.
    fn answers(&self, answers: &[Answer]) -> String {
        let one = |(index, answer): (usize, &Answer)| {
            let name = &self.nodes().all()[index].name;
            let error = self.error_of(index);
            let words = words(*answer, error.as_ref());
            // What cannot be connected to is named there.
            if words.contains(name.as_str()) { words } else { format!("{name} {words}") }
        };
        answers.iter().enumerate().map(one).collect::<Vec<_>>().join("; ")
    }

    /// Why a node has not answered: what was asked has failed, or it cannot be connected to.
    fn error_of(&self, node: usize) -> Option<Error> {
        self.candidate.error_of(node).or_else(|| self.nodes().error_of(node))
    }

    /// The error of a wait whose time is over.
    fn out_of_time(&self) -> Error {
        let silent = || {
            let answers = self.answers(&vec![Answer::Silent; self.nodes().all().len()]);
            unavailable(format!("no majority of the nodes has answered in time: {answers}"))
        };
        self.standing.clone().unwrap_or_else(silent)
    }

    /// When a majority can be free, and nobody tells.
    fn worth_a_look_at(&mut self, refusal: &Refusal) -> Option<Moment> {
        let before = std::mem::replace(&mut self.suspected, refusal.suspect.map(|suspect| suspect.token));
        let clock = self.nodes().clock();
        if self.candidate.is_behind_others() {
            return Some(clock.now().after(BEHIND_OTHERS + clock.jitter(BEHIND_OTHERS)));
        }
        // An attempt would have made room by now. If it has just done so the nodes tell, with the next sign of life.
        match refusal.suspect.filter(|suspect| before == Some(suspect.token)) {
            Some(suspect) => suspect.free_at,
            None => refusal.free_at,
        }
    }

    /// Waits until it is worth another attempt.
    async fn wait(&mut self, free_at: Option<Moment>, took: Duration, notes: &mut Notes<'_>) -> Result<()> {
        let clock = &self.nodes().clock().clone();
        let now = clock.now();
        let give_up_at = self.request.wait.give_up_at(now);
        let mut look_at = match free_at {
            Some(at) if at > now => {
                self.splits = 0;
                at.after(Duration::from_millis(1) + clock.jitter(Duration::from_millis(10)))
            }
            Some(_) => {
                // Ever longer: one of those who have split the vote may be stopped, and its records last for its ttl.
                let exchange = took.saturating_mul(1 << self.splits.min(MOST_DOUBLINGS)).min(PAUSE);
                self.splits += 1;
                now.after(back_off(exchange, clock.random()))
            }
            None => now.after(PAUSE + clock.jitter(PAUSE)),
        };
        let mut turns = NodeSet::EMPTY;
        loop {
            let end = give_up_at.map_or(look_at, |at| at.min(look_at));
            match until(clock, Some(end), notes.next()).await.flatten() {
                Some((node, Note::Turn)) => {
                    turns.insert(node);
                    if turns.len() >= self.nodes().quorum().majority() {
                        return Ok(());
                    }
                    look_at = look_at.min(clock.now().after(OTHERS_MOST));
                }
                Some((_, Note::Next)) => look_at = look_at.min(clock.now().after(CLAIM_AND_MORE)),
                // A node that has no queue for it, because it is in quarantine, has nothing to say.
                Some((node, Note::AskAgain)) if !self.candidate.waiter.may_wait(node) => {}
                Some((_, Note::AskAgain)) => {
                    look_at = look_at.min(clock.now().after(PAUSE + clock.jitter(PAUSE)));
                }
                Some((_, Note::First(_))) => {}
                None if give_up_at.is_some_and(|at| clock.now() >= at) => return Err(self.out_of_time()),
                None if clock.now() >= look_at => return Ok(()),
                // Nobody is on a list, so only time goes on.
                None => clock.sleep_until(end).await,
            }
        }
    }
}

impl Drop for Waiting<'_> {
    /// Cancels on all nodes what has come to nothing.
    fn drop(&mut self) {
        let Ok(terms) = self.lasting_terms() else { return };
        if self.is_over {
            return;
        }
        let clock = self.nodes().clock().clone();
        let mut leaving = leave_all(&self.candidate, terms, Going::Cancels, None).boxed();
        self.nodes().clock().spawn(async move {
            // A node that does not answer must not hold up the end of a process.
            if until(&clock, Some(clock.now().after(CANCEL_MOST)), &mut leaving).await.is_none() {
                clock.serve(leaving);
            }
        });
    }
}

fn attend(candidate: &Candidate, wait: Wait) -> Vec<Attended> {
    if wait == Wait::No {
        return Vec::new();
    }
    let nodes = candidate.nodes.all().iter();
    nodes.map(|node| node.server.attend(candidate.waiter.id, &candidate.key)).collect()
}

fn notes(attended: &mut [Attended]) -> Notes<'_> {
    let streams = attended.iter_mut().enumerate();
    select_all(streams.map(|(node, attended)| (&mut attended.heard).map(move |note| (node, note)).boxed()))
}

/// One attempt on all nodes.
async fn attempt(candidate: &Arc<Candidate>, terms: Terms) -> (Outcome, Exchange) {
    let mut machine = quorum::Attempt::new(terms);
    let mut exchange = Exchange::new(candidate.nodes.clock().clone());
    let step = |now, event| machine.step(now, event);
    let ask = |node, request| Arc::clone(candidate).ask(node, request);
    let outcome = exchange.drive(Event::Began, step, ask).await;
    (outcome, exchange)
}

fn reason(why: Why) -> &'static str {
    match why {
        Why::Contended => "no majority of the nodes has granted it",
        Why::Quarantined => "too many nodes may have lost data, and grant nothing yet",
        Why::Unreachable => "no majority of the nodes has answered",
        Why::Late => "the answers took too long",
        Why::Outvoted => "others were faster at a majority of the nodes",
        Why::Exhausted => "the last token was 2^53-1, and Redis counts no further exactly",
    }
}

fn words(answer: Answer, error: Option<&Error>) -> String {
    match answer {
        Answer::Silent | Answer::Unreachable => {
            error.map_or_else(|| "had not answered yet".to_owned(), ToString::to_string)
        }
        Answer::Said(Reply::Granted { .. } | Reply::Acked) => "has granted it".to_owned(),
        Answer::Said(Reply::Busy { remaining: Some(Duration::ZERO), .. }) => {
            "is being acquired by another".to_owned()
        }
        Answer::Said(Reply::Busy { remaining: Some(left), .. }) => {
            format!("has it taken for another {left:?}")
        }
        Answer::Said(Reply::Quarantined { ready_in }) => format!("is in quarantine for another {ready_in:?}"),
        Answer::Said(Reply::Unseeded) => "waits for the floor of its tokens".to_owned(),
        Answer::Said(Reply::Stale { .. }) => "knows a greater token".to_owned(),
        Answer::Said(_) => "has refused it".to_owned(),
    }
}
