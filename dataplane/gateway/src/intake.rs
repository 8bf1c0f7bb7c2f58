//! A request's body: read within limits, checked, and kept as the bytes that came.

use bytes::Bytes;
use llmgw_http::head::RequestHead;
use llmgw_http::server::ServerConn;
use llmgw_openai::scan::{Scan, scan};
use llmgw_runtime::tcp::Tcp;

use crate::error::ApiError;

/// A body and what was found in it.
pub(crate) struct Intake {
    pub(crate) body: Bytes,
    pub(crate) scan: Scan,
}

/// Reads and checks a body. `None` when the client left before it was complete.
///
/// Errors: over a limit, too slow, badly framed, or not a JSON object that names a model.
pub(crate) async fn read(head: &RequestHead, conn: &mut ServerConn<Tcp>) -> Result<Option<Intake>, ApiError> {
    let ServerConn { reader, writer } = conn;
    let Some(body) = reader.body(head, writer).await? else { return Ok(None) };
    let scan = scan(&body)?;
    Ok(Some(Intake { body, scan }))
}
