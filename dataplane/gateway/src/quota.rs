//! What a request asks of its limits, what it is told when they refuse it, and what answers show of them.
//!
//! Called by `serve` once the model is known, before the gates: what a limit refuses has asked no engine and waits in
//! no queue. What is left of limits, and who may have it, is `limits`.

use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;

use llmgw_http::draft::ResponseDraft;
use llmgw_kit::clock::Wall;
use llmgw_obs::stamp::Stamp;
use llmgw_router::limiter::{Now, Refused, Remaining};
use llmgw_router::quota::{Amounts, LimitTable, Measure};
use llmgw_types::Tokens;
use llmgw_types::snapshot::Units;
use llmgw_types::tenants::Caller;

use crate::arrived::{Arrived, Resolved};
use crate::core::Core;
use crate::error::{ApiError, Reason};
use crate::finish::Finish;
use crate::intake::Intake;
use crate::limits::{Held, Limits, NoQuota, Outcome};
use crate::route::{Inference, Streams, UsageReport};
use crate::routing::OUTPUT_TOKENS;
use crate::snapshot::Tables;

/// After which all of a window is there again, if nothing more is used. Units: seconds.
const WINDOW_S: u32 = 60;

/// What a request asks of its limits, whatever model it comes to.
pub(crate) struct LimitAsk {
    caller: Caller,
    /// Tokens of its prompt, as estimated, and the most that its answer may have.
    prompt: u64,
    answer: u64,
}

/// What came of it.
pub(crate) struct Reserved {
    /// What it holds; none where nothing limits it.
    pub(crate) held: Option<Held>,
    /// What answers show.
    pub(crate) rates: Option<Rates>,
}

/// What an answer shows of its key's windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rates {
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
struct Denied {
    error: ApiError,
    rates: Option<Rates>,
    /// By which limit; none where nobody says.
    refused: Option<Refused>,
}

impl LimitAsk {
    /// What a request on that route asks for. What engines do not count there is not reserved either.
    pub(crate) fn of(route: &Inference, caller: Caller, intake: &Intake) -> Self {
        let counts = route.usage != UsageReport::Never;
        let generates = counts && route.streams == Streams::OnRequest;
        let prompt = if counts { intake.prompt_tokens_estimate() } else { 0 };
        let answer = if generates { intake.output_limit().unwrap_or(OUTPUT_TOKENS) } else { 0 };
        Self { caller, prompt, answer }
    }

    /// Reserves the most that the request may use, at every level above its key. Where a budget does not hold it, it is
    /// decided anew as the model that stands in for its own then.
    ///
    /// Errors: a limit is reached; nobody says whether.
    pub(crate) async fn admit(
        &self,
        core: &Core,
        tables: &Tables,
        arrived: &mut Arrived<'_>,
        resolved: &mut Resolved,
        finish: &mut Finish,
    ) -> Result<(), ApiError> {
        let denied = match self.reserve(&core.limiter, tables, resolved.wanted.model, finish.now()).await {
            Ok(reserved) => {
                finish.holds(reserved);
                return Ok(());
            }
            Err(denied) => denied,
        };
        let is_budget = denied.refused.is_some_and(|refused| refused.measure == Measure::Budget);
        if is_budget && let Some(cheaper) = cheaper(tables, resolved.wanted.model) {
            arrived.instead = Some(cheaper.to_owned());
            if let Ok(other) = arrived.resolve(core, tables).await
                && let Ok(reserved) = self.reserve(&core.limiter, tables, other.wanted.model, finish.now()).await
            {
                core.limiter.count(Outcome::Fallback);
                *resolved = other;
                finish.holds(reserved);
                return Ok(());
            }
            arrived.instead = None;
        }
        if let Some(refused) = denied.refused {
            core.limiter.count_refusal(refused);
        }
        finish.shows(denied.rates);
        Err(denied.error)
    }

    async fn reserve(
        &self,
        limits: &Rc<Limits>,
        tables: &Tables,
        model: u32,
        now: Now,
    ) -> Result<Reserved, Box<Denied>> {
        let route = tables.routes().models.get(model as usize);
        let chain = route.and_then(|route| limits.chain_of(self.caller.key.0, &route.name));
        let Some((route, chain)) = route.zip(chain) else { return Ok(Reserved { held: None, rates: None }) };
        let tokens = Tokens { prompt: self.prompt, cached: 0, completion: self.answer };
        let units = route.units.to_units();
        // Nothing of the prompt is known to be cached, and time in an engine is not foreseen.
        let dearest = Units { prompt_micros: units.prompt_micros.max(units.cached_micros), ..units };
        // What costs something by its time alone wants a budget that is not spent.
        let least = u64::from(!units.is_free());
        let units = i64::try_from(dearest.price(&tokens, Duration::ZERO).max(least)).unwrap_or(i64::MAX);
        let ask = Amounts::of_request(self.prompt.saturating_add(self.answer), units);
        match limits.reserve(chain, ask, now).await {
            Ok(held) => {
                let remaining = held.as_ref().map(|held| held.remaining);
                let rates = remaining.and_then(|remaining| Rates::of(&limits.table(), chain, remaining, None));
                Ok(Reserved { held, rates })
            }
            Err(why) => Err(Box::new(self.denied(&limits.table(), chain, why, &ask))),
        }
    }

    fn denied(&self, table: &LimitTable, chain: u32, why: NoQuota, ask: &Amounts) -> Denied {
        let (refused, remaining) = match why {
            NoQuota::Busy => {
                let error =
                    ApiError::new(Reason::LimitsBusy, "nobody said in time what is left of the limits; try again");
                return Denied { error, rates: None, refused: None };
            }
            NoQuota::Overloaded => {
                let error =
                    ApiError::new(Reason::Overloaded, "too many requests ask what is left of their limits; try again");
                return Denied { error, rates: None, refused: None };
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
        Denied { error, rates, refused: Some(refused) }
    }
}

/// Public name of the model that stands in for another whose budget is spent.
fn cheaper(tables: &Tables, model: u32) -> Option<&str> {
    let models = &tables.routes().models;
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
    fn of(table: &LimitTable, chain: u32, remaining: Remaining, refused: Option<&Refused>) -> Option<Self> {
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

    /// Writes the headers. Cost: no allocation.
    pub(crate) fn write(&self, draft: &mut ResponseDraft) {
        const REQUESTS: [&str; 3] =
            ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"];
        const TOKENS: [&str; 3] =
            ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"];
        for (rate, [limit, remaining, reset]) in [(self.requests, REQUESTS), (self.tokens, TOKENS)] {
            let Some(rate) = rate else { continue };
            draft.number(limit, rate.limit, "");
            draft.number(remaining, rate.remaining, "");
            draft.number(reset, rate.reset_s.into(), "s");
        }
    }
}
