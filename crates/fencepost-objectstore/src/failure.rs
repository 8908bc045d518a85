//! What the errors of the client mean, and above all which of them leave open whether a put was done.

use std::error::Error as _;

use fencepost_core::{Error, ErrorKind};
use object_store::Error as ClientError;

use crate::place::CREDENTIALS;

/// Why a request did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no such object.
    Absent,
    /// The condition did not hold, or somebody else writes at the same time.
    Refused,
    /// It may succeed another time. A put may have been done.
    Passing(Error),
    /// It was refused for good, and nothing was done.
    Final(Error),
}

impl Failure {
    /// What an error of the client means.
    pub(crate) fn of(error: ClientError) -> Self {
        let text = format!("{error:?}");
        match &error {
            ClientError::NotFound { .. } if is_about_the_bucket(&text) => {
                Self::Final(failed(ErrorKind::Unavailable, error).hint("make the bucket first"))
            }
            ClientError::NotFound { .. } => Self::Absent,
            ClientError::Precondition { .. }
            | ClientError::AlreadyExists { .. }
            | ClientError::NotModified { .. } => Self::Refused,
            ClientError::PermissionDenied { .. } | ClientError::Unauthenticated { .. } => {
                Self::Final(failed(ErrorKind::Denied, error).hint(RIGHTS))
            }
            ClientError::NotImplemented { .. } | ClientError::NotSupported { .. } => {
                Self::Final(failed(ErrorKind::Unsupported, error))
            }
            ClientError::Generic { .. } => of_generic(error),
            _ => Self::Final(failed(ErrorKind::Unexpected, error)),
        }
    }
}

fn of_generic(error: ClientError) -> Failure {
    match status(&error) {
        Some(501) => Failure::Final(failed(ErrorKind::Unsupported, error)),
        Some(408 | 429 | 500..) => Failure::Passing(failed(ErrorKind::Unavailable, error)),
        Some(_) => Failure::Final(failed(ErrorKind::Unexpected, error)),
        None => Failure::Passing(failed(ErrorKind::Unavailable, error).hint(CREDENTIALS)),
    }
}

/// The status that a server has answered. The client's type that has it is private; its text is not.
fn status(error: &ClientError) -> Option<u16> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some((_, rest)) = error.to_string().split_once("status code: ") {
            return rest.get(..3)?.parse().ok();
        }
        cause = error.source();
    }
    None
}

fn is_about_the_bucket(text: &str) -> bool {
    ["NoSuchBucket", "ContainerNotFound", "bucket does not exist"].iter().any(|words| text.contains(words))
}

fn failed(kind: ErrorKind, error: ClientError) -> Error {
    Error::new(kind, "use the object store", "the store says").caused_by(error)
}

const RIGHTS: &str = "the fence reads, puts and lists objects below its prefix; without the right to list, a store may \
    answer so for an object that does not exist";
