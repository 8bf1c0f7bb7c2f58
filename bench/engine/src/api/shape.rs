//! The JSON of chat and text completions, key by key as vLLM writes it.
//!
//! Streams are built by hand rather than through a tree: an event is written for every token of every stream.

use std::fmt::Write as _;
use std::ops::Range;

use serde_json::Value;

use crate::api::plan::{Choice, Content};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Chat,
    Completion,
}

/// What the replies of one request have in common.
pub(crate) struct Shape {
    pub(crate) kind: Kind,
    /// Hex digits or the request's own id; call ids are made from it.
    pub(crate) suffix: String,
    pub(crate) model: String,
    pub(crate) created: u64,
}

/// Token counts of a reply.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) prompt: usize,
    pub(crate) completion: u64,
    pub(crate) cached: u64,
    /// Prompt tokens in full blocks that were not in the cache before.
    pub(crate) created_cache: u64,
}

const FINGERPRINT: &str = r#","system_fingerprint":"sim-engine""#;

impl Shape {
    /// The beginning of every event, up to the choices.
    fn event_start(&self) -> String {
        let (prefix, object) = match self.kind {
            Kind::Chat => ("chatcmpl", "chat.completion.chunk"),
            Kind::Completion => ("cmpl", "text_completion"),
        };
        let (id, model) = (text(&format!("{prefix}-{}", self.suffix)), text(&self.model));
        let created = self.created;
        format!(r#"data: {{"id":{id},"object":"{object}","created":{created},"model":{model},"choices":["#)
    }

    /// The event that opens a choice of a chat.
    pub(crate) fn role_event(&self, idx: usize, usage: &str) -> String {
        let mut out = self.event_start();
        let _ = write!(out, r#"{{"index":{idx},"delta":{{"role":"assistant","content":""}},"#);
        let _ = write!(out, r#""logprobs":null,"finish_reason":null}}]{usage}"#);
        out.push_str(",\"prompt_token_ids\":null,\"prompt_text\":null}\n\n");
        out
    }

    /// The event of some tokens of a choice; `end` says whether the finish reason and the fingerprint are on it. The
    /// first token of a call stands alone.
    ///
    /// `event_bytes` lengthens the text so that the event has that size.
    pub(crate) fn token_event(
        &self,
        idx: usize,
        choice: &Choice,
        tokens: Range<u32>,
        end: End,
        extra: Extra<'_>,
    ) -> String {
        let mut out = self.event_start();
        let finish = match end {
            End::No => "null".to_owned(),
            End::Choice | End::Reply => text(choice.finish_reason),
        };
        let stop = choice.stop_reason.as_deref().map_or_else(|| "null".to_owned(), text);
        let _ = write!(out, r#"{{"index":{idx},"#);
        let tail = match self.kind {
            Kind::Chat => {
                out.push_str(r#""delta":{"#);
                let mut tail = "}".to_owned();
                let _ = write!(tail, r#","logprobs":null,"finish_reason":{finish}"#);
                if end != End::No {
                    let _ = write!(tail, r#","stop_reason":{stop}"#);
                }
                tail.push_str(r#","token_ids":null}]"#);
                tail
            }
            Kind::Completion => {
                let mut tail = format!(r#","logprobs":null,"finish_reason":{finish},"stop_reason":{stop}"#);
                tail.push_str(r#","prompt_token_ids":null,"token_ids":null}]"#);
                tail
            }
        };
        let fingerprint = if end == End::Reply { FINGERPRINT } else { "" };
        let tail = format!("{tail}{}{fingerprint}}}\n\n", extra.usage);
        match &choice.content {
            Content::Call { name, .. } => {
                out.push_str(r#""content":null,"tool_calls":[{"#);
                if tokens.start == 0 {
                    let id = self.call_id(idx);
                    let name = text(name);
                    let _ = write!(out, r#""id":{id},"type":"function","index":0,"function":{{"name":{name}}}}}]"#);
                } else {
                    let piece = text(&choice.pieces(tokens));
                    let _ = write!(out, r#""index":0,"function":{{"arguments":{piece}}}}}]"#);
                }
            }
            Content::Words | Content::Clipped(_) => {
                out.push_str(if self.kind == Kind::Chat { r#""content":"# } else { r#""text":"# });
                let mut piece = text(&choice.pieces(tokens));
                let missing = extra.event_bytes.saturating_sub(out.len() + piece.len() + tail.len());
                if missing > 0 {
                    piece.pop();
                    piece.extend(std::iter::repeat_n('x', missing));
                    piece.push('"');
                }
                out.push_str(&piece);
            }
        }
        out.push_str(&tail);
        out
    }

    /// The event that carries nothing but usage.
    pub(crate) fn usage_event(&self, usage: &str) -> String {
        let mut out = self.event_start();
        let _ = write!(out, "]{usage}{FINGERPRINT}}}\n\n");
        out
    }

    /// The reply to a request that does not stream.
    pub(crate) fn whole(&self, choices: &[(Choice, u32)], usage: &str) -> String {
        let (prefix, object) = match self.kind {
            Kind::Chat => ("chatcmpl", "chat.completion"),
            Kind::Completion => ("cmpl", "text_completion"),
        };
        let (id, model) = (text(&format!("{prefix}-{}", self.suffix)), text(&self.model));
        let created = self.created;
        let mut out = format!(r#"{{"id":{id},"object":"{object}","created":{created},"model":{model},"choices":["#);
        for (idx, (choice, tokens)) in choices.iter().enumerate() {
            if idx > 0 {
                out.push(',');
            }
            self.whole_choice(&mut out, idx, choice, *tokens);
        }
        let _ = write!(out, r#"],"service_tier":null{FINGERPRINT}{usage}"#);
        if self.kind == Kind::Chat {
            out.push_str(r#","prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null"#);
        }
        out.push_str(r#","kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}"#);
        out
    }

    fn whole_choice(&self, out: &mut String, idx: usize, choice: &Choice, tokens: u32) {
        let finish = text(choice.finish_reason);
        let stop = choice.stop_reason.as_deref().map_or_else(|| "null".to_owned(), text);
        let _ = write!(out, r#"{{"index":{idx},"#);
        let said = choice.text(tokens);
        if self.kind == Kind::Completion {
            let said = text(&said);
            let _ = write!(out, r#""text":{said},"logprobs":null,"finish_reason":{finish},"stop_reason":{stop}"#);
            out.push_str(r#","token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null,"routed_experts":null}"#);
            return;
        }
        const UNUSED: &str = r#""refusal":null,"annotations":null,"audio":null,"function_call":null"#;
        let said = text(&said);
        let (content, calls) = match &choice.content {
            Content::Call { name, .. } => {
                let (id, name) = (self.call_id(idx), text(name));
                let function = format!(r#"{{"name":{name},"arguments":{said}}}"#);
                ("null", format!(r#","tool_calls":[{{"id":{id},"type":"function","function":{function}}}]"#))
            }
            Content::Words | Content::Clipped(_) => (said.as_str(), String::new()),
        };
        let _ = write!(out, r#""message":{{"role":"assistant","content":{content},{UNUSED}{calls},"reasoning":null}}"#);
        let _ = write!(out, r#","logprobs":null,"finish_reason":{finish},"stop_reason":{stop}"#);
        out.push_str(r#","token_ids":null,"routed_experts":null}"#);
    }

    fn call_id(&self, idx: usize) -> String {
        text(&format!("chatcmpl-tool-{}{idx:x}", self.suffix))
    }

    /// `,"usage":{…}` of a whole reply.
    pub(crate) fn whole_usage(&self, usage: Usage) -> String {
        let created = match self.kind {
            Kind::Chat => usage.created_cache.to_string(),
            Kind::Completion => "null".to_owned(),
        };
        let cached = usage.cached;
        let details =
            format!(r#"{{"cached_tokens":{cached},"created_cache_tokens":{created},"multimodal_tokens":null}}"#);
        let counts = counts(usage.prompt, usage.completion);
        format!(r#","usage":{{{counts},"prompt_tokens_details":{details},"completion_tokens_details":null}}"#)
    }

    /// `,"usage":{…}` of a stream's last event.
    pub(crate) fn final_usage(&self, usage: Usage) -> String {
        let created = match self.kind {
            Kind::Chat => format!(r#","created_cache_tokens":{}"#, usage.created_cache),
            Kind::Completion => String::new(),
        };
        let (cached, counts) = (usage.cached, counts(usage.prompt, usage.completion));
        format!(r#","usage":{{{counts},"prompt_tokens_details":{{"cached_tokens":{cached}{created}}}}}"#)
    }

    /// `,"usage":{…}` of an event on the way.
    pub(crate) fn running_usage(prompt: usize, completion: u64) -> String {
        format!(r#","usage":{{{},"completion_tokens_details":null}}"#, counts(prompt, completion))
    }
}

fn counts(prompt: usize, completion: u64) -> String {
    let total = prompt as u64 + completion;
    format!(r#""prompt_tokens":{prompt},"total_tokens":{total},"completion_tokens":{completion}"#)
}

/// What ends with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    No,
    /// Its choice.
    Choice,
    /// Its choice, and no other event follows.
    Reply,
}

/// What an event carries besides its token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extra<'a> {
    /// `,"usage":…` or nothing.
    pub(crate) usage: &'a str,
    /// Size to reach, or 0.
    pub(crate) event_bytes: usize,
}

/// A JSON string.
fn text(value: &str) -> String {
    if value.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\' && byte < 0x7f) {
        return format!("\"{value}\"");
    }
    Value::from(value).to_string()
}
