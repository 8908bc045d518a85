//! The one thread that starts child processes which must not outlive this process.
//!
//! The kernel kills such a child when the thread that started it ends (`PR_SET_PDEATHSIG`), and a test's thread ends
//! with the test, while its servers may serve others. This thread ends with the process alone.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};

/// A command that runs `program` so that it ends with this process; to be started with [`start`].
///
/// What runs is the program itself, under the number of the child: `setpriv` becomes it.
pub(super) fn command(program: &Path) -> Command {
    setpriv(&[], program)
}

/// The same, run by another user, which only root can ask for.
pub(super) fn command_as(user: &str, program: &Path) -> Command {
    setpriv(&["--reuid", user, "--regid", user, "--init-groups"], program)
}

/// Starts a [`command`].
pub(super) fn start(command: Command) -> Child {
    let (sender, born) = channel();
    let sent = nursery().send(Order { command, born: sender });
    sent.expect("the nursery ends with the process alone");
    let child = born.recv().expect("the nursery answers every order");
    child.unwrap_or_else(|error| panic!("setpriv cannot be started: {error}"))
}

/// The kernel forgets the signal when the user changes; `setpriv` asks for it afterwards, in whatever order it is told.
fn setpriv(options: &[&str], program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(options).args(["--pdeathsig", "KILL", "--"]).arg(program).stdin(Stdio::null());
    command
}

struct Order {
    command: Command,
    born: Sender<io::Result<Child>>,
}

fn nursery() -> &'static Sender<Order> {
    static NURSERY: OnceLock<Sender<Order>> = OnceLock::new();
    NURSERY.get_or_init(|| {
        let (sender, orders) = channel();
        std::thread::spawn(move || serve(&orders));
        sender
    })
}

fn serve(orders: &Receiver<Order>) {
    for Order { mut command, born } in orders {
        // Whoever does not listen any more panics, and the child ends with this process.
        drop(born.send(command.spawn()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    fn sleeper() -> Command {
        let mut command = command(Path::new("sleep"));
        command.arg("60");
        command
    }

    fn ends_within(limit: Duration, child: &Child) -> bool {
        let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap();
        let limit = limit.try_into().unwrap();
        poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).unwrap() == 1
    }

    #[test]
    fn child_of_the_nursery_outlives_the_thread_that_asked_for_it() {
        let mut child = std::thread::spawn(|| start(sleeper())).join().unwrap();
        assert!(!ends_within(Duration::from_millis(300), &child));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn child_of_another_thread_ends_with_it() {
        let thread = std::thread::spawn(|| {
            let child = sleeper().spawn().unwrap();
            // The signal is asked for before the program is there.
            let name = format!("/proc/{}/comm", child.id());
            crate::servers::wait_until("the child sleeps", || {
                std::fs::read_to_string(&name).unwrap() == "sleep\n"
            });
            child
        });
        let mut child = thread.join().unwrap();
        assert!(ends_within(Duration::from_secs(20), &child));
        child.wait().unwrap();
    }
}
