//! What an attempt leaves in the queue of a lock: the node of its place, or a request to make one whose answer is not there yet.
//!
//! Invariant: what is left is known, or looked for, until it is gone or its session has ended, so that no twin of an attempt and no
//! place of one that was given up blocks the queue.

use std::sync::Arc;
use std::time::Duration;

use fencepost_core::{ErrorKind, Result};

use crate::connection::{Call, Connection};
use crate::failure::{fine, garbled, lost_touch, refused};
use crate::nodes;
use crate::protocol::{Code, Request, Stat};
use crate::session::{Presence, Use};

/// The pause before the ensemble is asked again for what it has refused.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// A place that was made.
#[derive(Debug)]
pub(crate) struct Stand {
    /// What those of this session go by who stand behind it.
    presence: Presence,
    pub(crate) stat: Stat,
}

impl Stand {
    pub(crate) fn path(&self) -> &Arc<str> {
        self.presence.path()
    }

    /// The name of the node, without that of the lock.
    pub(crate) fn node(&self) -> &str {
        nodes::node_of(self.path())
    }
}

/// What one attempt has left in one session.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) used: Use,
    /// What the path of the place begins with.
    stem: String,
    /// A request to make the place that has no answer yet.
    making: Option<Call>,
    /// Whether such a request went out on a connection that has broken since.
    is_in_doubt: bool,
    pub(crate) stand: Option<Stand>,
}

impl Trace {
    /// Nothing yet.
    pub(crate) fn new(used: Use, stem: String) -> Self {
        Self { used, stem, making: None, is_in_doubt: false, stand: None }
    }

    /// What is left, for somebody else to deal with; nothing is left here.
    pub(crate) fn take(&mut self) -> Self {
        let (used, stem) = (self.used.clone(), self.stem.clone());
        let is_in_doubt = std::mem::take(&mut self.is_in_doubt);
        Self { used, stem, making: self.making.take(), is_in_doubt, stand: self.stand.take() }
    }

    /// The path of a node of the queue.
    pub(crate) fn path(&self, node: &str) -> String {
        format!("{}/{node}", self.lock())
    }

    /// What the path of the place begins with.
    pub(crate) fn stem(&self) -> &str {
        &self.stem
    }

    /// The lock in whose queue it is.
    pub(crate) fn lock(&self) -> &str {
        nodes::parent_of(&self.stem)
    }

    /// Whether nothing is left, for certain.
    pub(crate) fn is_clean(&self) -> bool {
        self.stand.is_none() && self.making.is_none() && !self.is_in_doubt || self.used.session.has_ended()
    }

    /// The place is there, since `making` was sent; it is made when that is answered.
    pub(crate) fn is_being_made(&mut self, making: Call) {
        self.making = Some(making);
    }

    /// Waits for the answer to the request that is under way, if one is. What came of it, where that is known.
    ///
    /// # Cancel safety
    /// Dropping it forgets nothing.
    ///
    /// # Errors
    /// That of a broken connection, after which it has to be [looked for](Self::recover).
    pub(crate) async fn made(&mut self) -> Result<Option<Code>> {
        let Some(making) = &mut self.making else { return Ok(None) };
        let answer = making.await;
        self.making = None;
        match answer {
            Ok(answer) => {
                self.used.session.heed(&answer);
                if answer.code == Code::OK {
                    let (path, stat) = answer.made().map_err(garbled)?;
                    self.stand = Some(self.there(&self.path(nodes::node_of(&path)), stat));
                }
                Ok(Some(answer.code))
            }
            Err(broken) => {
                self.is_in_doubt |= broken.was_sent;
                Err(lost_touch(&broken))
            }
        }
    }

    fn there(&self, path: &str, stat: Stat) -> Stand {
        Stand { presence: self.used.session.enter(path), stat }
    }

    /// Looks for a place that was made without our hearing of it. Of several, the first one is kept.
    ///
    /// A request that is still on its way on the broken connection is refused, since the session has moved; `sync` has the server
    /// that we are connected to know of one that was carried out.
    ///
    /// # Cancel safety
    /// Dropping it forgets nothing.
    pub(crate) async fn recover(&mut self, connection: &Connection) -> Result<()> {
        if !self.is_in_doubt {
            return Ok(());
        }
        let (synced, seen) = {
            let mut batch = connection.batch();
            (batch.call(&Request::sync(self.lock())), batch.call(&Request::children(self.lock())))
        };
        let _ = synced.await.map_err(|broken| lost_touch(&broken))?;
        let seen = seen.await.map_err(|broken| lost_touch(&broken))?;
        let children = match seen.code {
            Code::OK => seen.children().map_err(garbled)?.0,
            // Nobody has ever asked for the lock.
            Code::NO_NODE => Vec::new(),
            code => return Err(refused(code)),
        };
        let queue = nodes::queue(&children);
        let mut found = None;
        for place in queue.iter().filter(|place| place.node.starts_with(nodes::node_of(&self.stem))) {
            let path = self.path(&place.node);
            let answer = connection.call(&Request::data(&path, false)).await;
            let answer = answer.map_err(|broken| lost_touch(&broken))?;
            let Ok((_, stat)) = answer.data() else { continue };
            // One of an earlier session is about to vanish, and is nobody's place.
            if stat.session != self.used.session.id() {
                continue;
            }
            if found.is_none() {
                found = Some(self.there(&path, stat));
            } else {
                fine(connection.call(&Request::delete(&path, -1)).await)?;
            }
        }
        self.stand = found;
        self.is_in_doubt = false;
        Ok(())
    }

    /// Deletes what is left, until it is gone or the session has ended. The first request is on its way when the first poll returns.
    ///
    /// # Cancel safety
    /// Dropping it forgets nothing.
    pub(crate) async fn erase(&mut self) {
        while !self.is_clean() {
            let Ok(connection) = self.used.session.connection().await else { continue };
            if let Err(error) = self.erase_on(&connection).await
                && error.kind() != ErrorKind::Unavailable
            {
                self.used.session.clock().sleep(REFUSED_PAUSE).await;
            }
        }
    }

    async fn erase_on(&mut self, connection: &Connection) -> Result<()> {
        let _ = self.made().await?;
        self.recover(connection).await?;
        let Some(stand) = &self.stand else { return Ok(()) };
        let answer = connection.call(&Request::delete(stand.path(), -1)).await;
        let answer = answer.map_err(|broken| lost_touch(&broken))?;
        self.used.session.heed(&answer);
        match answer.code {
            Code::OK | Code::NO_NODE => {
                self.stand = None;
                Ok(())
            }
            code => Err(refused(code)),
        }
    }
}
