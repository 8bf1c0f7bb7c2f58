//! The command line, word by word. Called by `main` and by each chore; knows no chore's words itself.

/// What a chore ends with: nothing, or one sentence for a person.
pub(crate) type Outcome = Result<(), String>;

/// The words that are left to be read.
#[derive(Debug)]
pub(crate) struct Args {
    chore: String,
    rest: Vec<String>,
    after_dashes: Vec<String>,
}

impl Args {
    /// Splits the words at the first `--`: what follows belongs to the program that the chore starts.
    pub(crate) fn new(words: impl Iterator<Item = String>) -> Self {
        let mut rest: Vec<String> = words.collect();
        let after_dashes = match rest.iter().position(|word| word == "--") {
            Some(at) => rest.split_off(at).split_off(1),
            None => Vec::new(),
        };
        Self { chore: String::new(), rest, after_dashes }
    }

    /// Takes the next word that is not an option. The first one taken names the chore.
    pub(crate) fn word(&mut self) -> Option<String> {
        let at = match self.chore.is_empty() {
            true => (!self.rest.is_empty()).then_some(0)?,
            false => self.rest.iter().position(|word| !word.starts_with("--"))?,
        };
        let word = self.rest.remove(at);
        if self.chore.is_empty() {
            self.chore.clone_from(&word);
        }
        Some(word)
    }

    /// Takes the option `name` if it is there.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let found = self.rest.iter().position(|word| word == name);
        found.map(|at| self.rest.remove(at)).is_some()
    }

    /// Takes the next word if it is `name`.
    pub(crate) fn takes(&mut self, name: &str) -> bool {
        let is_next = self.rest.first().is_some_and(|word| word == name);
        is_next.then(|| self.rest.remove(0)).is_some()
    }

    /// Takes the option `name` and the value behind it.
    ///
    /// Errors: the option stands last, or its value is not what `T` reads.
    pub(crate) fn value<T: std::str::FromStr>(&mut self, name: &str) -> Result<Option<T>, String> {
        let Some(at) = self.rest.iter().position(|word| word == name) else { return Ok(None) };
        if at + 1 >= self.rest.len() {
            return Err(format!("{name} wants a value"));
        }
        self.rest.remove(at);
        let text = self.rest.remove(at);
        text.parse().map(Some).map_err(|_| format!("{name}: cannot read {text:?}"))
    }

    /// Whether the chore was called for its help.
    pub(crate) fn is_help_wanted(&self) -> bool {
        self.rest.iter().any(|word| word == "--help" || word == "-h")
    }

    /// Whether the chore is called `name`.
    pub(crate) fn is_chore(&self, name: &str) -> bool {
        self.chore == name
    }

    /// Takes everything that is left, with what stood behind `--`.
    pub(crate) fn into_rest(self) -> Vec<String> {
        self.rest.into_iter().chain(self.after_dashes).collect()
    }

    /// What stood behind `--`.
    ///
    /// Errors: words in front of it that the chore did not take, so that a slip is not read as consent.
    pub(crate) fn finish(self) -> Result<Vec<String>, String> {
        match self.rest.first() {
            Some(word) => Err(format!("{}: {word:?} is not known; see `cargo x --help`", self.chore)),
            None => Ok(self.after_dashes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Args {
        Args::new(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn words_flags_and_values_are_taken_from_anywhere() {
        let mut args = args("fuzz --seconds 5 head --fix -- a b");
        assert_eq!(args.word().as_deref(), Some("fuzz"));
        assert_eq!(args.value::<u64>("--seconds"), Ok(Some(5)));
        assert_eq!(args.word().as_deref(), Some("head"));
        assert!(args.flag("--fix"));
        assert!(!args.flag("--fix"));
        assert_eq!(args.finish(), Ok(vec!["a".into(), "b".into()]));
    }

    #[test]
    fn a_word_nobody_took_is_refused() {
        let mut args = args("lint --fxi");
        args.word();
        assert!(!args.flag("--fix"));
        assert!(args.finish().unwrap_err().contains("--fxi"));
    }

    #[test]
    fn a_value_that_is_missing_or_wrong_is_refused() {
        for line in ["fuzz --seconds", "fuzz --seconds soon"] {
            let mut args = args(line);
            args.word();
            assert!(args.value::<u64>("--seconds").is_err(), "{line}");
        }
    }
}
