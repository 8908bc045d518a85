//! Asking before something is done that cannot be taken back.

use std::io::IsTerminal;

use fencepost::{Error, ErrorKind, Result};

use crate::printer::Printer;

/// Whether the user wants it: says so by `--yes`, or when asked on the terminal.
///
/// # Errors
/// `InvalidArgument` where there is nobody to ask.
pub(crate) fn confirmed(yes: bool, question: &str, printer: Printer) -> Result<bool> {
    if yes {
        return Ok(true);
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let what = "it cannot be taken back, and there is no terminal to ask on";
        return Err(Error::new(ErrorKind::InvalidArgument, "go on", what).hint("say --yes"));
    }
    printer.ask(question);
    let mut answer = String::new();
    // Without an answer nothing is done.
    let _ = std::io::stdin().read_line(&mut answer);
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
