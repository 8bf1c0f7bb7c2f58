//! How long trials take: scaled down for every day, at full length where somebody asks for it.

/// The full number where `LLMGW_FULL_TRIALS` is set (`cargo x test all`), else the scaled one.
#[must_use]
pub fn full_or<T>(full: T, scaled: T) -> T {
    if std::env::var_os("LLMGW_FULL_TRIALS").is_some_and(|value| value == "1") { full } else { scaled }
}
