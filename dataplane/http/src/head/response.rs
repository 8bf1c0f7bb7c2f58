//! Response heads of engines: lenient in what is harmless, strict in framing.
//!
//! Called by the client half and by the fuzz target. A reason phrase may be anything, spaces may be doubled; two
//! readings of where a body ends are an error and nothing of such an answer is passed on. Never keeps a reference
//! into a connection's buffer.

use std::mem::MaybeUninit;

use crate::body::Framing;
use crate::error::Malformed;
use crate::head::fields::{Fields, Headers, Span};
use crate::head::{HeadScan, ScanError, Version};
use crate::limits::{HEADERS_MAX, HeadLimits};

/// What of the request decides how its answer is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerTo {
    /// `HEAD`: no body whatever the headers say.
    Head,
    /// Any other method.
    Other,
}

/// One engine's response head, owned, reused from answer to answer.
#[derive(Debug, Default, Clone)]
pub struct ResponseHead {
    fields: Fields,
    status: u16,
    reason: Span,
    framing: Framing,
    keeps_alive: bool,
}

impl ResponseHead {
    /// Parses a head from the front of `raw`; gives its length, or nothing while it is incomplete.
    ///
    /// Errors: the broken rule. Cost: as for request heads.
    pub fn parse(&mut self, raw: &[u8], to: AnswerTo) -> Result<Option<usize>, Malformed> {
        self.resume(raw, &mut HeadScan::default(), to)
    }

    /// As [`ResponseHead::parse`], going on from where an earlier scan of the same head stopped.
    pub(crate) fn resume(&mut self, raw: &[u8], scan: &mut HeadScan, to: AnswerTo) -> Result<Option<usize>, Malformed> {
        let known = raw.len().min(5);
        if raw.get(..known) != b"HTTP/".get(..known) {
            return Err(Malformed("not an http answer"));
        }
        let Some(end) = scan.advance(raw, &HeadLimits::RESPONSE).map_err(scan_fault)? else { return Ok(None) };
        self.fields.load(raw.get(..end).unwrap_or_default());
        let version = self.read_lines()?;
        self.read_meaning(version, to)?;
        Ok(Some(end))
    }

    fn read_lines(&mut self) -> Result<Version, Malformed> {
        let (bytes, mut recorder) = self.fields.parts();
        let mut table = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut parsed = httparse::Response::new(&mut []);
        let mut config = httparse::ParserConfig::default();
        config
            .allow_multiple_spaces_in_response_status_delimiters(true)
            .allow_spaces_after_header_name_in_responses(true);
        match config.parse_response_with_uninit_headers(&mut parsed, bytes, &mut table) {
            Ok(httparse::Status::Complete(end)) if end == bytes.len() => {}
            _ => return Err(Malformed("malformed head")),
        }
        self.status = parsed.code.unwrap_or_default();
        self.reason = recorder.span(parsed.reason.unwrap_or_default().as_bytes());
        for header in parsed.headers.iter() {
            recorder.push(header.name.as_bytes(), header.value);
        }
        Ok(Version::from_minor(parsed.version))
    }

    fn read_meaning(&mut self, version: Version, to: AnswerTo) -> Result<(), Malformed> {
        self.fields.withhold_nominated().map_err(Malformed)?;
        let said = self.fields.said();
        let framing = said.framing(version).map_err(Malformed)?;
        if self.status == 101 || !(100..=599).contains(&self.status) {
            return Err(Malformed("unusable status"));
        }
        let has_no_body = to == AnswerTo::Head || self.status < 200 || self.status == 204 || self.status == 304;
        self.framing = if has_no_body { Framing::None } else { framing };
        let wants_more = if version == Version::Http11 { !said.close } else { said.keep_alive && !said.close };
        self.keeps_alive = wants_more && self.framing != Framing::Close;
        Ok(())
    }

    /// Forgets the headers, and gives their memory to the next head on this core.
    pub fn release(&mut self) {
        self.fields.release();
    }

    /// Status code, 100 to 599 but never 101.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Reason phrase as sent, empty when it is not ASCII text.
    pub fn reason(&self) -> &[u8] {
        self.fields.slice(self.reason)
    }

    /// Where the body ends.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// The connection may be used again once the body has ended.
    pub fn keeps_alive(&self) -> bool {
        self.keeps_alive
    }

    /// All headers.
    pub fn headers(&self) -> Headers<'_> {
        self.fields.headers()
    }

    /// The headers that may be copied to another connection: no hop-by-hop ones, none that `Connection` nominates, no
    /// `Content-Length`.
    pub fn end_to_end(&self) -> Headers<'_> {
        self.fields.end_to_end()
    }

    /// Value of the first header of that name, in any case.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.fields.header(name)
    }
}

fn scan_fault(error: ScanError) -> Malformed {
    Malformed(match error {
        ScanError::BareLf => "line ends must be CRLF",
        ScanError::FirstLineTooLong => "status line too long",
        ScanError::TooLong => "head too large",
        ScanError::TooManyHeaders => "too many headers",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &[&str], to: AnswerTo) -> Result<ResponseHead, Malformed> {
        let raw = format!("{}\r\n\r\n", lines.join("\r\n"));
        let mut head = ResponseHead::default();
        let whole = head.parse(raw.as_bytes(), to);
        let (mut stepped, mut scan) = (ResponseHead::default(), HeadScan::default());
        let by_byte = (0..=raw.len()).find_map(|end| match stepped.resume(&raw.as_bytes()[..end], &mut scan, to) {
            Ok(None) => None,
            other => Some(other),
        });
        assert_eq!(by_byte, Some(whole), "any split gives the same result: {lines:?}");
        assert_eq!(whole?, Some(raw.len()));
        Ok(head)
    }

    fn check(lines: &[&str], want: Result<(Framing, bool), &'static str>) {
        let got = parse(lines, AnswerTo::Other).map(|head| (head.framing(), head.keeps_alive()));
        assert_eq!(got, want.map_err(Malformed), "{lines:?}");
    }

    const OK: &str = "HTTP/1.1 200 OK";

    #[test]
    fn framing_and_persistence_follow_the_headers() {
        check(&[OK, "Content-Length: 5"], Ok((Framing::Length(5), true)));
        check(&[OK, "content-length: 5", "Content-Length: 5"], Ok((Framing::Length(5), true)));
        check(&[OK, "Transfer-Encoding : Chunked"], Ok((Framing::Chunked, true)));
        check(&[OK], Ok((Framing::Close, false)));
        check(&[OK, "Content-Length: 5", "Connection: Close"], Ok((Framing::Length(5), false)));
        check(&["HTTP/1.0 200 OK", "Content-Length: 5"], Ok((Framing::Length(5), false)));
        check(&["HTTP/1.0 200 OK", "Content-Length: 5", "Connection: keep-alive"], Ok((Framing::Length(5), true)));
        check(&["HTTP/1.1 204 No Content"], Ok((Framing::None, true)));
        check(&["HTTP/1.1 304 x", "Content-Length: 5"], Ok((Framing::None, true)));
        check(&["HTTP/1.1 100 Continue"], Ok((Framing::None, true)));
        let head = parse(&[OK, "Content-Length: 5"], AnswerTo::Head).unwrap();
        assert_eq!((head.framing(), head.keeps_alive()), (Framing::None, true));
    }

    #[test]
    fn two_readings_of_the_framing_are_an_error() {
        check(
            &[OK, "Content-Length: 5", "Transfer-Encoding: chunked"],
            Err("both content-length and transfer-encoding"),
        );
        check(&[OK, "Content-Length: 5", "Content-Length: 6"], Err("content-lengths differ"));
        check(&[OK, "Content-Length: 5, 6"], Err("content-length is not a number"));
        check(&[OK, "Content-Length: +5"], Err("content-length is not a number"));
        check(&[OK, "Transfer-Encoding: gzip, chunked"], Err("stacked transfer-encodings"));
        check(&[OK, "Transfer-Encoding: identity"], Err("transfer-encoding not supported; only chunked is"));
        check(&[OK, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], Err("stacked transfer-encodings"));
        check(&["HTTP/1.0 200 OK", "Transfer-Encoding: chunked"], Err("transfer-encoding in http/1.0"));
    }

    #[test]
    fn harmless_oddities_pass_and_others_do_not() {
        for line in ["HTTP/1.1 200", "HTTP/1.1 200 ", "HTTP/1.1  200  All  good, really", "HTTP/1.1 200 \u{e9}t\u{e9}"]
        {
            assert_eq!(parse(&[line, "Content-Length: 0"], AnswerTo::Other).unwrap().status(), 200, "{line}");
        }
        assert_eq!(parse(&["HTTP/1.1 503 Busy"], AnswerTo::Other).unwrap().reason(), b"Busy");
        check(&["HTTP/1.1 101 Switching Protocols"], Err("unusable status"));
        check(&["HTTP/1.1 099 x"], Err("unusable status"));
        check(&["HTTP/1.1 600 x"], Err("unusable status"));
        check(&["HTTP/1.1 20 x"], Err("malformed head"));
        check(&["HTTP/2 200 x"], Err("malformed head"));
        check(&["SSH-2.0-OpenSSH"], Err("not an http answer"));
        check(&[OK, "X: a", " folded"], Err("malformed head"));
        check(&[OK, "X: a\0"], Err("malformed head"));
    }

    #[test]
    fn headers_of_the_engines_connection_do_not_travel() {
        let head = parse(
            &[OK, "Content-Length: 5", "Connection: keep-alive, x-hop", "X-Hop: 1", "Keep-Alive: 5", "Server: uvicorn"],
            AnswerTo::Other,
        )
        .unwrap();
        let names: Vec<&[u8]> = head.end_to_end().map(|(name, _)| name).collect();
        assert_eq!(names, [&b"Server"[..]]);
    }
}
