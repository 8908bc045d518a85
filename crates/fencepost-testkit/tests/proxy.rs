//! The proxy of the testkit: each mode does what it says, at once, and what was held back comes in order.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use fencepost_core::Clock;
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::wait_until;

const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(20);
const LIMIT: &str = "a limit can be set";

/// A client and what the server has of its connection.
struct Pair {
    client: TcpStream,
    server: TcpStream,
}

impl Pair {
    fn connect(proxy: &Proxy, listener: &TcpListener) -> Self {
        let client = connect(proxy);
        let (server, _) = listener.accept().expect("the proxy connects");
        Self { client, server: patient(server) }
    }
}

fn start() -> (Proxy, TcpListener) {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("there is a free port");
    (Proxy::start(listener.local_addr().expect("it is bound")), listener)
}

fn connect(proxy: &Proxy) -> TcpStream {
    patient(TcpStream::connect(proxy.address()).expect("the proxy accepts"))
}

fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(LONG)).expect(LIMIT);
    stream
}

fn hear(mut stream: &TcpStream, length: usize) -> String {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).expect("that much is said");
    String::from_utf8(bytes).expect("only text is said")
}

fn say(mut stream: &TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).expect("the connection is open");
}

fn is_silent(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(SHORT)).expect(LIMIT);
    let heard = stream.read(&mut [0; 1]);
    stream.set_read_timeout(Some(LONG)).expect(LIMIT);
    heard.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

fn has_ended(mut stream: &TcpStream) -> bool {
    stream.read(&mut [0; 1]).is_ok_and(|length| length == 0)
}

fn is_reset(mut stream: &TcpStream) -> bool {
    stream.read(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

/// Between the fork and the start of a program another process has all our sockets, also one that was closed meanwhile.
#[test]
fn connections_are_accepted_again_at_once_while_programs_are_started() {
    let (proxy, _listener) = start();
    std::thread::scope(|scope| {
        let cutting = scope.spawn(|| {
            for _ in 0..500 {
                proxy.set(Mode::Cut);
                proxy.set(Mode::Pass);
            }
        });
        while !cutting.is_finished() {
            Command::new("true").status().expect("it can be started");
        }
    });
    connect(&proxy);
}

#[test]
fn everything_passes_both_ways_with_the_ends() {
    let (proxy, listener) = start();
    let Pair { client, server } = Pair::connect(&proxy, &listener);
    say(&client, "request");
    assert_eq!(hear(&server, 7), "request");
    client.shutdown(Shutdown::Write).unwrap();
    assert!(has_ended(&server));
    say(&server, "reply");
    drop(server);
    assert_eq!(hear(&client, 5), "reply");
    assert!(has_ended(&client));
    wait_until("the connection is gone", || proxy.connections() == 0);
    assert_eq!((proxy.passed_requests(), proxy.passed_replies()), (7, 5));
}

#[test]
fn more_than_is_held_passes_to_a_slow_reader() {
    let (proxy, listener) = start();
    let Pair { client, server } = Pair::connect(&proxy, &listener);
    let text = "0123456789abcdef".repeat(1 << 20);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            say(&client, &text);
            client.shutdown(Shutdown::Write).unwrap();
        });
        wait_until("the proxy is full", || proxy.held_requests() >= 1 << 20);
        assert!(hear(&server, text.len()) == text, "the text comes as it was sent");
        assert!(has_ended(&server));
    });
}

#[test]
fn black_hole_passes_nothing_and_afterwards_all_in_order() {
    let (proxy, listener) = start();
    let Pair { client, server } = Pair::connect(&proxy, &listener);
    proxy.set(Mode::Blackhole);
    say(&client, "one ");
    say(&server, "reply");
    let late = connect(&proxy);
    say(&late, "late");
    wait_until("it is held", || proxy.held_requests() == 8 && proxy.held_replies() == 5);
    say(&client, "two");
    assert!(is_silent(&client) && is_silent(&server) && is_silent(&late));
    proxy.set(Mode::Pass);
    assert_eq!(hear(&server, 7), "one two");
    assert_eq!(hear(&client, 5), "reply");
    let (accepted, _) = listener.accept().unwrap();
    assert_eq!(hear(&patient(accepted), 4), "late");
    assert_eq!((proxy.held_requests(), proxy.held_replies()), (0, 0));
}

#[test]
fn black_hole_hides_the_end_of_either_side() {
    let (proxy, listener) = start();
    let (first, second) = (Pair::connect(&proxy, &listener), Pair::connect(&proxy, &listener));
    proxy.set(Mode::Blackhole);
    drop(first.server);
    drop(second.client);
    drop(listener);
    let third = connect(&proxy);
    assert!(is_silent(&first.client) && is_silent(&second.server) && is_silent(&third));
    proxy.set(Mode::Pass);
    assert!(has_ended(&first.client));
    assert!(has_ended(&second.server));
    assert!(is_reset(&third));
}

#[test]
fn reply_hole_passes_requests_alone() {
    let (proxy, listener) = start();
    let Pair { client, server } = Pair::connect(&proxy, &listener);
    proxy.set(Mode::ReplyHole);
    say(&client, "request");
    assert_eq!(hear(&server, 7), "request");
    say(&server, "reply");
    drop(server);
    wait_until("the reply is held", || proxy.held_replies() == 5);
    assert!(is_silent(&client));
    proxy.set(Mode::Pass);
    assert_eq!(hear(&client, 5), "reply");
    assert!(has_ended(&client));
}

#[test]
fn request_hole_passes_replies_alone() {
    let (proxy, listener) = start();
    proxy.set(Mode::RequestHole);
    let Pair { client, server } = Pair::connect(&proxy, &listener);
    say(&client, "request");
    say(&server, "reply");
    assert_eq!(hear(&client, 5), "reply");
    assert!(is_silent(&server));
    proxy.set(Mode::Pass);
    assert_eq!(hear(&server, 7), "request");
}

#[test]
fn cut_resets_both_sides_and_refuses_others() {
    let (proxy, listener) = start();
    let Pair { client, server } = Pair::connect(&proxy, &listener);
    proxy.set(Mode::Cut);
    assert!(is_reset(&client) && is_reset(&server));
    assert_eq!(proxy.connections(), 0);
    for _ in 0..3 {
        let refused = TcpStream::connect(proxy.address()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
    proxy.set(Mode::Pass);
    let Pair { client, server } = Pair::connect(&proxy, &listener);
    say(&client, "again");
    assert_eq!(hear(&server, 5), "again");
}

#[test]
fn cut_forgets_what_was_held_back() {
    let (proxy, listener) = start();
    let Pair { client, server } = Pair::connect(&proxy, &listener);
    proxy.set(Mode::RequestHole);
    say(&client, "request");
    wait_until("it is held", || proxy.held_requests() == 7);
    proxy.set(Mode::Cut);
    proxy.set(Mode::Pass);
    assert!(is_reset(&server));
    assert_eq!((proxy.held_requests(), proxy.passed_requests()), (0, 0));
}

#[test]
fn delay_is_added_in_each_direction_and_ends_at_once() {
    let (proxy, listener) = start();
    let Pair { client, server } = Pair::connect(&proxy, &listener);
    let (clock, delay) = (Clock::system(), Duration::from_millis(150));
    proxy.set(Mode::Delay(delay));
    let before = clock.now();
    say(&client, "request");
    assert_eq!(hear(&server, 7), "request");
    let half = clock.now().since(before);
    say(&server, "reply");
    assert_eq!(hear(&client, 5), "reply");
    assert!(half >= delay && clock.now().since(before) >= 2 * delay);
    proxy.set(Mode::Delay(Duration::from_hours(1)));
    say(&client, "request");
    assert!(is_silent(&server));
    proxy.set(Mode::Pass);
    assert_eq!(hear(&server, 7), "request");
}

#[test]
fn redirect_counts_for_those_who_come_later() {
    let (proxy, listener) = start();
    let Pair { client, server } = Pair::connect(&proxy, &listener);
    let other = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    proxy.redirect(other.local_addr().unwrap());
    let _later = Pair::connect(&proxy, &other);
    say(&client, "request");
    assert_eq!(hear(&server, 7), "request");
    assert_eq!(proxy.connections(), 2);
}

#[test]
fn server_that_is_down_resets_its_clients() {
    let (proxy, listener) = start();
    drop(listener);
    assert!(is_reset(&connect(&proxy)));
    wait_until("the connection is gone", || proxy.connections() == 0);
}

#[test]
fn dropped_proxy_ends_its_connections_and_refuses_others() {
    let (proxy, listener) = start();
    let Pair { client, server } = Pair::connect(&proxy, &listener);
    let address = proxy.address();
    proxy.set(Mode::Blackhole);
    drop(proxy);
    assert!(has_ended(&client) && has_ended(&server));
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}
