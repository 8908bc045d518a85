//! What was pressed: bytes of a terminal, read as keys.

/// A key that means something here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Up,
    Down,
    Back,
    Enter,
    /// A number, counted from 1.
    Number(usize),
    /// The shell is to have the terminal for a while.
    Stop,
    /// Enough of it.
    End,
    /// The same, as a signal would have it: Ctrl-C.
    Interrupt,
}

/// The keys in `bytes`, which are taken out; the beginning of a longer sequence stays.
pub(crate) fn taken(bytes: &mut Vec<u8>) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((key, length)) = first(bytes) {
        keys.extend(key);
        bytes.drain(..length);
    }
    keys
}

/// The first key and how many bytes it took; `None` where more are to come.
fn first(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    match bytes {
        [] | [ESCAPE] | [ESCAPE, b'[' | b'O'] => None,
        [ESCAPE, b'[' | b'O', rest @ ..] => {
            let end = rest.iter().position(|byte| (b'@'..=b'~').contains(byte))?;
            Some((arrow(rest[end]), end + 3))
        }
        [ESCAPE, ..] => Some((Some(Key::End), 1)),
        [byte, ..] => Some((plain(*byte), 1)),
    }
}

fn arrow(byte: u8) -> Option<Key> {
    match byte {
        b'A' => Some(Key::Up),
        b'B' => Some(Key::Down),
        b'D' => Some(Key::Back),
        _ => None,
    }
}

fn plain(byte: u8) -> Option<Key> {
    match byte {
        b'k' => Some(Key::Up),
        b'j' => Some(Key::Down),
        b'h' | BACKSPACE | DELETE => Some(Key::Back),
        b'\r' | b'\n' => Some(Key::Enter),
        b'1'..=b'9' => Some(Key::Number(usize::from(byte - b'0'))),
        CTRL_Z => Some(Key::Stop),
        CTRL_D | b'q' => Some(Key::End),
        CTRL_C => Some(Key::Interrupt),
        _ => None,
    }
}

/// Begins the sequence of an arrow key; alone it is the key itself.
pub(crate) const ESCAPE: u8 = 0x1b;
const CTRL_C: u8 = 0x03;
const CTRL_D: u8 = 0x04;
const CTRL_Z: u8 = 0x1a;
const BACKSPACE: u8 = 0x08;
const DELETE: u8 = 0x7f;

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> (Vec<Key>, usize) {
        let mut bytes = text.as_bytes().to_vec();
        (taken(&mut bytes), bytes.len())
    }

    #[test]
    fn keys_are_read_in_both_ways_that_terminals_send_them() {
        assert_eq!(
            keys("\u{1b}[A\u{1b}OBjk2\r"),
            (vec![Key::Up, Key::Down, Key::Down, Key::Up, Key::Number(2), Key::Enter], 0)
        );
        assert_eq!(keys("\u{1b}[D\u{7f}h"), (vec![Key::Back; 3], 0));
        assert_eq!(keys("\u{3}q\u{1a}\u{4}"), (vec![Key::Interrupt, Key::End, Key::Stop, Key::End], 0));
    }

    #[test]
    fn beginning_of_a_sequence_waits_for_its_end() {
        for begun in ["\u{1b}", "\u{1b}[", "\u{1b}O", "\u{1b}[1;5"] {
            assert_eq!(keys(begun), (Vec::new(), begun.len()));
        }
        assert_eq!(keys("\u{1b}\u{1b}"), (vec![Key::End], 1));
    }

    #[test]
    fn what_means_nothing_is_passed_over() {
        assert_eq!(keys("x\u{1b}[3~\u{1b}[Hü\t"), (Vec::new(), 0));
    }
}
