//! What a tenant may use: windows, budgets, and the levels they hang on.
//!
//! Used by [`crate::limiter`], which says who may take from it and when. Reading order: [`Measure`] and [`Amounts`],
//! [`chain`] (levels from key to organisation), [`table`] (all of them, as cores get them) and [`build`] (how it is
//! made), [`window`] and [`budget`] (what was used of a limit).
//!
//! No clock, no calendar, no I/O: ticks, seconds and the edges of periods are handed in.

pub mod budget;
pub mod build;
pub mod chain;
pub mod table;
pub mod window;

pub use chain::{Chain, Level, LevelList, Scope};
pub use table::{Calendar, LimitTable, Period};

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// Requests a minute.
    Requests = 0,
    /// Tokens a minute.
    Tokens = 1,
    /// Requests at once.
    Parallel = 2,
    /// Millionths of a budget unit a period.
    Budget = 3,
}

impl Measure {
    /// All of them, in the order of arrays by measure.
    pub const ALL: [Self; 4] = [Self::Requests, Self::Tokens, Self::Parallel, Self::Budget];

    /// The word in metrics and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::Parallel => "parallel",
            Self::Budget => "budget",
        }
    }
}

/// Some measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measures(u8);

impl Measures {
    /// Adds one.
    pub const fn with(self, measure: Measure) -> Self {
        Self(self.0 | 1 << measure as u8)
    }

    /// Whether it is among them.
    pub const fn has(self, measure: Measure) -> bool {
        self.0 & (1 << measure as u8) != 0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// One by one.
    pub fn iter(self) -> impl Iterator<Item = Measure> {
        Measure::ALL.into_iter().filter(move |measure| self.has(*measure))
    }
}

/// More than any request uses of anything, and far from where sums run over.
pub const AMOUNT_MAX: i64 = 1 << 53;
/// The most requests, or places, that travel in one message.
pub const COUNT_MAX: i64 = 1 << 28;

/// So much of each measure. Signed: what is given back may be less than nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    pub requests: i32,
    pub parallel: i32,
    pub tokens: i64,
    /// Millionths of a budget unit.
    pub units: i64,
}

impl Amounts {
    /// What one request asks for.
    pub fn of_request(tokens: u64, units: i64) -> Self {
        let tokens = i64::try_from(tokens).unwrap_or(AMOUNT_MAX).min(AMOUNT_MAX);
        Self { requests: 1, parallel: 1, tokens, units: units.clamp(0, AMOUNT_MAX) }
    }

    pub const fn of(&self, measure: Measure) -> i64 {
        match measure {
            Measure::Requests => self.requests as i64,
            Measure::Tokens => self.tokens,
            Measure::Parallel => self.parallel as i64,
            Measure::Budget => self.units,
        }
    }

    /// Puts in one; counts that are too large for a message are cut.
    pub fn set(&mut self, measure: Measure, amount: i64) {
        let count = amount.clamp(-COUNT_MAX, COUNT_MAX) as i32;
        match measure {
            Measure::Requests => self.requests = count,
            Measure::Tokens => self.tokens = amount,
            Measure::Parallel => self.parallel = count,
            Measure::Budget => self.units = amount,
        }
    }

    /// Without what is not among these measures.
    pub fn only(mut self, measures: Measures) -> Self {
        Measure::ALL.into_iter().filter(|measure| !measures.has(*measure)).for_each(|measure| self.set(measure, 0));
        self
    }

    /// What of it comes back when a request ends: budget and places; windows forget by time.
    pub const fn stocks(self) -> Self {
        Self { requests: 0, tokens: 0, ..self }
    }

    /// Whether there is as much of each measure as is asked for. What is not asked for may be short.
    pub fn covers(&self, ask: &Self) -> bool {
        let has = |own: i64, asked: i64| asked <= 0 || own >= asked;
        has(self.requests.into(), ask.requests.into())
            && has(self.tokens, ask.tokens)
            && has(self.parallel.into(), ask.parallel.into())
            && has(self.units, ask.units)
    }

    pub const fn is_zero(&self) -> bool {
        self.requests == 0 && self.parallel == 0 && self.tokens == 0 && self.units == 0
    }
}

impl std::ops::AddAssign for Amounts {
    fn add_assign(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.parallel = self.parallel.saturating_add(other.parallel);
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.units = self.units.saturating_add(other.units);
    }
}

impl std::ops::SubAssign for Amounts {
    fn sub_assign(&mut self, other: Self) {
        self.requests = self.requests.saturating_sub(other.requests);
        self.parallel = self.parallel.saturating_sub(other.parallel);
        self.tokens = self.tokens.saturating_sub(other.tokens);
        self.units = self.units.saturating_sub(other.units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_asked_for_may_be_short() {
        let left = Amounts { requests: 2, parallel: 0, tokens: 10, units: -5 };
        let check = |ask: Amounts, expected: bool| assert_eq!(left.covers(&ask), expected, "{ask:?}");
        check(Amounts::default(), true);
        check(Amounts { requests: 2, tokens: 10, ..Amounts::default() }, true);
        check(Amounts { requests: 3, ..Amounts::default() }, false);
        check(Amounts { tokens: 11, ..Amounts::default() }, false);
        check(Amounts { parallel: 1, ..Amounts::default() }, false);
        check(Amounts { units: 1, ..Amounts::default() }, false);
    }

    #[test]
    fn a_request_asks_only_for_what_is_limited() {
        let ask = Amounts::of_request(u64::MAX, i64::MAX);
        assert_eq!((ask.tokens, ask.units), (AMOUNT_MAX, AMOUNT_MAX));
        let only = Measures::default().with(Measure::Requests).with(Measure::Budget);
        assert_eq!(ask.only(only), Amounts { requests: 1, units: AMOUNT_MAX, ..Amounts::default() });
        assert_eq!(only.iter().collect::<Vec<_>>(), [Measure::Requests, Measure::Budget]);
    }
}
