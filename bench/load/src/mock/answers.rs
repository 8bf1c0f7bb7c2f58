//! The bytes the mock answers with, made once: of an event only the time in it is written anew.

use std::io::Write as _;

use super::intake::Page;

/// Stands before the time an event was written, in its text.
pub(crate) const STAMP: &[u8] = b"sent_ns=";
/// Digits of the time, so that every event has the same length.
pub(crate) const STAMP_DIGITS: usize = 19;

const MODEL: &str = "mock";
const ID: &str = "chatcmpl-0123456789abcdef0123456789abcdef";

/// All of them.
#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) completion: Vec<u8>,
    pub(crate) stream_head: Vec<u8>,
    first: Template,
    middle: Template,
    last: Template,
    end: Vec<u8>,
    usage_end: Vec<u8>,
}

/// Which event of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    First,
    Middle,
    Last,
}

/// A chunk with one event, and where its time goes.
#[derive(Debug)]
struct Template {
    bytes: Vec<u8>,
    stamp_at: usize,
}

impl Answers {
    pub(crate) fn new() -> Self {
        let completion = format!(
            "{{\"id\":\"{ID}\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"{MODEL}\",\"choices\":[{{\"index\":0,\
             \"message\":{{\"role\":\"assistant\",\"content\":\"It is quiet here; the answer is always the same, and it comes at once.\"}},\
             \"logprobs\":null,\"finish_reason\":\"stop\"}}],\
             \"usage\":{{\"prompt_tokens\":128,\"completion_tokens\":18,\"total_tokens\":146}}}}"
        );
        let usage = format!(
            "data: {{\"id\":\"{ID}\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"{MODEL}\",\"choices\":[],\
             \"usage\":{{\"prompt_tokens\":128,\"completion_tokens\":32,\"total_tokens\":160}}}}\n\n"
        );
        let end = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
        Self {
            completion: whole("200 OK", "application/json", completion.as_bytes()),
            stream_head: b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\
                Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
                .to_vec(),
            first: Template::new("\"role\":\"assistant\",", "null"),
            middle: Template::new("", "null"),
            last: Template::new("", "\"stop\""),
            usage_end: format!("{:x}\r\n{usage}\r\n{end}", usage.len()).into_bytes(),
            end: end.as_bytes().to_vec(),
        }
    }

    /// Adds one event with its time.
    pub(crate) fn event(&self, place: Place, now_ns: u64, out: &mut Vec<u8>) {
        let template = match place {
            Place::First => &self.first,
            Place::Middle => &self.middle,
            Place::Last => &self.last,
        };
        let at = out.len() + template.stamp_at;
        out.extend_from_slice(&template.bytes);
        if let Some(mut digits) = out.get_mut(at..at + STAMP_DIGITS) {
            // As long as the digits: the clock counts from the machine's start.
            let _ = write!(digits, "{now_ns:019}");
        }
    }

    /// What follows the last event.
    pub(crate) fn end(&self, with_usage: bool) -> &[u8] {
        if with_usage { &self.usage_end } else { &self.end }
    }
}

impl Template {
    fn new(role: &str, finish: &str) -> Self {
        let zeros = "0".repeat(STAMP_DIGITS);
        let stamp = String::from_utf8_lossy(STAMP).into_owned();
        let event = format!(
            "data: {{\"id\":\"{ID}\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"{MODEL}\",\
             \"choices\":[{{\"index\":0,\"delta\":{{{role}\"content\":\"{stamp}{zeros} \"}},\"logprobs\":null,\
             \"finish_reason\":{finish}}}]}}\n\n"
        );
        let bytes = format!("{:x}\r\n{event}\r\n", event.len()).into_bytes();
        let stamp_at = memchr::memmem::find(&bytes, STAMP).map_or(0, |at| at + STAMP.len());
        Self { bytes, stamp_at }
    }
}

/// A page that is not a completion.
pub(crate) fn page(page: Page, active_count: u64, answered_count: u64) -> Vec<u8> {
    let json = "application/json";
    match page {
        Page::Completion | Page::Fine => whole("200 OK", json, b"{\"status\":\"ok\"}"),
        Page::Models => {
            let text = format!(
                "{{\"object\":\"list\",\"data\":[{{\"id\":\"{MODEL}\",\"object\":\"model\",\"created\":1700000000,\
                 \"owned_by\":\"{MODEL}\",\"root\":\"{MODEL}\",\"max_model_len\":1000000}}]}}"
            );
            whole("200 OK", json, text.as_bytes())
        }
        Page::About => {
            let text = format!(
                "{{\"model_path\":\"{MODEL}\",\"served_model_name\":\"{MODEL}\",\"tokenizer_path\":\"{MODEL}\",\
                 \"is_generation\":true,\"max_total_num_tokens\":1000000,\"version\":\"0\",\"tp_size\":1,\"dp_size\":1}}"
            );
            whole("200 OK", json, text.as_bytes())
        }
        Page::Metrics => {
            let label = format!("{{engine=\"0\",model_name=\"{MODEL}\"}}");
            let kv = (active_count as f64 / 4000.0).min(1.0);
            let text = format!(
                "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{label} {active_count}.0\n\
                 # TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{label} 0.0\n\
                 # TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{label} {kv}\n\
                 # TYPE vllm:prefix_cache_queries_total counter\n\
                 vllm:prefix_cache_queries_total{label} {answered_count}.0\n\
                 # TYPE vllm:prefix_cache_hits_total counter\nvllm:prefix_cache_hits_total{label} 0.0\n"
            );
            whole("200 OK", "text/plain; version=0.0.4; charset=utf-8", text.as_bytes())
        }
        Page::Unknown => whole("404 Not Found", json, b"{\"error\":{\"message\":\"not found\",\"code\":404}}"),
    }
}

fn whole(status: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Part, Step, Wire};

    #[test]
    fn a_stream_put_together_is_proper_http_and_carries_its_times() {
        let answers = Answers::new();
        for with_usage in [false, true] {
            let mut bytes = answers.stream_head.clone();
            answers.event(Place::First, 5, &mut bytes);
            answers.event(Place::Middle, 6, &mut bytes);
            answers.event(Place::Last, 1_234_567_890_123_456, &mut bytes);
            bytes.extend_from_slice(answers.end(with_usage));
            let mut body = Vec::new();
            let step = Wire::default().push(&bytes, &mut |part| {
                if let Part::Body(piece) = part {
                    body.extend_from_slice(piece);
                }
            });
            assert_eq!(step, Ok(Step::Done));
            let text = String::from_utf8(body).expect("text");
            let events: Vec<&str> = text.split_terminator("\n\n").collect();
            assert_eq!(events.len(), if with_usage { 5 } else { 4 });
            assert!(events[2].contains("sent_ns=0001234567890123456 ") && events[2].contains("\"stop\""));
            for event in events.iter().filter(|event| **event != "data: [DONE]") {
                let json = event.strip_prefix("data: ").expect("a data event");
                serde_json::from_str::<serde_json::Value>(json).expect("JSON");
            }
        }
        assert!((200..260).contains(&answers.middle.bytes.len()), "{}", answers.middle.bytes.len());
    }

    #[test]
    fn every_page_is_proper_http() {
        for asked in [Page::Completion, Page::Models, Page::Metrics, Page::About, Page::Fine, Page::Unknown] {
            let step = Wire::default().push(&page(asked, 3, 9), &mut |_| ());
            assert_eq!(step, Ok(Step::Done), "{asked:?}");
        }
        assert_eq!(Wire::default().push(&Answers::new().completion, &mut |_| ()), Ok(Step::Done));
    }
}
