//! What a caller is told whose request does not pass: a status, and a body of JSON with always the same four keys.

use std::fmt::Write as _;

use fencepost_core::{Error, ErrorKind, FencingToken, LockName, Mark, Stamp};
use http::{HeaderValue, Response, StatusCode, header};

use crate::header::Unread;

/// The status that tells a caller of `error`, for a handler whose own store has a fence: 412 for a stale stamp, 503 where the
/// store could not be asked or the outcome is not known.
pub fn status_of(error: &Error) -> StatusCode {
    match error.kind() {
        ErrorKind::Stale => StatusCode::PRECONDITION_FAILED,
        ErrorKind::InvalidArgument => StatusCode::BAD_REQUEST,
        ErrorKind::Unavailable | ErrorKind::Indeterminate | ErrorKind::Contended => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// A request that does not pass.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    text: String,
    lock: Option<LockName>,
    token: Option<FencingToken>,
    mark: Option<Mark>,
    cause: Option<Error>,
}

impl Refusal {
    /// The service could not say which lock the request needs.
    pub(crate) fn of_the_name(error: &Error) -> Self {
        Self::new(status_of(error), error.to_string()).caused_by(error.clone())
    }

    pub(crate) fn unread(lock: &LockName, reason: Unread) -> Self {
        let refusal = match reason {
            Unread::Missing => {
                let text = "the request has no header Fencing-Token";
                Self::new(StatusCode::PRECONDITION_REQUIRED, text.to_owned())
            }
            Unread::Malformed(what) => {
                Self::new(StatusCode::BAD_REQUEST, format!("the header Fencing-Token is malformed: {what}"))
            }
        };
        Self { lock: Some(lock.clone()), ..refusal }
    }

    /// That is a mistake of the caller and says nothing about its lease, and so it is not 412.
    pub(crate) fn of_another_lock(lock: &LockName, stamp: &Stamp) -> Self {
        let text = "the stamp is of another lock than the one that this request needs".to_owned();
        let refusal = Self::new(StatusCode::BAD_REQUEST, text);
        Self { lock: Some(lock.clone()), token: Some(stamp.token), ..refusal }
    }

    pub(crate) fn stale(stamp: &Stamp, mark: Option<Mark>, error: Error) -> Self {
        let refusal = Self::new(StatusCode::PRECONDITION_FAILED, error.to_string()).shown(stamp);
        Self { mark, ..refusal }.caused_by(error)
    }

    /// The fence gave no answer. What it said instead is the operator's, and not the caller's.
    pub(crate) fn unchecked(stamp: &Stamp, error: Error) -> Self {
        let status = match status_of(&error) {
            StatusCode::SERVICE_UNAVAILABLE => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, "the fence could not be asked".to_owned()).shown(stamp).caused_by(error)
    }

    fn new(status: StatusCode, text: String) -> Self {
        Self { status, text, lock: None, token: None, mark: None, cause: None }
    }

    fn shown(self, stamp: &Stamp) -> Self {
        Self { lock: Some(stamp.lock.clone()), token: Some(stamp.token), ..self }
    }

    fn caused_by(self, error: Error) -> Self {
        Self { cause: Some(error), ..self }
    }

    /// The answer; the cause is in its extensions.
    pub(crate) fn response<R: From<String>>(self) -> Response<R> {
        let mut response = Response::new(R::from(self.body()));
        *response.status_mut() = self.status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(error) = self.cause {
            response.extensions_mut().insert(error);
        }
        response
    }

    fn body(&self) -> String {
        let lock = self.lock.as_ref().map_or(NULL.to_owned(), |lock| quoted(lock.as_str()));
        let token = self.token.map_or(NULL.to_owned(), |token| token.to_string());
        let mark = self.mark.as_ref().map_or(NULL.to_owned(), |mark| {
            format!(r#"{{"token":{},"holder":{}}}"#, mark.token, quoted(mark.holder.as_str()))
        });
        format!(r#"{{"error":{},"lock":{lock},"token":{token},"mark":{mark}}}"#, quoted(&self.text))
    }
}

/// A text as a string of JSON.
fn quoted(text: &str) -> String {
    let mut quoted = "\"".to_owned();
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\0'..' ' => {
                write!(quoted, "\\u{:04x}", u32::from(letter)).expect("a String takes everything");
            }
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

const NULL: &str = "null";
