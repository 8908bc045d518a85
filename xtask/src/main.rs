//! `cargo xtask`: the workspace's own tools, in Rust so that they need nothing else installed.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command answers on its output")]

use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};

use xtask::docs;
use xtask::lab;
use xtask::messages;
use xtask::simulate;
use xtask::tidy::{self, Tree};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(xtask::root()),
        ["docs"] => docs(xtask::root()),
        ["docs", "--check"] => check_docs(xtask::root()),
        ["messages"] => messages(xtask::root()),
        ["simulate", ref arguments @ ..] => return simulate(xtask::root(), arguments),
        ["lab", ref arguments @ ..] => match lab::task(arguments) {
            Some(task) => lab::run(xtask::root(), task),
            None => return usage(),
        },
        ["bench", ref arguments @ ..] => return bench(xtask::root(), arguments),
        _ => return usage(),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn tidy(root: &Path) -> io::Result<ExitCode> {
    let findings = tidy::check(&Tree::read(root)?);
    for finding in &findings {
        println!("{finding}");
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn docs(root: &Path) -> io::Result<ExitCode> {
    let (_, current) = promises(root)?;
    std::fs::write(root.join(README), current)?;
    Ok(ExitCode::SUCCESS)
}

fn check_docs(root: &Path) -> io::Result<ExitCode> {
    let (text, current) = promises(root)?;
    if text == current {
        return Ok(ExitCode::SUCCESS);
    }
    println!("{README}: the table of promises is not what the profiles say; run `cargo xtask docs`");
    Ok(ExitCode::FAILURE)
}

/// The page as it is, and as it should be.
fn promises(root: &Path) -> io::Result<(String, String)> {
    let text = std::fs::read_to_string(root.join(README))?;
    let current = docs::with_promises(&text, &fencepost::profiles(), &docs::Proofs::find(root)?);
    Ok((text, current))
}

const README: &str = "README.md";

fn messages(root: &Path) -> io::Result<ExitCode> {
    messages::write(root)?;
    Ok(ExitCode::SUCCESS)
}

fn simulate(root: &Path, arguments: &[&str]) -> ExitCode {
    match simulate::command(root, arguments) {
        Some(command) => run(command),
        None => usage(),
    }
}

fn bench(root: &Path, arguments: &[&str]) -> ExitCode {
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["run", "--release", "--quiet", "--package", "fencepost-bench", "--"]);
    command.args(arguments);
    run(command)
}

fn run(mut command: Command) -> ExitCode {
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: cargo does not start: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: cargo xtask tidy | docs [--check] | messages | simulate [--seeds N | --seed S] | bench [--json] [MEASURE]... |\n       \
         lab [--minutes N] [--seed S] | lab --screenshot"
    );
    ExitCode::from(2)
}
