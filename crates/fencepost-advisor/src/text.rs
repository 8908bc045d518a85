//! The advice to be read, for a terminal of any width.

use std::fmt::Write;

use crate::advice::Advice;
use crate::alternative::Alternative;
use crate::risk::{Fault, Risk};

impl Advice {
    /// The advice in lines of at most `width` letters where its words allow that, without the rule.
    pub fn text(&self, width: usize) -> String {
        let mut text = wrapped(&format!("Use {}.", self.title()), 0, width);
        for warning in &self.warnings {
            text += "\n";
            text += &hanging("! ", warning, width);
        }
        text += "\nWhy\n";
        for (question, reason) in &self.reasons {
            let answer = self.answers.to(*question).unwrap_or("?");
            text += &row(&format!("{} = {answer}", question.key()), 24, reason, width);
        }
        text += "\nWhat can go wrong\n";
        for risk in &self.risks {
            text += &row(risk.fault.name(), 16, &consequence(risk), width);
        }
        text += "\nWhat it costs\n";
        text += &row("services", 16, self.cost.services, width);
        text += &row("connections", 16, &self.cost.connections, width);
        text += &row("round trips", 16, &self.cost.round_trips, width);
        text += "\nWhat else there is\n";
        for alternative in &self.alternatives {
            let change = format!("{}: {}", title_of(alternative), alternative.change);
            text += &row(alternative.direction.name(), 16, &change, width);
        }
        text
    }

    /// The lock in words: `postgres with a fence`.
    pub fn title(&self) -> String {
        format!("{}{}", self.pattern.name(), if self.fence { " with a fence" } else { "" })
    }
}

impl Alternative {
    /// It in words: `etcd with a fence`, `no lock`.
    pub fn title(&self) -> String {
        title_of(self)
    }
}

fn title_of(alternative: &Alternative) -> String {
    match alternative.pattern {
        None => "no lock".to_owned(),
        Some(pattern) if alternative.fence => format!("{} with a fence", pattern.name()),
        Some(pattern) => pattern.name().to_owned(),
    }
}

fn consequence(risk: &Risk) -> String {
    match risk.older_write {
        None if risk.fault == Fault::None => "one at a time".to_owned(),
        None => format!("one at a time: {}", risk.what_happens),
        Some(older) => format!("two may overlap: {}; {older}", risk.what_happens),
    }
}

/// A row with a label in a column of its own; on a narrow terminal the label gets a line of its own.
fn row(label: &str, column: usize, text: &str, width: usize) -> String {
    if width < column + LEAST {
        return format!("  {label}\n{}", wrapped(text, 4, width));
    }
    let lines = wrapped(text, column + 2, width);
    format!("  {label:<column$}{}", lines.trim_start())
}

fn hanging(mark: &str, text: &str, width: usize) -> String {
    format!("{mark}{}", wrapped(text, mark.len(), width).trim_start())
}

/// `text` in lines of at most `width` letters, each behind `indent` blanks. A word that is longer stays whole.
pub fn wrapped(text: &str, indent: usize, width: usize) -> String {
    let room = width.saturating_sub(indent).max(1);
    let mut lines = String::new();
    let mut line = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let letters = word.chars().count();
        if length > 0 && length + 1 + letters > room {
            let _ = writeln!(lines, "{:indent$}{line}", "");
            line.clear();
            length = 0;
        }
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        line.push_str(word);
        length += letters;
    }
    let _ = writeln!(lines, "{:indent$}{line}", "");
    lines
}

/// The least room for a text beside its label.
const LEAST: usize = 30;
