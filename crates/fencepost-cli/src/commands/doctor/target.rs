//! What is to be looked at: every backend and every fence once, with the rules that use it.
//!
//! Invariant: what is wrong with one of the configuration is a finding about it, and costs no other its own.

use std::sync::Arc;

use fencepost::{BackendUrl, Clock, Error, ErrorKind, Examination, Fence, Finding, Locks, Result, block_on};
use fencepost_policy::{ConfigError, Place as Named, Policy, Rule};

use crate::args::{self, Global};
use crate::commands::place::{Place, Source, fail, misconfigured};
use crate::commands::warn_of_password;
use crate::exit::Exit;
use crate::printer::Printer;

/// A backend or a fence, and who uses it.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Where it is; `None` where that cannot be said, or where it is the configuration itself.
    url: Option<BackendUrl>,
    opened: Opened,
    /// The globs of the rules that use it, in the order of the file.
    pub(super) rules: Vec<String>,
}

/// What there is to look at.
#[derive(Clone, Debug)]
enum Opened {
    Backend(Box<Locks>),
    Fence(Arc<dyn Fence>),
    /// It cannot be looked at.
    Missing(Missing),
    /// A configuration without a rule.
    Configuration {
        path: String,
        is_empty: bool,
    },
}

/// What it would be, and why it is not.
#[derive(Clone, Debug)]
struct Missing {
    role: &'static str,
    kind: &'static str,
    place: String,
    error: Error,
}

/// The role of a configuration, which is no place.
pub(super) const CONFIGURATION: &str = "configuration";

impl Target {
    pub(super) fn role(&self) -> &'static str {
        match &self.opened {
            Opened::Backend(_) => BACKEND,
            Opened::Fence(_) => FENCE,
            Opened::Missing(missing) => missing.role,
            Opened::Configuration { .. } => CONFIGURATION,
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match (&self.opened, &self.url) {
            (Opened::Missing(missing), _) => missing.kind,
            (_, Some(url)) => url.kind(),
            (_, None) => CONFIGURATION,
        }
    }

    /// Where it is, without secrets.
    pub(super) fn place(&self) -> String {
        match &self.opened {
            Opened::Backend(locks) => locks.to_string(),
            Opened::Fence(fence) => fence.to_string(),
            Opened::Missing(missing) => missing.place.clone(),
            Opened::Configuration { path, .. } => path.clone(),
        }
    }

    /// Whether it is of the configuration, cannot be looked at, and is missed by nobody.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.opened, Opened::Missing(_)) && self.rules.is_empty()
    }

    /// Looks at it, however long that takes.
    pub(super) fn examine(&self) -> Result<Examination> {
        match &self.opened {
            Opened::Backend(locks) => block_on(locks.backend().examine()),
            Opened::Fence(fence) => block_on(fence.examine()),
            Opened::Missing(missing) => Err(missing.error.clone()),
            Opened::Configuration { path, is_empty } => {
                Ok(Examination::new(Vec::new(), vec![without_rules(path, *is_empty)]))
            }
        }
    }

    fn is(&self, other: &Self) -> bool {
        let is_same = match (&self.url, &other.url) {
            (Some(one), Some(other)) => one.expose() == other.expose(),
            (None, None) => self.place() == other.place(),
            _ => false,
        };
        is_same && self.role() == other.role()
    }
}

const BACKEND: &str = "backend";
const FENCE: &str = "fence";

fn without_rules(path: &str, is_empty: bool) -> Finding {
    let found = if is_empty {
        Finding::serious(path, "nothing to look at: it names no rule, no backend and no fence")
    } else {
        Finding::warning(path, "it has no rule")
    };
    found
        .means(
            "a name that no rule matches is no lock: whoever names one without --backend gets none (exit 78)",
        )
        .remedy("add a rule ([[locks]] with match and backend; fencepost advise --write), or remove the file")
}

/// What the command line, or else the configuration, or else the environment says.
///
/// # Errors
/// The exit code; the reason has been printed.
pub(super) fn targets(global: &Global, args: &args::Doctor, printer: Printer) -> Result<Vec<Target>, Exit> {
    let mut list = List::default();
    let failed = |error| fail(&error, printer);
    let is_given = global.backend().map_err(failed)?.is_some();
    let policy = if is_given { Ok(None) } else { Policy::find(global.config.as_deref()) };
    let policy = policy.map_err(|error| misconfigured(&error, printer))?;
    for lock in &args.locks {
        if policy.as_ref().is_some_and(|policy| list.add_unfilled(policy, policy.rule_for(lock))) {
            continue;
        }
        let places = Place::of(global, std::slice::from_ref(lock), printer)?;
        for place in &places {
            list.add_place(place).map_err(failed)?;
        }
    }
    match policy {
        Some(policy) if args.locks.is_empty() => list.add_all(&policy),
        None if args.locks.is_empty() => {
            for place in Place::all(global, printer)? {
                list.add_backend(&place.url, None).map_err(failed)?;
            }
        }
        _ => {}
    }
    for url in args.fences().map_err(failed)? {
        warn_of_password(&url, "--fence", "use the server's own password file or variables", printer);
        list.add_fence(&url, None).map_err(failed)?;
    }
    Ok(list.0)
}

#[derive(Default)]
struct List(Vec<Target>);

impl List {
    fn add_place(&mut self, place: &Place) -> Result<()> {
        let rule = match &place.source {
            Source::Rule { glob, .. } => Some(glob.as_str()),
            _ => None,
        };
        self.add_backend(&place.url, rule)?;
        // Where the backend is given by hand, the fences are still those of the rule.
        let rule = place.choice.as_ref().map(|choice| choice.rule.glob.as_str());
        place.fences().try_for_each(|fence| self.add_fence(fence, rule))
    }

    /// Adds what a rule uses, if some of it cannot be filled in; whether that is so.
    fn add_unfilled(&mut self, policy: &Policy, rule: Option<&Rule>) -> bool {
        let Some(rule) = rule else { return false };
        let places = policy.places_of(rule);
        let is_unfilled = places.iter().any(|place| place.url.is_err());
        if is_unfilled {
            self.add_named(&places, Some(&rule.glob));
        }
        is_unfilled
    }

    /// Every rule of the configuration, and what it names beside them.
    fn add_all(&mut self, policy: &Policy) {
        for rule in policy.rules() {
            self.add_named(&policy.places_of(rule), Some(&rule.glob));
        }
        self.add_named(&policy.spare_places(), None);
        if policy.rules().is_empty() {
            let (path, is_empty) = (policy.path().display().to_string(), self.0.is_empty());
            self.add(None, Opened::Configuration { path, is_empty }, None);
        }
    }

    /// Backends and fences of the configuration.
    fn add_named(&mut self, places: &[Named], rule: Option<&str>) {
        for named in places {
            let opened = match &named.url {
                Ok(url) if named.is_fence => fence(url),
                Ok(url) => backend(url),
                Err(error) => Err(unfilled(error)),
            };
            let opened = opened.unwrap_or_else(|error| missing(named, error));
            self.add(named.url.as_ref().ok(), opened, rule);
        }
    }

    fn add_backend(&mut self, url: &BackendUrl, rule: Option<&str>) -> Result<()> {
        self.add_url(url, backend(url), BACKEND, rule)
    }

    fn add_fence(&mut self, url: &BackendUrl, rule: Option<&str>) -> Result<()> {
        self.add_url(url, fence(url), FENCE, rule)
    }

    /// What a rule names is a finding where it is wrong; what is named by hand is an error then.
    fn add_url(
        &mut self,
        url: &BackendUrl,
        opened: Result<Opened>,
        is_a: &'static str,
        rule: Option<&str>,
    ) -> Result<()> {
        let opened = match opened {
            Err(error) if rule.is_some() => {
                let (kind, place) = (url.kind(), url.to_string());
                Opened::Missing(Missing { role: is_a, kind, place, error })
            }
            opened => opened?,
        };
        self.add(Some(url), opened, rule);
        Ok(())
    }

    fn add(&mut self, url: Option<&BackendUrl>, opened: Opened, rule: Option<&str>) {
        let added = Target { url: url.cloned(), opened, rules: Vec::new() };
        let known = self.0.iter().position(|target| target.is(&added));
        let index = known.unwrap_or_else(|| {
            self.0.push(added);
            self.0.len() - 1
        });
        let target = &mut self.0[index];
        let rule = rule.map(ToOwned::to_owned).filter(|rule| !target.rules.contains(rule));
        target.rules.extend(rule);
    }
}

fn backend(url: &BackendUrl) -> Result<Opened> {
    fencepost::connect_url(url, &Clock::system()).map(|locks| Opened::Backend(Box::new(locks)))
}

fn fence(url: &BackendUrl) -> Result<Opened> {
    fencepost::fence(url).map(Opened::Fence)
}

fn missing(named: &Named, error: Error) -> Opened {
    let role = if named.is_fence { FENCE } else { BACKEND };
    let (kind, place) = (named.kind.unwrap_or("unknown"), named.written.clone());
    Opened::Missing(Missing { role, kind, place, error })
}

/// Which part of its URL is not there.
fn unfilled(error: &ConfigError) -> Error {
    let first = error.findings().first();
    let message = first.map(|finding| {
        let line = finding.position().map(|at| format!(":{}:{}", at.line, at.column)).unwrap_or_default();
        format!("{}{line}: {}", finding.path().display(), finding.message())
    });
    let advice = first.and_then(|finding| finding.advice());
    Error::new(ErrorKind::InvalidArgument, "fill in its URL", message.unwrap_or_default()).hint(
        advice.unwrap_or("set it here as it is set for the jobs, or correct what the configuration says"),
    )
}
