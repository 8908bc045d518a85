//! The bare floor: what any client must send at least, over sockets that block, without any care.

use std::io::{Read, Write};
use std::net::TcpStream;

use fencepost_testkit::servers::RedisServer;

/// Frees a lock that is still its holder's, as every client must.
const DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

/// Passes a lock on to the next of a queue, and joins the queue again.
const PASS_ON: &str = "local next = redis.call('LPOP', KEYS[2]) redis.call('RPUSH', KEYS[2], ARGV[1]) \
     redis.call('SET', KEYS[1], next, 'PX', 30000) redis.call('PUBLISH', KEYS[2], next) return 1";

const HOLDER: &str = "000102030405060708090a0b0c0d0e0f";

/// A connection without any care.
pub(crate) struct Bare {
    stream: TcpStream,
    buffer: Vec<u8>,
    delete: String,
    pass_on: String,
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut command = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        command.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
    command
}

impl Bare {
    pub(crate) fn new(server: &RedisServer) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("the server listens");
        stream.set_nodelay(true).expect("a socket sends at once");
        let hash = |script| {
            let loaded = server.command(&["SCRIPT", "LOAD", script]);
            loaded.text().to_owned()
        };
        Self { stream, buffer: vec![0; 1 << 16], delete: hash(DELETE), pass_on: hash(PASS_ON) }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server listens");
    }

    /// Reads what is there; how many replies of one line it is.
    fn replies(&mut self) -> usize {
        let length = self.stream.read(&mut self.buffer).expect("the server answers");
        self.buffer[..length].split(|byte| *byte == b'\n').count() - 1
    }

    fn until_replies(&mut self, count: usize) {
        let mut seen = 0;
        while seen < count {
            seen += self.replies();
        }
    }

    fn set(key: &str) -> Vec<u8> {
        command(&["SET", key, HOLDER, "NX", "PX", "30000"])
    }

    fn release(&self, key: &str) -> Vec<u8> {
        command(&["EVALSHA", &self.delete, "1", key, HOLDER])
    }

    /// Takes a lock and gives it back.
    pub(crate) fn pair(&mut self) {
        self.send(&Self::set("floor"));
        self.until_replies(1);
        let release = self.release("floor");
        self.send(&release);
        self.until_replies(1);
    }

    /// Does that `times` times with each of `locks` locks, all under way at once.
    pub(crate) fn pipelined(&mut self, locks: usize, times: usize) {
        let keys: Vec<String> = (0..locks).map(|lock| format!("floor{lock}")).collect();
        let mut commands: Vec<u8> = keys.iter().flat_map(|key| Self::set(key)).collect();
        let (sets, releases): (Vec<_>, Vec<_>) =
            keys.iter().map(|key| (Self::set(key), self.release(key))).unzip();
        let (mut answered, all) = (0, locks * times * 2);
        while answered < all {
            let bytes = std::mem::take(&mut commands);
            self.send(&bytes);
            for _ in 0..self.replies() {
                // Replies come in the order of the commands, and so the locks take turns.
                let (lock, done) = (answered % locks, answered / locks + 1);
                answered += 1;
                if done < times * 2 {
                    commands.extend(if done % 2 == 0 { &sets[lock] } else { &releases[lock] });
                }
            }
        }
    }

    /// Passes one lock on among `waiters`, each of which is told by a message, `times` times.
    pub(crate) fn passed_on(&mut self, waiters: usize, times: usize) {
        self.send(&command(&["HELLO", "3"]));
        self.until_text("modules");
        self.send(&command(&["DEL", "floor", "queue"]));
        for waiter in 1..waiters {
            self.send(&command(&["RPUSH", "queue", &waiter.to_string()]));
        }
        self.send(&command(&["SUBSCRIBE", "queue"]));
        self.until_text("subscribe");
        let mut holder = "0".to_owned();
        for _ in 0..times {
            let release = command(&["EVALSHA", &self.pass_on, "2", "floor", "queue", &holder]);
            self.send(&release);
            holder = self.told();
        }
        self.send(&command(&["UNSUBSCRIBE", "queue"]));
        self.until_text("unsubscribe");
    }

    /// Finds the records of all locks, and reads them.
    pub(crate) fn all_records(&mut self) {
        let mut cursor = "0".to_owned();
        loop {
            self.send(&command(&["SCAN", &cursor, "MATCH", "fencepost:{*}:l", "COUNT", "1000"]));
            let found =
                self.reply_of_lines(|lines| Some(6 + 2 * lines.get(3)?.get(1..)?.parse::<usize>().ok()? - 2));
            found[2].clone_into(&mut cursor);
            let keys: Vec<&str> = found[4..].iter().skip(1).step_by(2).map(String::as_str).collect();
            if !keys.is_empty() {
                let count = keys.len();
                self.send(&command(&[&["MGET"], &keys[..]].concat()));
                self.reply_of_lines(|_| Some(1 + 2 * count));
            }
            if cursor == "0" {
                return;
            }
        }
    }

    /// Reads until there are as many lines as those that are there say.
    fn reply_of_lines(&mut self, wanted: impl Fn(&[&str]) -> Option<usize>) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            let length = self.stream.read(&mut self.buffer).expect("the server answers");
            seen.extend_from_slice(&self.buffer[..length]);
            let text = String::from_utf8_lossy(&seen);
            let lines: Vec<&str> = text.lines().collect();
            if seen.ends_with(b"\r\n") && wanted(&lines).is_some_and(|wanted| lines.len() >= wanted) {
                return lines.into_iter().map(str::to_owned).collect();
            }
        }
    }

    fn until_text(&mut self, text: &str) {
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains(text) || !seen.ends_with(b"\r\n") {
            let length = self.stream.read(&mut self.buffer).expect("the server answers");
            seen.extend_from_slice(&self.buffer[..length]);
        }
    }

    /// Who is told next: the message, and the reply of the script beside it.
    fn told(&mut self) -> String {
        let mut seen = Vec::new();
        loop {
            let length = self.stream.read(&mut self.buffer).expect("the server answers");
            seen.extend_from_slice(&self.buffer[..length]);
            let text = String::from_utf8_lossy(&seen);
            let lines: Vec<&str> = text.lines().collect();
            let message = lines.iter().position(|line| *line == ">3").map(|start| lines.get(start + 6));
            if let Some(Some(holder)) = message
                && text.contains(":1\r\n")
                && text.ends_with("\r\n")
            {
                return (*holder).to_owned();
            }
        }
    }
}

/// Takes a lock on all servers at once and gives it back, waiting for a majority each time.
pub(crate) fn quorum_pair(nodes: &mut [Bare]) {
    let majority = nodes.len() / 2 + 1;
    let release = nodes[0].release("floor");
    for bytes in [Bare::set("floor"), release] {
        for node in nodes.iter_mut() {
            node.send(&bytes);
        }
        for node in nodes.iter_mut().take(majority) {
            node.until_replies(1);
        }
        // What the others answer is read, so that it does not count for the next one.
        for node in nodes.iter_mut().skip(majority) {
            node.until_replies(1);
        }
    }
}
