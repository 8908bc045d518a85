//! A list of partitions with their answers, for `advise --from`: many rules at once.

use std::path::Path;

use fencepost_advisor::Answers;
use toml::Spanned;

use crate::finding::ConfigError;
use crate::globs;
use crate::read::{self, ANSWER_KEYS};
use crate::source::Source;
use crate::table::{Reader, Table, Value};
use crate::template::spells_out_password;

/// Some locks, and what is known of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Partition {
    /// The glob over the locks' names.
    pub glob: String,
    /// What is known.
    pub answers: Answers,
    /// The fence, by its URL.
    pub fence: Option<String>,
    /// Why it is so.
    pub because: Option<String>,
}

/// Reads a list of partitions: `[[partitions]]` with `match`, the answers as in a rule, `fence` and `because`.
///
/// # Errors
/// All that is wrong with it.
///
/// # Examples
/// ```
/// use std::path::Path;
///
/// let text = "[[partitions]]\nmatch = \"events/**\"\non_overlap = \"absorbed\"\n";
/// let partitions = fencepost_policy::partitions(Path::new("partitions.toml"), text)?;
/// assert_eq!(partitions[0].glob, "events/**");
/// # Ok::<(), fencepost_policy::ConfigError>(())
/// ```
pub fn partitions(path: &Path, text: &str) -> Result<Vec<Partition>, ConfigError> {
    let source = Source::new(path, text);
    read::with_root(&source, |reader, root| {
        reader.refuse_unknown_keys(root, &["partitions"]);
        if root.entries().is_empty() {
            let hint = "write `[[partitions]]`, and below it `match = \"...\"` and the answers";
            reader.refuse(root.span.clone(), "there are no partitions", hint);
        }
        let mut known: Vec<Spanned<String>> = Vec::new();
        let values = reader.array(root, "partitions");
        values.iter().filter_map(|value| reader.partition(value, &mut known)).collect()
    })
}

impl<'a> Reader<'a> {
    fn partition(&mut self, value: &'a Value<'a>, known: &mut Vec<Spanned<String>>) -> Option<Partition> {
        let keys = [&["match", "because", "fence"], ANSWER_KEYS].concat();
        let table = self.table(value, "a partition", &keys)?;
        let glob = self.glob(&table, known);
        let answers = self.answers(&table);
        let mut owned = |key: &str| self.text(&table, key).map(|text| (*text.get_ref()).to_owned());
        let (because, fence) = (owned("because"), owned("fence"));
        if let Some(at) = table.get("fence").filter(|_| fence.as_deref().is_some_and(spells_out_password)) {
            let hint = "write `${VAR}` or `${file:/path}` in its place";
            self.refuse(at.span(), "the password in this URL would be shown, and written down", hint);
        }
        Some(Partition { glob: glob?, answers, fence, because })
    }

    fn glob(&mut self, table: &Table<'a>, known: &mut Vec<Spanned<String>>) -> Option<String> {
        let glob = self.required(table, "match")?;
        if let Err((problem, hint)) = globs::read(glob.get_ref()) {
            self.refuse(glob.span(), problem, hint);
            return None;
        }
        if let Some(other) = known.iter().find(|other| other.get_ref() == glob.get_ref()) {
            let line = self.source.line(other.span().start);
            let message = format!("{:?} is on line {line} already", glob.get_ref());
            self.refuse(glob.span(), message, "one of the two is enough");
            return None;
        }
        known.push(Spanned::new(glob.span(), (*glob.get_ref()).to_owned()));
        Some((*glob.get_ref()).to_owned())
    }
}
