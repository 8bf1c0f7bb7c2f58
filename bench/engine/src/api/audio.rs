//! Speech: what was heard says how much came and its checksum; what is spoken is a wave made from the text.

use serde_json::json;

use crate::answer::Request;
use crate::api::input::Body;
use crate::api::{Answered, Refusal, error_body};
use crate::config::EngineConfig;
use crate::mix::{fold, hash_bytes};
use crate::reply::Reply;

/// Samples a second, of 16 bits.
const RATE: u32 = 8_000;
/// Samples for each byte of text.
const SAMPLES_PER_BYTE: usize = 80;

/// What a form holds, as far as it is used.
#[derive(Default)]
struct Heard {
    model: Option<String>,
    is_stream: bool,
    file: Option<(usize, u32)>,
}

/// `/v1/audio/transcriptions` and `/v1/audio/translations`.
pub(super) async fn hear(request: &Request, reply: &mut Reply<'_, '_>) -> Answered {
    let heard = match Heard::read(request, &reply.shared.lock().cfg) {
        Ok(heard) => heard,
        Err(refusal) => return Ok(Some(refusal)),
    };
    let (bytes, crc) = heard.file.unwrap_or_default();
    let text = format!("{bytes} bytes of sound {crc:08x}");
    if !heard.is_stream {
        let seconds = bytes.div_ceil(2 * RATE as usize);
        let body = json!({ "text": text, "usage": { "type": "duration", "seconds": seconds } }).to_string();
        return reply.whole(200, "application/json", &[], body.as_bytes()).await.map(|()| None);
    }
    reply.begin(200, "text/event-stream; charset=utf-8", &[]).await?;
    for word in text.split_inclusive(' ') {
        let choices = json!([{ "delta": { "content": word }, "finish_reason": null }]);
        let chunk = json!({ "object": "transcription.chunk", "model": heard.model, "choices": choices });
        reply.piece(format!("data: {chunk}\n\n").as_bytes()).await?;
    }
    reply.piece(b"data: [DONE]\n\n").await?;
    reply.end().await.map(|()| None)
}

/// `/v1/audio/speech`.
pub(super) async fn speak(request: &Request, reply: &mut Reply<'_, '_>) -> Answered {
    let text = match Body::parse(request).and_then(|body| {
        body.model(&reply.shared.lock().cfg)?;
        body.text("input")
    }) {
        Ok(text) => text.unwrap_or_default(),
        Err(refusal) => return Ok(Some(refusal)),
    };
    let wave = wave(text.as_bytes());
    reply.whole(200, "audio/wav", &[], &wave).await.map(|()| None)
}

impl Heard {
    /// Reads a form the plain way: cut at the boundary, a part's head ends at its empty line.
    fn read(request: &Request, cfg: &EngineConfig) -> Result<Heard, Refusal> {
        let refuse = |message: &str, param| Refusal::bad(message, Some(param));
        let content_type = request.head.header("content-type").unwrap_or_default();
        let boundary = content_type.split_once("boundary=").map(|(_, rest)| rest.trim_matches('"'));
        let Some(boundary) = boundary else { return Err(refuse("Missing boundary in multipart.", "file")) };
        let delimiter = format!("--{boundary}");
        let mut heard = Heard::default();
        let mut from = 0;
        let is_line = |start: &usize| {
            let after = request.body.get(start + delimiter.len()..).unwrap_or_default();
            after.starts_with(b"\r\n") || after.starts_with(b"--")
        };
        let starts = memchr::memmem::find_iter(&request.body, delimiter.as_bytes()).filter(is_line);
        let starts: Vec<usize> = starts.collect();
        for start in starts.into_iter().chain([request.body.len()]) {
            // The line end before a boundary belongs to it.
            let part = request.body.get(from..start.saturating_sub(2).max(from)).unwrap_or_default();
            from = start + delimiter.len();
            let Some(head_end) = memchr::memmem::find(part, b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(part.get(..head_end).unwrap_or_default()).into_owned();
            let content = part.get(head_end + 4..).unwrap_or_default();
            if head.contains("name=\"model\"") {
                heard.model = Some(String::from_utf8_lossy(content).into_owned());
            } else if head.contains("name=\"stream\"") {
                heard.is_stream = content == b"true";
            } else if head.contains("name=\"file\"") {
                let mut crc = flate2::Crc::new();
                crc.update(content);
                heard.file = Some((content.len(), crc.sum()));
            }
        }
        if heard.file.is_none() {
            return Err(Refusal::invalid("missing", "body.file", "Field required", "None"));
        }
        if let Some(name) = heard.model.as_ref().filter(|name| !cfg.models.contains(name)) {
            let message = format!("The model `{name}` does not exist.");
            return Err(Refusal { status: 404, body: error_body(&message, "NotFoundError", Some("model"), 404) });
        }
        Ok(heard)
    }
}

/// A RIFF file: silence first, so that it holds zeros, then noise from the text's hash.
fn wave(text: &[u8]) -> Vec<u8> {
    let samples = text.len() * SAMPLES_PER_BYTE;
    let data_bytes = (2 * samples) as u32;
    let mut out = Vec::with_capacity(44 + 2 * samples);
    out.extend_from_slice(b"RIFF");
    out.extend_from_slice(&(36 + data_bytes).to_le_bytes());
    out.extend_from_slice(b"WAVEfmt ");
    out.extend_from_slice(&16u32.to_le_bytes());
    out.extend_from_slice(&[1, 0, 1, 0]);
    out.extend_from_slice(&RATE.to_le_bytes());
    out.extend_from_slice(&(2 * RATE).to_le_bytes());
    out.extend_from_slice(&[2, 0, 16, 0]);
    out.extend_from_slice(b"data");
    out.extend_from_slice(&data_bytes.to_le_bytes());
    let seed = hash_bytes(0x77, text);
    let silence = samples / 4;
    out.extend(std::iter::repeat_n(0, 2 * silence));
    out.extend((silence..samples).flat_map(|at| ((fold(seed, at as u64) >> 48) as u16).to_le_bytes()));
    out
}
