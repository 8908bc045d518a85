//! The words of four letters that a member is asked by, beside its protocol for clients: what it is, and how it is set up.
//!
//! By default a member answers `srvr` alone; the others have to be on its white list.

use std::time::Duration;

use fencepost_core::{Clock, Result, until};
use fencepost_net::{Address, KeepAlive, Stream, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How long a member may take to answer.
const ANSWER_MOST: Duration = Duration::from_secs(2);

const KEEP_ALIVE: KeepAlive =
    KeepAlive { after: ANSWER_MOST, each: ANSWER_MOST, times: 1, unacknowledged: None };

/// How a member answers a word.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Text(String),
    /// It can be reached, and says nothing: it is not ready, or may not.
    Nothing,
    /// Why it cannot be reached.
    Unreached(String),
}

impl Answer {
    /// What a field of the answer says.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let Self::Text(text) = self else { return None };
        let pairs = text.lines().filter_map(|line| line.split_once(['=', ':']));
        pairs.map(|(name, value)| (name.trim(), value.trim())).find(|pair| pair.0 == name).map(|pair| pair.1)
    }
}

/// Asks a member.
pub(crate) async fn ask(clock: &Clock, address: &Address, transport: &Transport, word: &str) -> Answer {
    let give_up_at = Some(clock.now().after(ANSWER_MOST));
    let asked = until(clock, give_up_at, Box::pin(exchange(clock, address, transport, word))).await;
    match asked {
        Some(Err(error)) => Answer::Unreached(error.to_string()),
        Some(Ok(text)) if is_answer(&text) => Answer::Text(text),
        Some(Ok(_)) => Answer::Nothing,
        None => Answer::Unreached(format!("it has not answered for {ANSWER_MOST:?}")),
    }
}

async fn exchange(clock: &Clock, address: &Address, transport: &Transport, word: &str) -> Result<String> {
    let (mut stream, _) = Stream::open(clock, address, transport, &KEEP_ALIVE, ANSWER_MOST).await?;
    let mut answer = Vec::new();
    // A member that is not ready closes the connection in its own manner.
    if stream.write_all(word.as_bytes()).await.is_ok() && stream.flush().await.is_ok() {
        let _ = stream.read_to_end(&mut answer).await;
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn is_answer(text: &str) -> bool {
    let refusals = ["is not in the whitelist", "is not currently serving requests"];
    !text.is_empty() && !refusals.iter().any(|refusal| text.contains(refusal))
}
