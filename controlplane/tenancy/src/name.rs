//! What things may be called: names that people read, and that stand in paths and tables.

/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 100;

/// Why a text is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// Nothing, or only spaces around nothing.
    #[error("is empty")]
    Empty,
    /// More than [`NAME_BYTES_MAX`].
    #[error("is longer than {NAME_BYTES_MAX} bytes")]
    Long,
    /// A slash would be read as a path, a control character or an outer space not at all.
    #[error("holds a slash, a control character, or a space at an end")]
    Character,
}

/// Whether a text may be a name. Errors: what is wrong with it.
pub fn check(name: &str) -> Result<(), NameFault> {
    if name.trim().is_empty() {
        return Err(NameFault::Empty);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NameFault::Long);
    }
    let is_wrong = |letter: char| letter == '/' || letter.is_control();
    if name.trim() != name || name.chars().any(is_wrong) {
        return Err(NameFault::Character);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{NameFault, check};

    #[test]
    fn a_name_can_stand_in_a_path_and_in_a_table() {
        for good in ["a", "Research & Development", "zürich", "team-1", &"x".repeat(100)] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, fault) in [
            ("", NameFault::Empty),
            ("  ", NameFault::Empty),
            (" a", NameFault::Character),
            ("a/b", NameFault::Character),
            ("a\nb", NameFault::Character),
            ("a\0", NameFault::Character),
            (&"x".repeat(101), NameFault::Long),
        ] {
            assert_eq!(check(bad), Err(fault), "{bad:?}");
        }
    }
}
