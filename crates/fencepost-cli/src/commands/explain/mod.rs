//! `fencepost explain`: where one lock lives, why there, what is promised, when two could overlap, and what it costs.
//!
//! Everything that is promised follows from the backend's profile. The server is looked at for its version and for how long it makes
//! a lease; where it cannot be reached that is said, and everything else too.

mod promises;
mod view;

use std::sync::mpsc;
use std::time::Duration;

use fencepost::{Error, ErrorKind, Examination, Locks, Result, block_on};

use super::place::{Place, fail};
use crate::args::{self, Global};
use crate::exit::Exit;
use crate::printer::Printer;

use view::{Explanation, Seen};

/// How long the look at the server may take.
const LOOK_MOST: Duration = Duration::from_secs(3);

/// Explains one lock.
pub(crate) fn explain(global: &Global, args: &args::Explain, printer: Printer) -> Exit {
    let mut places = match Place::of(global, std::slice::from_ref(&args.lock), printer) {
        Ok(places) => places,
        Err(exit) => return exit,
    };
    let place = places.remove(0);
    let locks = match place.connect() {
        Ok(locks) => locks,
        Err(error) => return fail(&error, printer),
    };
    let seen = if args.offline { Seen::NotLooked } else { Seen::from(look(&locks)) };
    let explanation = Explanation::new(&args.lock, &place, &locks, seen);
    if global.json {
        printer.data(&serde_json::to_string(&explanation).expect("an explanation is plain data"));
    } else {
        for line in explanation.lines() {
            printer.data(&line);
        }
    }
    Exit::OK
}

/// Looks at the server, on a thread of its own: a directory may hang in the kernel.
fn look(locks: &Locks) -> Result<Examination> {
    let (sender, arrived) = mpsc::channel();
    let locks = locks.clone();
    // Whoever asked may have given up.
    let look = move || drop(sender.send(block_on(locks.backend().examine())));
    let failed = |what: String| Error::new(ErrorKind::Unavailable, "look at it", what);
    let started = std::thread::Builder::new().name("fencepost-explain".to_owned()).spawn(look);
    started.map_err(|error| failed("no thread can be started".to_owned()).caused_by(error))?;
    arrived
        .recv_timeout(LOOK_MOST)
        .unwrap_or_else(|_| Err(failed(format!("it has not answered for {LOOK_MOST:?}"))))
}
