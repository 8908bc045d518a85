//! The part of ZooKeeper's protocol that a lock needs: requests as they are written, and answers as they are read.
//!
//! The numbers are those of `ZooDefs.OpCode` and `KeeperException.Code`.

use crate::jute::{Garbled, Reader, Writer};

/// A request, as its body is written behind the header.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    operation: i32,
    body: Vec<u8>,
}

/// Who may do what with a new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everybody may do everything.
    Open,
    /// Those who have logged in as whoever makes it may do everything, and nobody else anything.
    Own,
}

/// How long a new node stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stay {
    /// Until it is deleted.
    Persistent,
    /// As long as the session that makes it; its name gets the next number of its parent.
    SessionInOrder,
}

impl Request {
    pub(crate) fn create(path: &str, data: &[u8], access: Access, stay: Stay) -> Self {
        let mut body = Writer::default();
        body.text(path).buffer(data).int(1).int(ALL_RIGHTS);
        match access {
            Access::Open => body.text("world").text("anyone"),
            Access::Own => body.text("auth").text(""),
        };
        body.int(match stay {
            Stay::Persistent => 0,
            Stay::SessionInOrder => EPHEMERAL | SEQUENTIAL,
        });
        Self::new(CREATE2, &body)
    }

    pub(crate) fn delete(path: &str, version: i32) -> Self {
        let mut body = Writer::default();
        body.text(path).int(version);
        Self::new(DELETE, &body)
    }

    /// The data of a node; with `watch` the server tells when it changes or the node is deleted.
    pub(crate) fn data(path: &str, watch: bool) -> Self {
        let mut body = Writer::default();
        body.text(path).boolean(watch);
        Self::new(GET_DATA, &body)
    }

    pub(crate) fn set_data(path: &str, data: &[u8], version: i32) -> Self {
        let mut body = Writer::default();
        body.text(path).buffer(data).int(version);
        Self::new(SET_DATA, &body)
    }

    pub(crate) fn children(path: &str) -> Self {
        let mut body = Writer::default();
        body.text(path).boolean(false);
        Self::new(GET_CHILDREN2, &body)
    }

    /// Has the server tell of every change of the node at `path`, and of all below it, for as long as the connection lasts.
    pub(crate) fn watch_all_below(path: &str) -> Self {
        let mut body = Writer::default();
        body.text(path).int(PERSISTENT_RECURSIVE);
        Self::new(ADD_WATCH, &body)
    }

    /// Who may do what with a node.
    pub(crate) fn access(path: &str) -> Self {
        let mut body = Writer::default();
        body.text(path);
        Self::new(GET_ACL, &body)
    }

    /// Has the server we are connected to catch up with the leader.
    pub(crate) fn sync(path: &str) -> Self {
        let mut body = Writer::default();
        body.text(path);
        Self::new(SYNC, &body)
    }

    /// That a node is there, and has this version. Only as a part of [`all`](Self::all).
    pub(crate) fn check(path: &str, version: i32) -> Self {
        let mut body = Writer::default();
        body.text(path).int(version);
        Self::new(CHECK, &body)
    }

    /// Several requests as one transaction: all or none.
    pub(crate) fn all(requests: &[Self]) -> Self {
        let mut body = Writer::default();
        let mut bytes = Vec::new();
        for request in requests {
            body.int(request.operation).boolean(false).int(-1);
            bytes.extend(std::mem::take(&mut body).bytes());
            bytes.extend(&request.body);
        }
        body.int(-1).boolean(true).int(-1);
        bytes.extend(body.bytes());
        Self { operation: MULTI, body: bytes }
    }

    /// Ends the session.
    pub(crate) fn close_session() -> Self {
        Self::new(CLOSE_SESSION, &Writer::default())
    }

    /// Logs in by `scheme`.
    pub(crate) fn login(scheme: &str, proof: &[u8]) -> Self {
        let mut body = Writer::default();
        body.int(0).text(scheme).buffer(proof);
        Self::new(AUTH, &body)
    }

    fn new(operation: i32, body: &Writer) -> Self {
        Self { operation, body: body.bytes().to_vec() }
    }

    /// Whether it is answered under a number of its own kind.
    pub(crate) fn own_number(&self) -> Option<i32> {
        (self.operation == AUTH).then_some(NUMBER_OF_LOGIN)
    }

    /// Appends it to what is sent, under a number.
    pub(crate) fn write(&self, number: i32, output: &mut Vec<u8>) {
        let length = i32::try_from(self.body.len() + 8).unwrap_or(i32::MAX);
        output.extend(length.to_be_bytes());
        output.extend(number.to_be_bytes());
        output.extend(self.operation.to_be_bytes());
        output.extend(&self.body);
    }
}

/// What begins a connection: whose session it carries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hello {
    /// The last change that was seen; a server that lags behind it refuses the connection.
    pub(crate) last_seen: i64,
    /// The session time-out that is asked for, in milliseconds.
    pub(crate) timeout_ms: i32,
    /// The session; 0 for a new one.
    pub(crate) session: i64,
    /// What proves that it is ours.
    pub(crate) password: Vec<u8>,
}

/// The length of a session's password.
pub(crate) const PASSWORD_LENGTH: usize = 16;

impl Hello {
    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut record = Writer::default();
        record.int(0).long(self.last_seen).int(self.timeout_ms).long(self.session);
        // Not read-only: a server without a quorum is to refuse us.
        record.buffer(&self.password).boolean(false);
        record.frame()
    }
}

/// What a server answers to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    /// The session time-out that was granted, in milliseconds; 0 where the session has ended.
    pub(crate) timeout_ms: i32,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
    /// Whether the server has no quorum.
    pub(crate) is_read_only: bool,
}

impl Welcome {
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Garbled> {
        let mut reader = Reader::new(bytes);
        let _version = reader.int()?;
        let (timeout_ms, session) = (reader.int()?, reader.long()?);
        let password = reader.buffer()?.to_vec();
        // Servers before 3.4 do not say.
        let is_read_only = reader.boolean().unwrap_or_default();
        Ok(Self { timeout_ms, session, password, is_read_only })
    }
}

/// What is known of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The number of the transaction that made it.
    pub(crate) made_by: i64,
    /// When it was made, in milliseconds of the leader's clock.
    pub(crate) made_at_ms: i64,
    /// How often its data has changed.
    pub(crate) version: i32,
    /// The session that it ends with; 0 where it stays.
    pub(crate) session: i64,
}

impl Stat {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Garbled> {
        let (made_by, _changed_by) = (reader.long()?, reader.long()?);
        let (made_at_ms, _changed_at_ms) = (reader.long()?, reader.long()?);
        let (version, _of_children, _of_access) = (reader.int()?, reader.int()?, reader.int()?);
        let session = reader.long()?;
        let (_length, _children, _children_changed_by) = (reader.int()?, reader.int()?, reader.long()?);
        Ok(Self { made_by, made_at_ms, version, session })
    }
}

/// An answer to a request.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The last change that the server had seen.
    pub(crate) seen: i64,
    /// What came of it.
    pub(crate) code: Code,
    body: Vec<u8>,
}

impl Answer {
    /// The number of the request, and the answer.
    pub(crate) fn read(frame: &[u8]) -> Result<(i32, Self), Garbled> {
        let mut reader = Reader::new(frame);
        let (number, seen, code) = (reader.int()?, reader.long()?, Code(reader.int()?));
        Ok((number, Self { seen, code, body: reader.rest().to_vec() }))
    }

    pub(crate) fn made(&self) -> Result<(String, Stat), Garbled> {
        let mut reader = Reader::new(&self.body);
        Ok((reader.text()?.to_owned(), Stat::read(&mut reader)?))
    }

    pub(crate) fn data(&self) -> Result<(Vec<u8>, Stat), Garbled> {
        let mut reader = Reader::new(&self.body);
        Ok((reader.buffer()?.to_vec(), Stat::read(&mut reader)?))
    }

    pub(crate) fn children(&self) -> Result<(Vec<String>, Stat), Garbled> {
        let mut reader = Reader::new(&self.body);
        Ok((reader.texts()?, Stat::read(&mut reader)?))
    }

    /// The schemes and ids of those who have a right to a node.
    pub(crate) fn access(&self) -> Result<Vec<(String, String)>, Garbled> {
        let mut reader = Reader::new(&self.body);
        let count = reader.int()?.max(0);
        let entries = (0..count).map(|_| {
            let _rights = reader.int()?;
            Ok((reader.text()?.to_owned(), reader.text()?.to_owned()))
        });
        entries.collect()
    }

    /// What came of a transaction of one check, which its part says where it was carried out; `None` where it cannot be read.
    pub(crate) fn check(&self) -> Option<Code> {
        if self.code != Code::OK {
            return Some(self.code);
        }
        self.parts().ok()?.first().copied()
    }

    /// Whether a quorum has acknowledged a [transaction of one check](Self::check): it may have found no node, or one of others.
    pub(crate) fn is_committed(&self) -> bool {
        matches!(self.check(), Some(Code::OK | Code::NO_NODE | Code::NO_AUTH))
    }

    /// The part of a transaction for which nothing of it was carried out, and why; `None` where all of it was. What was refused as a
    /// whole, without a word about its parts, failed behind the last one.
    pub(crate) fn failed_part(&self) -> Result<Option<(usize, Code)>, Garbled> {
        let parts = match self.parts() {
            Ok(parts) if !parts.is_empty() => parts,
            _ if self.code != Code::OK => Vec::new(),
            _ => return Err(Garbled),
        };
        let all = parts.into_iter().chain([self.code]).enumerate();
        Ok(all.into_iter().find(|(_, code)| *code != Code::OK))
    }

    /// What came of each part of a transaction of creates, deletes, checks and changes of data.
    pub(crate) fn parts(&self) -> Result<Vec<Code>, Garbled> {
        let mut reader = Reader::new(&self.body);
        let mut parts = Vec::new();
        loop {
            let (operation, is_end, _) = (reader.int()?, reader.boolean()?, reader.int()?);
            if is_end {
                return Ok(parts);
            }
            parts.push(match operation {
                -1 => Code(reader.int()?),
                CREATE2 => reader.text().and_then(|_| Stat::read(&mut reader)).map(|_| Code::OK)?,
                SET_DATA => Stat::read(&mut reader).map(|_| Code::OK)?,
                _ => Code::OK,
            });
        }
    }
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

impl Code {
    pub(crate) const OK: Self = Self(0);
    pub(crate) const NO_NODE: Self = Self(-101);
    pub(crate) const NO_AUTH: Self = Self(-102);
    pub(crate) const BAD_VERSION: Self = Self(-103);
    pub(crate) const NODE_EXISTS: Self = Self(-110);
    pub(crate) const SESSION_EXPIRED: Self = Self(-112);
    pub(crate) const INVALID_ACL: Self = Self(-114);
    pub(crate) const AUTH_FAILED: Self = Self(-115);
    pub(crate) const SESSION_MOVED: Self = Self(-118);
    pub(crate) const LOGIN_NEEDED: Self = Self(-124);
    const QUOTA_EXCEEDED: Self = Self(-125);
    const THROTTLED: Self = Self(-127);

    /// What it is called in ZooKeeper's manual.
    pub(crate) fn describe(self) -> String {
        let name = match self {
            Self::OK => "OK",
            Self::NO_NODE => "NoNode",
            Self::NO_AUTH => "NoAuth",
            Self::BAD_VERSION => "BadVersion",
            Self::NODE_EXISTS => "NodeExists",
            Self::SESSION_EXPIRED => "SessionExpired",
            Self::INVALID_ACL => "InvalidACL",
            Self::AUTH_FAILED => "AuthFailed",
            Self::SESSION_MOVED => "SessionMoved",
            Self::LOGIN_NEEDED => "SessionClosedRequireSaslAuth",
            Self::QUOTA_EXCEEDED => "QuotaExceeded",
            Self::THROTTLED => "ThrottledOp",
            Self(other) => return format!("the error {other}"),
        };
        name.to_owned()
    }
}

/// Something that a watch has seen: a change of a node's data, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) path: String,
    pub(crate) is_deleted: bool,
}

impl Sight {
    /// Reads what came under [`NUMBER_OF_SIGHTS`]; `None` where it is about the session.
    pub(crate) fn read(answer: &Answer) -> Result<Option<Self>, Garbled> {
        let mut reader = Reader::new(&answer.body);
        let (kind, _state) = (reader.int()?, reader.int()?);
        let path = reader.text()?.to_owned();
        Ok((kind != NOTHING_SEEN).then_some(Self { path, is_deleted: kind == NODE_DELETED }))
    }
}

/// Under what number watches are told, and logins are answered.
pub(crate) const NUMBER_OF_SIGHTS: i32 = -1;
const NUMBER_OF_LOGIN: i32 = -4;

const NOTHING_SEEN: i32 = -1;
const NODE_DELETED: i32 = 2;

const ALL_RIGHTS: i32 = 0b1_1111;
const PERSISTENT_RECURSIVE: i32 = 1;
const EPHEMERAL: i32 = 1;
const SEQUENTIAL: i32 = 2;

const DELETE: i32 = 2;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const GET_ACL: i32 = 6;
const SYNC: i32 = 9;
const GET_CHILDREN2: i32 = 12;
const CHECK: i32 = 13;
const MULTI: i32 = 14;
const CREATE2: i32 = 15;
const AUTH: i32 = 100;
const ADD_WATCH: i32 = 106;
const CLOSE_SESSION: i32 = -11;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn welcome_of_a_session_that_has_ended_has_no_time() {
        let mut record = Writer::default();
        record.int(0).int(0).long(0).buffer(&[0; PASSWORD_LENGTH]).boolean(false);
        let welcome = Welcome::read(record.bytes()).unwrap();
        assert_eq!((welcome.timeout_ms, welcome.session, welcome.is_read_only), (0, 0, false));
    }

    #[test]
    fn transaction_that_failed_says_at_which_part() {
        let mut record = Writer::default();
        record.int(7).long(9).int(0);
        for code in [0, -101, -2] {
            record.int(-1).boolean(false).int(code).int(code);
        }
        record.int(-1).boolean(true).int(-1);
        let (number, answer) = Answer::read(record.bytes()).unwrap();
        assert_eq!((number, answer.seen), (7, 9));
        assert_eq!(answer.parts(), Ok(vec![Code(0), Code::NO_NODE, Code(-2)]));
        assert_eq!(answer.failed_part(), Ok(Some((1, Code::NO_NODE))));
    }

    #[test]
    fn transaction_counts_as_done_only_where_its_answer_can_be_read() {
        let answer = |head: i32, write: &dyn Fn(&mut Writer)| {
            let mut record = Writer::default();
            record.int(7).long(9).int(head);
            write(&mut record);
            Answer::read(record.bytes()).unwrap().1.failed_part()
        };
        let whole = |record: &mut Writer| {
            record.int(CHECK).boolean(false).int(-1).int(-1).boolean(true).int(-1);
        };
        assert_eq!(answer(0, &whole), Ok(None));
        assert_eq!(answer(0, &|_| {}), Err(Garbled), "it says nothing of what was done");
        let broken_off = |record: &mut Writer| {
            record.int(SET_DATA).boolean(false).int(-1).long(3);
        };
        assert_eq!(answer(0, &broken_off), Err(Garbled));
        let of_none = |record: &mut Writer| {
            record.int(-1).boolean(true).int(-1);
        };
        assert_eq!(answer(0, &of_none), Err(Garbled));
        assert_eq!(answer(-127, &|_| {}), Ok(Some((0, Code::THROTTLED))));
        assert_eq!(answer(-112, &whole), Ok(Some((1, Code::SESSION_EXPIRED))));
    }

    #[test]
    fn check_that_nobody_has_carried_out_is_told_from_one_that_failed() {
        let answer = |head: i32, part: Option<i32>| {
            let mut record = Writer::default();
            record.int(7).long(9).int(head);
            if let Some(code) = part {
                record.int(-1).boolean(false).int(code).int(code).int(-1).boolean(true).int(-1);
            }
            Answer::read(record.bytes()).unwrap().1.check()
        };
        assert_eq!(answer(0, Some(0)), Some(Code::OK));
        assert_eq!(answer(0, Some(-101)), Some(Code::NO_NODE));
        // The session ends, though the whole looks well.
        assert_eq!(answer(0, Some(-112)), Some(Code::SESSION_EXPIRED));
        // A member that is busy says so before it asks anybody.
        assert_eq!(answer(-127, None), Some(Code(-127)));
        assert_eq!(answer(0, None), None);
    }

    proptest! {
        #[test]
        fn any_answer_is_read_or_garbled(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Welcome::read(&bytes);
            if let Ok((_, answer)) = Answer::read(&bytes) {
                let _ = (answer.made(), answer.data(), answer.children(), answer.access(), answer.parts());
                let _ = Sight::read(&answer);
            }
        }
    }
}
