//! A request's body: read within limits, kept as the bytes that came.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body as _, Incoming};
use llmgw_gateway::error::ApiError;
use llmgw_http::error::Reject;
use llmgw_http::limits::{BODY_FIRST_RESERVE_BYTES, BODY_PROGRESS_BYTES};
use llmgw_kit::clock::Mono;
use llmgw_router::settings::Settings;

use crate::turn::Turn;

/// Reads a body to its end. One that came in one piece is not copied.
///
/// Errors: over a limit, too slow, badly framed.
pub(crate) async fn read(mut body: Incoming, turn: &Turn, settings: &Settings) -> Result<Bytes, ApiError> {
    let most = settings.limits.body_bytes;
    let too_large = || reject(413, "the request's body is larger than this gateway accepts");
    if body.size_hint().lower() > most {
        return Err(too_large());
    }
    let length = body.size_hint().exact();
    let mut all = BytesMut::new();
    let mut first = Bytes::new();
    let mut received = 0u64;
    let mut next_mark = BODY_PROGRESS_BYTES as u64;
    let mut until = Mono::now() + settings.timeouts.client_body;
    loop {
        let frame = poll_fn(|cx| match Pin::new(&mut body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            Poll::Pending => turn.poll_until(cx, until).map(Err),
        });
        let piece = match frame.await {
            Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            Ok(Some(Err(_))) => return Err(reject(400, "malformed body: the chunks are not to the letter")),
            Ok(None) => break,
            Err(()) if turn.is_cut() => return Err(ApiError::shutting_down()),
            Err(()) => return Err(reject(408, "the request's body took too long")),
        };
        received += piece.len() as u64;
        if received > most {
            return Err(too_large());
        }
        if received >= next_mark {
            next_mark = received + BODY_PROGRESS_BYTES as u64;
            until = Mono::now() + settings.timeouts.client_body;
        }
        if received == piece.len() as u64 {
            first = piece;
        } else {
            if all.is_empty() {
                let expected = usize::try_from(length.unwrap_or(0)).unwrap_or(usize::MAX);
                all.reserve(expected.min(BODY_FIRST_RESERVE_BYTES).max(first.len() + piece.len()));
                all.extend_from_slice(&first);
                first = Bytes::new();
            }
            all.extend_from_slice(&piece);
        }
        if body.is_end_stream() {
            break;
        }
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

fn reject(status: u16, message: &'static str) -> ApiError {
    ApiError::from(Reject { status, message })
}
