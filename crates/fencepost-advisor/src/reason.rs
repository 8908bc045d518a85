//! Why the advice is what it is: one reason for each answer.

use crate::answers::{Answers, Overlap, Reach};
use crate::pattern::Pattern;
use crate::question::Question;

/// What is reasoned about.
struct Case {
    answers: Answers,
    pattern: Pattern,
    fence: bool,
}

/// One reason for each question, in the order of the questions.
pub(crate) fn reasons(
    given: Answers,
    complete: Answers,
    pattern: Pattern,
    fence: bool,
) -> Vec<(Question, String)> {
    let case = Case { answers: complete, pattern, fence };
    let reason = |question: Question| {
        let text = case.reason(question);
        let text = match given.to(question) {
            Some(_) => text.to_owned(),
            None => format!(
                "not answered, so the worse is taken ({}): {text}",
                complete.to(question).unwrap_or("")
            ),
        };
        (question, text)
    };
    Question::ALL.into_iter().map(reason).collect()
}

impl Case {
    fn reason(&self, question: Question) -> &'static str {
        match question {
            Question::OnOverlap => self.on_overlap(),
            Question::CanPause => self.can_pause(),
            Question::Postgres => self.postgres(),
            Question::Databases => self.databases(),
            Question::SinkChecks => self.sink_checks(),
            Question::Hosts => self.hosts(),
        }
    }

    fn on_overlap(&self) -> &'static str {
        match (self.answers.on_overlap, self.pattern) {
            (Some(Overlap::Absorbed), _) => {
                "a duplicate is absorbed, so the lock only saves work; nothing heavier is worth running"
            }
            (Some(Overlap::Wasteful), _) => {
                "two at once waste work and spoil nothing, so the lock may fail on a bad day"
            }
            (_, Pattern::File) => "two at once corrupt data, and this lock cannot end before its holder has",
            _ => {
                "two at once corrupt data, so no clock that somebody sets may end the lock; that rules out one Redis"
            }
        }
    }

    fn can_pause(&self) -> &'static str {
        match (self.answers.can_pause, self.pattern) {
            (Some(true), Pattern::File) if self.fence => {
                "a paused worker keeps this lock; the fence also refuses a job that was started without it"
            }
            (Some(true), Pattern::File) => "a paused worker keeps this lock, and the others wait",
            (Some(true), _) if self.fence => {
                "a worker may go on writing after its lease has ended, and only a fence can refuse that write"
            }
            (Some(true), _) if self.answers.corrupts() => {
                "a worker may go on writing after its lease has ended, and nothing would refuse that write"
            }
            (Some(true), _) => {
                "a worker that was paused may overlap with the next one, which does no lasting harm here"
            }
            _ => "no worker writes after its lease has ended, so no fence is needed against that",
        }
    }

    fn postgres(&self) -> &'static str {
        match (self.answers.postgres, self.pattern) {
            (Some(true), Pattern::Postgres) => "the database is there already, and can keep the lock as well",
            (Some(true), Pattern::File) => "it could keep the lock, but on one host a directory can, too",
            (Some(true), _) => "it could keep the lock, but it is one server",
            (_, Pattern::File) => "there is none to keep the lock, and none is needed on one host",
            _ => "there is none to keep the lock, and it is not worth one for the lock alone",
        }
    }

    fn databases(&self) -> &'static str {
        match (self.answers.databases, self.pattern) {
            (_, Pattern::File) => "it makes no difference where all workers are on one host",
            (Some(Reach::One), Pattern::Redis | Pattern::Postgres) => {
                "one server may decide, so no cluster is needed"
            }
            (Some(Reach::One), _) => {
                "one server might decide, but there is none whose locks no clock can end; so it takes a cluster"
            }
            (_, Pattern::Redis) => {
                "one server decides all the same: a cluster is not worth it for this overlap"
            }
            (_, Pattern::Postgres) => {
                "one of the databases keeps the lock for all: a cluster is not worth it for this overlap"
            }
            (_, Pattern::Redlock) => {
                "no single server may decide, so a majority of several does, and one may fail"
            }
            _ => {
                "no single server may decide, so a cluster does, which goes on when one of its servers fails"
            }
        }
    }

    fn sink_checks(&self) -> &'static str {
        let checks = self.answers.sink_checks == Some(true);
        match (checks, self.answers.corrupts(), self.answers.can_pause) {
            (true, _, _) if self.fence => "what is written to can check the token, so it is the fence",
            (true, true, _) => "what is written to could check the token; without pauses it need not",
            (true, false, _) => "what is written to could check the token; for this overlap it need not",
            (false, true, Some(true)) if self.pattern == Pattern::File => {
                "nothing can check a token, so the lock has to do alone, which it can on one host"
            }
            (false, true, Some(true)) => {
                "nothing can check a token, so the lock has to do alone, which it cannot"
            }
            (false, true, _) => "nothing can check a token, so the lock has to do alone",
            (false, false, _) => "nothing can check a token, and nothing needs to",
        }
    }

    fn hosts(&self) -> &'static str {
        match self.answers.hosts {
            Some(Reach::One) => "all workers see a lock on their own host, so no server is needed",
            _ => "a lock on one host is not seen on the others, so it is kept where all of them can reach it",
        }
    }
}
