//! Request heads: strict, since what a proxy forgives its upstream may read differently.
//!
//! Called by the server half and by the fuzz target. Changes when a rule for clients changes. Never keeps a reference
//! into a connection's buffer.

use std::mem::MaybeUninit;

use crate::body::Framing;
use crate::error::Reject;
use crate::head::fields::{Fields, Headers, Span, UNKNOWN_CODING};
use crate::head::{HeadScan, ScanError, Version};
use crate::limits::{HEADERS_MAX, HeadLimits};

const REQUEST_LINE: &str = "malformed request line; expected METHOD TARGET VERSION";
const HEADER_LINE: &str = "malformed header line; expected NAME: VALUE in one line, with no blank before the colon";

/// One client's request head, owned, reused from request to request.
#[derive(Debug, Default, Clone)]
pub struct RequestHead {
    fields: Fields,
    method: Span,
    target: Span,
    version: Version,
    framing: Framing,
    expects_continue: bool,
    keeps_alive: bool,
}

impl RequestHead {
    /// Parses a head from the front of `raw`; gives its length, or nothing while it is incomplete.
    ///
    /// Errors: the refusal to answer with; the struct then holds nothing useful.
    /// Cost: one pass for the end, one copy of the head, one pass to parse; no allocation once warm.
    pub fn parse(&mut self, raw: &[u8], limits: &HeadLimits) -> Result<Option<usize>, Reject> {
        self.resume(raw, &mut HeadScan::default(), limits)
    }

    /// As [`RequestHead::parse`], going on from where an earlier scan of the same head stopped.
    pub(crate) fn resume(
        &mut self,
        raw: &[u8],
        scan: &mut HeadScan,
        limits: &HeadLimits,
    ) -> Result<Option<usize>, Reject> {
        if raw.first().is_some_and(|first| !first.is_ascii_alphabetic()) {
            return Err(Reject::bad(REQUEST_LINE));
        }
        let Some(end) = scan.advance(raw, limits).map_err(scan_reject)? else { return Ok(None) };
        self.fields.load(raw.get(..end).unwrap_or_default());
        self.read_lines()?;
        self.read_meaning()?;
        Ok(Some(end))
    }

    fn read_lines(&mut self) -> Result<(), Reject> {
        let (bytes, mut recorder) = self.fields.parts();
        let mut table = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut parsed = httparse::Request::new(&mut []);
        match parsed.parse_with_uninit_headers(bytes, &mut table) {
            Ok(httparse::Status::Complete(end)) if end == bytes.len() => {}
            Ok(_) => return Err(Reject::bad("malformed head")),
            Err(error) => return Err(parse_reject(error, bytes)),
        }
        self.version = Version::from_minor(parsed.version);
        self.method = recorder.span(parsed.method.unwrap_or_default().as_bytes());
        self.target = recorder.span(parsed.path.unwrap_or_default().as_bytes());
        for header in parsed.headers.iter() {
            recorder.push(header.name.as_bytes(), header.value);
        }
        Ok(())
    }

    fn read_meaning(&mut self) -> Result<(), Reject> {
        self.keep_origin_form()?;
        self.fields.withhold_nominated().map_err(Reject::bad)?;
        let said = self.fields.said();
        if said.hosts > 1 {
            return Err(Reject::bad("more than one host header"));
        }
        if said.hosts == 0 && self.version == Version::Http11 {
            return Err(Reject::bad("host header missing"));
        }
        if said.lengths > 1 {
            return Err(Reject::bad("more than one content-length"));
        }
        self.framing = match said.framing(self.version) {
            Ok(Framing::Close) => Framing::None,
            Ok(framing) => framing,
            Err(UNKNOWN_CODING) => return Err(Reject::new(501, UNKNOWN_CODING)),
            Err(message) => return Err(Reject::bad(message)),
        };
        self.keeps_alive = self.version == Version::Http11 && !said.close;
        self.expects_continue = match said.expect {
            Some(what) if what.eq_ignore_ascii_case(b"100-continue") => self.version == Version::Http11,
            Some(_) => return Err(Reject::new(417, "expectation not supported; only 100-continue is")),
            None => false,
        };
        Ok(())
    }

    /// Leaves a path and query as the target, whatever form it came in; an authority in it is never looked at.
    fn keep_origin_form(&mut self) -> Result<(), Reject> {
        let target = self.fields.slice(self.target);
        if self.fields.slice(self.method) == b"CONNECT" {
            return Err(Reject::bad("connect is not served"));
        }
        if target.first() == Some(&b'/') {
            return Ok(());
        }
        let Some(rest) = after_scheme(target) else {
            return Err(Reject::bad("target is not a path"));
        };
        let path = match memchr::memchr3(b'/', b'?', b'#', rest).and_then(|at| rest.get(at..)) {
            Some(path) if path.first() == Some(&b'/') => self.target.last(path.len()),
            Some(_) => return Err(Reject::bad("target without a path")),
            None => self.fields.append(b"/"),
        };
        self.target = path;
        Ok(())
    }

    /// Forgets what was sent, and gives its memory to the next head on this core.
    pub fn release(&mut self) {
        self.fields.release();
    }

    /// Method, as sent; a token.
    pub fn method(&self) -> &[u8] {
        self.fields.slice(self.method)
    }

    /// Path and query, as sent; begins with `/`; no space, no control byte.
    pub fn target(&self) -> &[u8] {
        self.fields.slice(self.target)
    }

    /// Version of the request.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Where the body ends. Never `Close`.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// The client waits for an interim 100 before it sends the body.
    pub fn expects_continue(&self) -> bool {
        self.expects_continue
    }

    /// The connection may serve another request after this one.
    pub fn keeps_alive(&self) -> bool {
        self.keeps_alive
    }

    /// All headers.
    pub fn headers(&self) -> Headers<'_> {
        self.fields.headers()
    }

    /// The headers that may be copied to another connection: no hop-by-hop ones, none that `Connection` nominates, no
    /// `Content-Length`. `Host` and `Expect` are among them; a proxy sets its own.
    pub fn end_to_end(&self) -> Headers<'_> {
        self.fields.end_to_end()
    }

    /// Value of the first header of that name, in any case.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.fields.header(name)
    }
}

/// What follows `http://` or `https://`.
fn after_scheme(target: &[u8]) -> Option<&[u8]> {
    ["http://", "https://"].into_iter().find_map(|scheme| {
        let (front, rest) = target.split_at_checked(scheme.len())?;
        (front.eq_ignore_ascii_case(scheme.as_bytes()) && !rest.is_empty()).then_some(rest)
    })
}

fn scan_reject(error: ScanError) -> Reject {
    match error {
        ScanError::BareLf => Reject::bad("line ends must be CRLF"),
        ScanError::FirstLineTooLong => Reject::new(414, "the request line is longer than this gateway accepts"),
        ScanError::TooLong => Reject::new(431, "the request's headers are larger than this gateway accepts"),
        ScanError::TooManyHeaders => Reject::new(431, "too many headers"),
    }
}

fn parse_reject(error: httparse::Error, head: &[u8]) -> Reject {
    match error {
        httparse::Error::HeaderName => Reject::bad(HEADER_LINE),
        httparse::Error::HeaderValue => Reject::bad("malformed header value"),
        httparse::Error::TooManyHeaders => Reject::new(431, "too many headers"),
        httparse::Error::Version if names_http(head) => Reject::new(505, "only http/1.0 and http/1.1 are served"),
        _ => Reject::bad(REQUEST_LINE),
    }
}

/// Says whether a head begins with three words of which the last names some version of HTTP.
fn names_http(head: &[u8]) -> bool {
    let line = head.split(|&b| b == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&b| b == b' ').skip(2);
    words.next().is_some_and(|version| version.starts_with(b"HTTP/")) && words.next().is_none()
}

#[cfg(test)]
mod tests;
