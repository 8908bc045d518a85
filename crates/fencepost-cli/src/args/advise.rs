//! The grammar of `fencepost advise`, apart since its answers come from the questions of the advisor.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use fencepost_advisor::{Answers, Choice, Question};

// What `advise` is told.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub(crate) struct Advise {
    /// What happens if two workers process the same partition at once
    #[arg(long, value_name = "WHAT", value_parser = answers_to(Question::OnOverlap))]
    on_overlap: Option<String>,
    /// Whether a paused worker can keep writing after its lease has ended
    #[arg(long, value_name = "YES|NO", value_parser = answers_to(Question::CanPause))]
    can_pause: Option<String>,
    /// Whether the pipeline writes to Postgres already
    #[arg(long, value_name = "YES|NO", value_parser = answers_to(Question::Postgres))]
    postgres: Option<String>,
    /// Whether the lock must reach across several databases, or a failure is so severe that no single server may decide
    #[arg(long, value_name = "ONE|MANY", value_parser = answers_to(Question::Databases))]
    databases: Option<String>,
    /// Whether the system that is written to can check a fencing token
    #[arg(long, value_name = "YES|NO", value_parser = answers_to(Question::SinkChecks))]
    sink_checks: Option<String>,
    /// On how many hosts the workers run
    #[arg(long, value_name = "ONE|MANY", value_parser = answers_to(Question::Hosts))]
    hosts: Option<String>,
    /// The locks of the rule: * and ? stay between two slashes, ** crosses them
    #[arg(long = "match", value_name = "GLOB", conflicts_with = "from")]
    pub(crate) glob: Option<String>,
    /// Why the rule is as it is; it stands in the rule
    #[arg(long, value_name = "TEXT", conflicts_with = "from")]
    pub(crate) because: Option<String>,
    /// The fence of the rule: a URL, or a name of the configuration
    #[arg(long, value_name = "URL", conflicts_with = "from")]
    pub(crate) fence: Option<String>,
    /// Put the rule into the configuration, which is made if it is not there
    #[arg(long)]
    pub(crate) write: bool,
    /// Advise on many partitions at once, which this file lists
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
}

impl Advise {
    /// What was said to one question; `unknown` is an answer too.
    pub(crate) fn said(&self, question: Question) -> Option<&str> {
        let answer = match question {
            Question::OnOverlap => &self.on_overlap,
            Question::CanPause => &self.can_pause,
            Question::Postgres => &self.postgres,
            Question::Databases => &self.databases,
            Question::SinkChecks => &self.sink_checks,
            Question::Hosts => &self.hosts,
        };
        answer.as_deref()
    }

    /// The answers that the flags give.
    pub(crate) fn answers(&self) -> Answers {
        let mut answers = Answers::default();
        for question in Question::ALL {
            answers.answer(question, self.said(question).unwrap_or(UNKNOWN));
        }
        answers
    }

    /// The questions to which nothing was said.
    pub(crate) fn open(&self) -> Vec<Question> {
        Question::ALL.into_iter().filter(|question| self.said(*question).is_none()).collect()
    }
}

/// The answer of who does not know.
pub(crate) const UNKNOWN: &str = "unknown";

fn answers_to(question: Question) -> PossibleValuesParser {
    let value = |choice: &Choice| PossibleValue::new(choice.answer).help(choice.meaning);
    let known = question.choices().iter().map(value);
    PossibleValuesParser::new(known.chain([PossibleValue::new(UNKNOWN).help("The worse is assumed.")]))
}

const AFTER: &str = "\
--backend URL names the server of the rule. Without it, and without a backend of
that kind in the configuration that is strong enough, a place is left to fill
in, and nothing runs before that is done. A password in a URL is refused: write
'${VAR}' or '${file:/path}' in its place.

The file of --from:

    [[partitions]]
    match = \"ledger/**\"
    on_overlap = \"corrupts\"   # or absorbed, wasteful
    can_pause = true          # so are postgres and sink_checks
    databases = \"many\"        # so is hosts: one, many
    fence = \"postgres://app@db/ledger\"
    because = \"two writers corrupt the balance\"

What a partition leaves open, the flags answer.";
