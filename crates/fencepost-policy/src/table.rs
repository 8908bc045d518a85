//! Reads one value of the file at a time, and notes what is wrong with it instead of stopping there.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::duration;
use crate::finding::Finding;
use crate::source::Source;

/// What has been found in one file so far.
pub(crate) struct Reader<'a> {
    pub(crate) source: &'a Source,
    pub(crate) wrong: Vec<Finding>,
}

/// A table, and what it is to its readers: "a rule", "a backend".
#[derive(Clone)]
pub(crate) struct Table<'a> {
    fields: &'a DeTable<'a>,
    what: &'static str,
    pub(crate) span: Range<usize>,
}

pub(crate) type Value<'a> = Spanned<DeValue<'a>>;

impl<'a> Table<'a> {
    pub(crate) fn new(fields: &'a DeTable<'a>, what: &'static str, span: Range<usize>) -> Self {
        Self { fields, what, span }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a Value<'a>> {
        self.fields.get(key)
    }

    /// The entries in the order of the file.
    pub(crate) fn entries(&self) -> Vec<(Spanned<&'a str>, &'a Value<'a>)> {
        let entry = |(key, value): (&'a Spanned<DeString<'a>>, _)| {
            (Spanned::new(key.span(), &**key.get_ref()), value)
        };
        let mut entries: Vec<_> = self.fields.iter().map(entry).collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        entries
    }
}

impl<'a> Reader<'a> {
    /// Notes that `message` is wrong at `span`.
    pub(crate) fn refuse(&mut self, span: Range<usize>, message: impl Into<String>, hint: impl Into<String>) {
        self.wrong.push(self.source.error(span, message).hint(hint));
    }

    /// `value` as a table that has no other keys than `known`; any, where `known` is empty.
    pub(crate) fn table(
        &mut self,
        value: &'a Value<'a>,
        what: &'static str,
        known: &[&str],
    ) -> Option<Table<'a>> {
        let DeValue::Table(fields) = value.get_ref() else {
            self.refuse(
                value.span(),
                format!("{what} is a table"),
                "write its name in brackets and its keys below it",
            );
            return None;
        };
        let table = Table::new(fields, what, value.span());
        if !known.is_empty() {
            self.refuse_unknown_keys(&table, known);
        }
        Some(table)
    }

    /// Notes the keys of `table` that are not among `known`.
    pub(crate) fn refuse_unknown_keys(&mut self, table: &Table<'_>, known: &[&str]) {
        for (key, _) in table.entries() {
            let name = key.get_ref();
            if !known.contains(name) {
                let takes = format!("{} takes {}", table.what, known.join(", "));
                self.refuse(key.span(), format!("unknown key {name:?}"), meant(name, known).unwrap_or(takes));
            }
        }
    }

    pub(crate) fn required(&mut self, table: &Table<'a>, key: &str) -> Option<Spanned<&'a str>> {
        if table.get(key).is_none() {
            self.refuse(
                table.span.clone(),
                format!("{} needs a {key:?}", table.what),
                format!("add `{key} = \"...\"`"),
            );
        }
        self.text(table, key)
    }

    pub(crate) fn text(&mut self, table: &Table<'a>, key: &str) -> Option<Spanned<&'a str>> {
        let value = table.get(key)?;
        let text = value.get_ref().as_str();
        if text.is_none() {
            self.refuse(
                value.span(),
                format!("{key:?} is a text"),
                format!("write it in quotes: `{key} = \"...\"`"),
            );
        }
        text.map(|text| Spanned::new(value.span(), text))
    }

    pub(crate) fn duration(&mut self, table: &Table<'a>, key: &str) -> Option<Spanned<Duration>> {
        let value = table.get(key)?;
        let Some(text) = value.get_ref().as_str() else {
            let number = value.get_ref().as_integer().and_then(|number| number.as_str().parse().ok());
            let example = format!("{}s", number.unwrap_or(30_u32));
            self.refuse(
                value.span(),
                format!("{key:?} is a duration with a unit, in quotes"),
                format!("write it like `{key} = {example:?}`"),
            );
            return None;
        };
        let read =
            duration::parse(text).map_err(|error| self.refuse(value.span(), error.message(), error.hint()));
        read.ok().map(|duration| Spanned::new(value.span(), duration))
    }

    pub(crate) fn flag(&mut self, table: &Table<'a>, key: &str) -> Option<bool> {
        let value = table.get(key)?;
        let flag = value.get_ref().as_bool();
        if flag.is_none() {
            self.refuse(value.span(), format!("{key:?} is true or false"), "write it without quotes");
        }
        flag
    }

    /// One of a few words.
    pub(crate) fn word<T: Copy>(&mut self, table: &Table<'a>, key: &str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(table, key)?;
        let found = words.iter().find(|(word, _)| word == text.get_ref());
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let hint = meant(text.get_ref(), &known).unwrap_or_else(|| format!("write {}", quoted(&known)));
            self.refuse(text.span(), format!("{key:?} cannot be {:?}", text.get_ref()), hint);
        }
        found.map(|(_, value)| *value)
    }

    pub(crate) fn array(&mut self, table: &Table<'a>, key: &str) -> &'a [Value<'a>] {
        match table.get(key).map(|value| (value, value.get_ref())) {
            None => &[],
            Some((_, DeValue::Array(values))) => values,
            Some((value, _)) => {
                self.refuse(
                    value.span(),
                    format!("{key:?} is a list"),
                    format!("write it in brackets: `{key} = [\"...\"]`"),
                );
                &[]
            }
        }
    }
}

/// The hint that names the nearest of `known`, where one is near.
pub(crate) fn meant(wrong: &str, known: &[&str]) -> Option<String> {
    let distance = |word: &&&str| strsim::damerau_levenshtein(wrong, word);
    let nearest = known.iter().min_by_key(distance)?;
    (distance(&nearest) <= 1 + wrong.chars().count() / 4)
        .then(|| format!("did you mean `{}`?", nearest.escape_debug()))
}

pub(crate) fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" or ")
}
