//! What a request asks of its limits, what it is told when they refuse it, and what answers show of them.
//!
//! Used by `reserve`, and by the conventional gateway of bench/stock in its place. What is left of limits, and who may
//! have it, is said by others: nothing is asked or counted here but in cells.

use std::fmt::Write as _;
use std::time::Duration;

use llmgw_kit::clock::Wall;
use llmgw_obs::stamp::Stamp;
use llmgw_router::limiter::{Refused, Remaining};
use llmgw_router::metrics::CoreCells;
use llmgw_router::quota::{Amounts, LimitTable, Measure};
use llmgw_types::snapshot::{ArchivedRouteTable, Units};
use llmgw_types::tenants::Caller;
use llmgw_types::{KeyIdx, Tokens};

use crate::error::{ApiError, Reason};
use crate::intake::Intake;
use crate::route::{Inference, Streams, UsageReport};
use crate::routing::OUTPUT_TOKENS;

/// After which all of a window is there again, if nothing more is used. Units: seconds.
const WINDOW_S: u32 = 60;

/// What a request asks of its limits, whatever model it comes to.
pub struct LimitAsk {
    caller: Caller,
    /// Tokens of its prompt, as estimated, and the most that its answer may have.
    prompt: u64,
    answer: u64,
}

/// What comes of a request that limits hold: places in [`llmgw_router::metrics::LIMIT_OUTCOMES`].
#[derive(Clone, Copy)]
pub enum Outcome {
    Lease = 0,
    Owner = 1,
    Refused = 2,
    Busy = 3,
    Overloaded = 4,
    Fallback = 5,
}

/// Why a request may not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoQuota {
    Refused(Refused, Remaining),
    /// The owner said nothing in time.
    Busy,
    /// The owner's lane is full, or too many ask.
    Overloaded,
}

/// What an answer shows of its key's windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    requests: Option<Rate>,
    tokens: Option<Rate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate {
    limit: u64,
    remaining: u64,
    reset_s: u32,
}

/// A request that its limits refuse.
pub struct Denied {
    pub error: ApiError,
    pub rates: Option<Rates>,
    /// By which limit; none where nobody says.
    refused: Option<Refused>,
}

impl LimitAsk {
    /// What a request on that route asks for. What engines do not count there is not reserved either.
    pub fn of(route: &Inference, caller: Caller, intake: &Intake) -> Self {
        let counts = route.usage != UsageReport::Never;
        let generates = counts && route.streams == Streams::OnRequest;
        let prompt = if counts { intake.prompt_tokens_estimate() } else { 0 };
        let answer = if generates { intake.output_limit().unwrap_or(OUTPUT_TOKENS) } else { 0 };
        Self { caller, prompt, answer }
    }

    /// Whose limits they are.
    pub fn key(&self) -> KeyIdx {
        self.caller.key
    }

    /// The most that it may use of a model at that price.
    pub fn amounts(&self, units: Units) -> Amounts {
        let tokens = Tokens { prompt: self.prompt, cached: 0, completion: self.answer };
        // Nothing of the prompt is known to be cached, and time in an engine is not foreseen.
        let dearest = Units { prompt_micros: units.prompt_micros.max(units.cached_micros), ..units };
        // What costs something by its time alone wants a budget that is not spent.
        let least = u64::from(!units.is_free());
        let units = i64::try_from(dearest.price(&tokens, Duration::ZERO).max(least)).unwrap_or(i64::MAX);
        Amounts::of_request(self.prompt.saturating_add(self.answer), units)
    }
}

impl Outcome {
    /// Counts one, for whoever writes the cells.
    pub fn count(self, cells: &CoreCells) {
        if let Some(cell) = cells.limited.get(self as usize) {
            cell.increment();
        }
    }
}

impl Denied {
    /// What a request of a chain that asked for so much is told.
    pub fn of(table: &LimitTable, chain: u32, why: NoQuota, ask: &Amounts) -> Self {
        let (refused, remaining) = match why {
            NoQuota::Busy => {
                let error =
                    ApiError::new(Reason::LimitsBusy, "nobody said in time what is left of the limits; try again");
                return Self { error, rates: None, refused: None };
            }
            NoQuota::Overloaded => {
                let error =
                    ApiError::new(Reason::Overloaded, "too many requests ask what is left of their limits; try again");
                return Self { error, rates: None, refused: None };
            }
            NoQuota::Refused(refused, remaining) => (refused, remaining),
        };
        let reason = match refused.measure {
            Measure::Requests => Reason::LimitRequests,
            Measure::Tokens => Reason::LimitTokens,
            Measure::Parallel => Reason::LimitParallel,
            Measure::Budget => Reason::BudgetSpent,
        };
        let error = ApiError::new(reason, message(&refused, ask));
        let error = ApiError { retry_after: refused.retry_s, ..error };
        let rates = Rates::of(table, chain, remaining, Some(&refused));
        Self { error, rates, refused: Some(refused) }
    }

    /// Whether it may go on as the model that stands in for its own where a budget is spent.
    pub fn is_by_budget(&self) -> bool {
        self.refused.is_some_and(|refused| refused.measure == Measure::Budget)
    }

    /// Counts a refusal, for whoever writes the cells; where nobody said, that was counted.
    pub fn count(&self, cells: &CoreCells) {
        let Some(refused) = self.refused else { return };
        Outcome::Refused.count(cells);
        if let Some(cell) = cells.limit_refusals.get(refused.measure as usize) {
            cell.increment();
        }
    }
}

/// Public name of the model that stands in for another whose budget is spent.
pub fn cheaper(table: &ArchivedRouteTable, model: u32) -> Option<&str> {
    let models = &table.models;
    let row = models.get(model as usize)?.budget_fallback.as_ref()?.to_native();
    models.get(row as usize).map(|model| model.name.as_str())
}

fn message(refused: &Refused, ask: &Amounts) -> String {
    let Refused { measure, scope, of_model, limit, retry_s } = *refused;
    let of_model = if of_model { " for this model" } else { "" };
    let scope = scope.name();
    let what = match measure {
        Measure::Requests => format!("the {scope}'s limit of {limit} requests a minute{of_model}"),
        Measure::Tokens => format!("the {scope}'s limit of {limit} tokens a minute{of_model}"),
        Measure::Parallel => format!("the {scope}'s limit of {limit} requests at once{of_model}"),
        Measure::Budget => format!("the {scope}'s budget{of_model}"),
    };
    let mut message = what;
    // A String takes everything.
    let _ = match (measure, retry_s) {
        (_, None) if limit == 0 => write!(message, " lets nothing through"),
        (Measure::Tokens, None) => {
            write!(message, " is less than the {} that this request may use; ask for a lower max_tokens", ask.tokens)
        }
        (_, None) => write!(message, " is less than this request may use; ask for a lower max_tokens"),
        (Measure::Budget, Some(seconds)) => {
            let at = Wall::now().unix_seconds().saturating_add(seconds.into());
            write!(message, " is spent or reserved; it begins anew at {}", Stamp(at.saturating_mul(1000)))
        }
        (_, Some(seconds)) => write!(message, " is reached; try again in {seconds} s"),
    };
    message
}

impl Rates {
    /// What is shown of a chain of which so much is left; none where nothing of it has a window.
    pub fn of(table: &LimitTable, chain: u32, remaining: Remaining, refused: Option<&Refused>) -> Option<Self> {
        let chain = table.chain(chain)?;
        let rate = |measure: Measure, remaining: i64| {
            let limit = chain.limit(measure)?;
            let wait = refused.filter(|refused| refused.measure == measure).and_then(|refused| refused.retry_s);
            let count = |number: i64| u64::try_from(number).unwrap_or(0);
            let (limit, remaining) = (count(limit), count(remaining.min(limit)));
            Some(Rate { limit, remaining, reset_s: wait.unwrap_or(WINDOW_S) })
        };
        let requests = rate(Measure::Requests, remaining.requests.into());
        let tokens = rate(Measure::Tokens, remaining.tokens);
        (requests.is_some() || tokens.is_some()).then_some(Self { requests, tokens })
    }

    /// Hands out the headers, one by one: name, number and its unit. Cost: no allocation.
    pub fn write(&self, mut put: impl FnMut(&'static str, u64, &'static str)) {
        const REQUESTS: [&str; 3] =
            ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"];
        const TOKENS: [&str; 3] =
            ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"];
        for (rate, [limit, remaining, reset]) in [(self.requests, REQUESTS), (self.tokens, TOKENS)] {
            let Some(rate) = rate else { continue };
            put(limit, rate.limit, "");
            put(remaining, rate.remaining, "");
            put(reset, rate.reset_s.into(), "s");
        }
    }
}
