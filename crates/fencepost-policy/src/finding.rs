//! What is wrong with a configuration, and how it is told: `file:line:column: what`, the line itself, and what to do.

use std::error::Error as StdError;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Probably not what was meant.
    Warning,
    /// Nothing runs with it.
    Error,
}

/// A place in the file, counted from 1; columns count letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The letter of the line.
    pub column: usize,
}

/// One thing that was found. Its `Display` is a text of several lines for people, without colours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    severity: Severity,
    path: PathBuf,
    message: String,
    hint: Option<String>,
    excerpt: Option<Excerpt>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Excerpt {
    position: Position,
    line: String,
    marked: Range<usize>,
}

impl Finding {
    pub(crate) fn new(severity: Severity, path: &Path, message: impl Into<String>) -> Self {
        Self { severity, path: path.to_owned(), message: message.into(), hint: None, excerpt: None }
    }

    pub(crate) fn at(mut self, position: Position, line: String, marked: Range<usize>) -> Self {
        self.excerpt = Some(Excerpt { position, line, marked });
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same, where it does not keep anything from running: it is about another file.
    pub fn as_warning(mut self) -> Self {
        self.severity = self.severity.min(Severity::Warning);
        self
    }

    /// How bad it is.
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The place in the file; `None` where the whole file is meant.
    pub fn position(&self) -> Option<Position> {
        self.excerpt.as_ref().map(|excerpt| excerpt.position)
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do about it.
    pub fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The same text as its `Display`, with colours for a terminal.
    pub fn styled(&self) -> String {
        self.render(&Renderer::styled())
    }

    fn render(&self, renderer: &Renderer) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
            Severity::Note => Level::NOTE,
        };
        let Some(Excerpt { position, line, marked }) = &self.excerpt else {
            let help = self.hint.as_ref().map(|hint| format!("\n  = help: {hint}"));
            return self.headline() + &help.unwrap_or_default();
        };
        let mark = AnnotationKind::Primary.span(marked.clone());
        let snippet = Snippet::source(line).line_start(position.line).fold(false).annotation(mark);
        let help = self.hint.as_ref().map(|hint| Level::HELP.message(hint));
        let group = Group::with_level(level).element(snippet).elements(help);
        format!("{}\n{}", self.headline(), renderer.render(&[group]))
    }

    fn headline(&self) -> String {
        let place = self.position().map(|at| format!("{}:{}:", at.line, at.column)).unwrap_or_default();
        let severity = match self.severity {
            Severity::Error => "",
            Severity::Warning => "warning: ",
            Severity::Note => "note: ",
        };
        format!("{}:{place} {severity}{}", self.path.display(), self.message)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(&Renderer::plain()))
    }
}

/// Why there is no usable configuration: one finding at least, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    findings: Vec<Finding>,
}

impl ConfigError {
    /// Everything that was found.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The same text as its `Display`, with colours for a terminal.
    pub fn styled(&self) -> String {
        let texts: Vec<String> = self.findings.iter().map(Finding::styled).collect();
        texts.join("\n")
    }

    /// What was found, once each and in the order of the file.
    pub(crate) fn of(mut findings: Vec<Finding>) -> Self {
        findings.sort_by_key(Finding::position);
        findings.dedup();
        Self { findings }
    }

    /// `Ok` if nothing was found.
    pub(crate) fn unless_empty(findings: Vec<Finding>) -> Result<(), Self> {
        if findings.is_empty() { Ok(()) } else { Err(Self::of(findings)) }
    }
}

impl From<Finding> for ConfigError {
    fn from(finding: Finding) -> Self {
        Self { findings: vec![finding] }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.findings.iter().map(Finding::to_string).collect();
        f.write_str(&texts.join("\n"))
    }
}

impl StdError for ConfigError {}
