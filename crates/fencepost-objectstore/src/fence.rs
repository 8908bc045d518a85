//! The fence in an object store: one object for each lock, which holds its mark and names its current results.
//!
//! Invariant: the object is changed by conditional puts alone, and never deleted. So its mark goes down only where it is forgotten.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use fencepost_core::{
    BackendUrl, Error, ErrorKind, Examination, Fence, Finding, LockName, Mark, NamePrefix, Result, Stamp,
};
use object_store::ObjectStore;

use crate::envelope::Envelope;
use crate::place::Place;
use crate::runtime::run;
use crate::store::{Step, Store};

/// A fence in a bucket of an object store.
#[derive(Clone, Debug)]
pub struct ObjectStoreFence(pub(crate) Arc<Store>);

impl ObjectStoreFence {
    /// The fence of `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`. Touches nothing yet.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no bucket, or an option is wrong.
    pub fn from_url(url: &BackendUrl) -> Result<Self> {
        Ok(Self(Arc::new(Store::of(Place::of(url)?))))
    }

    /// The fence in a store with a client of your own, under keys that begin with `prefix`; `shown` names it in messages. The
    /// client should send each request once: here it is known when one may be sent again.
    ///
    /// # Errors
    /// `InvalidArgument` when the prefix is no key.
    pub fn over(client: Arc<dyn ObjectStore>, prefix: &str, shown: &str) -> Result<Self> {
        Ok(Self(Arc::new(Store::over(client, prefix, shown)?)))
    }

    /// Makes sure that the store honours conditional puts, as the first seal does too.
    ///
    /// # Cancel safety
    /// A dropped call may have put the object of the probe.
    ///
    /// # Errors
    /// `Unsupported` when the store ignores a condition; the message says which.
    pub async fn probe(&self) -> Result<()> {
        let store = Arc::clone(&self.0);
        run(async move { store.probed().await }).await
    }

    /// Raises or forgets the mark of `lock` as `decide` says.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        lock: &LockName,
        decide: impl Fn(Option<&Envelope>) -> Result<Step<T>> + Send + Sync + 'static,
    ) -> Result<T> {
        let (store, name) = (Arc::clone(&self.0), lock.clone());
        run(async move { store.change(&name, decide).await }).await
    }

    /// What is known of `lock`.
    pub(crate) async fn envelope(&self, lock: &LockName) -> Result<Option<Envelope>> {
        let (store, name) = (Arc::clone(&self.0), lock.clone());
        run(async move { store.envelope(&name).await }).await
    }
}

impl fmt::Display for ObjectStoreFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait]
impl Fence for ObjectStoreFence {
    async fn seal(&self, stamp: &Stamp) -> Result<()> {
        let sealed = stamp.clone();
        let answer = self.change(&stamp.lock, move |present| seal(present, &sealed)).await;
        answer.map_err(|error| error.during("seal the fence").on(&stamp.lock))
    }

    async fn check(&self, stamp: &Stamp) -> Result<()> {
        Mark::checked(self.mark(&stamp.lock).await?.as_ref(), stamp)
    }

    async fn mark(&self, lock: &LockName) -> Result<Option<Mark>> {
        let envelope = self.envelope(lock).await.map_err(|error| error.on(lock))?;
        Ok(envelope.and_then(|envelope| envelope.mark))
    }

    async fn marks(&self, prefix: &NamePrefix) -> Result<Vec<(LockName, Mark)>> {
        let (store, prefix) = (Arc::clone(&self.0), prefix.clone());
        let envelopes = run(async move { store.envelopes().await }).await?;
        let matching = envelopes.into_iter().filter(|envelope| prefix.matches(&envelope.lock));
        let mut marks: Vec<_> =
            matching.filter_map(|envelope| Some((envelope.lock, envelope.mark?))).collect();
        marks.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(marks)
    }

    /// Writes an envelope without a mark: the object itself stays, so that a put of before which is still on its way has nothing to
    /// succeed on. Results stay current.
    async fn forget(&self, lock: &LockName) -> Result<bool> {
        let name = lock.clone();
        let answer = self.change(lock, move |present| Ok(forget(present, &name))).await;
        answer.map_err(|error| error.during("forget the mark").on(lock))
    }

    /// Puts the object of the probe, and no other.
    async fn findings(&self, lock: &LockName) -> Result<Vec<Finding>> {
        match self.probe().await {
            Ok(()) => Ok(Vec::new()),
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(vec![self.ignoring(&error)]),
            Err(error) if error.kind() == ErrorKind::Denied => Ok(vec![self.untried(error.to_string())]),
            Err(error) => Err(error.on(lock)),
        }
    }

    /// Puts what has to be refused over the object of the probe, where there is one.
    async fn examine(&self) -> Result<Examination> {
        let store = Arc::clone(&self.0);
        let finding = match run(async move { store.probe_lightly().await }).await {
            Ok(true) => None,
            Ok(false) => Some(self.untried("there is no object to try it on")),
            Err(error) if error.kind() == ErrorKind::Unsupported => Some(self.ignoring(&error)),
            Err(error) => return Err(error),
        };
        Ok(Examination::new(Vec::new(), finding.into_iter().collect()))
    }
}

impl ObjectStoreFence {
    fn ignoring(&self, error: &Error) -> Finding {
        Finding::serious(self, error.to_string())
            .means("nothing can be sealed there: a stale holder would write over a newer one")
            .remedy("use a store that honours conditional puts, as S3, Google and Azure do")
    }

    fn untried(&self, why: impl fmt::Display) -> Finding {
        Finding::note(self, format!("it was not tried whether the store honours conditions: {why}"))
            .means("the first seal tries it, and is refused where it does not")
            .remedy(format!("fencepost fence install {self} tries it now"))
    }
}

fn seal(present: Option<&Envelope>, stamp: &Stamp) -> Result<Step<()>> {
    let before = present.and_then(|present| present.mark.as_ref());
    let sealed = Mark::sealed(before, stamp)?;
    if before == Some(&sealed) {
        return Ok(Step::Done(()));
    }
    Ok(Step::Put(Envelope::following(present, &stamp.lock, Some(sealed)), ()))
}

fn forget(present: Option<&Envelope>, lock: &LockName) -> Step<bool> {
    match present {
        Some(present) if present.mark.is_some() => {
            Step::Put(Envelope::following(Some(present), lock, None), true)
        }
        _ => Step::Done(false),
    }
}
