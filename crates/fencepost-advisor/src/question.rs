//! The questions, with what each answer means, for whoever asks them: a terminal, a help text, a schema.

/// A question about a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Question {
    /// What happens if two workers have the same lock at once.
    OnOverlap,
    /// Whether a paused worker can keep writing after its lease has ended.
    CanPause,
    /// Whether the pipeline writes to Postgres already.
    Postgres,
    /// Over how many databases the lock must reach.
    Databases,
    /// Whether the protected system can check a fencing token.
    SinkChecks,
    /// On how many hosts the workers run.
    Hosts,
}

/// One answer that can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice {
    /// The answer, as it is written.
    pub answer: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// Where it is so.
    pub example: &'static str,
}

const fn choice(answer: &'static str, meaning: &'static str, example: &'static str) -> Choice {
    Choice { answer, meaning, example }
}

impl Question {
    /// All of them, in the order in which they are asked.
    pub const ALL: [Self; 6] =
        [Self::OnOverlap, Self::CanPause, Self::Postgres, Self::Databases, Self::SinkChecks, Self::Hosts];

    /// Its key in a configuration.
    pub const fn key(self) -> &'static str {
        match self {
            Self::OnOverlap => "on_overlap",
            Self::CanPause => "can_pause",
            Self::Postgres => "postgres",
            Self::Databases => "databases",
            Self::SinkChecks => "sink_checks",
            Self::Hosts => "hosts",
        }
    }

    /// The flag of the command line that answers it.
    pub const fn flag(self) -> &'static str {
        match self {
            Self::OnOverlap => "--on-overlap",
            Self::CanPause => "--can-pause",
            Self::Postgres => "--postgres",
            Self::Databases => "--databases",
            Self::SinkChecks => "--sink-checks",
            Self::Hosts => "--hosts",
        }
    }

    /// The question itself.
    pub const fn text(self) -> &'static str {
        match self {
            Self::OnOverlap => "What happens if two workers process the same partition at once?",
            Self::CanPause => "Can a paused worker keep writing after its lease has ended?",
            Self::Postgres => "Does the pipeline write to Postgres already?",
            Self::Databases => {
                "Must the lock reach across several databases, or is a failure so severe that no single server may \
                 decide?"
            }
            Self::SinkChecks => "Can the system that is written to check a fencing token?",
            Self::Hosts => "On how many hosts do the workers run?",
        }
    }

    /// The answers to choose from.
    pub const fn choices(self) -> &'static [Choice] {
        match self {
            Self::OnOverlap => OVERLAPS,
            Self::CanPause => PAUSES,
            Self::Postgres => POSTGRES,
            Self::Databases => DATABASES,
            Self::SinkChecks => CHECKS,
            Self::Hosts => HOSTS,
        }
    }
}

const OVERLAPS: &[Choice] = &[
    choice(
        "absorbed",
        "Nothing: the duplicate is absorbed.",
        "rows with a key that are written twice, a stream that drops what it has seen",
    ),
    choice(
        "wasteful",
        "Work is done twice, and nothing else is wrong.",
        "a report that is built twice, a cron job that starts on two hosts",
    ),
    choice(
        "corrupts",
        "Data are wrong afterwards.",
        "a running balance, a stock count, a table that is rebuilt",
    ),
];

const PAUSES: &[Choice] = &[
    choice(
        "yes",
        "It can stand still for long, and then goes on where it was.",
        "most programs: garbage collection, a slow call, a virtual machine that is moved, a laptop lid",
    ),
    choice(
        "no",
        "It cannot write after its lease, whatever happens to it.",
        "one transaction on the connection that holds the lock, a worker that a watchdog cuts off",
    ),
];

const POSTGRES: &[Choice] = &[
    choice(
        "yes",
        "Every worker has a connection to the same database.",
        "dbt, a warehouse, an application database",
    ),
    choice(
        "no",
        "It writes elsewhere, or not all workers reach it.",
        "files, an object store, a message queue",
    ),
];

const DATABASES: &[Choice] = &[
    choice(
        "one",
        "One server may decide, and a while without it can be borne.",
        "one warehouse, one directory of results",
    ),
    choice(
        "many",
        "One lock stands for several databases, or none may fail alone.",
        "a ledger over two databases, a stock of several shops",
    ),
];

const CHECKS: &[Choice] = &[
    choice(
        "yes",
        "It can refuse a write whose token is older than one it has seen.",
        "Postgres, SQLite, Redis, an object store, a directory, a service of your own",
    ),
    choice("no", "It takes every write that arrives.", "an e-mail, a foreign service, a machine"),
];

const HOSTS: &[Choice] = &[
    choice("one", "All on one, and none elsewhere.", "cron on one server, a backup script"),
    choice("many", "On several, or nobody knows on how many.", "containers in a cluster, two cron hosts"),
];
