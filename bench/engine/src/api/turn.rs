//! One answer of one text, for the APIs that have no choices: generated through the same model, written in events or
//! whole by whoever asked for it.

use crate::answer::Request;
use crate::api::Refusal;
use crate::api::deliver::{Source, close, usage_of};
use crate::api::plan::{Choice, Form, Plan};
use crate::api::shape::Usage;
use crate::mix::{fold, mix};
use crate::reply::Reply;

/// An answer that is being generated.
pub(super) struct Turn {
    pub(super) plan: Plan,
    pub(super) choice: Choice,
    /// Hex digits, another for every request.
    pub(super) suffix: String,
    source: Option<Source>,
    sent: u32,
}

impl Turn {
    /// Errors: what vLLM refuses.
    pub(super) fn start(request: &Request, reply: &Reply<'_, '_>, form: Form) -> Result<Turn, Refusal> {
        let cfg = reply.shared.lock().cfg.clone();
        let plan = Plan::read(request, form, &cfg, &reply.faults)?;
        let Some(choice) = plan.choices.first().cloned() else {
            return Err(Refusal::bad("There is nothing to answer.", None));
        };
        let suffix = format!("{:016x}", fold(mix(reply.shared.started_unix_ns()), reply.asked.seq));
        let source = Some(Source::start(&reply.shared, &plan, reply.faults.delay_us, 1));
        reply.shared.lock().begin(&plan.model, plan.prompt_tokens());
        Ok(Turn { plan, choice, suffix, source, sent: 0 })
    }

    /// The next token's text; `None` when there is no more.
    pub(super) async fn next(&mut self) -> Option<String> {
        let source = self.source.as_ref()?;
        loop {
            let (there, ended) = source.available(0, self.choice.tokens);
            if there > self.sent {
                let piece = self.choice.piece(self.sent).into_owned();
                self.sent += 1;
                return Some(piece);
            }
            if ended {
                return None;
            }
            source.more(self.sent).await;
        }
    }

    /// All of the text.
    pub(super) async fn whole(&mut self) -> String {
        let mut text = String::new();
        while let Some(piece) = self.next().await {
            text.push_str(&piece);
        }
        text
    }

    /// Takes the request out of the model: before its last bytes go out.
    pub(super) fn finish(&mut self, reply: &Reply<'_, '_>) -> Usage {
        match self.source.take() {
            Some(source) => {
                let usage = usage_of(reply, &self.plan, &source, u64::from(self.sent));
                close(reply, &self.plan, source);
                reply.shared.lock().give(&self.plan.model, u64::from(self.sent));
                usage
            }
            None => Usage { prompt: 0, completion: 0, cached: 0, created_cache: 0 },
        }
    }
}

/// One event with its name.
pub(super) fn event(name: &str, data: &serde_json::Value) -> Vec<u8> {
    format!("event: {name}\ndata: {data}\n\n").into_bytes()
}

/// A usage that a fault puts in place of the true one.
pub(super) fn usage_or_fault(reply: &Reply<'_, '_>, usage: serde_json::Value) -> serde_json::Value {
    match &reply.faults.usage {
        Some(chosen) => serde_json::from_str(chosen.get()).unwrap_or_default(),
        None => usage,
    }
}
