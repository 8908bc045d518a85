//! What libpq reads besides a URL, in its order: the service file, the environment, and the password file.
//!
//! It is apart because it follows [libpq](https://www.postgresql.org/docs/current/libpq-envars.html) and not us.
//! Invariant: nothing here prints or connects, and no message shows the value of a password.

mod environment;
mod passwords;
mod service;
mod settings;

pub(crate) use environment::Environment;
pub(crate) use passwords::{Answer, Password, PasswordFile, Question};
pub(crate) use settings::{Origin, Setting, Settings};
