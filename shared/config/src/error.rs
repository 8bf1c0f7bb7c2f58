//! What is wrong with a configuration: where, what, and what would be right.
//!
//! Filled by the reader and the checks, shown by the command line. Never stops at the first problem, never prints a
//! secret.

use std::fmt;
use std::sync::Arc;

use crate::read::PROBLEM_COUNT_MAX;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The file as a whole.
    File,
    /// A line and a column of the file, both from 1; the column counts characters.
    At {
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
    },
    /// An environment variable, by name.
    Variable(Arc<str>),
    /// Nobody wrote it: the documented default.
    Default,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where it was written.
    pub place: Place,
    /// What is wrong with it and what would be right, without the place.
    pub message: String,
}

/// Everything that is wrong with one configuration, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    file: String,
    problems: Vec<Problem>,
}

impl ConfigError {
    /// Sorts the problems by place and drops repetitions.
    pub(crate) fn new(file: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort();
        problems.dedup();
        problems.truncate(PROBLEM_COUNT_MAX);
        Self { file: file.to_owned(), problems }
    }

    /// The problems, in the order in which they are shown; never empty.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl Place {
    /// The place for people: `server.yaml:4:3`, or the name of a variable.
    pub fn in_file(&self, file: &str) -> String {
        match self {
            Self::At { line, column } => format!("{file}:{line}:{column}"),
            Self::Variable(name) => name.to_string(),
            Self::File | Self::Default => file.to_owned(),
        }
    }
}

/// One line a problem: `server.yaml:4:3: unknown key "enpoints"; did you mean "endpoints"?`
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}: {}", problem.place.in_file(&self.file), problem.message)?;
        }
        if self.problems.len() >= PROBLEM_COUNT_MAX {
            write!(f, "\nthere may be more; only {PROBLEM_COUNT_MAX} are collected")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// A key that was accepted although it changes nothing in this version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WithoutEffect {
    /// Where it was written.
    pub place: Place,
    /// The key's path, as `router.admission.queue_ttl` or `endpoints[0].batch_capacity`.
    pub key: String,
    /// Why it has no effect.
    pub reason: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_shown_one_a_line_in_the_order_of_the_file() {
        let at = |line, column| Place::At { line, column };
        let problem = |place, message: &str| Problem { place, message: message.to_owned() };
        let error = ConfigError::new(
            "server.yaml",
            vec![
                problem(Place::Variable("LLMGW__AUTH".into()), "c"),
                problem(at(10, 1), "b"),
                problem(at(9, 7), "a"),
                problem(at(9, 7), "a"),
            ],
        );
        assert_eq!(error.to_string(), "server.yaml:9:7: a\nserver.yaml:10:1: b\nLLMGW__AUTH: c");
        assert_eq!(error.problems().len(), 3);
    }
}
