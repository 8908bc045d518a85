//! The fence as functions on the server, for clients in any language: putting them there, and taking them away.
//!
//! Invariant: a library that somebody else has put there under this name stays as it is.

use fencepost_core::{Error, ErrorKind, Result};

use crate::failure::refuse;
use crate::fence::{Asked, RedisFence};
use crate::resp::Reply;
use crate::script::FUNCTIONS;

/// What the library is called on the server.
const NAME: &[u8] = b"fencepost";

/// What every version of the library begins with.
const BEGINNING: &str = "#!lua name=fencepost\n-- The rule of the fence";

pub(crate) async fn install(fence: &RedisFence) -> Result<Vec<String>> {
    let done = match present(fence).await? {
        Some(text) if text == FUNCTIONS => {
            return Ok(vec!["the functions fencepost_* are there already".to_owned()]);
        }
        Some(text) if !text.starts_with(BEGINNING) => return Err(foreign("install the fence")),
        Some(_) => "replaced the functions fencepost_* by those of this version",
        None => "made the functions fencepost_seal, fencepost_check and fencepost_write",
    };
    change(fence, "install the fence", &[b"FUNCTION", b"LOAD", b"REPLACE", FUNCTIONS.as_bytes()]).await?;
    Ok(vec![done.to_owned()])
}

pub(crate) async fn uninstall(fence: &RedisFence) -> Result<Vec<String>> {
    match present(fence).await? {
        None => Ok(Vec::new()),
        Some(text) if !text.starts_with(BEGINNING) => Err(foreign("uninstall the fence")),
        Some(_) => {
            change(fence, "uninstall the fence", &[b"FUNCTION", b"DELETE", NAME]).await?;
            Ok(vec!["removed the functions fencepost_*".to_owned()])
        }
    }
}

async fn change(fence: &RedisFence, operation: &'static str, words: &[&[u8]]) -> Result<()> {
    let reply = fence.change(operation, &Asked::Command(words)).await?;
    refuse(reply).map(drop).map_err(|error| error.during(operation))
}

/// The text of the library of this name, if there is one.
async fn present(fence: &RedisFence) -> Result<Option<String>> {
    let reply = fence.ask(&[b"FUNCTION", b"LIST", b"LIBRARYNAME", NAME, b"WITHCODE"]).await?;
    let library = reply.list().first();
    Ok(library
        .map(|library| library.value("library_code").and_then(Reply::text).unwrap_or_default().to_owned()))
}

fn foreign(operation: &'static str) -> Error {
    let what = "the server has a library of functions named fencepost that is not of fencepost";
    Error::new(ErrorKind::Unsupported, operation, what).hint("look at it: FUNCTION LIST WITHCODE")
}
