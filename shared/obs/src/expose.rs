//! The metrics page: Prometheus text, format 0.0.4.
//!
//! Called by the side runtime, which opens a family for each description and writes its samples. Families come out in
//! the order in which they were first opened and each in one piece, with help and type once, however often it is
//! opened. The page holds no state beyond one answer.

use std::fmt::Write as _;

use crate::merge::HistogramSum;
use crate::registry::{Kind, MetricDesc};

/// What the answer's `Content-Type` must be.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// One page being written.
#[derive(Debug, Default)]
pub struct Page {
    families: Vec<(&'static str, String)>,
}

impl Page {
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens a family, or goes on with it. A family without samples leaves no trace on the page.
    pub fn family(&mut self, desc: &'static MetricDesc) -> Family<'_> {
        let at = self.families.iter().position(|(name, _)| *name == desc.name).unwrap_or_else(|| {
            self.families.push((desc.name, String::new()));
            self.families.len() - 1
        });
        Family { desc, text: &mut self.families[at].1 }
    }

    pub fn into_text(self) -> String {
        let mut text = String::with_capacity(self.families.iter().map(|(_, lines)| lines.len()).sum());
        self.families.iter().for_each(|(_, lines)| text.push_str(lines));
        text
    }
}

/// One family of a page. Label values are given in the order of the description's labels; another number of them is a
/// fault of the program and panics.
#[derive(Debug)]
pub struct Family<'page> {
    desc: &'static MetricDesc,
    text: &'page mut String,
}

impl Family<'_> {
    pub fn count(&mut self, labels: &[&str], value: u64) -> &mut Self {
        assert_eq!(self.desc.kind, Kind::Counter, "{} is not a counter", self.desc.name);
        self.line("", labels, None, value)
    }

    /// A counter of seconds, counted in milliseconds.
    pub fn millis(&mut self, labels: &[&str], value: u64) -> &mut Self {
        assert_eq!(self.desc.kind, Kind::Counter, "{} is not a counter", self.desc.name);
        self.line("", labels, None, Millionths(value.saturating_mul(1000)))
    }

    pub fn gauge(&mut self, labels: &[&str], value: i64) -> &mut Self {
        assert_eq!(self.desc.kind, Kind::Gauge, "{} is not a gauge", self.desc.name);
        self.line("", labels, None, value)
    }

    /// A gauge that is a share or a time.
    pub fn ratio(&mut self, labels: &[&str], value: f64) -> &mut Self {
        assert_eq!(self.desc.kind, Kind::Gauge, "{} is not a gauge", self.desc.name);
        self.line("", labels, None, Real(value))
    }

    pub fn histogram(&mut self, labels: &[&str], sum: &HistogramSum) -> &mut Self {
        assert!(matches!(self.desc.kind, Kind::Histogram(_)), "{} is not a histogram", self.desc.name);
        for (upper, below) in sum.cumulative() {
            self.line("_bucket", labels, Some(upper), below);
        }
        self.line("_sum", labels, None, Millionths(sum.sum_micros()));
        self.line("_count", labels, None, sum.count())
    }

    fn line(
        &mut self,
        suffix: &str,
        labels: &[&str],
        upper: Option<Option<u64>>,
        value: impl std::fmt::Display,
    ) -> &mut Self {
        let MetricDesc { name, help, kind, labels: known } = self.desc;
        assert_eq!(known.len(), labels.len(), "{name} has other labels");
        if self.text.is_empty() {
            let help = Escaped { text: help, quotes: false };
            put(self.text, format_args!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.word()));
        }
        put(self.text, format_args!("{name}{suffix}"));
        let mut before = '{';
        for (label, value) in known.iter().zip(labels) {
            let value = Escaped { text: value, quotes: true };
            put(self.text, format_args!("{before}{}=\"{value}\"", label.name));
            before = ',';
        }
        match upper {
            Some(Some(upper)) => put(self.text, format_args!("{before}le=\"{}\"}}", Millionths(upper))),
            Some(None) => put(self.text, format_args!("{before}le=\"+Inf\"}}")),
            None if before == ',' => self.text.push('}'),
            None => {}
        }
        put(self.text, format_args!(" {value}\n"));
        self
    }
}

/// Writing to a `String` cannot fail.
fn put(text: &mut String, args: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(args);
}

/// A count of millionths as a decimal number, exactly and without trailing zeros.
pub(crate) struct Millionths(pub(crate) u64);

impl std::fmt::Display for Millionths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, mut part) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if part == 0 {
            return write!(f, "{whole}");
        }
        let mut width = 6;
        while part.is_multiple_of(10) {
            part /= 10;
            width -= 1;
        }
        write!(f, "{whole}.{part:0width$}")
    }
}

/// A float in the format's spelling.
struct Real(f64);

impl std::fmt::Display for Real {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            value if value.is_nan() => f.write_str("NaN"),
            f64::INFINITY => f.write_str("+Inf"),
            f64::NEG_INFINITY => f.write_str("-Inf"),
            value => write!(f, "{value}"),
        }
    }
}

/// Text with what would end a value or a line escaped; quotes only where the format wants that.
struct Escaped<'a> {
    text: &'a str,
    quotes: bool,
}

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut plain_from = 0;
        for (at, byte) in self.text.bytes().enumerate() {
            let escape = match byte {
                b'\\' => "\\\\",
                b'\n' => "\\n",
                b'"' if self.quotes => "\\\"",
                _ => continue,
            };
            f.write_str(&self.text[plain_from..at])?;
            f.write_str(escape)?;
            plain_from = at + 1;
        }
        f.write_str(&self.text[plain_from..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Histogram;
    use crate::registry::{Bounds, Label};

    const BOUNDS: Bounds = Bounds::micros(&[500, 1_500_000]);
    static REQUESTS: MetricDesc = MetricDesc {
        name: "llmgw_requests_total",
        help: "Requests, by model and \"status\"\\",
        kind: Kind::Counter,
        labels: &[Label::known("model", "models"), Label::known("status", "statuses")],
    };
    static SATURATION: MetricDesc =
        MetricDesc { name: "llmgw_pool_saturation", help: "How full", kind: Kind::Gauge, labels: &[] };
    static TTFT: MetricDesc = MetricDesc {
        name: "llmgw_ttft_seconds",
        help: "Time to first token",
        kind: Kind::Histogram(BOUNDS),
        labels: &[Label::known("model", "models")],
    };

    #[test]
    fn names_with_slashes_quotes_and_newlines_survive() {
        let mut page = Page::new();
        page.family(&REQUESTS).count(&["org/m:7b@q4", "200"], 3).count(&["a\"b\\c\nd é", ""], u64::MAX);
        let expected = concat!(
            "# HELP llmgw_requests_total Requests, by model and \"status\"\\\\\n",
            "# TYPE llmgw_requests_total counter\n",
            "llmgw_requests_total{model=\"org/m:7b@q4\",status=\"200\"} 3\n",
            "llmgw_requests_total{model=\"a\\\"b\\\\c\\nd é\",status=\"\"} 18446744073709551615\n",
        );
        assert_eq!(page.into_text(), expected);
    }

    #[test]
    fn a_histogram_ends_in_plus_inf_which_equals_its_count() {
        let cell = Histogram::new(BOUNDS);
        [500, 501, 2_000_000].into_iter().for_each(|micros| cell.observe_micros(micros));
        let mut sum = HistogramSum::new(BOUNDS);
        sum.add(&cell);
        let mut page = Page::new();
        page.family(&TTFT).histogram(&["m"], &sum);
        let expected = concat!(
            "# HELP llmgw_ttft_seconds Time to first token\n",
            "# TYPE llmgw_ttft_seconds histogram\n",
            "llmgw_ttft_seconds_bucket{model=\"m\",le=\"0.0005\"} 1\n",
            "llmgw_ttft_seconds_bucket{model=\"m\",le=\"1.5\"} 2\n",
            "llmgw_ttft_seconds_bucket{model=\"m\",le=\"+Inf\"} 3\n",
            "llmgw_ttft_seconds_sum{model=\"m\"} 2.001001\n",
            "llmgw_ttft_seconds_count{model=\"m\"} 3\n",
        );
        assert_eq!(page.into_text(), expected);
    }

    #[test]
    fn a_family_opened_twice_stays_in_one_piece() {
        let mut page = Page::new();
        page.family(&REQUESTS).count(&["a", "200"], 1);
        page.family(&SATURATION).gauge(&[], -1);
        page.family(&REQUESTS).count(&["b", "200"], 2);
        let text = page.into_text();
        assert_eq!(text.matches("# TYPE llmgw_requests_total").count(), 1);
        assert!(text.ends_with("# TYPE llmgw_pool_saturation gauge\nllmgw_pool_saturation -1\n"), "{text}");
    }

    #[test]
    fn a_family_without_samples_is_absent() {
        let mut page = Page::new();
        page.family(&REQUESTS);
        assert_eq!(page.into_text(), "");
    }

    #[test]
    fn odd_floats_have_the_formats_spelling() {
        let mut page = Page::new();
        let mut family = page.family(&SATURATION);
        for value in [0.25, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-9, 3.0] {
            family.ratio(&[], value);
        }
        let text = page.into_text();
        let values: Vec<&str> = text.lines().skip(2).filter_map(|line| line.split(' ').nth(1)).collect();
        assert_eq!(values, ["0.25", "NaN", "+Inf", "-Inf", "0.000000001", "3"]);
    }

    #[test]
    fn millionths_are_exact() {
        let cases = [(0, "0"), (1, "0.000001"), (10, "0.00001"), (2_500_000, "2.5"), (3_600_000_000, "3600")];
        for (micros, expected) in cases {
            assert_eq!(Millionths(micros).to_string(), expected);
        }
    }
}
