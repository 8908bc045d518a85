//! Fences with a defect: the mistakes that checks of tokens are known for.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use fencepost_core::{
    Error, ErrorKind, Examination, Fence, FencingToken, Finding, LockName, Mark, NamePrefix, Result, Stamp,
    StampHolder,
};

/// A deliberate defect of a [`BrokenFence`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceDefect {
    /// It seals whatever comes.
    SealsStaleStamps,
    /// It does not seal the same stamp twice.
    RefusesTheSameStamp,
    /// It knows tokens, and no holders.
    IgnoresTheHolder,
    /// It keeps the first letters of a holder.
    CutsTheHolder,
    /// It accepts any token that is not below the mark, sealed or not.
    ChecksWithoutSeal,
    /// A check raises the mark.
    RaisesByCheck,
    /// A check raises nothing, and accepts nothing either.
    AcceptsNothing,
    /// It compares tokens as text.
    ComparesText,
    /// It keeps tokens in floating point.
    RoundsTokens,
    /// It has one mark for all locks.
    HasOneMark,
    /// It decides by the mark as it was one seal ago.
    DecidesByAnOldMark,
    /// It says neither what the mark is nor what to do.
    ExplainsNothing,
    /// It has a mark before anything was sealed.
    StartsWithAMark,
    /// The list of its marks is not in the order of the names.
    ListsInDisorder,
    /// The list shows all marks, whatever the prefix.
    ListsAnyPrefix,
    /// The list shows names as they are spelled in a store.
    ListsSpellings,
    /// It says that it has forgotten a mark, and keeps it.
    ForgetsNothing,
    /// It forgets the marks of all locks at once.
    ForgetsAll,
    /// It forgets the mark, and still refuses what was below it.
    RemembersTheToken,
}

/// A fence in memory with a defect.
#[derive(Debug)]
pub struct BrokenFence {
    defect: FenceDefect,
    marks: Mutex<Marks>,
}

#[derive(Debug, Default)]
struct Marks {
    now: BTreeMap<LockName, Mark>,
    before: BTreeMap<LockName, Mark>,
    forgotten: BTreeMap<LockName, Mark>,
}

impl BrokenFence {
    /// A fence that has sealed nothing yet.
    pub fn new(defect: FenceDefect) -> Self {
        Self { defect, marks: Mutex::default() }
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stamp as the defect understands it.
    fn heard(&self, stamp: &Stamp) -> Stamp {
        let mut stamp = stamp.clone();
        match self.defect {
            FenceDefect::HasOneMark => stamp.lock = "the only lock".parse().expect("it is a name"),
            FenceDefect::IgnoresTheHolder => stamp.holder = StampHolder::default(),
            FenceDefect::CutsTheHolder => {
                let cut = stamp.holder.as_str().chars().take(32).collect::<String>();
                stamp.holder = StampHolder::new(cut).expect("a part of a holder is one");
            }
            FenceDefect::RoundsTokens => stamp.token = rounded(stamp.token),
            _ => {}
        }
        stamp
    }

    fn sealed(&self, mark: Option<&Mark>, stamp: &Stamp) -> Result<Mark> {
        let taken = Mark { token: stamp.token, holder: stamp.holder.clone() };
        let greater = |mark: &Mark| stamp.token.to_string() >= mark.token.to_string();
        match self.defect {
            FenceDefect::SealsStaleStamps => Ok(taken),
            FenceDefect::ComparesText if mark.is_none_or(greater) => Ok(taken),
            FenceDefect::ComparesText => Err(unexplained()),
            FenceDefect::RefusesTheSameStamp if mark == Some(&taken) => Err(unexplained()),
            _ => Mark::sealed(mark, stamp),
        }
    }

    fn explained(&self, error: Error) -> Error {
        if self.defect == FenceDefect::ExplainsNothing { unexplained() } else { error }
    }
}

fn unexplained() -> Error {
    Error::new(ErrorKind::Stale, "use the fence", "no")
}

#[expect(clippy::cast_precision_loss, reason = "the loss is the defect")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a positive number")]
fn rounded(exact: FencingToken) -> FencingToken {
    let number = exact.get() as f64 as u64;
    number.min(FencingToken::MAX).try_into().expect("a rounded token is a token")
}

impl fmt::Display for BrokenFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a fence with the defect {:?}", self.defect)
    }
}

#[async_trait]
impl Fence for BrokenFence {
    async fn seal(&self, stamp: &Stamp) -> Result<()> {
        let stamp = self.heard(stamp);
        let mut marks = self.marks();
        let known = if self.defect == FenceDefect::DecidesByAnOldMark { &marks.before } else { &marks.now };
        let sealed = self.sealed(known.get(&stamp.lock).or(marks.forgotten.get(&stamp.lock)), &stamp);
        let sealed = sealed.map_err(|error| self.explained(error))?;
        marks.before = marks.now.clone();
        marks.now.insert(stamp.lock, sealed);
        Ok(())
    }

    async fn check(&self, stamp: &Stamp) -> Result<()> {
        let stamp = self.heard(stamp);
        let mut marks = self.marks();
        let mark = marks.now.get(&stamp.lock);
        let is_not_below = mark.is_none_or(|mark| stamp.token >= mark.token);
        match self.defect {
            FenceDefect::ChecksWithoutSeal if is_not_below => return Ok(()),
            FenceDefect::AcceptsNothing => return Err(unexplained()),
            FenceDefect::RaisesByCheck if is_not_below => {
                let raised = Mark { token: stamp.token, holder: stamp.holder.clone() };
                let checked = Mark::checked(mark, &stamp);
                marks.now.insert(stamp.lock, raised);
                return checked;
            }
            _ => {}
        }
        Mark::checked(mark, &stamp).map_err(|error| self.explained(error))
    }

    async fn mark(&self, lock: &LockName) -> Result<Option<Mark>> {
        let mut lock = lock.clone();
        if self.defect == FenceDefect::HasOneMark {
            lock = "the only lock".parse().expect("it is a name");
        }
        let first = || Mark { token: FencingToken::MIN, holder: StampHolder::default() };
        let mark = self.marks().now.get(&lock).cloned();
        Ok(mark.or_else(|| (self.defect == FenceDefect::StartsWithAMark).then(first)))
    }

    async fn marks(&self, prefix: &NamePrefix) -> Result<Vec<(LockName, Mark)>> {
        let mut marks: Vec<_> = self.marks().now.clone().into_iter().collect();
        if self.defect != FenceDefect::ListsAnyPrefix {
            marks.retain(|(name, _)| prefix.matches(name));
        }
        match self.defect {
            FenceDefect::ListsInDisorder => marks.reverse(),
            FenceDefect::ListsSpellings => {
                for (name, _) in &mut marks {
                    *name = name.canonical().parse().expect("a spelling is a name");
                }
            }
            _ => {}
        }
        Ok(marks)
    }

    async fn forget(&self, lock: &LockName) -> Result<bool> {
        let mut marks = self.marks();
        match self.defect {
            FenceDefect::ForgetsNothing => return Ok(marks.now.contains_key(lock)),
            FenceDefect::ForgetsAll => return Ok(std::mem::take(&mut marks.now).contains_key(lock)),
            _ => {}
        }
        let Some(mark) = marks.now.remove(lock) else { return Ok(false) };
        if self.defect == FenceDefect::RemembersTheToken {
            marks.forgotten.insert(lock.clone(), mark);
        }
        Ok(true)
    }

    async fn findings(&self, _: &LockName) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    async fn examine(&self) -> Result<Examination> {
        Ok(Examination::default())
    }
}
