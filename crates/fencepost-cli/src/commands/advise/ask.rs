//! Asking the questions: one screen each, or, where the terminal cannot move its cursor, one after the other.

use std::io::BufRead;

use fencepost_advisor::{Answers, Question};

use super::page::Page;
use crate::args::UNKNOWN;
use crate::exit::Exit;
use crate::printer::{Printer, Stream};
use crate::screen::{Event, Key, Screen, is_dumb};

/// What a shell reports for a process that Ctrl-C has ended.
const INTERRUPTED: Exit = Exit(130);

/// The answers to the questions `open`, beside those that are known.
///
/// # Errors
/// The exit code, where no more answers come.
pub(super) fn questions(known: Answers, open: &[Question], printer: Printer) -> Result<Answers, Exit> {
    if is_dumb() { in_lines(known, open, printer) } else { on_screens(known, open, printer) }
}

/// The names of the locks, for a rule that is to be written; asks until `is_one` takes the glob, which says why not.
///
/// # Errors
/// The exit code, where nobody can be asked.
pub(super) fn glob(printer: Printer, is_one: impl Fn(&str) -> bool) -> Result<String, Exit> {
    if !super::can_ask() {
        printer.error("--write needs --match: which locks the rule is for");
        return Err(Exit::USAGE);
    }
    loop {
        printer.show("Which locks is the rule for? A glob over their names, such as ledger/**: ");
        let line = line().ok_or_else(|| unanswered(printer))?;
        if !line.is_empty() && is_one(&line) {
            return Ok(line);
        }
    }
}

fn on_screens(known: Answers, open: &[Question], printer: Printer) -> Result<Answers, Exit> {
    let failed = |error: std::io::Error| {
        printer.error(format_args!("the terminal cannot be used: {error}"));
        printer.hint("answer by flags, or set TERM=dumb to be asked line by line");
        Exit::BUG
    };
    let mut screen = Screen::open(Stream::Stderr, printer).map_err(failed)?;
    let mut pages: Vec<Page> = (1..)
        .zip(open)
        .map(|(number, question)| Page { question: *question, number, count: open.len(), marked: 0 })
        .collect();
    let mut at = 0;
    while at < pages.len() {
        let (columns, rows) = screen.size();
        screen.draw(&pages[at].lines(columns, rows));
        match screen.next().map_err(failed)? {
            Event::Pressed(Key::End | Key::Interrupt) => return Err(INTERRUPTED),
            Event::Pressed(Key::Enter) => at += 1,
            Event::Pressed(Key::Back) => at = at.saturating_sub(1),
            Event::Pressed(key) => pages[at].marked = moved(&pages[at], key),
            Event::Resized | Event::Rung => {}
            Event::Signalled(signal) => return Err(Exit::signalled(signal)),
            Event::HungUp => return Err(Exit::signalled(libc::SIGHUP)),
        }
    }
    drop(screen);
    let mut answers = known;
    for page in pages {
        answers.answer(page.question, page.answer());
    }
    Ok(answers)
}

/// Which answer is marked after `key`.
fn moved(page: &Page, key: Key) -> usize {
    let last = page.answers() - 1;
    match key {
        Key::Up => page.marked.checked_sub(1).unwrap_or(last),
        Key::Down if page.marked == last => 0,
        Key::Down => page.marked + 1,
        Key::Number(number) if number <= last + 1 => number - 1,
        _ => page.marked,
    }
}

fn in_lines(known: Answers, open: &[Question], printer: Printer) -> Result<Answers, Exit> {
    let mut answers = known;
    for question in open {
        answers.answer(*question, in_a_line(*question, printer).ok_or_else(|| unanswered(printer))?);
    }
    Ok(answers)
}

/// Asks until there is an answer; `None` where the input has ended.
fn in_a_line(question: Question, printer: Printer) -> Option<&'static str> {
    let choices = question.choices();
    printer.show(&format!("\n{}\n", question.text()));
    for (number, choice) in (1..).zip(choices) {
        printer
            .show(&format!("  {number} {}: {} Such as {}.\n", choice.answer, choice.meaning, choice.example));
    }
    printer.show(&format!("  {} {UNKNOWN}: the worse is assumed.\n", choices.len() + 1));
    let answers: Vec<&str> = choices.iter().map(|choice| choice.answer).chain([UNKNOWN]).collect();
    loop {
        printer.show(&format!("Number, 1 to {}: ", answers.len()));
        let line = line()?;
        let by_number = line.parse::<usize>().ok().and_then(|number| answers.get(number.checked_sub(1)?));
        if let Some(answer) = by_number.or_else(|| answers.iter().find(|answer| **answer == line)) {
            return Some(answer);
        }
    }
}

fn line() -> Option<String> {
    let mut line = String::new();
    let length = std::io::stdin().lock().read_line(&mut line).ok()?;
    (length > 0).then(|| line.trim().to_owned())
}

fn unanswered(printer: Printer) -> Exit {
    printer.show("\n");
    printer.error("there was no answer, and so there is no advice");
    Exit::USAGE
}
