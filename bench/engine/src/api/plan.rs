//! What a generation will answer: decided whole before its first token, so that streams and whole replies say the same.
//!
//! Pure. The words come from a hash of the prompt and the request's seed; `temperature` does not change them.

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::answer::Request;
use crate::api::Refusal;
use crate::api::input::{self, Body};
use crate::api::shape::Kind;
use crate::config::EngineConfig;
use crate::faults::Faults;
use crate::mix::fold;
use crate::token;

/// Choices in one request, at most.
const CHOICES_MAX: usize = 1_024;
/// Tokens a request may make the engine think ahead for stop strings.
const LOOK_AHEAD_TOKENS_MAX: u32 = 1 << 20;

/// What the tokens of a choice say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// Words from the seed.
    Words,
    /// Words, but no further than these pieces.
    Clipped(Vec<String>),
    /// A call of `name`: the first token names it, the rest are its arguments.
    Call { name: String, arguments: Vec<String> },
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Which of the request's prompts it answers.
    pub(crate) prompt_idx: usize,
    pub(crate) seed: u64,
    pub(crate) content: Content,
    pub(crate) tokens: u32,
    pub(crate) finish_reason: &'static str,
    pub(crate) stop_reason: Option<String>,
}

impl Choice {
    /// The text of token `idx`.
    pub(crate) fn piece(&self, idx: u32) -> Cow<'_, str> {
        match &self.content {
            Content::Words => {
                let word = token::word(self.seed, idx);
                Cow::Owned(word.iter().map(|byte| *byte as char).collect())
            }
            Content::Clipped(pieces) => Cow::Borrowed(pieces.get(idx as usize).map_or("", String::as_str)),
            Content::Call { arguments, .. } if idx > 0 => {
                Cow::Borrowed(arguments.get(idx as usize - 1).map_or("", String::as_str))
            }
            Content::Call { .. } => Cow::Borrowed(""),
        }
    }

    /// The text of some tokens.
    pub(crate) fn pieces(&self, tokens: Range<u32>) -> Cow<'_, str> {
        match tokens.len() {
            1 => self.piece(tokens.start),
            _ => Cow::Owned(tokens.map(|idx| self.piece(idx)).collect()),
        }
    }

    /// The text of the first `tokens` tokens.
    pub(crate) fn text(&self, tokens: u32) -> String {
        self.pieces(0..tokens).into_owned()
    }
}

/// In which of the APIs' forms a request is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Chat,
    Completion,
    Response,
    Message,
}

impl Form {
    pub(crate) fn of(kind: Kind) -> Form {
        match kind {
            Kind::Chat => Form::Chat,
            Kind::Completion => Form::Completion,
        }
    }
}

/// One request to generate.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) model: String,
    pub(crate) prompts: Vec<Vec<u32>>,
    pub(crate) choices: Vec<Choice>,
    pub(crate) is_stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) continuous_usage: bool,
    pub(crate) priority: i64,
    pub(crate) salt: u64,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
    #[serde(default)]
    continuous_usage_stats: Option<bool>,
}

impl Plan {
    /// Reads a request.
    ///
    /// Errors: what vLLM refuses.
    pub(crate) fn read(request: &Request, form: Form, cfg: &EngineConfig, faults: &Faults) -> Result<Plan, Refusal> {
        if request.is_cut() {
            return Ok(Plan::unread(request, cfg));
        }
        let body = Body::parse(request)?;
        let model = body.model(cfg)?;
        let is_stream = body.flag("stream")?;
        let options = stream_options(&body, is_stream, faults)?;
        if let Some(temperature) = body.number("temperature")?.filter(|value| *value < 0.0) {
            let message = format!(
                "temperature must be non-negative, got {temperature:?}. (parameter=temperature, value={temperature:?})"
            );
            return Err(Refusal::bad(&message, Some("temperature")));
        }
        let prompts = match form {
            Form::Chat | Form::Message => vec![input::chat_prompt(&body, "messages")?],
            Form::Completion => input::prompts(&body, "prompt")?,
            Form::Response if body.raw("input").is_some_and(|text| text.starts_with('[')) => {
                vec![input::chat_prompt(&body, "input")?]
            }
            Form::Response => input::prompts(&body, "input")?,
        };
        for prompt in &prompts {
            input::check_length(prompt.len(), cfg.max_model_len)?;
        }
        let asked = asked_tokens(&body, form, cfg, &prompts)?;
        let call = if form == Form::Chat { forced_call(&body)? } else { None };
        let n = usize::try_from(body.integer("n")?.unwrap_or(1)).unwrap_or(0);
        if n == 0 || n.saturating_mul(prompts.len()) > CHOICES_MAX {
            return Err(Refusal::bad(&format!("n must be at least 1, got {n}. (parameter=n, value={n})"), Some("n")));
        }
        let wish = Wish {
            asked,
            stops: body.stops()?,
            call,
            seed: body.integer("seed")?.unwrap_or_default() as u64,
            events: faults.events,
        };
        let choices = prompts
            .iter()
            .enumerate()
            .flat_map(|(prompt_idx, prompt)| (0..n).map(move |choice| (prompt_idx, prompt, choice as u32)))
            .map(|(prompt_idx, prompt, choice)| wish.choice(prompt_idx, prompt, choice, cfg))
            .collect();
        let salt = body.text("cache_salt")?.map_or(0, |salt| crate::mix::hash_bytes(1, salt.as_bytes()));
        Ok(Plan {
            model,
            prompts,
            choices,
            is_stream,
            include_usage: options.include_usage == Some(true),
            continuous_usage: options.include_usage == Some(true) && options.continuous_usage_stats == Some(true),
            priority: priority(&body, faults)?,
            salt,
        })
    }

    /// The answer to a body that was too long to be held: one short choice.
    fn unread(request: &Request, cfg: &EngineConfig) -> Plan {
        let mut prompt = Vec::new();
        token::encode(&request.body, &mut prompt);
        prompt.truncate(cfg.max_model_len.saturating_sub(2).max(1));
        let choice = Choice {
            prompt_idx: 0,
            seed: token::answer_seed(&prompt, request.total, 0),
            content: Content::Words,
            tokens: 1,
            finish_reason: "stop",
            stop_reason: None,
        };
        Plan {
            model: cfg.models.first().cloned().unwrap_or_default(),
            prompts: vec![prompt],
            choices: vec![choice],
            is_stream: false,
            include_usage: false,
            continuous_usage: false,
            priority: 0,
            salt: 0,
        }
    }

    pub(crate) fn prompt_tokens(&self) -> usize {
        self.prompts.iter().map(Vec::len).sum()
    }
}

fn priority(body: &Body<'_>, faults: &Faults) -> Result<i64, Refusal> {
    let priority = body.integer("priority")?.unwrap_or_default();
    if priority != 0 && faults.refuse_priority == Some(true) {
        let message = format!("Got priority {priority} but Priority scheduling is not enabled.");
        return Err(Refusal::bad(&message, None));
    }
    Ok(priority)
}

fn stream_options(body: &Body<'_>, is_stream: bool, faults: &Faults) -> Result<StreamOptions, Refusal> {
    let Some(text) = body.raw("stream_options") else { return Ok(StreamOptions::default()) };
    if faults.refuse_stream_options == Some(true) {
        let message = "Extra inputs are not permitted: stream_options";
        return Err(Refusal::bad(message, Some("stream_options")));
    }
    if !is_stream {
        let message = "Stream options can only be defined when `stream=True`. (parameter=stream_options)";
        return Err(Refusal::bad(message, Some("stream_options")));
    }
    serde_json::from_str(text).map_err(|_| {
        let message = "Input should be a valid dictionary or object to extract fields from";
        Refusal::invalid("model_attributes_type", "body.stream_options", message, "<other>")
    })
}

/// The number of tokens the request asks for; `None` leaves it to the engine.
fn asked_tokens(body: &Body<'_>, form: Form, cfg: &EngineConfig, prompts: &[Vec<u32>]) -> Result<Option<u32>, Refusal> {
    let mut name = if form == Form::Response { "max_output_tokens" } else { "max_tokens" };
    let mut asked = body.integer(name)?;
    if form == Form::Chat && body.raw("max_completion_tokens").is_some() {
        name = "max_completion_tokens";
        asked = body.integer(name)?;
    }
    let Some(asked) = asked else { return Ok(None) };
    let refuse = |text: String| Err(Refusal::bad(&format!("{text} (parameter={name}, value={asked})"), Some(name)));
    if asked < 1 {
        return refuse(format!("{name} must be at least 1, got {asked}."));
    }
    let limit = cfg.max_model_len as i64;
    if asked > limit {
        return refuse(format!(
            "{name}={asked} cannot be greater than max_model_len={limit}. Please request fewer output tokens."
        ));
    }
    let longest = prompts.iter().map(Vec::len).max().unwrap_or_default() as i64;
    if longest + asked > limit {
        return refuse(format!(
            "This model's maximum context length is {limit} tokens. However, you requested {asked} output tokens and \
             your prompt contains at least {longest} input tokens, for a total of at least {} tokens. Please reduce \
             the length of the input prompt or the number of requested output tokens.",
            longest + asked
        ));
    }
    Ok(u32::try_from(asked).ok())
}

/// The function the request forces, with arguments that fit its parameters.
struct Call {
    name: String,
    arguments: String,
    is_required: bool,
}

fn forced_call(body: &Body<'_>) -> Result<Option<Call>, Refusal> {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        function: Function<'a>,
    }
    #[derive(Deserialize)]
    struct Function<'a> {
        name: String,
        #[serde(borrow, default)]
        parameters: Option<&'a RawValue>,
    }
    let Some(choice) = body.raw("tool_choice").filter(|text| !matches!(*text, "\"none\"" | "\"auto\"")) else {
        return Ok(None);
    };
    let tools: Vec<Named<'_>> = body.raw("tools").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let is_required = choice == "\"required\"";
    let wanted = if is_required { None } else { serde_json::from_str::<Named<'_>>(choice).ok() };
    let function = match &wanted {
        Some(named) => tools.iter().map(|tool| &tool.function).find(|tool| tool.name == named.function.name),
        None if is_required => tools.first().map(|tool| &tool.function),
        None => None,
    };
    let Some(function) = function else {
        let message = "The tool specified in `tool_choice` does not match any of the specified `tools`";
        return Err(Refusal::bad(message, Some("tool_choice")));
    };
    let parameters = function.parameters.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    Ok(Some(Call { name: function.name.clone(), arguments: arguments(&parameters), is_required }))
}

/// Arguments for every property of a JSON schema: the first allowed value, or something of the right type.
fn arguments(schema: &serde_json::Value) -> String {
    let mut out = serde_json::Map::new();
    for (name, property) in schema.get("properties").and_then(|value| value.as_object()).into_iter().flatten() {
        let chosen = property.get("enum").and_then(|values| values.get(0)).cloned();
        let value = chosen.unwrap_or_else(|| match property.get("type").and_then(|kind| kind.as_str()) {
            Some("integer" | "number") => 7.into(),
            Some("boolean") => true.into(),
            Some("array") => serde_json::Value::Array(Vec::new()),
            Some("object") => serde_json::Value::Object(serde_json::Map::new()),
            _ => "some text".into(),
        });
        out.insert(name.clone(), value);
    }
    serde_json::Value::Object(out).to_string()
}

/// What all choices of a request have in common.
struct Wish {
    asked: Option<u32>,
    stops: Vec<String>,
    call: Option<Call>,
    seed: u64,
    events: Option<u32>,
}

impl Wish {
    fn choice(&self, prompt_idx: usize, prompt: &[u32], choice: u32, cfg: &EngineConfig) -> Choice {
        let seed = token::answer_seed(prompt, self.seed, choice);
        let own = |content, tokens, finish_reason, stop_reason| Choice {
            prompt_idx,
            seed,
            content,
            tokens,
            finish_reason,
            stop_reason,
        };
        if let Some(events) = self.events {
            return own(Content::Words, events, "length", None);
        }
        if let Some(call) = &self.call {
            let mut arguments = Vec::new();
            token::pieces(call.arguments.as_bytes(), |piece| {
                arguments.push(String::from_utf8_lossy(piece).into_owned());
            });
            let whole = arguments.len() as u32 + 1;
            let tokens = self.asked.map_or(whole, |asked| asked.min(whole));
            let done = if call.is_required { "tool_calls" } else { "stop" };
            let finish_reason = if tokens < whole { "length" } else { done };
            return own(Content::Call { name: call.name.clone(), arguments }, tokens, finish_reason, None);
        }
        let room = u32::try_from(cfg.max_model_len.saturating_sub(prompt.len())).unwrap_or(u32::MAX).max(1);
        let spread = u64::from(cfg.output_tokens_max.saturating_sub(cfg.output_tokens_min)) + 1;
        let natural = cfg.output_tokens_min + (fold(seed, 0x6c) % spread) as u32;
        let (tokens, finish_reason) = match self.asked {
            Some(asked) => (asked, "length"),
            None => (natural.clamp(1, room), "stop"),
        };
        let plain = own(Content::Words, tokens, finish_reason, None);
        if self.stops.is_empty() { plain } else { clip(plain, &self.stops) }
    }
}

/// Ends a choice where the first stop string would appear.
fn clip(choice: Choice, stops: &[String]) -> Choice {
    let mut text = String::new();
    let longest = stops.iter().map(String::len).max().unwrap_or_default();
    for idx in 0..choice.tokens.min(LOOK_AHEAD_TOKENS_MAX) {
        text.push_str(&choice.piece(idx));
        let mut from = text.len().saturating_sub(longest + token::WORD_BYTES);
        while !text.is_char_boundary(from) {
            from -= 1;
        }
        let found = stops.iter().filter_map(|stop| text[from..].find(stop.as_str()).map(|at| (at + from, stop))).min();
        if let Some((at, stop)) = found {
            text.truncate(at);
            let mut left = text.as_str();
            let pieces = (0..=idx).map(|idx| {
                let len = choice.piece(idx).len().min(left.len());
                let (piece, rest) = left.split_at(len);
                left = rest;
                piece.to_owned()
            });
            let content = Content::Clipped(pieces.collect());
            let stop_reason = Some(stop.clone());
            return Choice { content, tokens: idx + 1, finish_reason: "stop", stop_reason, ..choice };
        }
    }
    choice
}
