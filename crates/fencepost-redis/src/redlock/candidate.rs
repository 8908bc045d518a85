//! One holder id, as the nodes see it: what is asked on its behalf, and what may be left of it where.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencepost_core::{
    AcquireRequest, Error, ErrorKind, FencingToken, HolderId, LockName, Result, Wait, lock,
};

use super::nodes::Nodes;
use super::reseed;
use crate::connection::{Broken, Connection};
use crate::failure::{lost_touch, refuse, unexpected};
use crate::keys::{self, LockKey};
use crate::quorum::{Reply, Request};
use crate::record::{self, Owner};
use crate::resp;
use crate::script::{self, Script};
use crate::server::ALIVE_FOR;
use crate::session::Session;

/// Who waits, under one id through all attempts.
pub(super) struct Waiter {
    pub(super) id: HolderId,
    id_text: String,
    /// Its place in every queue: when it came, by its own clock. Places that each node gave for itself would differ from node to
    /// node, and every release would be a split vote.
    place: String,
    /// Whether it may stand in the queue of a node.
    may_wait: Vec<AtomicBool>,
}

impl Waiter {
    /// Whether it may stand in the queue of a node.
    pub(super) fn may_wait(&self, node: usize) -> bool {
        self.may_wait[node].load(Ordering::Relaxed)
    }

    pub(super) fn new(id: HolderId, nodes: &Nodes) -> Arc<Self> {
        let may_wait = nodes.all().iter().map(|_| AtomicBool::new(false)).collect();
        let place = nodes.clock().wall_micros().to_string();
        Arc::new(Self { id, id_text: id.to_string(), place, may_wait })
    }
}

/// One attempt to acquire, or the holder that it made. Each has a holder id of its own, so that nothing which ends one attempt,
/// and arrives late, can hit another.
pub(super) struct Candidate {
    pub(super) nodes: Nodes,
    pub(super) name: LockName,
    pub(super) key: LockKey,
    pub(super) waiter: Arc<Waiter>,
    pub(super) holder: HolderId,
    holder_text: String,
    owner: String,
    ttl_ms: String,
    at_least_ms: String,
    /// Whether the lock is to be kept longer than its lease. A node keeps it so when the token is written, and must not for an attempt that
    /// may fail; so the token is proposed when a majority has granted.
    keeps_longer: bool,
    alive_for_ms: String,
    traces: Vec<Mutex<Trace>>,
    /// The tokens that were proposed, of which a node may have an earlier one.
    proposed: Mutex<Vec<FencingToken>>,
    /// At how many nodes others stand before its waiter.
    behind: AtomicUsize,
    /// Whether it has the lock, and so waits nowhere any more.
    is_holder: AtomicBool,
}

/// What is known of the candidate at one node.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact by itself, and they go together in any way"
)]
#[derive(Default)]
struct Trace {
    /// Where it was asked for last, if it was.
    asked_on: Option<Connection>,
    /// How many requests have no answer.
    unanswered: usize,
    /// Whether a request may still be on its way, on a connection that is broken.
    is_late: bool,
    /// How many requests that fill it in are under way. Those go on by themselves, and so may be sent after its end.
    filling: usize,
    /// Whether the last request was refused: the candidate has nothing there, but perhaps a place in the queue.
    is_refused: bool,
    /// Whether it has been asked to forget the candidate, so that nothing more may be sent.
    is_leaving: bool,
    /// Whether it was asked to free the lock and may have done so.
    may_be_free: bool,
    /// Why the last request has failed.
    error: Option<Error>,
}

impl Trace {
    /// Whether the node has answered all that it was asked, and has refused the candidate.
    fn has_nothing(&self) -> bool {
        self.is_refused && self.unanswered == 0 && !self.is_late
    }
}

/// A request that fills in the candidate at a node, while somebody awaits it. One that is given up sends nothing more, as one that is
/// answered; what it has sent counts as unanswered.
struct Filling<'a>(&'a Mutex<Trace>);

impl<'a> Filling<'a> {
    fn begin(trace: &'a Mutex<Trace>) -> Self {
        lock(trace).filling += 1;
        Self(trace)
    }
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        lock(self.0).filling -= 1;
    }
}

/// What is asked of a node when the candidate goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Going {
    /// It may or may not have the lock, and its waiter waits on.
    Withdraws,
    /// It may or may not have the lock, and its waiter goes as well.
    Cancels,
    /// It has the lock with this token.
    Releases(FencingToken),
}

impl Candidate {
    pub(super) fn new(
        nodes: &Nodes,
        request: &AcquireRequest,
        waiter: &Arc<Waiter>,
        holder: HolderId,
    ) -> Self {
        let owner = Owner { name: request.name.clone(), label: request.label.clone() };
        let alive_for = if request.wait == Wait::No { 0 } else { ALIVE_FOR.as_millis() };
        Self {
            nodes: nodes.clone(),
            name: request.name.clone(),
            key: LockKey::of(&request.name),
            waiter: Arc::clone(waiter),
            holder,
            holder_text: holder.to_string(),
            owner: owner.to_json(),
            ttl_ms: request.ttl.as_millis().to_string(),
            at_least_ms: request.at_least.unwrap_or_default().as_millis().to_string(),
            keeps_longer: request.at_least.is_some_and(|at_least| at_least > request.ttl),
            alive_for_ms: alive_for.to_string(),
            traces: nodes.all().iter().map(|_| Mutex::default()).collect(),
            proposed: Mutex::default(),
            behind: AtomicUsize::new(0),
            is_holder: AtomicBool::new(false),
        }
    }

    /// The holder of a lease that was handed over by another process.
    pub(super) fn handed_over(nodes: &Nodes, name: &LockName, holder: HolderId) -> Self {
        Self {
            nodes: nodes.clone(),
            name: name.clone(),
            key: LockKey::of(name),
            waiter: Waiter::new(holder, nodes),
            holder,
            holder_text: holder.to_string(),
            owner: String::new(),
            ttl_ms: String::new(),
            at_least_ms: String::new(),
            keeps_longer: false,
            alive_for_ms: String::new(),
            // What the other process has sent may still be on its way, and if it lives it must not fill in the lock again.
            traces: nodes
                .all()
                .iter()
                .map(|_| Mutex::new(Trace { is_late: true, ..Trace::default() }))
                .collect(),
            proposed: Mutex::default(),
            behind: AtomicUsize::new(0),
            is_holder: AtomicBool::new(true),
        }
    }

    /// From now on it has the lock: a node that it was not on is filled in.
    pub(super) fn win(&self) {
        self.is_holder.store(true, Ordering::Relaxed);
    }

    /// From now on it holds the lock, and its waiter waits nowhere any more.
    pub(super) fn hold(self: &Arc<Self>) {
        self.win();
        for (trace, may_wait) in self.traces.iter().zip(&self.waiter.may_wait) {
            let Some(connection) = lock(trace).asked_on.clone() else { continue };
            if !may_wait.swap(false, Ordering::Relaxed) {
                continue;
            }
            let candidate = Arc::clone(self);
            self.nodes.clock().serve(async move {
                // Where it fails the place ends with the signs of life that are not given any more.
                drop(
                    connection
                        .run(&script::NODE_LEAVE_QUEUE, &[&candidate.key], &[&candidate.waiter.id_text])
                        .await,
                );
            });
        }
    }

    /// Whether others stand before its waiter at a majority of the nodes, so that it has to be told of its turn.
    pub(super) fn is_behind_others(&self) -> bool {
        self.behind.load(Ordering::Relaxed) >= self.nodes.quorum().majority()
    }

    /// Why the last request to a node has failed.
    pub(super) fn error_of(&self, node: usize) -> Option<Error> {
        lock(&self.traces[node]).error.clone()
    }

    /// Asks a node to lock or to write a token; its reply, or nothing where the request has failed.
    pub(super) async fn ask(self: Arc<Self>, node: usize, request: Request) -> Option<Reply> {
        let reply = match request {
            Request::Lock(token) => self.ask_to_lock(node, token).await,
            Request::Propose(token) => self.propose(node, token).await,
            Request::Renew | Request::Cancel => return None,
        };
        if let Ok(Reply::Unseeded) = reply {
            reseed::begin(&self.nodes);
        }
        reply.map_err(|error| lock(&self.traces[node]).error = Some(error)).ok()
    }

    async fn ask_to_lock(&self, node: usize, token: FencingToken) -> Result<Reply> {
        self.note_proposal(token);
        let keys = [keys::INCARNATION, &self.key, keys::GREATEST, keys::FLOOR, keys::IDLE];
        let is_holder = self.is_holder.load(Ordering::Relaxed);
        let alive_for = if is_holder { "0" } else { &self.alive_for_ms };
        if alive_for != "0" {
            self.waiter.may_wait[node].store(true, Ordering::Relaxed);
        }
        let arguments = [
            &*self.holder_text,
            &self.ttl_ms,
            &format!("{}|{}", self.nodes.all()[node].server.shared.process, self.owner),
            alive_for,
            &self.waiter.place,
            &self.waiter.id_text,
            &self.at_least_ms,
            "alone",
            &if self.keeps_longer { "0".to_owned() } else { token.to_string() },
        ];
        let filling = is_holder.then(|| Filling::begin(&self.traces[node]));
        let reply = self.grant(node, &script::NODE_LOCK, &keys, &arguments).await?;
        drop(filling);
        // The rank, where it stands in the queue.
        if let Some(rank) = reply.list().get(3).and_then(resp::Reply::number) {
            self.behind.fetch_add(usize::from(rank > 0), Ordering::Relaxed);
            let rank = usize::try_from(rank).unwrap_or_default();
            self.nodes.all()[node].server.note_rank(self.waiter.id, rank);
        }
        let reply = read_lock(&reply)?;
        // It stands in the queue only where somebody else has the lock.
        let has_it = matches!(reply, Reply::Granted { .. } | Reply::Acked);
        if !matches!(reply, Reply::Busy { .. }) {
            self.waiter.may_wait[node].store(false, Ordering::Relaxed);
        }
        lock(&self.traces[node]).is_refused = !has_it;
        Ok(reply)
    }

    fn note_proposal(&self, token: FencingToken) {
        let mut proposed = lock(&self.proposed);
        if !proposed.contains(&token) {
            proposed.push(token);
        }
    }

    /// How a record of the candidate may begin, other than with the token that it has the lock with.
    fn other_beginnings(&self) -> Vec<String> {
        let proposed = lock(&self.proposed);
        let with_token = proposed.iter().map(|token| record::beginning(self.holder, *token));
        [record::beginning_without_token(self.holder)].into_iter().chain(with_token).collect()
    }

    async fn propose(&self, node: usize, token: FencingToken) -> Result<Reply> {
        self.note_proposal(token);
        let token = token.to_string();
        let keys = [keys::INCARNATION, &self.key, keys::GREATEST, keys::FLOOR, keys::IDLE];
        let is_filled_in = if self.is_holder.load(Ordering::Relaxed) { "1" } else { "0" };
        let arguments = [&*self.holder_text, &token, &self.ttl_ms, is_filled_in];
        let reply = self.grant(node, &script::NODE_PROPOSE, &keys, &arguments).await?;
        let (what, rest) = split(&reply)?;
        match what {
            "ACK" => Ok(Reply::Acked),
            "STALE" => Ok(Reply::Stale { counter: counter(rest) }),
            "NOLOCK" => Ok(Reply::NoLock),
            "QUARANTINE" => Ok(Reply::Quarantined { ready_in: ms(rest.first()) }),
            "UNSEEDED" => Ok(Reply::Unseeded),
            _ => Err(unexpected("node_propose.lua", &reply)),
        }
    }

    /// Runs a script that grants, once more where the connection has to learn the incarnation anew.
    async fn grant(
        &self,
        node: usize,
        script: &'static Script,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<resp::Reply> {
        let mut session = self.nodes.session(node).await?;
        for _ in 0..2 {
            let ready_at =
                if self.nodes.options().has_quarantine { session.incarnation.ready_at_ms } else { 0 };
            let ready_at = ready_at.to_string();
            let incarnation = Arc::clone(&session.incarnation);
            let all: Vec<&str> =
                [&*incarnation.record, &ready_at].into_iter().chain(arguments.iter().copied()).collect();
            let reply = self.traced(node, &session, session.connection.run(script, keys, &all)).await?;
            if reply.list().first().and_then(resp::Reply::text) != Some("FORGOT") {
                return Ok(reply);
            }
            session = self.nodes.all()[node].server.granting().learn_anew(&session).await?;
        }
        Err(crate::failure::unavailable("the server loses its data again and again"))
    }

    /// Awaits a reply, and keeps account of what may be left at the node meanwhile.
    async fn traced(
        &self,
        node: usize,
        session: &Session,
        call: impl Future<Output = Result<resp::Reply, Broken>>,
    ) -> Result<resp::Reply> {
        {
            let mut trace = lock(&self.traces[node]);
            if trace.is_leaving {
                return Err(crate::failure::unavailable("it is not wanted any more"));
            }
            let is_another = trace.asked_on.as_ref().is_some_and(|asked| !asked.is(&session.connection));
            trace.is_late |= is_another && trace.unanswered > 0;
            trace.asked_on = Some(session.connection.clone());
            trace.is_refused = false;
            trace.unanswered += 1;
        }
        let reply = call.await;
        let mut trace = lock(&self.traces[node]);
        trace.unanswered -= 1;
        if let Err(broken) = &reply {
            trace.is_late |= broken.was_sent;
        }
        drop(trace);
        reply.map_err(|broken| lost_touch(&broken)).and_then(refuse)
    }

    /// Has a node forget the candidate for good; whether it has freed the lock by that.
    pub(super) async fn leave(self: Arc<Self>, node: usize, going: Going) -> Result<bool> {
        let (unanswered, mut is_late) = {
            let may_be_queued = self.waiter.may_wait[node].load(Ordering::Relaxed);
            let mut trace = lock(&self.traces[node]);
            trace.is_leaving = true;
            trace.is_late |= trace.filling > 0;
            let has_nothing = trace.asked_on.is_none() || trace.has_nothing();
            let nothing_is_left = match going {
                Going::Withdraws => has_nothing,
                Going::Cancels => has_nothing && !may_be_queued,
                Going::Releases(_) => false,
            };
            if nothing_is_left {
                return Ok(false);
            }
            (trace.asked_on.clone().filter(|_| trace.unanswered > 0), trace.is_late)
        };
        let session = self.nodes.session(node).await?;
        let was_unanswered = unanswered.is_some();
        is_late |= unanswered.is_some_and(|asked| !asked.is(&session.connection));
        let for_long = if is_late { self.nodes.options().max_ttl.as_millis() } else { 0 }.to_string();
        let others = self.other_beginnings();
        let (script, who) = match going {
            Going::Withdraws => (&script::NODE_WITHDRAW, self.holder_text.clone()),
            Going::Cancels => (&script::NODE_CANCEL, self.holder_text.clone()),
            Going::Releases(token) => (&script::NODE_RELEASE, record::beginning(self.holder, token)),
        };
        let mut arguments = vec![&*who, &for_long, &self.waiter.id_text];
        arguments.extend(others.iter().map(String::as_str));
        // Where replies get lost, that a script is not known would never be heard.
        let reply = if is_late || was_unanswered {
            session.connection.run_in_full(script, &[&self.key], &arguments).await
        } else {
            session.connection.run(script, &[&self.key], &arguments).await
        };
        let mut trace = lock(&self.traces[node]);
        if let Err(broken) = &reply {
            trace.is_late = true;
            trace.may_be_free |= broken.was_sent;
        }
        let may_be_free = trace.may_be_free;
        drop(trace);
        let reply = reply.map_err(|broken| lost_touch(&broken)).and_then(refuse)?;
        // Our own request, sent once more after its answer was lost, finds nothing.
        Ok(reply == resp::Reply::Integer(1) || may_be_free)
    }
}

fn ms(reply: Option<&resp::Reply>) -> Duration {
    let ms = reply.and_then(resp::Reply::number).unwrap_or_default();
    Duration::from_millis(ms.max(0).unsigned_abs())
}

fn read_lock(reply: &resp::Reply) -> Result<Reply> {
    if reply.text() == Some("ACK") {
        return Ok(Reply::Acked);
    }
    let (what, rest) = split(reply)?;
    let with = rest.get(4).and_then(resp::Reply::text);
    Ok(match what {
        "GRANT" => Reply::Granted { counter: counter(rest) },
        // One who has no token yet either gets it within an instant, or makes room.
        "BUSY" if with == Some("") => Reply::Busy { remaining: Some(Duration::ZERO), token: None },
        "BUSY" => {
            let token = with.and_then(|token| token.parse().ok());
            Reply::Busy { remaining: Some(ms(rest.first())), token }
        }
        "QUARANTINE" => Reply::Quarantined { ready_in: ms(rest.first()) },
        "UNSEEDED" => Reply::Unseeded,
        "CANCELLED" => Reply::Cancelled,
        _ => return Err(unexpected("node_lock.lua", reply)),
    })
}

fn split(reply: &resp::Reply) -> Result<(&str, &[resp::Reply])> {
    let (what, rest) = reply.list().split_first().ok_or_else(|| unexpected("a script", reply))?;
    let what = what.text().ok_or_else(|| unexpected("a script", reply))?;
    Ok((what, rest))
}

/// `0` stands for none.
fn counter(rest: &[resp::Reply]) -> Option<FencingToken> {
    rest.first().and_then(resp::Reply::text).and_then(|token| token.parse().ok())
}

/// The refusal that says most about why a quorum could not be reached: a wrong URL or a denied login before a lost connection.
pub(super) fn worst(errors: impl Iterator<Item = Error>) -> Option<Error> {
    errors.min_by_key(|error| match error.kind() {
        ErrorKind::InvalidArgument => 0,
        ErrorKind::Unsupported => 1,
        ErrorKind::Denied => 2,
        ErrorKind::Unexpected => 3,
        _ => 4,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Options;
    use fencepost_core::{BackendUrl, Clock, Mode, block_on, until};
    use fencepost_testkit::servers::{RedisServer, Reply as Told};

    /// Whoever asks for a lock that is kept for `at_least`.
    fn candidate(servers: &[RedisServer; 3], at_least: Option<Duration>) -> Arc<Candidate> {
        let hosts: Vec<String> =
            servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
        let url: BackendUrl = format!("redlock://{}?quarantine=off", hosts.join(",")).parse().unwrap();
        let clock = Clock::system();
        let nodes = Nodes::of(&url, Options::of(&url).unwrap(), true, clock.clone()).unwrap();
        let request = AcquireRequest {
            name: "a".parse().unwrap(),
            holder: HolderId::draw(&clock),
            label: String::new(),
            ttl: Duration::from_secs(30),
            at_least,
            mode: Mode::Exclusive,
            beside: Vec::new(),
            wait: Wait::No,
            observer: None,
        };
        let waiter = Waiter::new(request.holder, &nodes);
        Arc::new(Candidate::new(&nodes, &request, &waiter, request.holder))
    }

    #[test]
    #[cfg_attr(not(redis_server), ignore = "its server is not installed")]
    fn attempt_at_a_lock_that_is_kept_longer_than_its_lease_is_not() {
        let servers = [(); 3].map(|()| RedisServer::start());
        let candidate = candidate(&servers, Some(Duration::from_hours(1)));
        let ask = |request| block_on(Arc::clone(&candidate).ask(0, request)).unwrap();
        let left = || servers[0].command(&["PTTL", "fencepost:{a}:l"]).integer();
        assert_eq!(ask(Request::Lock(FencingToken::MIN)), Reply::Granted { counter: None });
        assert!(left() <= 30_000, "it may fail, and nobody may be there to withdraw it");
        assert_eq!(ask(Request::Propose(FencingToken::MIN)), Reply::Acked);
        assert!(left() > 3_500_000);
    }

    #[test]
    #[cfg_attr(not(redis_server), ignore = "its server is not installed")]
    fn lock_that_is_asked_for_again_acknowledges_no_other_token_than_is_written() {
        let servers = [(); 3].map(|()| RedisServer::start());
        let candidate = candidate(&servers, None);
        let ask = |request| block_on(Arc::clone(&candidate).ask(0, request)).unwrap();
        let [one, two] = [1, 2].map(|number| FencingToken::try_from(number).unwrap());
        assert_eq!([(); 2].map(|()| ask(Request::Lock(one))), [Reply::Acked; 2]);
        assert_eq!(ask(Request::Lock(two)), Reply::Granted { counter: Some(one) });
        assert_eq!(ask(Request::Propose(two)), Reply::Acked);
        assert_eq!(ask(Request::Lock(one)), Reply::Granted { counter: Some(two) });
        assert_eq!(ask(Request::Lock(two)), Reply::Acked);
    }

    #[test]
    #[cfg_attr(not(redis_server), ignore = "its server is not installed")]
    fn node_that_has_the_token_of_an_earlier_round_is_freed_as_well() {
        let servers = [(); 3].map(|()| RedisServer::start());
        let candidate = candidate(&servers, None);
        let ours = FencingToken::try_from(7).unwrap();
        assert_eq!(
            block_on(Arc::clone(&candidate).ask(0, Request::Lock(FencingToken::MIN))),
            Some(Reply::Acked)
        );
        assert!(block_on(Arc::clone(&candidate).leave(0, Going::Releases(ours))).unwrap());
        assert_eq!(servers[0].command(&["EXISTS", "fencepost:{a}:l"]).integer(), 0);
    }

    /// It would stay for `max_ttl` on the node, for nothing: what was sent comes before the release on the same connection.
    #[test]
    #[cfg_attr(not(redis_server), ignore = "its server is not installed")]
    fn filling_in_that_was_given_up_leaves_no_tombstone() {
        let servers = [(); 3].map(|()| RedisServer::start());
        let candidate = candidate(&servers, None);
        let clock = candidate.nodes.clock().clone();
        candidate.hold();
        block_on(async {
            candidate.nodes.session(0).await.unwrap();
            // It knows the script, and so takes the lock as soon as it goes on.
            assert!(Arc::clone(&candidate).ask(0, Request::Lock(FencingToken::MIN)).await.is_some());
            servers[0].command(&["DEL", "fencepost:{a}:l"]);
            servers[0].stop();
            let soon = clock.now().after(Duration::from_millis(50));
            let asking = Arc::clone(&candidate).ask(0, Request::Lock(FencingToken::MIN));
            let reply = until(&clock, Some(soon), asking).await;
            assert!(reply.is_none(), "it does not wait for a node that is stopped");
            servers[0].go_on();
            assert!(Arc::clone(&candidate).leave(0, Going::Cancels).await.unwrap());
        });
        let left = servers[0].command(&["KEYS", "fencepost:{a}:*"]);
        let left: Vec<&str> = left.array().iter().map(Told::text).collect();
        assert_eq!(left, ["fencepost:{a}:s"], "nothing but the last token");
    }
}
