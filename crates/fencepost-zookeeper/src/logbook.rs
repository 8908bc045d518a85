//! The logbook of a lock: a node beside the places of its queue, which stays, and which the holder alone writes.
//!
//! Invariant: each write is one transaction with a check of the writer's place, so that nothing is written once the lease is gone;
//! and what is read is not older than the last write that was acknowledged, whichever member is asked.

use fencepost_core::{Error, ErrorKind, Result};

use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::failure::{garbled, gone, lost_touch, refused};
use crate::nodes;
use crate::protocol::{Answer, Code, Request, Stay};
use crate::session::{Session, heartbeat};

/// The longest content. A server takes a request of 1048575 bytes, names and all, unless its `jute.maxbuffer` says otherwise; it
/// closes the connection on a longer one.
const LONGEST: usize = 1_000_000;

/// How often a write is tried again whose connection broke.
const BREAKS_MOST: usize = 5;

/// How often others may make or delete the node while it is written.
const TRIES: usize = 50;

/// What stands in the logbook of a lock; `None` where nobody has written.
///
/// A `sync` would not do: a leader that does not know yet that it was deposed answers it. What a quorum has acknowledged no such
/// leader can have sent.
pub(crate) async fn read(
    connection: &Connection,
    endpoint: &Endpoint,
    lock: &str,
) -> Result<Option<Vec<u8>>> {
    let (acknowledged, content) = {
        let mut batch = connection.batch();
        let acknowledged = batch.call(&heartbeat(endpoint));
        (acknowledged, batch.call(&Request::data(&nodes::logbook(lock), false)))
    };
    let acknowledged = acknowledged.await.map_err(|broken| lost_touch(&broken))?;
    if !acknowledged.is_committed() {
        return Err(acknowledged.check().map_or_else(|| garbled(crate::jute::Garbled), refused));
    }
    let content = content.await.map_err(|broken| lost_touch(&broken))?;
    match content.code {
        Code::OK => Ok(Some(content.data().map_err(garbled)?.0)),
        Code::NO_NODE => Ok(None),
        code => Err(refused(code)),
    }
}

/// Writes the logbook of `lock` for whoever holds it by the place `node`.
///
/// # Cancel safety
/// A dropped call may or may not have written it, and nothing of it comes after a later one: requests are carried out in their order,
/// and those of a connection that was left are refused.
///
/// # Errors
/// `Lost` when the place, or the session, is gone; `InvalidArgument` when the content is too long.
pub(crate) async fn write(session: &Session, lock: &str, node: &str, content: &[u8]) -> Result<()> {
    if content.len() > LONGEST {
        let what =
            format!("a logbook of {} bytes is longer than the {LONGEST} that it may have", content.len());
        return Err(Error::new(ErrorKind::InvalidArgument, OPERATION, what));
    }
    let mut breaks = 0;
    loop {
        let connection = match session.connection().await {
            Ok(connection) => connection,
            Err(error) if session.has_ended() => return Err(error.during(OPERATION)),
            Err(_) => continue,
        };
        match write_on(&connection, session, lock, node, content).await {
            Err(error) if error.kind() == ErrorKind::Unavailable && breaks < BREAKS_MOST => breaks += 1,
            outcome => return outcome.map_err(|error| error.during(OPERATION)),
        }
    }
}

const OPERATION: &str = "write the logbook";

async fn write_on(
    connection: &Connection,
    session: &Session,
    lock: &str,
    node: &str,
    content: &[u8],
) -> Result<()> {
    let (place, book) = (format!("{lock}/{node}"), nodes::logbook(lock));
    let access = session.endpoint().access;
    let mut is_there = true;
    for _ in 0..TRIES {
        let write = if is_there {
            Request::set_data(&book, content, -1)
        } else {
            Request::create(&book, content, access, Stay::Persistent)
        };
        let change = Request::all(&[Request::check(&place, -1), write]);
        let answer = connection.call(&change).await.map_err(|broken| lost_touch(&broken))?;
        session.heed(&answer);
        match written(&answer)? {
            Written::Done => return Ok(()),
            Written::HasNode(has) => is_there = has,
        }
    }
    Err(crate::failure::unavailable("others make and delete the node of the logbook all the time"))
}

/// What came of a write.
#[derive(Debug, PartialEq, Eq)]
enum Written {
    Done,
    /// Not done, since its node is there already, or is not.
    HasNode(bool),
}

fn written(answer: &Answer) -> Result<Written> {
    let failed = answer.failed_part().map_err(garbled)?;
    match failed {
        None => Ok(Written::Done),
        Some((0, Code::NO_NODE)) => Err(gone(None)),
        Some((1, Code::NO_NODE)) => Ok(Written::HasNode(false)),
        Some((1, Code::NODE_EXISTS)) => Ok(Written::HasNode(true)),
        Some((_, code)) => Err(refused(code)),
    }
}
