//! What is to be looked at: every backend and every fence once, with the rules that use it.

use std::sync::Arc;

use fencepost::{BackendUrl, Clock, Error, ErrorKind, Examination, Fence, Locks, Result, block_on};
use fencepost_policy::{Policy, Rule};

use crate::args::{self, Global};
use crate::commands::place::{Place, Source, fail, misconfigured};
use crate::commands::warn_of_password;
use crate::exit::Exit;
use crate::printer::Printer;

/// A backend or a fence, and who uses it.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) url: BackendUrl,
    store: Store,
    /// The globs of the rules that use it, in the order of the file.
    pub(super) rules: Vec<String>,
}

#[derive(Clone, Debug)]
enum Store {
    Backend(Box<Locks>),
    Fence(Arc<dyn Fence>),
    /// This build has no such one: what it would be, and why not.
    Missing(&'static str, Error),
}

impl Target {
    pub(super) fn role(&self) -> &'static str {
        match self.store {
            Store::Backend(_) => "backend",
            Store::Fence(_) => "fence",
            Store::Missing(role, _) => role,
        }
    }

    /// Where it is, without secrets.
    pub(super) fn place(&self) -> String {
        match &self.store {
            Store::Backend(locks) => locks.to_string(),
            Store::Fence(fence) => fence.to_string(),
            Store::Missing(..) => self.url.to_string(),
        }
    }

    /// Looks at it, however long that takes.
    pub(super) fn examine(&self) -> Result<Examination> {
        match &self.store {
            Store::Backend(locks) => block_on(locks.backend().examine()),
            Store::Fence(fence) => block_on(fence.examine()),
            Store::Missing(_, error) => Err(error.clone()),
        }
    }
}

/// What the command line, or else the configuration, or else the environment says.
///
/// # Errors
/// The exit code; the reason has been printed.
pub(super) fn targets(global: &Global, args: &args::Doctor, printer: Printer) -> Result<Vec<Target>, Exit> {
    let mut list = List::default();
    let failed = |error| fail(&error, printer);
    for lock in &args.locks {
        let places = Place::of(global, std::slice::from_ref(lock), printer)?;
        for place in &places {
            list.add_place(place).map_err(failed)?;
        }
    }
    if args.locks.is_empty() {
        list.add_all(global, printer)?;
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
        let choice = place.choice.as_ref();
        for fence in choice.iter().flat_map(|choice| &choice.fences) {
            let rule = choice.map(|choice| choice.rule.glob.as_str());
            self.add_fence(fence, rule)?;
        }
        Ok(())
    }

    /// Every rule of the configuration, unless flag or variable names a place, or there is none.
    fn add_all(&mut self, global: &Global, printer: Printer) -> Result<(), Exit> {
        let places = Place::all(global, printer)?;
        if !matches!(places.first().map(|place| &place.source), Some(Source::Configuration(_))) {
            let added = places.iter().try_for_each(|place| self.add_backend(&place.url, None));
            return added.map_err(|error| fail(&error, printer));
        }
        let policy =
            Policy::find(global.config.as_deref()).map_err(|error| misconfigured(&error, printer))?;
        for (policy, rule) in
            policy.iter().flat_map(|policy| policy.rules().iter().map(move |rule| (policy, rule)))
        {
            self.add_rule(policy, rule, printer)?;
        }
        Ok(())
    }

    fn add_rule(&mut self, policy: &Policy, rule: &Rule, printer: Printer) -> Result<(), Exit> {
        let wrong = |error: fencepost_policy::ConfigError| misconfigured(&error, printer);
        let (url, fences) = (policy.url_of(rule).map_err(wrong)?, policy.fences_of(rule).map_err(wrong)?);
        let added = self.add_backend(&url, Some(&rule.glob));
        let added =
            added.and_then(|()| fences.iter().try_for_each(|fence| self.add_fence(fence, Some(&rule.glob))));
        added.map_err(|error| fail(&error, printer))
    }

    fn add_backend(&mut self, url: &BackendUrl, rule: Option<&str>) -> Result<()> {
        let locks = fencepost::connect_url(url, &Clock::system());
        let store = locks.map(|locks| Store::Backend(Box::new(locks)));
        self.add(url, or_missing(store, "backend", rule.is_some())?, rule);
        Ok(())
    }

    fn add_fence(&mut self, url: &BackendUrl, rule: Option<&str>) -> Result<()> {
        let store = fencepost::fence(url).map(Store::Fence);
        self.add(url, or_missing(store, "fence", rule.is_some())?, rule);
        Ok(())
    }

    fn add(&mut self, url: &BackendUrl, store: Store, rule: Option<&str>) {
        let added = Target { url: url.clone(), store, rules: Vec::new() };
        let is_same =
            |target: &Target| target.role() == added.role() && target.url.expose() == added.url.expose();
        let known = self.0.iter().position(is_same);
        let index = known.unwrap_or_else(|| {
            self.0.push(added.clone());
            self.0.len() - 1
        });
        let target = &mut self.0[index];
        let rule = rule.map(ToOwned::to_owned).filter(|rule| !target.rules.contains(rule));
        target.rules.extend(rule);
    }
}

/// What a rule names and this build lacks is a finding beside the others; where it was asked for by hand it is an error.
fn or_missing(store: Result<Store>, role: &'static str, is_by_rule: bool) -> Result<Store> {
    match store {
        Err(error) if error.kind() == ErrorKind::Unsupported && is_by_rule => Ok(Store::Missing(role, error)),
        store => store,
    }
}
