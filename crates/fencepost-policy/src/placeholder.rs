//! Places for secrets in a text: `${VAR}` and `${file:/path}`, and where their values come from.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::search::Surroundings;

/// A file of a secret is not larger.
const MOST_BYTES: u64 = 64 * 1024;

/// Where a secret comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Variable(String),
    File(PathBuf),
}

/// A part of a text with places for secrets.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Secret(Origin),
    Broken(&'static str),
}

/// Splits `text` at its places for secrets; `$${` is the text `${`.
pub(crate) fn pieces(text: &str) -> Vec<(Range<usize>, Piece)> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find("${").map(|at| at + from) {
        let escaped = text[from..at].ends_with('$');
        let plain_end = if escaped { at - 1 } else { at };
        found.push((from..plain_end, Piece::Text(text[from..plain_end].to_owned())));
        let (end, piece) = match text[at..].find('}') {
            _ if escaped => (at + 2, Piece::Text("${".to_owned())),
            None => (text.len(), Piece::Broken("this `${` has no `}`")),
            Some(length) => {
                let origin = Origin::read(&text[at + 2..at + length]);
                (at + length + 1, origin.map_or_else(Piece::Broken, Piece::Secret))
            }
        };
        found.push((plain_end..end, piece));
        from = end;
    }
    found.push((from..text.len(), Piece::Text(text[from..].to_owned())));
    found.retain(|(at, _)| !at.is_empty());
    found
}

impl Piece {
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Secret(_) | Self::Broken(_) => None,
        }
    }
}

impl Origin {
    fn read(inner: &str) -> Result<Self, &'static str> {
        if let Some(path) = inner.strip_prefix("file:") {
            return if path.starts_with('/') {
                Ok(Self::File(PathBuf::from(path)))
            } else {
                Err("the path of a secret must be absolute")
            };
        }
        let named = inner.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if named && inner.starts_with(|first: char| !first.is_ascii_digit()) {
            Ok(Self::Variable(inner.to_owned()))
        } else {
            Err("this is no name of a variable")
        }
    }

    /// The secret itself, or why there is none.
    pub(crate) fn value(&self, surroundings: &Surroundings<'_>) -> Result<String, String> {
        let value = match self {
            Self::Variable(name) => (surroundings.variable)(name)
                .ok_or("is not set")?
                .into_string()
                .map_err(|_| "is not UTF-8")?,
            Self::File(path) => read_secret(path).map_err(|error| format!("cannot be read: {error}"))?,
        };
        if value.is_empty() { Err("is empty".to_owned()) } else { Ok(value) }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "the variable {name}"),
            Self::File(path) => write!(f, "the secret file {}", path.display()),
        }
    }
}

/// The content of a file without the newline at its end.
fn read_secret(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too large for a secret"));
    }
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}
