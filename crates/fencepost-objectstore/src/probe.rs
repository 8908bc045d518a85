//! Whether a store honours the conditions of puts, tried on an object that is there for that alone.
//!
//! Invariant: what is tried can only be refused by a store that looks at the condition, whoever probes at the same time.

use fencepost_core::{Error, ErrorKind, Result};
use object_store::{PutMode, UpdateVersion};

use crate::envelope::nonce;
use crate::failure::Failure;
use crate::store::{Attempts, Found, Store};

impl Store {
    /// Puts over an object that there is as if there were none, and over one that is gone as if it were still there.
    ///
    /// # Errors
    /// `Unsupported` when one of the two succeeds, or the store gives nothing that a condition could name.
    pub(crate) async fn probe(&self) -> Result<()> {
        let mut attempts = Attempts::new(self);
        loop {
            match self.try_probe().await {
                Ok(()) => return Ok(()),
                Err(failure) => {
                    attempts.next(failure).await.map_err(|error| error.during("probe the object store"))?;
                }
            }
        }
    }

    /// Puts over the object of the probe what has to be refused, and so leaves nothing behind in a store that looks at conditions.
    /// Whether there is such an object.
    ///
    /// # Errors
    /// `Unsupported` when a put succeeds.
    pub(crate) async fn probe_lightly(&self) -> Result<bool> {
        let mut attempts = Attempts::new(self);
        loop {
            match self.try_lightly().await {
                Ok(is_there) => return Ok(is_there),
                Err(failure) => {
                    attempts.next(failure).await.map_err(|error| error.during("probe the object store"))?;
                }
            }
        }
    }

    async fn try_lightly(&self) -> Result<bool, Failure> {
        let at = self.at(&["probe"]);
        let Some(present) = self.read(&at, u64::from(u16::MAX)).await? else { return Ok(false) };
        self.named(&present)?;
        // No content has this tag, and no object this generation.
        let gone = UpdateVersion { e_tag: Some("\"0\"".to_owned()), version: Some("1".to_owned()) };
        for (condition, what) in [(PutMode::Create, IF_NONE_MATCH), (PutMode::Update(gone), IF_MATCH)] {
            match self.put(&at, nonce().into_bytes(), condition).await {
                Err(Failure::Refused) => {}
                answer => return Err(self.ignored(answer, what)),
            }
        }
        Ok(true)
    }

    async fn try_probe(&self) -> Result<(), Failure> {
        let at = self.at(&["probe"]);
        let put = async |condition| self.put(&at, nonce().into_bytes(), condition).await;
        let Some(old) = self.read(&at, u64::from(u16::MAX)).await? else {
            put(PutMode::Create).await?;
            return Err(Failure::Refused);
        };
        match put(PutMode::Create).await {
            Err(Failure::Refused) => {}
            answer => {
                return Err(self.ignored(answer, IF_NONE_MATCH));
            }
        }
        let version = self.named(&old)?;
        // A refusal says that somebody else has changed it just now, or that the store refuses everything.
        put(PutMode::Update(version.clone())).await?;
        match put(PutMode::Update(version)).await {
            Err(Failure::Refused) => Ok(()),
            answer => Err(self.ignored(answer, IF_MATCH)),
        }
    }

    fn named(&self, found: &Found) -> Result<UpdateVersion, Failure> {
        let version = found.version.clone();
        let is_weak = version.e_tag.as_deref().is_some_and(|tag| tag.starts_with("W/"));
        if is_weak || (version.e_tag.is_none() && version.version.is_none()) {
            let what = format!("{self} gives objects no strong ETag and no version");
            return Err(Failure::Final(unsupported(what)));
        }
        Ok(version)
    }

    fn ignored(&self, answer: Result<(), Failure>, what: &str) -> Failure {
        match answer {
            Ok(()) => Failure::Final(unsupported(format!("{self} ignores the condition {what}"))),
            Err(failure) => failure,
        }
    }
}

/// The conditions in words.
const IF_NONE_MATCH: &str = "that an object must not exist yet (If-None-Match: *)";
const IF_MATCH: &str = "that an object must be the one that was read (If-Match)";

fn unsupported(what: String) -> Error {
    Error::new(ErrorKind::Unsupported, "probe the object store", what)
        .hint("no fence can be kept there: a stale holder would write over a newer one")
}
