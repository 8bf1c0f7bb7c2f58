//! What travels through the data plane, as clients and engines send it: bodies, events, heads.

use serde_json::json;

/// A chat request of about `bytes` bytes: turns of a conversation with line ends and quotes, as prompts have them.
pub(crate) fn chat_body(bytes: usize) -> Vec<u8> {
    let turn = "Here is a paragraph of a document, \"quoted\" now and then,\nwith line ends in it. ".repeat(12);
    let mut text = String::new();
    let mut messages = vec![json!({ "role": "system", "content": "You are a helpful assistant." })];
    let mut left = bytes.saturating_sub(220);
    while left > 0 {
        text.clear();
        text.extend(turn.chars().take(left));
        left -= text.len();
        messages.push(json!({ "role": "user", "content": text }));
    }
    json!({ "model": "m0", "messages": messages, "max_tokens": 256, "temperature": 0.7, "stream": true })
        .to_string()
        .into_bytes()
}

/// A chat request whose prompt is `bytes` bytes of words in one piece, nothing in it escaped.
pub(crate) fn plain_body(bytes: usize) -> Vec<u8> {
    let text: String = "some words of a prompt that goes on ".chars().cycle().take(bytes).collect();
    json!({ "model": "m0", "messages": [{ "role": "user", "content": text }] }).to_string().into_bytes()
}

/// `count` events of a stream, one token each, as vLLM writes them.
pub(crate) fn events(count: usize) -> Vec<u8> {
    let event = |token: usize| {
        format!(
            "data: {{\"id\":\"chatcmpl-7d3f2c1a9b8e4f60a1b2c3d4e5f60718\",\"object\":\"chat.completion.chunk\",\
             \"created\":1764403200,\"model\":\"m0\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" word{token}\"}},\
             \"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}}]}}\n\n"
        )
    };
    (0..count).map(event).collect::<String>().into_bytes()
}

/// The head of a request of OpenAI's Python client.
pub(crate) const REQUEST_HEAD: &[u8] = b"POST /v1/chat/completions HTTP/1.1\r\n\
    Host: gateway.internal:8080\r\n\
    Accept-Encoding: gzip, deflate\r\n\
    Connection: keep-alive\r\n\
    Accept: application/json\r\n\
    Content-Type: application/json\r\n\
    User-Agent: OpenAI/Python 2.8.1\r\n\
    X-Stainless-Lang: python\r\n\
    X-Stainless-Package-Version: 2.8.1\r\n\
    X-Stainless-OS: Linux\r\n\
    X-Stainless-Arch: x64\r\n\
    X-Stainless-Runtime: CPython\r\n\
    X-Stainless-Runtime-Version: 3.12.3\r\n\
    Authorization: Bearer sk-0123456789abcdef0123456789abcdef\r\n\
    X-Stainless-Async: false\r\n\
    x-stainless-retry-count: 0\r\n\
    x-stainless-read-timeout: 600\r\n\
    Content-Length: 612\r\n\r\n";

/// The head of an answer of vLLM.
pub(crate) const RESPONSE_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n\
    date: Sat, 29 Nov 2025 08:00:00 GMT\r\n\
    server: uvicorn\r\n\
    content-length: 401\r\n\
    content-type: application/json\r\n\
    x-request-id: 0123456789abcdef0123456789abcdef\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_what_the_data_plane_takes() {
        for bytes in [1 << 10, 16 << 10, 1 << 20] {
            let body = chat_body(bytes);
            assert!((body.len() as f64 / bytes as f64 - 1.0).abs() < 0.25, "{bytes}: {}", body.len());
            assert!(llmgw_openai::scan::scan(&body).is_ok_and(|scan| scan.is_streaming()));
        }
        let event = events(1);
        assert!((200..300).contains(&event.len()), "{}", event.len());
    }
}
