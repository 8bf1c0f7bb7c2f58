//! Reading request bodies: the fields that matter, checked as vLLM checks them, and prompts as token ids.
//!
//! A body is not built into a tree: top-level fields are found as raw text, and only those that are used are read.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::answer::Request;
use crate::api::Refusal;
use crate::config::EngineConfig;
use crate::token;

/// The top-level fields of a body; a field that is `null` counts as absent.
pub(crate) struct Body<'a>(HashMap<String, &'a RawValue>);

impl<'a> Body<'a> {
    /// Errors: what vLLM answers to a body that is no JSON object.
    pub(crate) fn parse(request: &'a Request) -> Result<Body<'a>, Refusal> {
        let content_type = request.head.header("content-type").unwrap_or_default();
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        if !media_type.eq_ignore_ascii_case("application/json") {
            let message = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed";
            let body = super::error_body(message, "Bad Request", None, 400);
            return Err(Refusal { status: 400, body });
        }
        let bytes = &request.body;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err(Refusal::invalid("missing", "body", "Field required", "None"));
        }
        let cause = match serde_json::from_slice(bytes) {
            Ok(fields) => return Ok(Body(fields)),
            Err(cause) => cause,
        };
        if !cause.is_data() {
            let before: usize =
                bytes.split(|byte| *byte == b'\n').take(cause.line() - 1).map(|line| line.len() + 1).sum();
            let at = format!("body.{}", before + cause.column());
            let message = format!(
                "1 validation error:\n  {{'type': 'json_invalid', 'loc': '{at}', 'msg': 'JSON decode error', \
                 'input': '<dict of 0 items>', 'ctx': {{'error': 'Expecting value'}}}}"
            );
            let body = super::error_body(&message, "Bad Request", Some(&at), 400);
            return Err(Refusal { status: 400, body });
        }
        let message = "Input should be a valid dictionary or object to extract fields from";
        Err(Refusal::invalid("model_attributes_type", "body", message, "<other>"))
    }

    /// The raw text of a field.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).map(|raw| raw.get()).filter(|text| *text != "null")
    }

    pub(crate) fn field_count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn integer(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let Some(text) = self.raw(name) else { return Ok(None) };
        if let Ok(number) = text.parse::<i64>() {
            return Ok(Some(number));
        }
        match text.parse::<f64>() {
            Ok(number) if number.fract() == 0.0 && number.abs() < 9e15 => Ok(Some(number as i64)),
            // Larger than any count here; only seeds get that large, and they are not reckoned with.
            Ok(number) if number.fract() == 0.0 => Ok(Some(if number > 0.0 { i64::MAX } else { i64::MIN })),
            _ => {
                let message = "Input should be a valid integer, unable to parse string as an integer";
                let at = format!("body.{name}");
                Err(Refusal::invalid("int_parsing", &at, message, text.trim_matches('"')))
            }
        }
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<f64>, Refusal> {
        let Some(text) = self.raw(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            let message = "Input should be a valid number, unable to parse string as a number";
            Refusal::invalid("float_parsing", &format!("body.{name}"), message, text.trim_matches('"'))
        })
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.raw(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(text) => {
                let message = "Input should be a valid boolean, unable to interpret input";
                Err(Refusal::invalid("bool_parsing", &format!("body.{name}"), message, text.trim_matches('"')))
            }
        }
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, Refusal> {
        let Some(text) = self.raw(name) else { return Ok(None) };
        serde_json::from_str(text).map(Some).map_err(|_| {
            let message = "Input should be a valid string";
            Refusal::invalid("string_type", &format!("body.{name}"), message, text)
        })
    }

    /// The served model: the named one, or the first when none is named.
    pub(crate) fn model(&self, cfg: &EngineConfig) -> Result<String, Refusal> {
        let Some(name) = self.text("model")? else { return Ok(cfg.models.first().cloned().unwrap_or_default()) };
        if cfg.models.contains(&name) {
            return Ok(name);
        }
        let message = format!("The model `{name}` does not exist. Valid aliases: {}.", cfg.models.join(", "));
        Err(Refusal { status: 404, body: super::error_body(&message, "NotFoundError", Some("model"), 404) })
    }

    /// Stop strings.
    pub(crate) fn stops(&self) -> Result<Vec<String>, Refusal> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Stops {
            One(String),
            Many(Vec<String>),
        }
        let Some(text) = self.raw("stop") else { return Ok(Vec::new()) };
        let stops = match serde_json::from_str(text) {
            Ok(Stops::One(stop)) => vec![stop],
            Ok(Stops::Many(stops)) => stops,
            Err(_) => {
                return Err(Refusal::invalid("string_type", "body.stop", "Input should be a valid string", text));
            }
        };
        if stops.iter().any(String::is_empty) {
            return Err(Refusal::bad("stop cannot contain an empty string.", Some("stop")));
        }
        Ok(stops)
    }
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(default)]
    role: Option<String>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_calls: Option<&'a RawValue>,
}

/// The prompt of a chat: tools first, then every message between marks, then the mark of the answer.
///
/// `name` is the field that holds the messages.
pub(crate) fn chat_prompt(body: &Body<'_>, name: &str) -> Result<Vec<u32>, Refusal> {
    let at = format!("body.{name}");
    let Some(text) = body.raw(name) else {
        let input = format!("<dict of {} items>", body.field_count());
        return Err(Refusal::invalid("missing", &at, "Field required", &input));
    };
    if !text.starts_with('[') {
        let message = "Input should be a valid list";
        return Err(Refusal::invalid("list_type", &at, message, text.trim_matches('"')));
    }
    let messages: Vec<Message<'_>> = serde_json::from_str(text)
        .map_err(|cause| Refusal::invalid("model_attributes_type", &at, &cause.to_string(), "<list>"))?;
    if messages.is_empty() {
        let message = "Cannot apply chat template to an empty conversation. Provide at least one message.";
        return Err(Refusal::bad(message, None));
    }
    let mut ids = Vec::new();
    if let Some(tools) = body.raw("tools") {
        token::encode(b"<|tools|>", &mut ids);
        token::encode(tools.as_bytes(), &mut ids);
    }
    for message in &messages {
        let mark = format!("<|{}|>", message.role.as_deref().unwrap_or("user"));
        token::encode(mark.as_bytes(), &mut ids);
        if let Some(content) = message.content {
            encode_content(content.get(), &mut ids);
        }
        if let Some(calls) = message.tool_calls {
            token::encode(calls.get().as_bytes(), &mut ids);
        }
        token::encode(b"<|end|>", &mut ids);
    }
    token::encode(b"<|assistant|>", &mut ids);
    Ok(ids)
}

fn encode_content(raw: &str, ids: &mut Vec<u32>) {
    #[derive(Deserialize)]
    struct Part {
        text: Option<String>,
    }
    if raw == "null" {
        return;
    }
    if let Ok(text) = serde_json::from_str::<String>(raw) {
        return token::encode(text.as_bytes(), ids);
    }
    // Parts: text is read, anything else (an image) is taken as it stands.
    match serde_json::from_str::<Vec<&RawValue>>(raw) {
        Ok(parts) => {
            for part in parts {
                match serde_json::from_str::<Part>(part.get()) {
                    Ok(Part { text: Some(text) }) => token::encode(text.as_bytes(), ids),
                    _ => ids.extend(media_ids(part.get())),
                }
            }
        }
        // A string that is legal JSON but no text, such as a lone surrogate.
        Err(_) => token::encode(raw.as_bytes(), ids),
    }
}

/// An image or the like: a fixed number of ids that stand for its bytes.
fn media_ids(raw: &str) -> impl Iterator<Item = u32> + use<> {
    const MEDIA_TOKENS: u32 = 256;
    // Images are long: the checksum is what can be had at the speed of memory.
    let mut crc = flate2::Crc::new();
    crc.update(raw.as_bytes());
    let seed = crate::mix::fold(raw.len() as u64, u64::from(crc.sum()));
    (0..MEDIA_TOKENS).map(move |idx| token::word_id(seed, idx))
}

/// The prompts of a completion or an embedding: a string, strings, ids, or lists of ids.
pub(crate) fn prompts(body: &Body<'_>, name: &str) -> Result<Vec<Vec<u32>>, Refusal> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Prompt {
        Text(String),
        Ids(Vec<u32>),
        Texts(Vec<String>),
        Lists(Vec<Vec<u32>>),
    }
    let at = format!("body.{name}");
    let Some(text) = body.raw(name) else {
        let input = format!("<dict of {} items>", body.field_count());
        return Err(Refusal::invalid("missing", &at, "Field required", &input));
    };
    let ids_of = |text: &str| {
        let mut ids = Vec::new();
        token::encode(text.as_bytes(), &mut ids);
        ids
    };
    let prompts = match serde_json::from_str(text) {
        Ok(Prompt::Text(text)) => vec![ids_of(&text)],
        Ok(Prompt::Texts(texts)) => texts.iter().map(|text| ids_of(text)).collect(),
        Ok(Prompt::Ids(ids)) => vec![ids],
        Ok(Prompt::Lists(lists)) => lists,
        // A string that is legal JSON but no text.
        Err(_) if text.starts_with('"') => vec![ids_of(text)],
        Err(_) => return Err(Refusal::invalid("string_type", &at, "Input should be a valid string", "<other>")),
    };
    if prompts.is_empty() || prompts.iter().any(Vec::is_empty) {
        return Err(Refusal::bad("Either prompt or prompt_embeds must be provided and non-empty.", Some(name)));
    }
    Ok(prompts)
}

/// Errors: the prompt leaves no room for an answer.
pub(crate) fn check_length(tokens: usize, max_model_len: usize) -> Result<(), Refusal> {
    if tokens < max_model_len {
        return Ok(());
    }
    let message = format!(
        "This model's maximum context length is {max_model_len} tokens. However, your prompt contains at least \
         {tokens} input tokens, which exceeds this limit even without any output tokens. Please reduce the length of \
         the input prompt. (parameter=input_tokens, value={tokens})"
    );
    Err(Refusal::bad(&message, Some("input_tokens")))
}
