//! What is left of a server: no process, no file and no memory, however it and its test end.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use fencepost_testkit::servers::{PgBouncer, PoolMode, PostgresServer};

use crate::{descriptors, ends, ends_within, pidfd, processes};

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn server_outlives_the_thread_that_started_it() {
    let server = std::thread::spawn(PostgresServer::start).join().unwrap();
    assert!(!ends_within(Duration::from_millis(300), &pidfd(server.pid())));
    assert_eq!(server.query("SELECT 1"), "1");
}

fn leaves_nothing_after(fault: impl FnOnce(&mut PostgresServer)) {
    let mut server = PostgresServer::start();
    let (directory, memory) = (server.socket_directory().to_owned(), memory_of(&server));
    let processes = descriptors(&processes(&server));
    assert!(is_shared_memory(&memory));
    fault(&mut server);
    drop(server);
    assert!(processes.iter().all(|process| ends_within(Duration::ZERO, process)));
    assert!(!directory.exists());
    assert!(!is_shared_memory(&memory));
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn server_ends_with_its_value_and_leaves_nothing() {
    leaves_nothing_after(|_| ());
    leaves_nothing_after(|server| server.stop());
    leaves_nothing_after(PostgresServer::kill);
    leaves_nothing_after(PostgresServer::shut_down_immediately);
}

#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its servers are not installed")]
fn no_server_outlives_a_killed_test() {
    // A killed test cannot remove its servers' directories, which are another user's if this one is root.
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o711)).unwrap();
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.env("TMPDIR", directory.path()).args([
        "--ignored",
        "--exact",
        "ending::started_and_left",
        "--nocapture",
    ]);
    let mut test = test.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(test.stdout.take().unwrap()).lines().map_while(Result::ok);
    let numbers = lines.find_map(|line| line.split_once("started:").map(|(_, numbers)| numbers.to_owned()));
    let numbers = numbers.unwrap();
    let processes: Vec<_> = numbers.split(' ').map(|number| pidfd(number.parse().unwrap())).collect();
    assert!(processes.len() > 9);
    test.kill().unwrap();
    test.wait().unwrap();
    assert!(processes.iter().all(ends));
    // A killed test leaves their memory as well.
    let directories = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let states =
        directories.filter_map(|path| std::fs::read_to_string(path.join("data/postmaster.pid")).ok());
    let freed = states.map(|state| {
        Command::new("ipcrm").args(["--shmem-id", memory_in(&state)]).status().unwrap().success()
    });
    assert_eq!(freed.collect::<Vec<_>>(), [true, true]);
}

fn memory_of(server: &PostgresServer) -> String {
    memory_in(&server.query("SELECT pg_read_file('postmaster.pid')")).to_owned()
}

/// The id of the shared memory in the file of a server that runs, or was killed.
fn memory_in(state: &str) -> &str {
    let keys = state.lines().nth(6).expect("the seventh line is about the memory");
    keys.split_whitespace().nth(1).expect("the id follows the key")
}

fn is_shared_memory(id: &str) -> bool {
    let segments = std::fs::read_to_string("/proc/sysvipc/shm").expect("the kernel lists its memory");
    segments.lines().any(|line| line.split_whitespace().nth(1) == Some(id))
}

#[test]
#[ignore = "the test that another one kills"]
fn started_and_left() {
    let (server, stopped) = (PostgresServer::start(), PostgresServer::start());
    let pooler = PgBouncer::start(&server, PoolMode::Session, &[]);
    let numbers = [processes(&server), processes(&stopped), vec![pooler.pid()]].concat();
    stopped.stop();
    println!("\nstarted:{}", numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" "));
    std::io::stdin().read_line(&mut String::new()).unwrap();
}
