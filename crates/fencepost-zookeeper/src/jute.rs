//! Jute, the encoding of ZooKeeper's records: big-endian numbers, and texts, buffers and lists behind their lengths.
//!
//! Invariant: reading never goes beyond what is there, whatever that says of its own lengths.

/// Writes records one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn boolean(&mut self, value: bool) -> &mut Self {
        self.0.push(u8::from(value));
        self
    }

    pub(crate) fn buffer(&mut self, bytes: &[u8]) -> &mut Self {
        self.int(length(bytes.len()));
        self.0.extend(bytes);
        self
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.buffer(text.as_bytes())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// What has been written, behind its length.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(self.0.len() + 4);
        frame.extend(length(self.0.len()).to_be_bytes());
        frame.extend(&self.0);
        frame
    }
}

fn length(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

/// What is read is not what was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

/// Reads records one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn int(&mut self) -> Result<i32, Garbled> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn long(&mut self) -> Result<i64, Garbled> {
        self.array().map(i64::from_be_bytes)
    }

    pub(crate) fn boolean(&mut self) -> Result<bool, Garbled> {
        self.array().map(|[byte]| byte != 0)
    }

    /// A buffer; one that is null counts as empty.
    pub(crate) fn buffer(&mut self) -> Result<&'a [u8], Garbled> {
        let length = usize::try_from(self.int()?.max(0)).map_err(|_| Garbled)?;
        self.take(length)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Garbled> {
        std::str::from_utf8(self.buffer()?).map_err(|_| Garbled)
    }

    pub(crate) fn texts(&mut self) -> Result<Vec<String>, Garbled> {
        let count = self.int()?.max(0);
        (0..count).map(|_| self.text().map(ToOwned::to_owned)).collect()
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Garbled> {
        self.take(N)?.try_into().map_err(|_| Garbled)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Garbled> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Garbled)?;
        self.0 = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn null_buffer_is_empty_and_a_longer_one_than_there_is_is_garbled() {
        assert_eq!(Reader::new(&(-1_i32).to_be_bytes()).buffer(), Ok(&[][..]));
        assert_eq!(Reader::new(&i32::MAX.to_be_bytes()).buffer(), Err(Garbled));
        assert_eq!(Reader::new(&i32::MAX.to_be_bytes()).texts(), Err(Garbled));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(number in any::<i32>(), long in any::<i64>(), text in ".{0,40}", flag in any::<bool>()) {
            let mut writer = Writer::default();
            writer.int(number).long(long).text(&text).boolean(flag);
            let frame = writer.frame();
            let mut reader = Reader::new(&frame);
            prop_assert_eq!(usize::try_from(reader.int().unwrap()).unwrap(), frame.len() - 4);
            prop_assert_eq!((reader.int(), reader.long()), (Ok(number), Ok(long)));
            prop_assert_eq!((reader.text(), reader.boolean()), (Ok(&*text), Ok(flag)));
            prop_assert!(reader.rest().is_empty());
        }

        #[test]
        fn any_bytes_are_read_or_garbled(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut reader = Reader::new(&bytes);
            while reader.texts().is_ok() && reader.long().is_ok() && reader.buffer().is_ok() {}
        }
    }
}
