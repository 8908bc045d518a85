//! URLs as the file has them, with `${VAR}` and `${file:/path}` where secrets go, and as they are once filled in.
//!
//! Invariant: what was filled in is never shown. `Display` and `Debug` of everything here print the text of the file,
//! and messages about the filled-in text do not quote it.

use std::fmt;
use std::ops::Range;

use fencepost_core::BackendUrl;

use crate::finding::Finding;
use crate::placeholder::{Origin, Piece, pieces};
use crate::redact::redacted;
use crate::search::Surroundings;
use crate::source::Source;

/// Stands for a secret while the rest of a URL is looked at; no URL has it otherwise.
pub(crate) const BLANK: &str = "\u{fffc}";

/// What a URL is for; not every kind is good for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Backend,
    Fence,
}

impl Role {
    /// Why a URL of `kind` cannot play it.
    pub(crate) fn refusal(self, kind: &str) -> Option<String> {
        match (self, kind) {
            (Self::Backend, "sqlite" | "s3" | "gs" | "az") => {
                Some(format!("{kind} is a fence and keeps no locks"))
            }
            (Self::Fence, "redlock") => {
                Some("redlock is no fence: its nodes do not agree on a mark".to_owned())
            }
            _ => None,
        }
    }
}

/// A URL that is not filled in yet.
#[derive(Clone)]
pub(crate) struct Template {
    written: String,
    pieces: Vec<(Range<usize>, Piece)>,
    role: Role,
    /// Where it stands in the file.
    pub(crate) span: Range<usize>,
}

impl Template {
    /// Reads `value`, which stands at `span` of `source`, and tells `wrong` what can be said without its secrets.
    pub(crate) fn read(
        source: &Source,
        value: &str,
        span: Range<usize>,
        role: Role,
        wrong: &mut Vec<Finding>,
    ) -> Self {
        let mut pieces = pieces(value);
        let mut rest = span.clone();
        for (at, piece) in &mut pieces {
            let found = source.find(&value[at.clone()], &rest);
            rest.start = found.as_ref().map_or(rest.start, |found| found.end);
            *at = found.unwrap_or_else(|| span.clone());
            if let Piece::Broken(why) = piece {
                wrong.push(
                    source
                        .error(at.clone(), *why)
                        .hint("write `${NAME}` or `${file:/path}`; `$${` is a plain `${`"),
                );
            }
        }
        let template = Self { written: redacted(value), pieces, role, span };
        match template.outline() {
            Some(Err(error)) => wrong.push(template.misfit(source, &error)),
            Some(Ok(url)) => wrong.extend(template.miscast(source, &url)),
            None => {}
        }
        template
    }

    /// What it is for.
    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// The URL with a blank for each secret; `None` if it begins with one, so that not even its kind is known.
    pub(crate) fn outline(&self) -> Option<fencepost_core::Result<BackendUrl>> {
        let known = matches!(self.pieces.first(), Some((_, Piece::Text(text))) if text.contains(':'));
        let plain = self.pieces.iter().all(|(_, piece)| matches!(piece, Piece::Text(_)));
        let text: String = self.pieces.iter().map(|(_, piece)| piece.text().unwrap_or(BLANK)).collect();
        (known || plain).then(|| text.parse())
    }

    /// Fills the secrets in.
    pub(crate) fn fill(
        &self,
        source: &Source,
        surroundings: &Surroundings<'_>,
    ) -> Result<BackendUrl, Vec<Finding>> {
        let mut text = String::new();
        let mut wrong = Vec::new();
        for (index, (at, piece)) in self.pieces.iter().enumerate() {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Broken(why) => wrong.push(source.error(at.clone(), *why)),
                Piece::Secret(origin) => match origin.value(surroundings) {
                    Ok(secret) if self.splits(index, &secret) => {
                        wrong.push(unencoded(source, at.clone(), origin));
                    }
                    Ok(secret) => text.push_str(&secret),
                    Err(problem) => wrong.push(source.error(at.clone(), format!("{origin} {problem}"))),
                },
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let url = text.parse::<BackendUrl>().map_err(|_| {
            let finding = source.error(self.span.clone(), "with its secrets filled in this is no URL");
            vec![finding.hint("it must begin with a scheme such as redis:, and be one line")]
        })?;
        match self.miscast(source, &url) {
            Some(finding) => Err(vec![finding]),
            None => Ok(url.shown_as(&self.written)),
        }
    }

    /// Whether the secret at `index` stands where a password does, and has a letter that ends one there.
    fn splits(&self, index: usize, secret: &str) -> bool {
        let plain = |pieces: &[(Range<usize>, Piece)]| -> String {
            pieces.iter().filter_map(|(_, piece)| piece.text()).collect()
        };
        let (before, after) = (plain(&self.pieces[..index]), plain(&self.pieces[index + 1..]));
        if before.contains('?') {
            return secret.contains(['&', '#']);
        }
        before.contains("//") && after.contains('@') && secret.contains(['@', '/', '?', '#'])
    }

    fn misfit(&self, source: &Source, error: &fencepost_core::Error) -> Finding {
        let message = error.to_string().replace(BLANK, "${...}");
        let finding = source.error(self.span.clone(), message);
        match error.advice() {
            Some(advice) => finding.hint(advice),
            None => finding,
        }
    }

    fn miscast(&self, source: &Source, url: &BackendUrl) -> Option<Finding> {
        self.role.refusal(url.kind()).map(|why| source.error(self.span.clone(), why))
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Template({self})")
    }
}

/// Whether a URL has a password in it by itself, and not a place for one.
pub fn spells_out_password(url: &str) -> bool {
    let hidden: String = pieces(url).iter().map(|(_, piece)| piece.text().unwrap_or("***")).collect();
    hidden.parse::<BackendUrl>().is_ok_and(|url| url.has_password())
}

fn unencoded(source: &Source, at: Range<usize>, origin: &Origin) -> Finding {
    let message = format!("{origin} has a letter that a password in a URL cannot have as it is");
    source
        .error(at, message)
        .hint("in the secret write %40 for @, %2F for /, %3F for ?, %23 for # and %26 for &")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_is_told_from_a_place_for_one() {
        for url in ["redis://u:pw@h", "redis://u:p${X}@h", "postgres://h/d?password=pw", "redis://:$${X}@h"] {
            assert!(spells_out_password(url), "{url}");
        }
        for url in ["redis://u:${PW}@h", "postgres://h/d?password=${file:/run/pw}", "redis://u@h", "marks"] {
            assert!(!spells_out_password(url), "{url}");
        }
    }
}
