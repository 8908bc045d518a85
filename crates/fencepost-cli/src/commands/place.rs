//! Where a lock lives: flag, rule, variable, or the default on this host. And never silently somewhere weaker.

use std::path::PathBuf;
use std::time::Duration;

use fencepost::{BackendUrl, Clock, Error, LockName, Locks, Result};
use fencepost_policy::{Choice, Misplaced, Origin, Placement, Policy, Surroundings};

use crate::args::Global;
use crate::exit::Exit;
use crate::printer::Printer;

/// Where one lock lives, and what its rule says.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) url: BackendUrl,
    pub(crate) source: Source,
    pub(crate) choice: Option<Choice>,
}

/// Who decided that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Flag,
    /// A backend of this configuration, whatever its rules.
    Configuration(PathBuf),
    Rule {
        file: PathBuf,
        line: usize,
        glob: String,
    },
    Variable,
    Default,
}

impl Place {
    /// The places of locks, in their order.
    ///
    /// # Errors
    /// The exit code; the reason has been printed.
    pub(crate) fn of(global: &Global, locks: &[LockName], printer: Printer) -> Result<Vec<Self>, Exit> {
        let flag = global.backend().map_err(|error| fail(&error, printer))?;
        let policy =
            Policy::find(global.config.as_deref()).map_err(|error| misconfigured(&error, printer))?;
        let variable =
            Placement::variable(&Surroundings::of_process()).map_err(|error| fail(&error, printer))?;
        let one = |lock| Self::of_one(flag.as_ref(), policy.as_ref(), variable.as_ref(), lock, printer);
        locks.iter().map(one).collect()
    }

    fn of_one(
        flag: Option<&BackendUrl>,
        policy: Option<&Policy>,
        variable: Option<&BackendUrl>,
        lock: &LockName,
        printer: Printer,
    ) -> Result<Self, Exit> {
        let placement = Placement::of(policy, &Surroundings::of_process(), lock, flag, variable);
        let Placement { url, origin, choice, .. } =
            placement.map_err(|error| misplaced(&error, policy, lock, printer))?;
        let source = match (origin, &choice, policy) {
            (Origin::Given, ..) => Source::Flag,
            (Origin::Rule, Some(choice), Some(policy)) => {
                let (line, glob) = (choice.rule.line, choice.rule.glob.clone());
                Source::Rule { file: policy.path().to_owned(), line, glob }
            }
            (Origin::Variable, ..) => Source::Variable,
            _ => Source::Default,
        };
        Ok(Self { url, source, choice })
    }

    /// Every place in use: the one that flag or variable names, each backend of the configuration, or the default.
    ///
    /// # Errors
    /// The exit code; the reason has been printed.
    pub(crate) fn all(global: &Global, printer: Printer) -> Result<Vec<Self>, Exit> {
        let one = |url: BackendUrl, source| vec![Self { url, source, choice: None }];
        if let Some(url) = global.backend().map_err(|error| fail(&error, printer))? {
            return Ok(one(url, Source::Flag));
        }
        let policy =
            Policy::find(global.config.as_deref()).map_err(|error| misconfigured(&error, printer))?;
        if let Some(policy) = policy {
            let urls = policy.urls().map_err(|error| misconfigured(&error, printer))?;
            let source = Source::Configuration(policy.path().to_owned());
            let place = |url| Self { url, source: source.clone(), choice: None };
            return Ok(urls.into_iter().map(place).collect());
        }
        if let Some(url) =
            Placement::variable(&Surroundings::of_process()).map_err(|error| fail(&error, printer))?
        {
            return Ok(one(url, Source::Variable));
        }
        let url = "file:".parse().map_err(|error| fail(&error, printer))?;
        Ok(one(url, Source::Default))
    }

    /// The directory of a file backend.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        fencepost::directory(&self.url)
    }

    /// Says that nothing can be held in a directory that is not there: it may be a typing error.
    pub(crate) fn note_missing_directory(&self, printer: Printer) {
        if let Some(directory) = self.directory().filter(|directory| !directory.exists()) {
            printer.note(format_args!("the directory {} does not exist", directory.display()));
        }
    }

    /// The locks that are kept there.
    pub(crate) fn connect(&self) -> Result<Locks> {
        fencepost::connect_url(&self.url, &Clock::system())
    }

    /// Whether a rule of the configuration decided it.
    pub(crate) fn is_by_rule(&self) -> bool {
        matches!(self.source, Source::Rule { .. })
    }

    /// The rule's fences.
    pub(crate) fn fences(&self) -> impl Iterator<Item = &BackendUrl> {
        self.choice.iter().flat_map(|choice| &choice.fences)
    }

    /// Looks at the rule's fences, as far as that goes without connecting; the configuration is to blame for what is wrong.
    ///
    /// # Errors
    /// The exit code; the reason has been printed.
    pub(crate) fn refuse_wrong_fences(&self, printer: Printer) -> Result<(), Exit> {
        let Some(error) = self.fences().find_map(|url| fencepost::fence(url).err()) else { return Ok(()) };
        fail(&error, printer);
        Err(Exit::CONFIG)
    }

    /// The rule's ttl.
    pub(crate) fn ttl(&self) -> Option<Duration> {
        self.choice.as_ref().and_then(|choice| choice.ttl)
    }
}

fn misplaced(error: &Misplaced, policy: Option<&Policy>, lock: &LockName, printer: Printer) -> Exit {
    let nearest = match error {
        Misplaced::Config(error) => return misconfigured(error, printer),
        Misplaced::Unmatched { nearest } => nearest.as_slice(),
        _ => &[],
    };
    let path = policy.map(|policy| policy.path().display().to_string()).unwrap_or_default();
    printer.error(format_args!("{path}: no rule matches the lock {lock}"));
    if !nearest.is_empty() {
        printer.hint(format_args!("the nearest rules are {}", nearest.join(", ")));
    }
    printer.hint("add a rule, or name the place with --backend or FENCEPOST_BACKEND");
    Exit::CONFIG
}

/// Prints `error`; its exit code.
pub(crate) fn fail(error: &Error, printer: Printer) -> Exit {
    printer.failure(error);
    Exit::from(error)
}

/// Prints an error of the configuration; its exit code.
pub(crate) fn misconfigured(error: &fencepost_policy::ConfigError, printer: Printer) -> Exit {
    printer.misconfigured(error);
    Exit::CONFIG
}
