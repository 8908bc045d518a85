//! gRPC as far as etcd needs it: how a message is framed, and how a call has ended.
//!
//! The rules are those of <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode;
use prost::Message;

/// How a call was refused by the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: Code,
    pub(crate) message: String,
}

/// The codes that mean something to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Cancelled,
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    PermissionDenied,
    FailedPrecondition,
    OutOfRange,
    Unimplemented,
    Internal,
    Unavailable,
    Unauthenticated,
    ResourceExhausted,
    /// Any other one.
    Other,
}

impl Code {
    fn of(number: u32) -> Self {
        match number {
            1 => Self::Cancelled,
            2 => Self::Unknown,
            3 => Self::InvalidArgument,
            4 => Self::DeadlineExceeded,
            5 => Self::NotFound,
            7 => Self::PermissionDenied,
            8 => Self::ResourceExhausted,
            9 => Self::FailedPrecondition,
            11 => Self::OutOfRange,
            12 => Self::Unimplemented,
            13 => Self::Internal,
            14 => Self::Unavailable,
            16 => Self::Unauthenticated,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() {
            return write!(f, "{:?}", self.code);
        }
        f.write_str(&self.message)
    }
}

/// Whether headers or trailers tell how a call has ended.
pub(crate) fn tells_the_end(fields: &HeaderMap) -> bool {
    fields.contains_key(STATUS)
}

/// The refusal that headers or trailers tell of; `None` where they tell of success, or of no end at all.
pub(crate) fn refusal(fields: &HeaderMap) -> Option<Refusal> {
    let number = fields.get(STATUS)?.to_str().ok()?.parse().unwrap_or(u32::MAX);
    if number == 0 {
        return None;
    }
    let message = fields.get(MESSAGE).map(|text| percent_decode(text.as_bytes()).decode_utf8_lossy());
    Some(Refusal { code: Code::of(number), message: message.unwrap_or_default().into_owned() })
}

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// A message as it is sent: not compressed, its length, and itself.
pub(crate) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(PREFIX + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode(&mut frame).expect("the buffer grows with the message");
    frame.freeze()
}

/// What has come of a body, of which messages are taken one by one.
#[derive(Debug, Default)]
pub(crate) struct Frames(BytesMut);

impl Frames {
    /// Adds what has come.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next message, if all of it is there.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn next<M: Message + Default>(&mut self) -> Result<Option<M>, String> {
        let Some(prefix) = self.0.first_chunk::<PREFIX>() else { return Ok(None) };
        let [compressed, length @ ..] = *prefix;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if compressed != 0 || length > LONGEST {
            return Err(format!("it sent a message of {length} bytes that is compressed or too long"));
        }
        if self.0.len() < PREFIX + length {
            return Ok(None);
        }
        self.0.advance(PREFIX);
        let message = self.0.split_to(length);
        M::decode(message).map(Some).map_err(|error| error.to_string())
    }
}

/// One byte that says whether a message is compressed, and four for its length.
const PREFIX: usize = 5;

/// The longest message that is believed in: a page of a list is far below it.
const LONGEST: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::LeaseGrantRequest;
    use proptest::prelude::*;

    #[test]
    fn refusals_are_read() {
        let mut fields = HeaderMap::new();
        assert_eq!(refusal(&fields), None);
        fields.insert(STATUS, "0".parse().unwrap());
        assert_eq!(refusal(&fields), None);
        fields.insert(STATUS, "14".parse().unwrap());
        fields.insert(MESSAGE, "etcdserver: 100%25 gone".parse().unwrap());
        let refused = refusal(&fields).unwrap();
        assert_eq!(
            (refused.code, refused.to_string().as_str()),
            (Code::Unavailable, "etcdserver: 100% gone")
        );
        fields.insert(STATUS, "nonsense".parse().unwrap());
        assert_eq!(refusal(&fields).unwrap().code, Code::Other);
    }

    #[test]
    fn compressed_and_endless_messages_are_refused() {
        for prefix in [[1, 0, 0, 0, 0], [0, 255, 255, 255, 255]] {
            let mut frames = Frames::default();
            frames.add(&prefix);
            assert!(frames.next::<LeaseGrantRequest>().is_err());
        }
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in_however_they_are_cut(ids in prop::collection::vec(any::<i64>(), 0..5), cut in 1..40_usize) {
            let sent: Vec<_> = ids.iter().map(|id| LeaseGrantRequest { ttl: 7, id: *id }).collect();
            let bytes: Vec<u8> = sent.iter().flat_map(|message| framed(message).to_vec()).collect();
            let (mut frames, mut seen) = (Frames::default(), Vec::new());
            for piece in bytes.chunks(cut) {
                frames.add(piece);
                while let Some(message) = frames.next::<LeaseGrantRequest>().unwrap() {
                    seen.push(message);
                }
            }
            prop_assert_eq!(seen, sent);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut frames = Frames::default();
            frames.add(&bytes);
            while let Ok(Some(LeaseGrantRequest { .. })) = frames.next() {}
        }
    }
}
