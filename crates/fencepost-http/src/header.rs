//! The header in which a caller shows its stamp: an Item of RFC 9651, read strictly.
//!
//! Invariant: what `fencing_header` writes is read as the same stamp, and what is in doubt is refused, never guessed.

use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::Chars;

use fencepost_core::{FencingToken, LockName, Stamp, StampHolder};
use http::{HeaderMap, HeaderName, HeaderValue};

/// The name of the header.
pub const FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");

/// The header that shows `stamp` to a service behind a [`FencingLayer`](crate::FencingLayer).
///
/// # Examples
/// ```
/// use fencepost_core::Stamp;
/// use fencepost_http::fencing_header;
///
/// let (lock, holder) = ("ledger/1".parse()?, Default::default());
/// let (name, value) = fencing_header(&Stamp { lock, token: "1764420000123457".parse()?, holder });
/// assert_eq!(name, "fencing-token");
/// assert_eq!(value, r#""1764420000123457";lock="ledger/1";holder="""#);
/// # Ok::<(), fencepost_core::Error>(())
/// ```
#[expect(clippy::missing_panics_doc, reason = "it does not, since `written` leaves printable ASCII alone")]
pub fn fencing_header(stamp: &Stamp) -> (HeaderName, HeaderValue) {
    let lock = written(stamp.lock.as_str());
    let text = format!("\"{}\";lock={lock};holder=\"{}\"", stamp.token, stamp.holder.as_str());
    (FENCING_TOKEN, HeaderValue::from_str(&text).expect("all of it is printable ASCII"))
}

/// Why there is no stamp in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    Missing,
    Malformed(&'static str),
}

/// The stamp that a request shows.
pub(crate) fn read(headers: &HeaderMap) -> Result<Stamp, Unread> {
    let mut values = headers.get_all(FENCING_TOKEN).iter();
    let value = values.next().ok_or(Unread::Missing)?;
    if values.next().is_some() {
        return Err(Unread::Malformed("there are several"));
    }
    let text = value.to_str().map_err(|_| Unread::Malformed("it is not ASCII"))?;
    item(text).map_err(Unread::Malformed)
}

/// A String where the text is ASCII, which every client can write, and a Display String elsewhere.
fn written(text: &str) -> String {
    if text.is_ascii() {
        return format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""));
    }
    let mut written = "%\"".to_owned();
    for byte in text.bytes() {
        match byte {
            b'%' | b'"' | 0x7f.. => write!(written, "%{byte:02x}").expect("a String takes everything"),
            plain => written.push(plain.into()),
        }
    }
    written + "\""
}

fn item(text: &str) -> Result<Stamp, &'static str> {
    let mut rest = Reader(text.trim_matches(' ').chars().peekable());
    let token = rest.string().ok_or("it does not begin with the token in double quotes")?;
    let token = number(&token).ok_or("the token is not a whole number in 1..=2^63-1")?;
    let (mut lock, mut holder) = (None, None);
    while let Some((key, value)) = rest.parameter()? {
        let place = match key.as_str() {
            "lock" => &mut lock,
            "holder" => &mut holder,
            _ => return Err("it has a parameter other than lock and holder"),
        };
        if place.replace(value).is_some() {
            return Err("it has a parameter twice");
        }
    }
    let lock = lock.ok_or("it has no lock")?.parse::<LockName>().map_err(|_| "the lock is no name of one")?;
    let holder = StampHolder::new(holder.unwrap_or_default());
    let holder = holder.map_err(|_| "the holder is not 0 to 64 letters, digits and hyphens")?;
    Ok(Stamp { lock, token, holder })
}

/// A token as it is printed: without a sign, and without zeros in front.
fn number(text: &str) -> Option<FencingToken> {
    let token: FencingToken = text.parse().ok()?;
    (token.to_string() == text).then_some(token)
}

/// What is left to read.
struct Reader<'a>(Peekable<Chars<'a>>);

impl Reader<'_> {
    /// The next parameter; `None` at the end.
    fn parameter(&mut self) -> Result<Option<(String, String)>, &'static str> {
        if self.0.peek().is_none() {
            return Ok(None);
        }
        self.eat(';').ok_or("there is something other than a parameter behind a value")?;
        while self.eat(' ').is_some() {}
        let mut key = String::new();
        while let Some(letter) = self.0.next_if(|letter| !"=; \"".contains(*letter)) {
            key.push(letter);
        }
        self.eat('=').ok_or("a parameter has no value")?;
        let value = if self.0.peek() == Some(&'%') { self.display_string() } else { self.string() };
        Ok(Some((key, value.ok_or("the value of a parameter is no string in double quotes")?)))
    }

    /// RFC 9651, 4.2.5.
    fn string(&mut self) -> Option<String> {
        self.eat('"')?;
        let mut text = String::new();
        loop {
            match self.0.next()? {
                '"' => return Some(text),
                '\\' => text.push(self.0.next_if(|letter| "\"\\".contains(*letter))?),
                letter => text.push(letter),
            }
        }
    }

    /// RFC 9651, 4.2.10.
    fn display_string(&mut self) -> Option<String> {
        self.eat('%')?;
        self.eat('"')?;
        let mut bytes = Vec::new();
        loop {
            match self.0.next()? {
                '"' => return String::from_utf8(bytes).ok(),
                '%' => bytes.push(self.digit()? << 4 | self.digit()?),
                letter => bytes.push(u8::try_from(letter).ok()?),
            }
        }
    }

    /// A hexadecimal digit in lower case.
    fn digit(&mut self) -> Option<u8> {
        let digit = self.0.next_if(|letter| !letter.is_ascii_uppercase())?.to_digit(16)?;
        u8::try_from(digit).ok()
    }

    fn eat(&mut self, letter: char) -> Option<char> {
        self.0.next_if_eq(&letter)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(values: &[&str]) -> Result<Stamp, Unread> {
        let values =
            values.iter().map(|value| (FENCING_TOKEN, HeaderValue::from_str(value).expect("a value")));
        read(&values.collect())
    }

    proptest! {
        #[test]
        fn every_stamp_is_read_as_it_was_written(
            lock in "\\PC{1,40}", token in 1..=FencingToken::MAX, holder in "[A-Za-z0-9-]{0,64}",
        ) {
            let lock: LockName = lock.parse().expect("no control characters");
            let token = token.try_into().expect("in the range");
            let stamp = Stamp { lock, token, holder: StampHolder::new(holder).expect("plain") };
            prop_assert_eq!(read(&HeaderMap::from_iter([fencing_header(&stamp)])), Ok(stamp));
        }

        #[test]
        fn whatever_is_shown_is_read_without_a_panic(value in "[ -~]{0,60}") {
            let _ = shown(&[&value]);
            let _ = shown(&[&format!("\"7\";lock=\"a\"{value}")]);
        }
    }

    #[test]
    fn names_that_are_not_ascii_are_display_strings() {
        let stamp =
            shown(&[r#""9223372036854775807"; lock=%"a%22b/%c3%bc %25";holder="x""#]).expect("a stamp");
        assert_eq!((stamp.lock.as_str(), stamp.token.get()), ("a\"b/ü %", FencingToken::MAX));
        let (_, value) = fencing_header(&stamp);
        assert_eq!(value, r#""9223372036854775807";lock=%"a%22b/%c3%bc %25";holder="x""#);
    }

    #[test]
    fn what_is_in_doubt_is_refused() {
        assert_eq!(shown(&[]), Err(Unread::Missing));
        let whole = r#""7";lock="a""#;
        assert!(shown(&[whole]).is_ok());
        assert!(matches!(shown(&[whole, whole]), Err(Unread::Malformed(_))));
        let wrong = [
            "",
            "7",
            "\"7\"",
            r#"7;lock="a""#,
            r#""0";lock="a""#,
            r#""-1";lock="a""#,
            r#""+7";lock="a""#,
            r#""07";lock="a""#,
            r#""9223372036854775808";lock="a""#,
            r#""7";lock=a"#,
            r#""7";lock="""#,
            r#""7";lock="a"#,
            r#""7";lock="a\b""#,
            r#""7";lock="a" x"#,
            r#""7" ;lock="a""#,
            r#""7";lock="a";"#,
            r#""7";lock="a";lock="b""#,
            r#""7";lock="a";holdr="x""#,
            r#""7";lock="a";holder="x_y""#,
            r#""7";lock="a", "8";lock="a""#,
            r#""7";lock=%"%FF""#,
            r#""7";lock=%"%ff""#,
            r#""7";lock=%"%c""#,
            r#""7";Lock="a""#,
            r#""7";lock"#,
        ];
        for value in wrong {
            assert!(matches!(shown(&[value]), Err(Unread::Malformed(_))), "{value}");
        }
    }
}
