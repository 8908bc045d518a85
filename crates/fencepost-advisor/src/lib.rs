#![doc = include_str!("../README.md")]
//!
//! # Map of the code
//! - `answers`: what is known of a pipeline; `question`: how that is asked
//! - `pattern`: the locks that there are to choose from, what each costs and promises
//! - `judgement`: where a lock is weaker than the answers demand; the only place that decides this
//! - `advice`: the lightest lock that is not too weak; `reason`, `risk`, `alternative`: what is said with it
//! - `rule`: the advice as a part of a configuration; `text`: the advice to be read

mod advice;
mod alternative;
mod answers;
mod judgement;
mod pattern;
mod question;
mod reason;
mod risk;
mod rule;
mod text;

pub use advice::{Advice, advise};
pub use alternative::{Alternative, Direction};
pub use answers::{Answers, Overlap, Reach};
pub use judgement::{Held, Shortfall, Weakness, shortfalls, weaknesses};
pub use pattern::{Cost, NOT_COUNTED, Pattern, promised};
pub use question::{Choice, Question};
pub use risk::{Fault, Risk, risks};
pub use rule::{DIRECTORY, Details, FILL_IN, FILL_IN_GLOB};
pub use text::wrapped;
