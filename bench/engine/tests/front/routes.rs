//! The APIs beside chat: responses, messages, judgements, tokens, speech.

use serde_json::{Value, json};

use crate::support::{Client, immediate};

fn events(reply: &str) -> Vec<(String, Value)> {
    let event = |text: &str| {
        let (name, data) = text.split_once("\ndata: ").unwrap_or_else(|| panic!("no event: {text}"));
        (name.trim_start_matches("event: ").to_owned(), serde_json::from_str(data).unwrap())
    };
    reply.split_terminator("\n\n").map(event).collect()
}

#[test]
fn a_response_is_kept_and_streams_say_the_same_as_whole_answers() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let body = json!({ "model": "tiny", "input": "hello", "max_output_tokens": 5 });
    let whole = client.post("/v1/responses", &body.to_string()).json();
    assert_eq!((&whole["object"], &whole["status"]), (&json!("response"), &json!("incomplete")));
    assert_eq!(whole["usage"]["output_tokens"], 5);
    let id = whole["id"].as_str().unwrap();
    assert!(id.starts_with("resp_"));
    assert_eq!(client.get(&format!("/v1/responses/{id}")).json(), whole);
    assert_eq!(client.get("/v1/responses/resp_none").status, 404);

    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    streamed["previous_response_id"] = id.into();
    let events = events(&client.post("/v1/responses", &streamed.to_string()).text());
    assert_eq!(events[0].0, "response.created");
    let said: String = events.iter().filter_map(|(_, data)| data["delta"].as_str()).collect();
    assert_eq!(said, whole["output"][0]["content"][0]["text"].as_str().unwrap());
    let (name, last) = events.last().unwrap();
    assert_eq!((name.as_str(), &last["response"]["usage"]), ("response.completed", &whole["usage"]));
    assert_eq!(last["response"]["previous_response_id"], id);

    streamed["previous_response_id"] = "resp_none".into();
    let refused = client.post("/v1/responses", &streamed.to_string());
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (404, &json!("previous_response_id")));
}

#[test]
fn messages_have_their_own_shapes_errors_too() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let body = json!({ "model": "tiny", "max_tokens": 5, "messages": [{ "role": "user", "content": "hello" }] });
    let whole = client.post("/v1/messages", &body.to_string()).json();
    assert_eq!((&whole["type"], &whole["stop_reason"]), (&json!("message"), &json!("max_tokens")));
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let events = events(&client.post("/v1/messages", &streamed.to_string()).text());
    assert_eq!((events[0].0.as_str(), events.last().unwrap().0.as_str()), ("message_start", "message_stop"));
    let said: String = events.iter().filter_map(|(_, data)| data["delta"]["text"].as_str()).collect();
    assert_eq!(said, whole["content"][0]["text"].as_str().unwrap());
    let count = client.post("/v1/messages/count_tokens", &body.to_string()).json();
    assert_eq!(count["input_tokens"], whole["usage"]["input_tokens"]);
    let refused = client.post("/v1/messages", r#"{"model":"other","messages":[]}"#);
    assert_eq!((refused.status, &refused.json()["type"]), (404, &json!("error")));
}

#[test]
fn judgements_are_ordered_and_counted() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let body = json!({ "model": "tiny", "query": "q", "documents": ["one", "two two", "three"] });
    let judged = client.post("/v1/rerank", &body.to_string()).json();
    let scores: Vec<f64> =
        judged["results"].as_array().unwrap().iter().map(|row| row["relevance_score"].as_f64().unwrap()).collect();
    assert!(scores.len() == 3 && scores.is_sorted_by(|a, b| a >= b), "{judged}");
    assert!(judged["usage"]["prompt_tokens"].as_u64().unwrap() > 3);
    let body = json!({ "model": "tiny", "text_1": "q", "text_2": ["one", "three"] });
    assert_eq!(client.post("/score", &body.to_string()).json()["data"].as_array().unwrap().len(), 2);
    let words = client.post("/detokenize", r#"{"model":"tiny","tokens":[1,2,3]}"#).json();
    assert_eq!(words["prompt"].as_str().unwrap().len(), 12);
}

#[test]
fn what_is_spoken_is_a_wave_with_zeros() {
    let engine = immediate();
    let mut client = Client::connect(&engine);
    let reply = client.post("/v1/audio/speech", r#"{"model":"tiny","input":"hello","voice":"v"}"#);
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("audio/wav")));
    let body = reply.body();
    assert_eq!((&body[..4], body.len()), (&b"RIFF"[..], 44 + 2 * 5 * 80));
    assert!(body[44..].iter().filter(|byte| **byte == 0).count() >= 200);
}
