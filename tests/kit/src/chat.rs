//! A chat request with defaults: a test sets only what it is about.

use serde_json::{Value, json};

/// A chat request being built.
#[derive(Debug, Clone)]
pub struct Chat {
    body: Value,
    prompt: String,
    faults: Option<Value>,
}

/// A chat request with one user message, for the model every builder of this crate serves.
#[must_use]
pub fn chat(prompt: &str) -> Chat {
    Chat { body: json!({ "model": crate::gateway::MODEL }), prompt: prompt.to_owned(), faults: None }
}

impl Chat {
    #[must_use]
    pub fn model(self, model: &str) -> Self {
        self.field("model", model)
    }

    /// Asks for a stream of events.
    #[must_use]
    pub fn streamed(self) -> Self {
        self.field("stream", true)
    }

    /// Asks for a stream that ends with the usage event.
    #[must_use]
    pub fn with_usage(self) -> Self {
        self.streamed().field("stream_options", json!({ "include_usage": true }))
    }

    #[must_use]
    pub fn max_tokens(self, count: u32) -> Self {
        self.field("max_tokens", count)
    }

    /// Sets any field of the body.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        if let Some(body) = self.body.as_object_mut() {
            body.insert(name.to_owned(), value.into());
        }
        self
    }

    /// Tells the simulated engine how to answer this request; the instruction travels inside the prompt.
    #[must_use]
    pub fn faults(mut self, faults: Value) -> Self {
        self.faults = Some(faults);
        self
    }

    #[must_use]
    pub fn json(&self) -> Value {
        let content = match &self.faults {
            Some(faults) => format!("{} @@sim {faults} @@", self.prompt),
            None => self.prompt.clone(),
        };
        let mut body = self.body.clone();
        if let Some(body) = body.as_object_mut() {
            body.insert("messages".to_owned(), json!([{ "role": "user", "content": content }]));
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_to_the_engine_travels_in_the_prompt() {
        let body = chat("hi").with_usage().max_tokens(3).faults(json!({ "status": 503 })).json();
        assert_eq!(body["messages"][0]["content"], r#"hi @@sim {"status":503} @@"#);
        assert_eq!((&body["stream"], &body["max_tokens"]), (&json!(true), &json!(3)));
        assert_eq!(body["stream_options"]["include_usage"], true);
    }
}
