//! What a case and its worker processes say to each other: one line a command, one line an answer.
//!
//! Fields are separated by tabs, which no lock's name contains. An answer begins with a mark, because the test harness
//! of the worker writes on the same stream.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use fencepost_core::{Error, FencingToken, HolderId, Moment};

use crate::history::Hold;

/// What begins every answer.
const MARK: &str = "@worker\t";

/// What a case tells a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Acquire the lock `name` and keep it.
    Acquire { name: String, ttl: Duration, patience: Patience },
    /// Say whether the lease is held, without asking the store.
    Check,
    /// Say until when the lease is believed in.
    Deadline,
    /// Say whether the lease is heard to be lost within this time.
    Lost(Duration),
    /// Give the lease back.
    Release,
    /// Drop the lease.
    Drop,
    /// Raise the number in a file by one, `times` times, each time under the lock and without any other protection.
    Increment { name: String, ttl: Duration, file: PathBuf, times: u32 },
}

/// How long a worker waits for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    Until(Duration),
    Forever,
}

/// What a worker answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is there.
    Ready,
    /// It has asked for the lock and was not given it at once.
    Waiting,
    /// It holds the lock.
    Held(Held),
    /// The lock was not given, or the store refused: the kind of error, and its text.
    Refused { kind: String, text: String },
    /// It believes in its lease until then; without an end if there is no moment.
    Until(Option<Moment>),
    /// It is done, or it is so.
    Yes,
    /// It is not so.
    No,
    /// It has held the lock, and given it back.
    Hold(Hold),
}

/// A lease in a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) asked: Moment,
    pub(crate) token: FencingToken,
    pub(crate) holder: HolderId,
}

impl Answer {
    pub(crate) fn refused(error: &Error) -> Self {
        let text = error.to_string().replace(['\n', '\t'], " ");
        Self::Refused { kind: format!("{:?}", error.kind()), text }
    }

    /// The answer in a line of a worker's output, if there is one.
    pub(crate) fn in_line(line: &str) -> Option<Self> {
        let (_, answer) = line.split_once(MARK)?;
        Some(answer.parse().unwrap_or_else(|wrong| panic!("a worker said something odd: {wrong}")))
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire { name, ttl, patience } => {
                write!(f, "acquire\t{}\t{patience}\t{name}", ttl.as_millis())
            }
            Self::Check => f.write_str("check"),
            Self::Deadline => f.write_str("deadline"),
            Self::Lost(limit) => write!(f, "lost\t{}", limit.as_millis()),
            Self::Release => f.write_str("release"),
            Self::Drop => f.write_str("drop"),
            Self::Increment { name, ttl, file, times } => {
                write!(f, "increment\t{}\t{times}\t{}\t{name}", ttl.as_millis(), file.display())
            }
        }
    }
}

impl FromStr for Command {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[..] {
            ["acquire", ttl, patience, name] => {
                Ok(Self::Acquire { name: name.to_owned(), ttl: millis(ttl)?, patience: patience.parse()? })
            }
            ["check"] => Ok(Self::Check),
            ["deadline"] => Ok(Self::Deadline),
            ["lost", limit] => Ok(Self::Lost(millis(limit)?)),
            ["release"] => Ok(Self::Release),
            ["drop"] => Ok(Self::Drop),
            ["increment", ttl, times, file, name] => Ok(Self::Increment {
                name: name.to_owned(),
                ttl: millis(ttl)?,
                file: file.into(),
                times: times.parse().map_err(|_| format!("{times:?} is no number"))?,
            }),
            _ => Err(format!("{line:?} is no command")),
        }
    }
}

fn millis(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_millis).map_err(|_| format!("{text:?} is no number of milliseconds"))
}

impl fmt::Display for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Until(limit) => write!(f, "{}", limit.as_millis()),
            Self::Forever => f.write_str("forever"),
        }
    }
}

impl FromStr for Patience {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "forever" => Ok(Self::Forever),
            limit => millis(limit).map(Self::Until),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MARK)?;
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Waiting => f.write_str("waiting"),
            Self::Held(Held { asked, token, holder }) => {
                write!(f, "held\t{}\t{token}\t{holder}", asked.as_nanos())
            }
            Self::Refused { kind, text } => write!(f, "refused\t{kind}\t{text}"),
            Self::Until(None) => f.write_str("for ever"),
            Self::Until(Some(moment)) => write!(f, "until\t{}", moment.as_nanos()),
            Self::Yes => f.write_str("yes"),
            Self::No => f.write_str("no"),
            Self::Hold(hold) => write!(f, "hold\t{hold}"),
        }
    }
}

impl FromStr for Answer {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let wrong = || format!("{line:?} is no answer");
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[..] {
            ["ready"] => Ok(Self::Ready),
            ["waiting"] => Ok(Self::Waiting),
            ["held", asked, token, holder] => Ok(Self::Held(Held {
                asked: asked.parse().map(Moment::from_nanos).map_err(|_| wrong())?,
                token: token.parse().map_err(|_| wrong())?,
                holder: holder.parse().map_err(|_| wrong())?,
            })),
            ["refused", kind, text] => Ok(Self::Refused { kind: kind.to_owned(), text: text.to_owned() }),
            ["for ever"] => Ok(Self::Until(None)),
            ["until", moment] => {
                moment.parse().map(|nanos| Self::Until(Some(Moment::from_nanos(nanos)))).map_err(|_| wrong())
            }
            ["yes"] => Ok(Self::Yes),
            ["no"] => Ok(Self::No),
            ["hold", hold] => hold.parse().map(Self::Hold),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_read_back() {
        let (name, ttl) = ("a b/%2F".to_owned(), Duration::from_millis(70));
        let file = PathBuf::from("/some where/counter");
        for command in [
            Command::Acquire { name: name.clone(), ttl, patience: Patience::None },
            Command::Acquire { name: name.clone(), ttl, patience: Patience::Until(ttl) },
            Command::Acquire { name: name.clone(), ttl, patience: Patience::Forever },
            Command::Check,
            Command::Deadline,
            Command::Lost(ttl),
            Command::Release,
            Command::Drop,
            Command::Increment { name, ttl, file, times: 40 },
        ] {
            assert_eq!(command.to_string().parse(), Ok(command));
        }
    }

    #[test]
    fn answers_are_found_behind_the_noise_of_the_test_harness() {
        let moment = Moment::from_nanos;
        let (token, holder) = (FencingToken::MIN, HolderId::from_bytes([9; 16]));
        let hold = Hold { asked: moment(1), granted: moment(2), ended: moment(3), token, holder };
        for answer in [
            Answer::Ready,
            Answer::Waiting,
            Answer::Held(Held { asked: moment(1), token, holder }),
            Answer::Refused { kind: "Contended".to_owned(), text: "it is held".to_owned() },
            Answer::Until(None),
            Answer::Until(Some(moment(5))),
            Answer::Yes,
            Answer::No,
            Answer::Hold(hold),
        ] {
            let line = format!("test conformance::worker ... {answer}");
            assert_eq!(Answer::in_line(&line), Some(answer));
        }
        assert_eq!(Answer::in_line("running 1 test"), None);
    }
}
