//! The login at a cluster, which takes the server a tenth of a second: one for all that need it.
//!
//! Invariant: a token that a member has refused is not used again, and no secret is ever shown. A login ends by its own time
//! and not by that of whoever asks: many who ask for a short while each see the same one end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencepost_core::{Clock, lock, until};
use fencepost_net::Login;
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::Shared as Joined;

use crate::connection::Connection;
use crate::failure::Failure;
use crate::generated::{AuthenticateRequest, AuthenticateResponse};
use crate::grpc::framed;

/// What a login has given.
#[derive(Clone)]
pub(crate) struct Token(Arc<str>);

impl Token {
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// Whether we are logged in.
pub(crate) struct LoggedIn {
    login: Login,
    state: Arc<Mutex<State>>,
}

type Outcome = Result<Option<Token>, Failure>;

enum State {
    Out,
    LoggingIn(Begun),
    /// Without a token where the server asks nobody for one.
    In(Option<Token>),
}

/// A login that is under way.
#[derive(Clone)]
struct Begun {
    connection: Connection,
    outcome: Joined<oneshot::Receiver<Outcome>>,
}

impl LoggedIn {
    pub(crate) fn new(login: Login) -> Self {
        let state = if login.user.is_some() { State::Out } else { State::In(None) };
        Self { login, state: Arc::new(Mutex::new(state)) }
    }

    /// The token to send, after logging in on `connection` where that is due.
    ///
    /// # Cancel safety
    /// Dropping it does not stop the login.
    pub(crate) async fn token(&self, clock: &Clock, connection: &Connection) -> Outcome {
        let logging_in = {
            let mut state = lock(&self.state);
            match &*state {
                State::In(token) => return Ok(token.clone()),
                // One on the connection of a member that was given up ends with that.
                State::LoggingIn(begun) if begun.connection.is(connection) => begun.clone(),
                State::LoggingIn(_) | State::Out => {
                    let begun = self.begin(clock, connection);
                    *state = State::LoggingIn(begun.clone());
                    begun
                }
            }
        };
        let unanswered = || Err(Failure::Unsent("the login has ended".to_owned()));
        logging_in.outcome.await.unwrap_or_else(|_| unanswered())
    }

    /// Whether requests go without a token.
    pub(crate) fn is_without(&self) -> bool {
        matches!(&*lock(&self.state), State::In(None))
    }

    /// The next one who needs it logs in anew, unless that has been done since.
    pub(crate) fn forget(&self, refused: Option<&Token>) {
        let mut state = lock(&self.state);
        let is_same = match (&*state, refused) {
            (State::In(Some(token)), Some(refused)) => Arc::ptr_eq(&token.0, &refused.0),
            // The server asks for a login that it did not ask for before.
            (State::In(None), None) => self.login.user.is_some(),
            _ => false,
        };
        if is_same {
            *state = State::Out;
        }
    }

    fn begin(&self, clock: &Clock, connection: &Connection) -> Begun {
        let (sender, outcome) = oneshot::channel();
        let begun = Begun { connection: connection.clone(), outcome: outcome.shared() };
        let (clock, connection) = (clock.clone(), connection.clone());
        let (login, state) = (self.login.clone(), Arc::clone(&self.state));
        clock.clone().serve(async move {
            let give_up_at = Some(clock.now().after(LOGIN_MOST));
            let outcome = until(&clock, give_up_at, log_in(&login, &connection)).await;
            let outcome = outcome.unwrap_or_else(|| {
                Err(Failure::Unsent(format!("{} lets nobody in for {LOGIN_MOST:?}", connection.address())))
            });
            note(&mut lock(&state), &connection, &outcome);
            // Whoever asked may have gone.
            drop(sender.send(outcome));
        });
        begun
    }
}

/// Takes over what a login has come to, unless another one was begun meanwhile.
fn note(state: &mut State, connection: &Connection, outcome: &Outcome) {
    if matches!(state, State::LoggingIn(begun) if begun.connection.is(connection)) {
        *state = outcome.as_ref().map_or(State::Out, |token| State::In(token.clone()));
    }
}

async fn log_in(login: &Login, connection: &Connection) -> Outcome {
    let request = AuthenticateRequest {
        name: login.user.clone().unwrap_or_default(),
        password: login.password.clone().unwrap_or_default(),
    };
    match connection.ask::<AuthenticateResponse>(AUTHENTICATE, (framed(&request), 1), None).await {
        Ok(mut answers) => Ok(answers.pop().map(|answer| Token(answer.token.into()))),
        Err(failure) if failure.is_open_to_all() => Ok(None),
        Err(failure) => Err(failure),
    }
}

const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// How long a login may take: it is slow on purpose, so that passwords cannot be tried.
const LOGIN_MOST: Duration = Duration::from_secs(2);
