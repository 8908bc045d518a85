//! What the clients and the server of these tests say to each other: lines of fields with tabs between them.

use std::str::FromStr;
use std::time::Duration;

use fencepost_core::{
    AcquireRequest, Error, ErrorKind, HolderId, LockState, LossReason, Mode, Moment, Result, Status, Wait,
    Waiter,
};

/// A line of fields.
pub(crate) fn line(fields: &[&str]) -> String {
    fields.join("\t") + "\n"
}

/// The fields of a line.
pub(crate) fn fields(line: &str) -> Vec<&str> {
    line.trim_end_matches('\n').split('\t').collect()
}

/// A field that the other side must have written well.
pub(crate) fn read<T: FromStr>(field: &str) -> T {
    field.parse().unwrap_or_else(|_| panic!("the other side wrote {field:?}"))
}

fn option<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn read_option<T: FromStr>(field: &str) -> Option<T> {
    (field != "-").then(|| read(field))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("a test takes seconds")
}

pub(crate) fn acquire(request: &AcquireRequest) -> String {
    let wait = match request.wait {
        Wait::No => "no".to_owned(),
        Wait::Until(at) => at.as_nanos().to_string(),
        Wait::Forever => "forever".to_owned(),
    };
    let (ttl, at_least) = (nanos(request.ttl).to_string(), option(request.at_least.map(nanos)));
    line(&[
        "acquire",
        &request.holder.to_string(),
        &ttl,
        &at_least,
        &wait,
        &request.label,
        request.name.as_str(),
    ])
}

pub(crate) fn read_acquire(fields: &[&str]) -> AcquireRequest {
    let [holder, ttl, at_least, wait, label, name] = *fields else { panic!("{fields:?} is no request") };
    AcquireRequest {
        name: read(name),
        holder: read(holder),
        label: label.to_owned(),
        ttl: Duration::from_nanos(read(ttl)),
        at_least: read_option(at_least).map(Duration::from_nanos),
        wait: match wait {
            "no" => Wait::No,
            "forever" => Wait::Forever,
            at => Wait::Until(Moment::from_nanos(read(at))),
        },
        mode: Mode::Exclusive,
        beside: Vec::new(),
        observer: None,
    }
}

const KINDS: [ErrorKind; 5] = [
    ErrorKind::Contended,
    ErrorKind::InvalidArgument,
    ErrorKind::Lost,
    ErrorKind::Unexpected,
    ErrorKind::Unsupported,
];

pub(crate) fn error(verb: &str, error: &Error) -> String {
    let was_revoked = error.loss_reason() == Some(LossReason::Revoked);
    line(&[verb, &format!("{:?}", error.kind()), &was_revoked.to_string(), &error.to_string()])
}

pub(crate) fn read_error(fields: &[&str]) -> Error {
    let [kind, was_revoked, text] = *fields else { panic!("{fields:?} is no error") };
    let kind = KINDS.into_iter().find(|known| format!("{known:?}") == kind);
    let kind = kind.unwrap_or(ErrorKind::Unexpected);
    match (kind, read(was_revoked)) {
        (ErrorKind::Lost, true) => Error::lost(LossReason::Revoked, text),
        (ErrorKind::Lost, false) => Error::lost(LossReason::Expired, text),
        _ => Error::new(kind, "use the server", text),
    }
}

/// The answer to a request that gives nothing back.
pub(crate) fn done(outcome: Result<()>) -> String {
    outcome.map_or_else(|failure| error("error", &failure), |()| line(&["done"]))
}

pub(crate) fn state(state: &LockState) -> String {
    let status = state.status.to_string();
    let (holder, token) = (option(state.holder), option(state.token));
    let (since, remaining) = (option(state.since_micros), option(state.remaining.map(nanos)));
    let label = state.label.clone().unwrap_or_else(|| "-".to_owned());
    let waiters: Vec<String> = state.waiters.iter().map(|waiter| option(waiter.holder)).collect();
    let name = state.name.as_str();
    line(&["state", &status, &holder, &token, &since, &remaining, &label, &waiters.join(" "), name])
}

pub(crate) fn read_state(fields: &[&str]) -> LockState {
    let [status, holder, token, since, remaining, label, waiters, name] = *fields else {
        panic!("{fields:?} is no state")
    };
    let mut state = LockState::free(read(name));
    state.status = match status {
        "held" => Status::Held,
        "resting" => Status::Resting,
        _ => Status::Free,
    };
    (state.holder, state.token) = (read_option(holder), read_option(token));
    (state.since_micros, state.remaining) =
        (read_option(since), read_option(remaining).map(Duration::from_nanos));
    state.label = (label != "-").then(|| label.to_owned());
    state.waiters = waiters.split_ascii_whitespace().map(waiter).collect();
    state
}

fn waiter(holder: &str) -> Waiter {
    Waiter { holder: read_option::<HolderId>(holder), label: None, since_micros: None }
}
