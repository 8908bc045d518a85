//! The wire format: RESP3, the part of it that a lock needs.
//!
//! Invariant: whatever bytes arrive, reading them ends in a reply, in "not all there yet" or in an error, never in a panic.
//! <https://redis.io/docs/latest/develop/reference/protocol-spec/>

use std::fmt;

/// One answer of the server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Null,
    Integer(i64),
    /// A string, simple or not.
    Text(Vec<u8>),
    /// A refusal, in the server's words.
    Refused(String),
    List(Vec<Self>),
    /// A message that answers no command.
    Push(Vec<Self>),
}

/// What arrived is not RESP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotResp;

impl Reply {
    /// The string, where it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The whole number, as an integer or in a string.
    pub(crate) fn number(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => self.text()?.parse().ok(),
        }
    }

    /// The elements of a list; none for anything else.
    pub(crate) fn list(&self) -> &[Self] {
        match self {
            Self::List(elements) | Self::Push(elements) => elements,
            _ => &[],
        }
    }

    /// The value that follows `key` in a map, which is a flat list here.
    pub(crate) fn value(&self, key: &str) -> Option<&Self> {
        let mut pairs = self.list().chunks_exact(2);
        pairs.find(|pair| pair[0].text() == Some(key)).map(|pair| &pair[1])
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("nothing"),
            Self::Integer(number) => number.fmt(f),
            Self::Text(bytes) => write!(f, "{:?}", String::from_utf8_lossy(bytes)),
            Self::Refused(what) => f.write_str(what),
            Self::List(elements) | Self::Push(elements) => write!(f, "a list of {}", elements.len()),
        }
    }
}

/// Writes a command as it goes over the wire.
pub(crate) fn write_command(output: &mut Vec<u8>, words: &[&[u8]]) {
    write_count(output, words.len());
    for word in words {
        write_word(output, word);
    }
}

/// Begins a command of so many words.
pub(crate) fn write_count(output: &mut Vec<u8>, words: usize) {
    write_head(output, b'*', words);
}

pub(crate) fn write_word(output: &mut Vec<u8>, word: &[u8]) {
    write_head(output, b'$', word.len());
    output.extend_from_slice(word);
    output.extend_from_slice(b"\r\n");
}

pub(crate) fn write_number(output: &mut Vec<u8>, number: usize) {
    write_word(output, digits(number, &mut [0; 20]));
}

fn write_head(output: &mut Vec<u8>, kind: u8, length: usize) {
    output.push(kind);
    output.extend_from_slice(digits(length, &mut [0; 20]));
    output.extend_from_slice(b"\r\n");
}

/// By hand: each word has a length, and what formats numbers takes longer than all the rest.
fn digits(mut number: usize, room: &mut [u8; 20]) -> &[u8] {
    let mut at = room.len();
    loop {
        at -= 1;
        room[at] = b'0' + u8::try_from(number % 10).expect("a digit is below ten");
        number /= 10;
        if number == 0 {
            return &room[at..];
        }
    }
}

/// Reads one reply at the start of `input`: it and its length, or `None` where it is not all there yet.
pub(crate) fn read(input: &[u8]) -> Result<Option<(Reply, usize)>, NotResp> {
    let mut reader = Reader { input, at: 0 };
    match reader.reply(0) {
        Ok(reply) => Ok(Some((reply, reader.at))),
        Err(Stopped::Short) => Ok(None),
        Err(Stopped::Wrong) => Err(NotResp),
    }
}

struct Reader<'a> {
    input: &'a [u8],
    at: usize,
}

enum Stopped {
    Short,
    Wrong,
}

impl<'a> Reader<'a> {
    fn reply(&mut self, depth: usize) -> Result<Reply, Stopped> {
        if depth > DEEPEST {
            return Err(Stopped::Wrong);
        }
        let line = self.line()?;
        let (kind, rest) = line.split_first().ok_or(Stopped::Wrong)?;
        match kind {
            b'+' | b',' | b'(' => Ok(Reply::Text(rest.to_vec())),
            b'-' => Ok(Reply::Refused(String::from_utf8_lossy(rest).into_owned())),
            b':' => Ok(Reply::Integer(number(rest)?)),
            b'_' => Ok(Reply::Null),
            b'#' => Ok(Reply::Integer(i64::from(rest == b"t"))),
            b'$' | b'=' => Ok(self.bytes(rest)?.map_or(Reply::Null, |bytes| Reply::Text(bytes.to_vec()))),
            b'!' => {
                let what = self.bytes(rest)?.unwrap_or_default();
                Ok(Reply::Refused(String::from_utf8_lossy(what).into_owned()))
            }
            b'*' | b'~' => Ok(self.elements(rest, 1, depth)?.map_or(Reply::Null, Reply::List)),
            b'>' => Ok(Reply::Push(self.elements(rest, 1, depth)?.ok_or(Stopped::Wrong)?)),
            b'%' => Ok(Reply::List(self.elements(rest, 2, depth)?.ok_or(Stopped::Wrong)?)),
            _ => Err(Stopped::Wrong),
        }
    }

    fn line(&mut self) -> Result<&'a [u8], Stopped> {
        let rest = &self.input[self.at..];
        let Some(end) = rest.iter().position(|byte| *byte == b'\r') else {
            return Err(if rest.len() > LONGEST_LINE { Stopped::Wrong } else { Stopped::Short });
        };
        match rest.get(end + 1) {
            None => return Err(Stopped::Short),
            Some(b'\n') => self.at += end + 2,
            Some(_) => return Err(Stopped::Wrong),
        }
        Ok(&rest[..end])
    }

    /// The bytes of a string whose length is in `head`; `None` for none.
    fn bytes(&mut self, head: &[u8]) -> Result<Option<&'a [u8]>, Stopped> {
        let Some(length) = length(head, LONGEST_STRING)? else { return Ok(None) };
        let rest = &self.input[self.at..];
        let (Some(bytes), Some(end)) = (rest.get(..length), rest.get(length..length + 2)) else {
            return Err(Stopped::Short);
        };
        if end != b"\r\n" {
            return Err(Stopped::Wrong);
        }
        self.at += length + 2;
        Ok(Some(bytes))
    }

    fn elements(&mut self, head: &[u8], each: usize, depth: usize) -> Result<Option<Vec<Reply>>, Stopped> {
        let Some(count) = length(head, MOST_ELEMENTS)? else { return Ok(None) };
        (0..count * each).map(|_| self.reply(depth + 1)).collect::<Result<_, _>>().map(Some)
    }
}

fn number(text: &[u8]) -> Result<i64, Stopped> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Stopped::Wrong)
}

fn length(head: &[u8], most: usize) -> Result<Option<usize>, Stopped> {
    match number(head)? {
        -1 => Ok(None),
        length => {
            usize::try_from(length).ok().filter(|length| *length <= most).map(Some).ok_or(Stopped::Wrong)
        }
    }
}

/// How deep lists may lie in one another; ours are three deep.
const DEEPEST: usize = 16;

/// No line without an end is longer: errors of the server are lines.
const LONGEST_LINE: usize = 64 << 10;

/// No string that is meant for us is longer.
const LONGEST_STRING: usize = 64 << 20;

/// No list that is meant for us has more elements.
const MOST_ELEMENTS: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn replies_are_read_whole_or_not_at_all() {
        let wire = b"*3\r\n$2\r\nOK\r\n:-5\r\n_\r\n";
        for end in 0..wire.len() {
            assert_eq!(read(&wire[..end]), Ok(None));
        }
        let list = vec![Reply::Text(b"OK".to_vec()), Reply::Integer(-5), Reply::Null];
        assert_eq!(read(wire), Ok(Some((Reply::List(list), wire.len()))));
    }

    #[test]
    fn what_is_not_resp_is_an_error() {
        for wire in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"$-2\r\n",
            b"*99999999999\r\n",
            b"$1\r\nab\r\n",
            b":x\r\n",
        ] {
            assert_eq!(read(wire), Err(NotResp));
        }
        assert_eq!(read(&b"*1\r\n".repeat(100)), Err(NotResp));
    }

    #[test]
    fn maps_are_flat_lists() {
        let (hello, _) = read(b"%2\r\n+role\r\n+master\r\n+proto\r\n:3\r\n").unwrap().unwrap();
        assert_eq!(hello.value("role").and_then(Reply::text), Some("master"));
        assert_eq!(hello.value("proto").and_then(Reply::number), Some(3));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in "[*$:+%>_#\\-0-9\r\na]{0,40}") {
            if let Ok(Some((_, length))) = read(bytes.as_bytes()) {
                prop_assert!(length <= bytes.len());
            }
        }

        #[test]
        fn lengths_are_written_as_numbers_are(length in any::<usize>(), short in 0..1_000_usize) {
            for length in [length, short] {
                let mut wire = Vec::new();
                write_head(&mut wire, b'*', length);
                prop_assert_eq!(String::from_utf8(wire).unwrap(), format!("*{length}\r\n"));
            }
        }

        #[test]
        fn commands_read_back(words in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..6)) {
            let mut wire = Vec::new();
            let slices: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            write_command(&mut wire, &slices);
            let expected = Reply::List(words.into_iter().map(Reply::Text).collect());
            let length = wire.len();
            prop_assert_eq!(read(&wire), Ok(Some((expected, length))));
        }
    }
}
