//! The blocks of code in a page of `docs/`, each with the comment that says what the tests do with it.

/// A block of code, and the comment in front of it.
pub(crate) struct Block {
    pub(crate) comment: &'static str,
    pub(crate) language: &'static str,
    pub(crate) text: String,
}

impl Block {
    /// All blocks of a page.
    pub(crate) fn all_of(page: &'static str) -> Vec<Self> {
        let (mut blocks, mut before, mut open) = (Vec::new(), "", None);
        for line in page.lines() {
            match (line.strip_prefix("```"), open.take()) {
                (Some(language), None) => {
                    open = Some(Self { comment: before, language, text: String::new() });
                }
                (Some(_), Some(block)) => blocks.push(block),
                (None, Some(mut block)) => {
                    block.text += line;
                    block.text.push('\n');
                    open = Some(block);
                }
                (None, None) => {}
            }
            before = line;
        }
        blocks
    }

    /// What stands behind a word in the comment: the example that it names.
    pub(crate) fn name(&self, word: &str) -> Option<&'static str> {
        self.comment.strip_prefix("<!-- ")?.strip_suffix(" -->")?.strip_prefix(word)?.strip_prefix(": ")
    }
}
