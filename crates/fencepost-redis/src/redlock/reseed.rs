//! Giving a node that may have lost its data the floor of its tokens, so that it can grant again.
//!
//! Whoever meets such a node does it; the node takes a floor only for the very incarnation that was seen to wait.

use std::time::Duration;

use fencepost_core::{FencingToken, Result, until};
use futures_util::future::join_all;

use super::nodes::Nodes;
use crate::failure::{lost_touch, refuse, unexpected};
use crate::keys;
use crate::quorum::{Decision, Reading, decide};
use crate::resp::Reply;
use crate::script;
use crate::session::Session;

/// How often one process looks after it at most.
const EACH: Duration = Duration::from_millis(100);

/// How long a node may take to say what it knows.
const READ_MOST: Duration = Duration::from_millis(500);

/// Looks, in the background, whether nodes that wait for their floor can be given one.
pub(super) fn begin(nodes: &Nodes) {
    if nodes.is_reseeding_due(EACH) {
        let nodes = nodes.clone();
        nodes.clock().clone().serve(async move { reseed(&nodes).await });
    }
}

async fn reseed(nodes: &Nodes) {
    // The others are read after a node has been seen to wait: nothing that they grant later rests on what it has lost.
    let seen = read_all(nodes).await;
    let waiting: Vec<usize> = (0..seen.len()).filter(|node| is_waiting(&seen[*node])).collect();
    if waiting.is_empty() {
        return;
    }
    let readings: Vec<Reading> = read_all(nodes).await.into_iter().map(|(reading, _)| reading).collect();
    for node in waiting {
        if let (Decision::Seed(seed), (_, Some(session))) =
            (decide(nodes.quorum(), node, &readings), &seen[node])
        {
            // Another client may have been there first; the node will say what it needs.
            drop(give(session, seed.floor).await);
        }
    }
}

fn is_waiting((reading, _): &(Reading, Option<Session>)) -> bool {
    matches!(reading, Reading::Unseeded { .. })
}

async fn read_all(nodes: &Nodes) -> Vec<(Reading, Option<Session>)> {
    let give_up_at = Some(nodes.clock().now().after(READ_MOST));
    let reading = |node| async move {
        let read = until(nodes.clock(), give_up_at, read(nodes, node)).await;
        read.and_then(Result::ok)
            .map_or((Reading::Unreachable, None), |(reading, session)| (reading, Some(session)))
    };
    join_all((0..nodes.all().len()).map(reading)).await
}

async fn read(nodes: &Nodes, node: usize) -> Result<(Reading, Session)> {
    let session = nodes.session(node).await?;
    let keys = [keys::GREATEST, keys::FLOOR, keys::INCARNATION];
    let reply = session.connection.run(&script::NODE_READ, &keys, &[&session.incarnation.record]).await;
    let reply = reply.map_err(|broken| lost_touch(&broken)).and_then(refuse)?;
    let [now, greatest] = reply.list() else {
        // What a node that was emptied behind an open connection says of its tokens is no witness for another one.
        nodes.all()[node].server.granting().learn_anew(&session).await?;
        return Err(unexpected("node_read.lua", &reply));
    };
    let max = greatest.text().and_then(|token| token.parse().ok());
    let left = session.incarnation.ready_at_ms - now.number().unwrap_or_default();
    let reading = if left > 0 {
        Reading::Quarantined { ready_in: Duration::from_millis(left.unsigned_abs()) }
    } else if session.incarnation.is_unseeded() {
        Reading::Unseeded { max }
    } else {
        Reading::Ready { max }
    };
    Ok((reading, session))
}

async fn give(session: &Session, floor: Option<FencingToken>) -> Result<Reply> {
    let floor = floor.map_or_else(|| "0".to_owned(), |floor| floor.to_string());
    let arguments = [&*session.incarnation.record, &floor];
    let reply =
        session.connection.run(&script::NODE_SEED, &[keys::INCARNATION, keys::FLOOR], &arguments).await;
    reply.map_err(|broken| lost_touch(&broken)).and_then(refuse)
}
