//! All that can be said against a configuration that could be read.
//!
//! Invariant: an error here is what [`Policy::choose`] refuses too, so a checked file does not surprise at night.

use std::collections::BTreeSet;
use std::time::Duration;

use fencepost_advisor::{FILL_IN, FILL_IN_GLOB, Held, Weakness, weaknesses};
use fencepost_core::{BackendUrl, DEFAULT_TTL};
use globset::GlobMatcher;

use crate::duration::{self, DurationError};
use crate::finding::{Finding, Severity};
use crate::globs;
use crate::policy::Policy;
use crate::rule::{Rule, Timing};
use crate::template::{BLANK, Template};

/// The longest ttl of a backend with a quarantine, unless its URL says otherwise.
const DEFAULT_MAX_TTL: Duration = Duration::from_mins(1);

/// Everything about all rules and backends.
pub(crate) fn all(policy: &Policy) -> Vec<Finding> {
    let mut found = never_matching(policy);
    for each in policy.rules() {
        let url = policy.template(each).outline().and_then(Result::ok);
        found.extend(rule(policy, each, url.as_ref()));
        found.extend(needless_risk(policy, each, url.as_ref()));
        found.extend(glob_not_filled_in(policy, each));
    }
    found.extend(unused_backends(policy));
    found.extend(unused_fences(policy));
    found.sort_by_key(Finding::position);
    found.dedup();
    found
}

/// What is wrong with one rule on the backend at `url`; `None` where that is not known without its secrets.
pub(crate) fn rule(policy: &Policy, rule: &Rule, url: Option<&BackendUrl>) -> Vec<Finding> {
    let timing = rule.timing.over(&policy.content().defaults);
    let mut found = Vec::new();
    found.extend(not_filled_in(policy, rule, url));
    found.extend(ttl_too_long(policy, rule, &timing, url));
    found.extend(grace_too_long(policy, rule, &timing));
    found.extend(history_without_a_logbook(policy, rule, url));
    if rule.accept_risk.is_none() {
        let weak = |weakness: Weakness| {
            let message = format!("the rule says that an overlap corrupts, but {}", weakness.message);
            let hint = format!("{}; or stand by it: `accept_risk = \"reason\"`", weakness.hint);
            policy.source().error(rule.backend_at.clone(), message).hint(hint)
        };
        found.extend(weaknesses_of(rule, url).into_iter().map(weak));
    }
    found
}

/// The longest ttl that the backend at `url` gives; `None` if there is no bound, or none that is known yet.
pub(crate) fn longest_ttl(url: &BackendUrl) -> Result<Option<Duration>, DurationError> {
    match url.option("max_ttl") {
        Some(text) if text.contains(BLANK) => Ok(None),
        Some(text) => duration::parse(text).map(Some),
        None => {
            Ok(matches!(url.kind(), "redis" | "redlock" | "postgres" | "zookeeper")
                .then_some(DEFAULT_MAX_TTL))
        }
    }
}

/// What `advise` did not know. Nothing listens there, and nothing else takes its place.
fn not_filled_in(policy: &Policy, rule: &Rule, url: Option<&BackendUrl>) -> Vec<Finding> {
    let mut found = Vec::new();
    if url.is_some_and(|url| url.body().contains(FILL_IN)) {
        found.push((policy.template(rule).span.clone(), "the URL of the backend is not filled in yet"));
    }
    let is_open = |fence: &&Template| fence.to_string().contains(FILL_IN);
    let fences = rule.fences.iter().filter(is_open);
    found.extend(fences.map(|fence| (fence.span.clone(), "the URL of the fence is not filled in yet")));
    let finding = |(span, message)| {
        policy.source().error(span, message).hint(format!("write your own in place of {FILL_IN}"))
    };
    found.into_iter().map(finding).collect()
}

fn weaknesses_of(rule: &Rule, url: Option<&BackendUrl>) -> Vec<Weakness> {
    let held = Held { backend: url, fenced: !rule.fences.is_empty() };
    weaknesses(&rule.answers, held)
}

fn ttl_too_long(policy: &Policy, rule: &Rule, timing: &Timing, url: Option<&BackendUrl>) -> Option<Finding> {
    // A bound that cannot be read is the backend's to refuse.
    let longest = longest_ttl(url?).ok()??;
    let shown = duration::format(longest);
    let bound = format!("more than the {shown} that the backend {:?} gives", rule.backend);
    match &timing.ttl {
        Some(ttl) if *ttl.get_ref() > longest => {
            let message = format!("a ttl of {} is {bound}", duration::format(*ttl.get_ref()));
            let hint = format!(
                "lower it, or raise max_ttl in the URL: `?max_ttl={}`",
                duration::format(*ttl.get_ref())
            );
            Some(policy.source().error(ttl.span(), message).hint(hint))
        }
        None if DEFAULT_TTL > longest => {
            let message = format!("the built-in ttl of {} is {bound}", duration::format(DEFAULT_TTL));
            Some(
                policy
                    .source()
                    .error(rule.backend_at.clone(), message)
                    .hint(format!("add `ttl = {shown:?}`")),
            )
        }
        _ => None,
    }
}

fn grace_too_long(policy: &Policy, rule: &Rule, timing: &Timing) -> Option<Finding> {
    let ttl = timing.ttl.as_ref().map_or(DEFAULT_TTL, |ttl| *ttl.get_ref());
    let grace = timing.grace.as_ref().filter(|grace| *grace.get_ref() > ttl / 2)?;
    let ours = rule.timing.grace.as_ref().or(rule.timing.ttl.as_ref()).unwrap_or(grace);
    let shown = duration::format(*grace.get_ref());
    let message = format!("a grace of {shown} is more than half of the ttl of {}", duration::format(ttl));
    Some(policy.source().error(ours.span(), message).hint("lower the grace, or raise the ttl"))
}

/// Only Redlock keeps nothing beside a lock's token.
fn history_without_a_logbook(policy: &Policy, rule: &Rule, url: Option<&BackendUrl>) -> Option<Finding> {
    let kind = url.filter(|_| rule.history > 0)?.kind();
    (kind == "redlock").then(|| {
        let message = format!("{kind} keeps no history of a lock");
        policy
            .source()
            .error(rule.history_at.clone(), message)
            .hint("remove `history`, or use another backend")
    })
}

fn needless_risk(policy: &Policy, rule: &Rule, url: Option<&BackendUrl>) -> Option<Finding> {
    let needless = rule.accept_risk.is_some() && url.is_some() && weaknesses_of(rule, url).is_empty();
    needless.then(|| {
        let message = "the rule accepts a risk that it does not have";
        policy.source().finding(Severity::Note, rule.glob_at.clone(), message).hint("remove `accept_risk`")
    })
}

fn glob_not_filled_in(policy: &Policy, rule: &Rule) -> Option<Finding> {
    (rule.glob == FILL_IN_GLOB).then(|| {
        let message = "the names of the locks are not filled in yet";
        let finding = policy.source().finding(Severity::Warning, rule.glob_at.clone(), message);
        finding.hint("write which locks the rule is for")
    })
}

fn never_matching(policy: &Policy) -> Vec<Finding> {
    let finding = |(rule, cover): (&Rule, &Rule)| {
        let message = format!("the rule never matches: {:?} on line {} comes first", cover.glob, cover.line);
        let finding = policy.source().finding(Severity::Warning, rule.glob_at.clone(), message);
        finding.hint("put the narrower rule first")
    };
    covered(policy).into_iter().map(finding).collect()
}

/// The rules that can never match, each with the earlier one that does in its place.
pub(crate) fn covered(policy: &Policy) -> Vec<(&Rule, &Rule)> {
    let mut earlier: Vec<(&Rule, GlobMatcher)> = Vec::new();
    let mut found = Vec::new();
    for rule in policy.rules() {
        if let Some((cover, _)) = earlier.iter().find(|(_, matcher)| globs::covers(matcher, &rule.glob)) {
            found.push((rule, *cover));
            continue;
        }
        let glob = globs::read(&rule.glob).expect("it was read before");
        earlier.push((rule, glob.compile_matcher()));
    }
    found
}

/// A fence that protects nothing: no rule names it, or none that can match.
fn unused_fences(policy: &Policy) -> Vec<Finding> {
    let dead: BTreeSet<usize> = covered(policy).into_iter().map(|(rule, _)| rule.number).collect();
    let rules = policy.rules().iter().filter(|rule| !dead.contains(&rule.number));
    let used: BTreeSet<usize> = rules.flat_map(|rule| &rule.fences).map(|fence| fence.span.start).collect();
    let fences = policy.content().fences.iter();
    let unused = fences.filter(|(_, template)| !used.contains(&template.get_ref().span.start));
    let warning = |(name, template): (&String, &toml::Spanned<_>)| {
        let message = format!("no rule that can match uses the fence {name:?}, so it protects nothing");
        let finding = policy.source().finding(Severity::Warning, template.span(), message);
        finding.hint(format!("add `fence = [{name:?}]` to the rule of its locks"))
    };
    unused.map(warning).collect()
}

fn unused_backends(policy: &Policy) -> Vec<Finding> {
    let used: BTreeSet<&str> = policy.rules().iter().map(|rule| rule.backend.as_str()).collect();
    let unused = policy.content().backends.iter().filter(|(name, _)| !used.contains(name.as_str()));
    let note = |(name, template): (&String, &toml::Spanned<_>)| {
        policy.source().finding(Severity::Note, template.span(), format!("no rule uses the backend {name:?}"))
    };
    unused.map(note).collect()
}
