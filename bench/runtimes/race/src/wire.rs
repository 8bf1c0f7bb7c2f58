//! As much of HTTP as two programs need that know each other.

/// Path and length in bytes of the request at the front; nothing while it is incomplete.
pub(crate) fn request(bytes: &[u8]) -> Option<(String, usize)> {
    let head_bytes = head_end(bytes)?;
    let head = String::from_utf8_lossy(bytes.get(..head_bytes)?);
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let end = head_bytes + length(&head).unwrap_or(0);
    (bytes.len() >= end).then_some((path, end))
}

/// Length in bytes of the answer at the front; nothing while it is incomplete.
pub(crate) fn answer(bytes: &[u8]) -> Option<usize> {
    // A stream ends with its last chunk and nothing is sent behind it, so that most looks are short.
    if bytes.ends_with(b"\r\n0\r\n\r\n") {
        return Some(bytes.len());
    }
    let head_bytes = head_end(bytes)?;
    let head = String::from_utf8_lossy(bytes.get(..head_bytes)?);
    let end = head_bytes + length(&head)?;
    (bytes.len() >= end).then_some(end)
}

fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

fn length(head: &str) -> Option<usize> {
    let named = head.lines().filter_map(|line| line.split_once(':'));
    named
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .find_map(|(_, value)| value.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_whole_or_not_there() {
        let bytes = b"POST /a/b HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(request(bytes), Some(("/a/b".to_owned(), bytes.len())));
        assert_eq!(request(&bytes[..bytes.len() - 1]), None);
        let stream = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
        assert_eq!(answer(stream), Some(stream.len()));
        assert_eq!(answer(&stream[..stream.len() - 1]), None);
    }
}
