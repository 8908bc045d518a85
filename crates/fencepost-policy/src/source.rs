//! The text of the file, for messages that point into it.
//!
//! Invariant: what leaves here is one line at most, without its secrets.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::finding::{Finding, Position, Severity};
use crate::redact::{everything, has_long_quotes, hide, secrets};

/// A file that was read.
#[derive(Clone)]
pub(crate) struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    pub(crate) fn new(path: &Path, text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// An error at `span`.
    pub(crate) fn error(&self, span: Range<usize>, message: impl Into<String>) -> Finding {
        self.finding(Severity::Error, span, message)
    }

    /// A finding at `span`, or at what of it stands on its first line.
    pub(crate) fn finding(
        &self,
        severity: Severity,
        span: Range<usize>,
        message: impl Into<String>,
    ) -> Finding {
        let line = self.line_around(span.start);
        self.quoting(severity, span, message, &secrets(&self.text[line]))
    }

    /// An error of the syntax. Behind the quotes of a long string nobody knows where it ends, so nothing is shown there.
    pub(crate) fn syntax_error(&self, span: Range<usize>, message: impl Into<String>) -> Finding {
        let line = self.line_around(span.start);
        let unclear = has_long_quotes(&self.text[..line.end]);
        let hidden = if unclear { everything(&self.text[line]) } else { secrets(&self.text[line]) };
        self.quoting(Severity::Error, span, message, &hidden)
    }

    fn quoting(
        &self,
        severity: Severity,
        span: Range<usize>,
        message: impl Into<String>,
        hidden: &[Range<usize>],
    ) -> Finding {
        let line = self.line_around(span.start);
        let start = self.text.floor_char_boundary(span.start);
        let end = self.text.floor_char_boundary(span.end).clamp(start, line.end.max(start));
        let (excerpt, marked) = hide(&self.text[line.clone()], hidden, start - line.start..end - line.start);
        Finding::new(severity, &self.path, message).at(self.position(start), excerpt, marked)
    }

    /// The place of `part` inside `span`, if it is spelled there as it is.
    pub(crate) fn find(&self, part: &str, span: &Range<usize>) -> Option<Range<usize>> {
        let at = self.text.get(span.clone())?.find(part)? + span.start;
        Some(at..at + part.len())
    }

    /// The number of the line at `offset`, counted from 1.
    pub(crate) fn line(&self, offset: usize) -> usize {
        self.position(offset).line
    }

    fn position(&self, offset: usize) -> Position {
        let before = &self.text[..self.text.floor_char_boundary(offset)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Position { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
    }

    fn line_around(&self, offset: usize) -> Range<usize> {
        let offset = self.text.floor_char_boundary(offset);
        let start = self.text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
        let end = self.text[offset..].find('\n').map_or(self.text.len(), |newline| newline + offset);
        let line = self.text[start..end].trim_end_matches('\r');
        start..start + line.len().max(offset - start)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({})", self.path.display())
    }
}
