//! Text in lines that a terminal of 80 columns shows whole.
//!
//! Invariant: what a server says of itself cannot move the cursor.

/// How wide a line is at most, unless one word is wider.
const WIDTH: usize = 80;

/// `text` after `head`, in lines; those after the first begin below its first word.
pub(crate) fn wrapped(head: &str, text: &str) -> Vec<String> {
    let words: Vec<String> = text.split_whitespace().map(harmless).collect();
    let indent = head.chars().count();
    let text = fencepost_advisor::wrapped(&words.join(" "), indent, WIDTH);
    let line = |(index, line): (usize, &str)| match index {
        0 => format!("{head}{}", line.chars().skip(indent).collect::<String>()),
        _ => line.to_owned(),
    };
    text.lines().enumerate().map(line).collect()
}

/// `number` and the name of what is counted.
pub(crate) fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// `text` without what would end a line or move the cursor.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_after_the_first_begin_below_its_first_word() {
        let text = "word ".repeat(20);
        let lines = wrapped("  head  ", &text);
        assert_eq!(lines.len(), 2);
        assert!(lines[1].starts_with("        word"), "{lines:?}");
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_it_has_to_be(text in "[a-z\u{1b} ]{0,300}") {
            let lines = wrapped("> ", &text);
            let longest = text.split_whitespace().map(|word| word.chars().count()).max().unwrap_or_default();
            prop_assert!(lines.iter().all(|line| line.chars().count() <= WIDTH.max(longest + 2)));
            let all = lines.concat();
            prop_assert!(!all.contains(char::is_control));
            let words = |text: &str| text.split_whitespace().count();
            prop_assert_eq!(words(&lines.join(" ")), words(&text) + 1);
        }
    }
}
