//! Reply heads as text. Pure; called by the reply alone.

/// Appends a head. A chosen field takes the place of the engine's own of that name; chosen ones come last, in order.
pub(crate) fn write(out: &mut Vec<u8>, status: u16, own: &[(&str, &str)], chosen: &[(String, String)]) {
    let is_chosen = |name: &str| chosen.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
    let kept = own.iter().copied().filter(|(name, _)| !is_chosen(name));
    let chosen = chosen.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    out.extend_from_slice(format!("HTTP/1.1 {status} {}\r\n", reason(status)).as_bytes());
    for (name, value) in kept.chain(chosen) {
        out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        302 => "Found",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Request Entity Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Status",
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn chosen_fields_replace_those_of_their_name_and_keep_their_order() {
        let chosen = [("B", "2"), ("c", "3"), ("b", "4")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut out = Vec::new();
        super::write(&mut out, 200, &[("a", "1"), ("b", "own")], &chosen);
        assert_eq!(out, b"HTTP/1.1 200 OK\r\na: 1\r\nB: 2\r\nc: 3\r\nb: 4\r\n\r\n");
    }
}
