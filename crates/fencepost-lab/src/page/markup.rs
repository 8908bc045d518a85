//! Text in markup.

use crate::fault::Fault;
use crate::pattern::Pattern;

/// The text, so that it is no markup, also inside quotes.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // They may stand in no markup at all.
            letter if letter.is_control() => escaped.push(' '),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// The name of a cell's place in the page.
pub(super) fn id(pattern: Pattern, fault: Fault) -> String {
    format!("{}-{}", pattern.to_string().replace('+', "-with-"), fault.name())
}
