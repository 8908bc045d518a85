//! `fencepost revoke`: a lease is taken away from its holder, and the fences refuse it from then on.

use fencepost::{
    BackendUrl, Error, ErrorKind, FencingToken, LockState, Locks, Result, Revoked, Stamp, StampHolder,
    block_on,
};

use super::confirm::confirmed;
use super::place::{Place, fail};
use super::state::{described, sentence};
use super::warn_of_password;
use crate::args::{self, Global};
use crate::exit::Exit;
use crate::printer::Printer;

/// Takes the lease with the given token away; exit 1 where that is not the present one.
pub(crate) fn revoke(global: &Global, args: &args::Revoke, printer: Printer) -> Exit {
    let place = match Place::of(global, std::slice::from_ref(&args.lock), printer) {
        Ok(mut places) => places.remove(0),
        Err(exit) => return exit,
    };
    Revocation::of(args, &place, printer)
        .and_then(|revocation| revocation.carry_out())
        .unwrap_or_else(|error| fail(&error, printer))
}

struct Revocation<'a> {
    args: &'a args::Revoke,
    locks: Locks,
    fences: Vec<BackendUrl>,
    printer: Printer,
}

impl<'a> Revocation<'a> {
    fn of(args: &'a args::Revoke, place: &Place, printer: Printer) -> Result<Self> {
        let flagged = args.fences()?;
        for fence in &flagged {
            warn_of_password(fence, "--fence", "use the rule's fence in the configuration", printer);
        }
        let locks = place.connect()?;
        if !locks.profile().revoke {
            let what = format!("{} cannot take a lease away", locks.profile().backend);
            let error = Error::new(ErrorKind::Unsupported, "revoke the lease", what);
            return Err(error.hint("end the holder's process"));
        }
        let fences = place.fences().cloned().chain(flagged).collect();
        Ok(Self { args, locks, fences, printer })
    }

    fn carry_out(&self) -> Result<Exit> {
        let name = self.args.lock.as_str();
        let state = block_on(self.locks.inspect(name))?;
        let reader = state.readers.iter().find(|reader| reader.token == self.args.token);
        if reader.is_none() && (state.token != Some(self.args.token) || state.holder.is_none()) {
            return self.not_current(&state);
        }
        let holder = reader.map_or_else(
            || sentence(&state),
            |reader| format!("{} is shared by {}", state.name, described(reader)),
        );
        let question = format!("{holder}. Take it away?");
        if !confirmed(self.args.yes, &question, self.printer)? {
            self.printer.note("nothing was done");
            return Ok(Exit::NOT_DONE);
        }
        if reader.is_some() {
            return self.revoke_reader();
        }
        if !self.fences.is_empty() {
            // The fences are sealed with the token in between, which is nobody's.
            block_on(self.locks.lift(name, self.after(2)?))?;
        }
        match block_on(self.locks.revoke(name, self.args.token, &self.args.reason)) {
            Ok(Revoked::Done) => {
                self.tell_taken_away();
                self.seal(&self.nobodys()?).map(|()| Exit::OK)
            }
            Ok(Revoked::NotCurrent) => self.not_current(&block_on(self.locks.inspect(name))?),
            // It may have been taken away; refused it is in any case.
            Err(error) => {
                self.seal(&self.nobodys()?)?;
                Err(error)
            }
        }
    }

    /// Takes the lease of a reader away. It writes nothing that a fence would refuse, and the fences are left to those who do.
    fn revoke_reader(&self) -> Result<Exit> {
        let (name, token) = (self.args.lock.as_str(), self.args.token);
        if block_on(self.locks.revoke(name, token, &self.args.reason))? == Revoked::NotCurrent {
            return self.not_current(&block_on(self.locks.inspect(name))?);
        }
        self.tell_taken_away();
        Ok(Exit::OK)
    }

    fn tell_taken_away(&self) {
        let (lock, token) = (&self.args.lock, self.args.token);
        self.printer.detail(format_args!("{lock}: the lease with token {token} is taken away"));
        if !self.locks.profile().frees_when_revoked() {
            let what = "its holder is told to stop; the lock is free when all its processes have ended";
            self.printer.note(format_args!("{lock}: {what}"));
        }
    }

    /// A stamp between the token that is meant and the next one.
    fn nobodys(&self) -> Result<Stamp> {
        Ok(Stamp {
            lock: self.args.lock.clone(),
            token: self.after(1)?,
            holder: StampHolder::new("revoked")?,
        })
    }

    /// Has all fences refuse the old holder. One that has seen a newer one does already.
    fn seal(&self, stamp: &Stamp) -> Result<()> {
        let mut failed = None;
        for url in &self.fences {
            match fencepost::fence(url).and_then(|fence| block_on(fence.seal(stamp))) {
                Err(error) if error.kind() != ErrorKind::Stale => {
                    self.printer
                        .error(format_args!("{url} may still accept token {}: {error}", self.args.token));
                    failed = failed.or(Some(error));
                }
                _ => self.printer.detail(format_args!("{url} refuses token {} from now on", self.args.token)),
            }
        }
        let Some(error) = failed else { return Ok(()) };
        Err(error.hint("say it again when the fence answers: it is sealed then, also if the lease is over"))
    }

    fn after(&self, by: u64) -> Result<FencingToken> {
        self.args.token.get().saturating_add(by).try_into()
    }

    /// Another lease is the present one, or none. A lease that is over is refused by the fences all the same.
    fn not_current(&self, state: &LockState) -> Result<Exit> {
        let token = self.args.token;
        let lock = &state.name;
        self.printer.error(format_args!(
            "{lock}: token {token} is not the present holder's; no lease was taken away"
        ));
        self.printer.note(sentence(state));
        if self.fences.is_empty() {
            return Ok(Exit::NOT_DONE);
        }
        let is_shared = !state.readers.is_empty();
        match (state.holder, state.token) {
            // A reader's token is sealed nowhere.
            (Some(_), Some(present)) if is_shared && present > token => self.seal(&self.nobodys()?)?,
            (Some(holder), Some(present)) if !is_shared && present > token => {
                self.seal(&Stamp { lock: state.name.clone(), token: present, holder: holder.into() })?;
            }
            (None, _) => {
                block_on(self.locks.lift(state.name.as_str(), self.after(2)?))?;
                self.seal(&self.nobodys()?)?;
            }
            _ => return Ok(Exit::NOT_DONE),
        }
        self.printer.note(format_args!("the fences refuse token {token}"));
        Ok(Exit::NOT_DONE)
    }
}
