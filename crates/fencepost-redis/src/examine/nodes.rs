//! The nodes of a quorum: which of them answer, and whether they are as independent as they have to be.

use std::collections::BTreeSet;

use fencepost_core::{Clock, Error, Examination, Finding, Result};
use futures_util::future::join_all;

use super::facts::Facts;
use super::{clocks, look, of_server};
use crate::endpoint::{Endpoint, Options, Whereabouts};
use crate::quorum::Quorum;

/// Examines all nodes at once. One that cannot be reached is a finding about it.
pub(crate) async fn examine_nodes(
    clock: &Clock,
    endpoints: &[&Endpoint],
    options: &Options,
    quorum: Quorum,
) -> Examination {
    let one = |endpoint: &&Endpoint| {
        let endpoint = Endpoint::clone(endpoint);
        async move {
            match &endpoint.whereabouts {
                Whereabouts::At(address) => look(clock, &endpoint, address, options).await,
                Whereabouts::Sentinels { .. } => Err(crate::failure::unavailable("a node has no sentinels")),
            }
        }
    };
    let all: Vec<Result<Facts>> = join_all(endpoints.iter().map(one)).await;
    let mut findings = Vec::new();
    for (endpoint, outcome) in endpoints.iter().zip(&all) {
        match outcome {
            Ok(facts) => findings.extend(of_server(facts, options)),
            Err(error) => findings.push(away(endpoint, error)),
        }
    }
    let nodes: Vec<&Facts> = all.iter().filter_map(|outcome| outcome.as_ref().ok()).collect();
    findings.extend([slack(quorum, voting(&nodes)), clocks::between(&nodes)].into_iter().flatten());
    findings.extend(twins(&nodes));
    findings.extend(neighbours(endpoints));
    Examination::new(nodes.iter().map(|node| node.server()).collect(), findings)
}

fn away(endpoint: &Endpoint, error: &Error) -> Finding {
    Finding::failed(&endpoint.whereabouts, error, "its vote is missing: one node fewer can fail beside it")
}

/// How many servers there are that can vote. One that does not tell its `run_id` is taken for one of its own.
fn voting(nodes: &[&Facts]) -> usize {
    let voting = || nodes.iter().filter(|node| node.refusal.is_none());
    let known: BTreeSet<_> = voting().map(|node| node.info("run_id")).filter(|id| !id.is_empty()).collect();
    known.len() + voting().filter(|node| node.info("run_id").is_empty()).count()
}

/// How many more may fail.
fn slack(quorum: Quorum, answering: usize) -> Option<Finding> {
    let all = quorum.nodes();
    if answering == all {
        return None;
    }
    let evidence = format!("{answering} of {all} nodes answer, and {} are a majority", quorum.majority());
    let means = match answering.checked_sub(quorum.majority()) {
        None => "no lock can be acquired, and every lease is lost at its deadline".to_owned(),
        Some(0) => "no further node may fail: the next failure takes every lease".to_owned(),
        Some(slack) => format!("{slack} more may fail"),
    };
    Some(Finding::serious("the nodes", evidence).means(means).remedy("bring the missing nodes back"))
}

/// Two addresses of one server.
fn twins(nodes: &[&Facts]) -> Option<Finding> {
    let twin = |index: usize, node: &Facts| {
        let id = node.info("run_id");
        nodes[..index].iter().find(|other| !id.is_empty() && other.info("run_id") == id).copied()
    };
    let (index, node) = nodes.iter().enumerate().find(|(index, node)| twin(*index, node).is_some())?;
    let other = twin(index, node)?;
    let evidence =
        format!("{} and {} are the same server, run_id {}", other.address, node.address, node.info("run_id"));
    Some(
        Finding::serious("the nodes", evidence)
            .means("it is refused: what looks like a majority may be fewer servers than that")
            .remedy("name each server once"),
    )
}

/// Two nodes of one host, as the URL says.
fn neighbours(endpoints: &[&Endpoint]) -> Option<Finding> {
    let host = |endpoint: &Endpoint| match &endpoint.whereabouts {
        Whereabouts::At(address) => address.host.clone(),
        Whereabouts::Sentinels { .. } => String::new(),
    };
    let hosts: Vec<String> = endpoints.iter().map(|endpoint| host(endpoint)).collect();
    let shared = hosts.iter().find(|host| hosts.iter().filter(|other| other == host).count() > 1)?;
    let count = hosts.iter().filter(|other| *other == shared).count();
    Some(
        Finding::warning("the nodes", format!("{count} of them are on the host {shared}"))
            .means("they fail together, and their clocks are one clock: fewer failures are borne than their number says")
            .remedy("run each node on a host of its own, with a disk and a power supply of its own"),
    )
}
