//! One file in Rust as the rules see it: its tokens, its declarations, and which lines are test code.
//!
//! Rules look at tokens, not at text, so that a word in a comment or in a string is no violation, and code inside a
//! macro call is none the less seen.

use std::ops::{Range, RangeInclusive};

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};

use super::declarations::{Declarations, Function, Name};

/// A parsed file.
#[derive(Debug)]
pub(super) struct Source {
    tokens: Vec<Token>,
    declarations: Declarations,
    without_literals: String,
}

#[derive(Debug)]
struct Token {
    /// Empty for a literal.
    text: String,
    line: usize,
    bytes: Range<usize>,
}

impl Source {
    pub(super) fn parse(text: &str) -> syn::Result<Self> {
        let stream: TokenStream = text.parse()?;
        let declarations = Declarations::of(&syn::parse2(stream.clone())?);
        let mut tokens = Vec::new();
        flatten(stream, &mut tokens);
        let without_literals = blank_literals(text, &tokens);
        Ok(Self { tokens, declarations, without_literals })
    }

    /// The names that the file declares, without those that a foreign trait prescribes.
    pub(super) fn names(&self) -> &[Name] {
        &self.declarations.names
    }

    /// The functions that have a body.
    pub(super) fn functions(&self) -> &[Function] {
        &self.declarations.functions
    }

    /// The lines of the items that are compiled for tests only.
    pub(super) fn tests(&self) -> &[RangeInclusive<usize>] {
        &self.declarations.tests
    }

    /// Whether the line is test code.
    pub(super) fn is_test(&self, line: usize) -> bool {
        self.tests().iter().any(|lines| lines.contains(&line))
    }

    /// The text with its comments, but with blanks for its strings.
    pub(super) fn without_literals(&self) -> &str {
        &self.without_literals
    }

    /// The strings, letters and doc comments: the line of each, and its place in the text.
    pub(super) fn texts(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let literals = self.tokens.iter().filter(|token| token.text.is_empty());
        literals.map(|token| (token.line, token.bytes.clone()))
    }

    /// The lines where the tokens `pattern` stand one after the other.
    pub(super) fn lines_of(&self, pattern: &[&str]) -> impl Iterator<Item = usize> {
        let found = self.tokens.windows(pattern.len()).filter(move |window| matches(window, pattern));
        found.map(|window| window[0].line)
    }

    /// The lines of the attributes that hold the tokens `pattern`.
    pub(super) fn attributes_with(&self, pattern: &[&str]) -> impl Iterator<Item = usize> {
        self.attributes()
            .filter(|tokens| tokens.windows(pattern.len()).any(|window| matches(window, pattern)))
            .map(|tokens| tokens[0].line)
    }

    fn attributes(&self) -> impl Iterator<Item = &[Token]> {
        let starts = (0..self.tokens.len()).filter(|&start| {
            matches(&self.tokens[start..], &["#", "["]) || matches(&self.tokens[start..], &["#", "!", "["])
        });
        starts.map(|start| &self.tokens[start..=self.end_of_attribute(start)])
    }

    fn end_of_attribute(&self, start: usize) -> usize {
        let mut depth = 0_usize;
        let is_end = |token: &Token| {
            depth = match token.text.as_str() {
                "[" => depth + 1,
                "]" => depth - 1,
                _ => depth,
            };
            token.text == "]" && depth == 0
        };
        start
            + self.tokens[start..].iter().position(is_end).expect("brackets are balanced in what was parsed")
    }
}

fn matches(tokens: &[Token], pattern: &[&str]) -> bool {
    tokens.len() >= pattern.len() && tokens.iter().zip(pattern).all(|(token, text)| token.text == *text)
}

fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    for tree in stream {
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = brackets(group.delimiter());
                tokens.push(token(open, group.span_open()));
                flatten(group.stream(), tokens);
                tokens.push(token(close, group.span_close()));
            }
            TokenTree::Literal(literal) => tokens.push(token("", literal.span())),
            other => tokens.push(token(&other.to_string(), other.span())),
        }
    }
}

fn brackets(delimiter: Delimiter) -> (&'static str, &'static str) {
    match delimiter {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::None => ("", ""),
    }
}

fn token(text: &str, span: Span) -> Token {
    Token { text: text.to_owned(), line: span.start().line, bytes: span.byte_range() }
}

/// A doc comment is a literal to the parser, and stays.
fn blank_literals(text: &str, tokens: &[Token]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for literal in tokens.iter().filter(|token| token.text.is_empty()).map(|token| token.bytes.clone()) {
        if !bytes[literal.clone()].starts_with(b"/") {
            bytes[literal].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        }
    }
    String::from_utf8(bytes).expect("whole literals were replaced by blanks")
}
