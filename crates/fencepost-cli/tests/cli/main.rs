//! The command line as a user meets it: real processes, signals, files, and a terminal.

mod exits;
mod faults;
mod files;
mod look;
mod run;
mod signals;
mod support;
