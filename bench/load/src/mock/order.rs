//! What a prompt asks of the mock. Pure; called once a request.

use memchr::memmem;

const MARK: &[u8] = b"@@c=";

/// A stream as asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) event_count: u64,
    pub(crate) delay_us: u64,
    pub(crate) prefill_us: u64,
    /// The usage event that `stream_options` ask for.
    pub(crate) with_usage: bool,
}

/// The mark that asks for it.
#[must_use]
pub fn mark(event_count: u64, delay_us: u64, prefill_us: u64) -> String {
    format!("@@c={event_count},d={delay_us},p={prefill_us}@@ ")
}

/// Reads the first bytes of a body; `None` where a whole answer is wanted.
pub(crate) fn read(body: &[u8]) -> Option<Order> {
    let at = memmem::find(body, MARK)? + MARK.len();
    let text = body.get(at..)?;
    let end = memmem::find(text.get(..text.len().min(80))?, b"@@")?;
    let mut fields = std::str::from_utf8(text.get(..end)?).ok()?.split(',');
    let event_count: u64 = fields.next()?.parse().ok()?;
    let (mut delay_us, mut prefill_us) = (0, 0);
    for field in fields {
        let (name, value) = field.split_once('=')?;
        let value = value.parse().ok()?;
        match name {
            "d" => delay_us = value,
            "p" => prefill_us = value,
            _ => return None,
        }
    }
    let with_usage = memmem::find(body, b"\"include_usage\":true").is_some()
        || memmem::find(body, b"\"include_usage\": true").is_some();
    Some(Order { event_count: event_count.max(1), delay_us, prefill_us, with_usage })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<(u64, u64, u64)>) {
        let found = read(text.as_bytes()).map(|order| (order.event_count, order.delay_us, order.prefill_us));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn a_mark_is_read_wherever_it_stands_and_a_broken_one_is_none() {
        check(&format!("{{\"content\":\"{}words\"}}", mark(32, 20_000, 5)), Some((32, 20_000, 5)));
        check("@@c=0@@", Some((1, 0, 0)));
        check("@@c=3,p=9@@", Some((3, 0, 9)));
        check("no mark", None);
        check("@@c=3", None);
        check("@@c=x@@", None);
        check("@@c=3,q=1@@", None);
    }

    #[test]
    fn usage_is_sent_when_it_is_asked_for() {
        let order = |text: &str| read(text.as_bytes()).expect("an order").with_usage;
        assert!(order("@@c=3@@ {\"include_usage\":true}") && order("@@c=3@@ {\"include_usage\": true}"));
        assert!(!order("@@c=3@@ {\"include_usage\":false}"));
    }
}
