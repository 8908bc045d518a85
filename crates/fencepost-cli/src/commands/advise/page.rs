//! One question as a page of lines for a terminal of any size.
//!
//! Pure, so that the sizes can be tested without a terminal.

use fencepost_advisor::{Question, wrapped};

use crate::args::UNKNOWN;
use crate::screen::{Line, Look};

/// A question as it is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) question: Question,
    /// Which it is, counted from 1, and of how many.
    pub(super) number: usize,
    pub(super) count: usize,
    /// Which answer is marked, counted from 0; the last is that one does not know.
    pub(super) marked: usize,
}

/// How much is said of each answer, where there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Detail {
    Names,
    MarkedMeaning,
    Meanings,
    MarkedExample,
    Examples,
}

impl Page {
    /// How many answers there are to choose from.
    pub(super) fn answers(&self) -> usize {
        self.question.choices().len() + 1
    }

    /// The marked answer, as it is written.
    pub(super) fn answer(&self) -> &'static str {
        self.question.choices().get(self.marked).map_or(UNKNOWN, |choice| choice.answer)
    }

    /// The lines, as much of them as fits.
    pub(super) fn lines(&self, columns: usize, rows: usize) -> Vec<Line> {
        use Detail::{Examples, MarkedExample, MarkedMeaning, Meanings, Names};
        let (columns, rows) = (columns.clamp(10, super::WIDEST), rows.max(1));
        let pages = [Examples, MarkedExample, Meanings, MarkedMeaning, Names];
        let pages = pages.map(|detail| self.with(detail, columns));
        let fitting = pages.iter().find(|lines| lines.len() <= rows);
        fitting.unwrap_or(&pages[pages.len() - 1]).iter().take(rows).cloned().collect()
    }

    fn with(&self, detail: Detail, columns: usize) -> Vec<Line> {
        let mut lines =
            set(&format!("fencepost advise: {} of {}", self.number, self.count), 0, columns, Look::Faint);
        lines.push(Line::blank());
        lines.extend(set(self.question.text(), 0, columns, Look::Strong));
        lines.push(Line::blank());
        for index in 0..self.answers() {
            lines.extend(self.choice(index, detail, columns));
        }
        lines.push(Line::blank());
        lines.extend(set(KEYS, 0, columns, Look::Faint));
        lines
    }

    fn choice(&self, index: usize, detail: Detail, columns: usize) -> Vec<Line> {
        let is_marked = index == self.marked;
        let (mark, look) = if is_marked { (">", Look::Strong) } else { (" ", Look::Plain) };
        let number = index + 1;
        let Some(choice) = self.question.choices().get(index) else {
            let text = format!("{mark} {number} {UNKNOWN}");
            let mut lines = vec![Line { text, look }];
            if detail >= Detail::Meanings || (is_marked && detail >= Detail::MarkedMeaning) {
                lines.extend(set("The worse is assumed.", 4, columns, Look::Plain));
            }
            return lines;
        };
        let mut lines = vec![Line { text: format!("{mark} {number} {}", choice.answer), look }];
        if detail >= Detail::Meanings || (is_marked && detail >= Detail::MarkedMeaning) {
            lines.extend(set(choice.meaning, 4, columns, Look::Plain));
        }
        if detail >= Detail::Examples || (is_marked && detail >= Detail::MarkedExample) {
            lines.extend(set(&format!("Such as {}.", choice.example), 4, columns, Look::Faint));
        }
        lines
    }
}

fn set(text: &str, indent: usize, columns: usize, look: Look) -> Vec<Line> {
    wrapped(text, indent, columns).lines().map(|line| Line { text: line.to_owned(), look }).collect()
}

const KEYS: &str = "Arrows, j and k, or a number: move. Enter: take. Left: back. Esc: end.";

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> impl Iterator<Item = Page> {
        let marked =
            |question: Question| (0..=question.choices().len()).map(move |marked| (question, marked));
        Question::ALL.into_iter().flat_map(marked).map(|(question, marked)| Page {
            question,
            number: 1,
            count: 6,
            marked,
        })
    }

    #[test]
    fn every_page_fits_and_shows_every_answer_and_the_keys() {
        for page in pages() {
            for (columns, rows) in [(80, 24), (40, 24), (30, 20), (200, 60)] {
                let lines = page.lines(columns, rows);
                assert!(lines.len() <= rows, "{page:?} {columns}x{rows}");
                assert!(lines.iter().all(|line| line.text.chars().count() <= columns), "{page:?} {columns}");
                let text: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
                for answer in page.question.choices().iter().map(|choice| choice.answer).chain([UNKNOWN]) {
                    assert!(
                        text.iter().any(|line| line.ends_with(&format!(" {answer}"))),
                        "{answer} in {text:?}"
                    );
                }
                assert!(text.join(" ").contains("Esc: end."), "{text:?}");
            }
        }
    }

    #[test]
    fn wide_page_explains_every_answer_with_an_example() {
        for page in pages() {
            for (columns, most) in [(80, true), (40, false)] {
                let text: Vec<String> = page.lines(columns, 24).into_iter().map(|line| line.text).collect();
                let text = text.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
                for (index, choice) in page.question.choices().iter().enumerate() {
                    assert!(text.contains(choice.meaning), "{} in {text}", choice.meaning);
                    assert!(!(most || index == page.marked) || text.contains(choice.example), "{text}");
                }
            }
        }
    }

    #[test]
    fn marked_answer_is_seen_without_colours() {
        for page in pages() {
            let lines = page.lines(80, 24);
            let marked: Vec<&Line> = lines.iter().filter(|line| line.text.starts_with('>')).collect();
            assert_eq!(marked.len(), 1);
            assert!(marked[0].text.ends_with(page.answer()) && marked[0].look == Look::Strong);
        }
    }

    #[test]
    fn tiny_terminal_gets_what_fits() {
        for page in pages() {
            assert!(page.lines(5, 3).len() <= 3);
        }
    }
}
