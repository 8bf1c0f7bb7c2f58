//! Values that do not print: engine keys, tokens.
//!
//! Called by configuration and by whoever writes an `Authorization` header. Never logs, compares or stores.

use std::fmt;

/// A text that may be used but not shown: `Debug` and `Display` print `[secret]`.
#[derive(Clone)]
pub struct Secret(Box<str>);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that must send or hash it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_prints_nothing_of_itself_and_exposes_all_of_itself() {
        let secret = Secret::new("sk-1234");
        assert_eq!(format!("{secret} {secret:?} {:#?}", Some(&secret)).matches("1234").count(), 0);
        assert_eq!(secret.expose(), "sk-1234");
    }
}
