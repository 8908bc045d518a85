//! What is known of a pipeline, which decides how strong its lock has to be.
//!
//! Apart because the configuration keeps the same answers with each rule.

use crate::question::Question;

/// What happens if two workers have the same lock at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Overlap {
    /// Nothing: the duplicate is absorbed.
    Absorbed,
    /// Work is wasted, nothing else.
    Wasteful,
    /// Data are corrupted.
    Corrupts,
}

/// Whether something is in one place or in several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// In one.
    One,
    /// In several.
    Many,
}

/// The answers; `None` for a question that was not answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Answers {
    /// What happens if two workers have the same lock at once.
    pub on_overlap: Option<Overlap>,
    /// Whether a paused worker can keep writing after its lease has ended.
    pub can_pause: Option<bool>,
    /// Whether the pipeline writes to Postgres already.
    pub postgres: Option<bool>,
    /// Over how many databases the lock must reach; many too where a failure is so severe that no single server may
    /// decide.
    pub databases: Option<Reach>,
    /// Whether the protected system can check a fencing token.
    pub sink_checks: Option<bool>,
    /// On how many hosts the workers run.
    pub hosts: Option<Reach>,
}

impl Answers {
    /// The same with the worse answer to each question that was not answered.
    pub fn assuming_the_worse(self) -> Self {
        Self {
            on_overlap: self.on_overlap.or(Some(Overlap::Corrupts)),
            can_pause: self.can_pause.or(Some(true)),
            postgres: self.postgres.or(Some(false)),
            databases: self.databases.or(Some(Reach::Many)),
            sink_checks: self.sink_checks.or(Some(false)),
            hosts: self.hosts.or(Some(Reach::Many)),
        }
    }

    /// These answers, and those of `others` to what is not answered here.
    pub fn or(self, others: Self) -> Self {
        Self {
            on_overlap: self.on_overlap.or(others.on_overlap),
            can_pause: self.can_pause.or(others.can_pause),
            postgres: self.postgres.or(others.postgres),
            databases: self.databases.or(others.databases),
            sink_checks: self.sink_checks.or(others.sink_checks),
            hosts: self.hosts.or(others.hosts),
        }
    }

    /// The answer to one question, as it is written.
    pub fn to(&self, question: Question) -> Option<&'static str> {
        match question {
            Question::OnOverlap => self.on_overlap.map(Overlap::name),
            Question::CanPause => self.can_pause.map(yes_or_no),
            Question::Postgres => self.postgres.map(yes_or_no),
            Question::Databases => self.databases.map(Reach::name),
            Question::SinkChecks => self.sink_checks.map(yes_or_no),
            Question::Hosts => self.hosts.map(Reach::name),
        }
    }

    /// Writes down an answer. What is none of the question's choices means that it is not known.
    pub fn answer(&mut self, question: Question, answer: &str) {
        match question {
            Question::OnOverlap => {
                self.on_overlap = Overlap::ALL.into_iter().find(|one| one.name() == answer);
            }
            Question::CanPause => self.can_pause = truth(answer),
            Question::Postgres => self.postgres = truth(answer),
            Question::Databases => self.databases = Reach::ALL.into_iter().find(|one| one.name() == answer),
            Question::SinkChecks => self.sink_checks = truth(answer),
            Question::Hosts => self.hosts = Reach::ALL.into_iter().find(|one| one.name() == answer),
        }
    }

    /// The questions that were not answered.
    pub fn unanswered(&self) -> impl Iterator<Item = Question> {
        Question::ALL.into_iter().filter(|question| self.to(*question).is_none())
    }

    pub(crate) fn corrupts(self) -> bool {
        self.on_overlap == Some(Overlap::Corrupts)
    }

    /// Whether somebody may write who does not know that the lock has gone on.
    pub(crate) fn is_exposed_to_pauses(self) -> bool {
        self.corrupts() && self.can_pause == Some(true)
    }
}

impl Overlap {
    /// All of them, from the harmless to the bad.
    pub const ALL: [Self; 3] = [Self::Absorbed, Self::Wasteful, Self::Corrupts];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Absorbed => "absorbed",
            Self::Wasteful => "wasteful",
            Self::Corrupts => "corrupts",
        }
    }
}

impl Reach {
    /// Both.
    pub const ALL: [Self; 2] = [Self::One, Self::Many];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Many => "many",
        }
    }
}

fn yes_or_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

fn truth(answer: &str) -> Option<bool> {
    match answer {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}
