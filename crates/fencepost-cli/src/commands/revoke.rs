//! `fencepost revoke`: a lease is taken away from its holder, and the fences refuse it from then on.

use fencepost::{
    BackendUrl, Error, ErrorKind, FencingToken, LockState, Locks, Result, Revoked, Stamp, StampHolder,
    block_on,
};

use super::confirm::confirmed;
use super::place::{Place, fail};
use super::state::sentence;
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
        let state = block_on(self.locks.inspect(self.args.lock.as_str()))?;
        if state.token != Some(self.args.token) || state.holder.is_none() {
            return Ok(self.not_current(&state));
        }
        let question = format!("{}. Take it away?", sentence(&state));
        if !confirmed(self.args.yes, &question, self.printer)? {
            self.printer.note("nothing was done");
            return Ok(Exit::NOT_DONE);
        }
        let name = self.args.lock.as_str();
        if !self.fences.is_empty() {
            // The fences are sealed with the token in between, which is nobody's.
            block_on(self.locks.lift(name, self.after(2)?))?;
        }
        match block_on(self.locks.revoke(name, self.args.token, &self.args.reason))? {
            Revoked::Done => self.seal(),
            Revoked::NotCurrent => Ok(self.not_current(&block_on(self.locks.inspect(name))?)),
        }
    }

    /// Has the fences refuse the old holder. One that has seen a newer one does already.
    fn seal(&self) -> Result<Exit> {
        self.printer.detail(format_args!(
            "{}: the lease with token {} is taken away",
            self.args.lock, self.args.token
        ));
        if self.fences.is_empty() {
            return Ok(Exit::OK);
        }
        let stamp = Stamp {
            lock: self.args.lock.clone(),
            token: self.after(1)?,
            holder: StampHolder::new("revoked")?,
        };
        for url in &self.fences {
            match block_on(fencepost::fence(url)?.seal(&stamp)) {
                Err(error) if error.kind() != ErrorKind::Stale => {
                    let hint = format!(
                        "the lease is taken away; seal the fence when it answers: fencepost fence seal {url} {} {}",
                        stamp.lock, stamp.token
                    );
                    return Err(error.hint(hint));
                }
                _ => self.printer.detail(format_args!("{url} refuses token {} from now on", self.args.token)),
            }
        }
        Ok(Exit::OK)
    }

    fn after(&self, by: u64) -> Result<FencingToken> {
        self.args.token.get().saturating_add(by).try_into()
    }

    fn not_current(&self, state: &LockState) -> Exit {
        self.printer
            .error(format_args!("token {} is not the present holder's; nothing was done", self.args.token));
        self.printer.note(sentence(state));
        Exit::NOT_DONE
    }
}
