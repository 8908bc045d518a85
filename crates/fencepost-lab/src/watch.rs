//! Whoever looks on while the lab runs: it is told what is tried, what happens, and what came of it.

use crate::history::Record;
use crate::report::Cell;

/// An onlooker.
pub trait Watch {
    /// Something takes a while: servers are started.
    fn prepares(&mut self, what: &str);

    /// A cell begins, one of `count`.
    fn begins(&mut self, number: usize, count: usize, pattern: &str, fault: &str);

    /// A worker has done something, or had it done to it.
    fn saw(&mut self, record: &Record);

    /// Something was done to workers or servers, in words.
    fn strikes(&mut self, what: &str);

    /// A cell has ended.
    fn ended(&mut self, cell: &Cell);
}
