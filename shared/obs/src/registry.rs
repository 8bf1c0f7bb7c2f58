//! What a metric is called: name, help, kind and labels, as static descriptions.
//!
//! Each crate that measures something writes one table of `MetricDesc` in its `metrics.rs`; the page (`expose`) and the
//! reference (`document`) are both rendered from it. A table changes when a metric is added; `check` is what a crate's
//! test calls to keep it lawful. Nothing here holds a value.

/// Bucket bounds of a histogram, in millionths of its unit (microseconds for a metric in seconds).
///
/// Invariant: at least one bound, strictly ascending; held by the constructor, at compile time for a `const`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds(&'static [u64]);

impl Bounds {
    /// Takes upper bounds in millionths; the `+Inf` bucket is added by the histogram.
    pub const fn micros(upper: &'static [u64]) -> Self {
        assert!(!upper.is_empty(), "a histogram needs a bound");
        let mut at = 1;
        while at < upper.len() {
            assert!(upper[at - 1] < upper[at], "bounds ascend");
            at += 1;
        }
        Self(upper)
    }

    pub const fn as_micros(self) -> &'static [u64] {
        self.0
    }
}

/// Whole requests: from a cached embedding to a reply that streams for hours.
pub const DURATION: Bounds = Bounds::micros(&[
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
    600_000_000,
    1_200_000_000,
    1_800_000_000,
    2_700_000_000,
    3_600_000_000,
    7_200_000_000,
]);

/// Time to the first token, and time spent waiting for a place: fine where people notice, up to an hour of queue.
pub const FIRST_TOKEN: Bounds = Bounds::micros(&[
    1_000,
    5_000,
    10_000,
    20_000,
    40_000,
    60_000,
    80_000,
    100_000,
    250_000,
    500_000,
    750_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    20_000_000,
    40_000_000,
    80_000_000,
    160_000_000,
    640_000_000,
    1_800_000_000,
    3_600_000_000,
]);

/// Time per output token after the first: fine where people read along, up to an hour for an engine that hangs.
pub const PER_TOKEN: Bounds = Bounds::micros(&[
    1_000,
    2_500,
    5_000,
    10_000,
    15_000,
    20_000,
    30_000,
    40_000,
    50_000,
    75_000,
    100_000,
    150_000,
    200_000,
    300_000,
    500_000,
    1_000_000,
    2_500_000,
    10_000_000,
    60_000_000,
    600_000_000,
    3_600_000_000,
]);

/// Time the gateway itself adds to a request.
pub const OVERHEAD: Bounds = Bounds::micros(&[
    25, 50, 75, 100, 150, 200, 300, 400, 500, 750, 1_000, 1_500, 2_000, 3_000, 5_000, 10_000, 50_000, 250_000,
    1_000_000,
]);

/// A share from 0 to 1.
pub const RATIO: Bounds = Bounds::micros(&[
    0, 100_000, 200_000, 300_000, 400_000, 500_000, 600_000, 700_000, 800_000, 900_000, 950_000, 1_000_000,
]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram(Bounds),
}

impl Kind {
    /// The word the exposition format and the reference page use.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        }
    }
}

/// Where a label's values come from; there is no third source, so the number of series is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Exactly these words.
    Closed(&'static [&'static str]),
    /// Names out of a table of ours, described for the reader of the page; whatever else a peer sends counts as
    /// `other`.
    Known(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    pub name: &'static str,
    pub values: Values,
}

impl Label {
    pub const fn closed(name: &'static str, words: &'static [&'static str]) -> Self {
        Self { name, values: Values::Closed(words) }
    }

    pub const fn known(name: &'static str, source: &'static str) -> Self {
        Self { name, values: Values::Known(source) }
    }
}

/// One metric family. `help` is one sentence without a final stop; samples give label values in the order of `labels`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricDesc {
    pub name: &'static str,
    pub help: &'static str,
    pub kind: Kind,
    pub labels: &'static [Label],
}

/// Everything unlawful in the tables, one line each; empty when all is well. For the tests of crates that have a table.
pub fn check(tables: &[&[&MetricDesc]]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut names = Vec::new();
    for desc in tables.iter().flat_map(|table| table.iter()) {
        check_one(desc, &mut |fault| faults.push(format!("{}: {fault}", desc.name)));
        if names.contains(&desc.name) {
            faults.push(format!("{}: described twice", desc.name));
        }
        names.push(desc.name);
    }
    faults
}

fn check_one(desc: &MetricDesc, fault: &mut dyn FnMut(&str)) {
    if !desc.name.starts_with("llmgw_") || !is_plain_name(desc.name) {
        fault("the name is not llmgw_ and lower case words");
    }
    if (desc.kind == Kind::Counter) != desc.name.ends_with("_total") {
        fault("counters and only counters end in _total");
    }
    if desc.name.ends_with("_bucket") || desc.name.ends_with("_sum") || desc.name.ends_with("_count") {
        fault("the ending belongs to histograms' samples");
    }
    if desc.help.trim().is_empty() || desc.help.ends_with('.') || desc.help.contains('\n') {
        fault("the help is one sentence without a final stop");
    }
    for (at, label) in desc.labels.iter().enumerate() {
        if !is_plain_name(label.name) || label.name.starts_with("__") || label.name == "le" {
            fault("a label's name is not free or not plain");
        }
        if desc.labels[..at].iter().any(|earlier| earlier.name == label.name) {
            fault("a label is named twice");
        }
        if matches!(label.values, Values::Closed([]) | Values::Known("")) {
            fault("a label does not say where its values come from");
        }
    }
}

fn is_plain_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: MetricDesc = MetricDesc {
        name: "llmgw_requests_total",
        help: "Requests answered",
        kind: Kind::Counter,
        labels: &[Label::known("model", "public model names")],
    };

    #[test]
    fn a_lawful_table_has_no_faults() {
        assert_eq!(check(&[&[&GOOD]]), Vec::<String>::new());
    }

    #[test]
    fn each_unlawful_thing_is_named() {
        const DOUBLED: &[Label] = &[Label::known("model", "x"), Label::known("model", "x")];
        const RESERVED: &[Label] = &[Label::known("le", "x")];
        const EMPTY: &[Label] = &[Label::closed("a", &[])];
        let cases: [(MetricDesc, &str); 9] = [
            (MetricDesc { name: "requests_total", ..GOOD }, "llmgw_"),
            (MetricDesc { name: "llmgw_Requests_total", ..GOOD }, "lower case"),
            (MetricDesc { name: "llmgw_requests", ..GOOD }, "_total"),
            (MetricDesc { kind: Kind::Gauge, ..GOOD }, "_total"),
            (MetricDesc { name: "llmgw_x_bucket", kind: Kind::Gauge, ..GOOD }, "histograms' samples"),
            (MetricDesc { help: "Stops.", ..GOOD }, "final stop"),
            (MetricDesc { labels: RESERVED, ..GOOD }, "not free"),
            (MetricDesc { labels: DOUBLED, ..GOOD }, "named twice"),
            (MetricDesc { labels: EMPTY, ..GOOD }, "come from"),
        ];
        for (desc, expected) in cases {
            let faults = check(&[&[&desc]]);
            assert_eq!(faults.len(), 1, "{faults:?}");
            assert!(faults[0].contains(expected), "{faults:?}");
        }
        assert_eq!(check(&[&[&GOOD], &[&GOOD]]), ["llmgw_requests_total: described twice"]);
    }

    /// Trial M4.
    #[test]
    fn waits_for_tokens_are_told_apart_up_to_an_hour() {
        for bounds in [FIRST_TOKEN, PER_TOKEN] {
            assert_eq!(bounds.as_micros().last(), Some(&3_600_000_000));
        }
    }

    /// Trial M4.
    #[test]
    fn request_durations_are_told_apart_beyond_an_hour() {
        let forty_minutes = 40 * 60 * 1_000_000;
        let over = DURATION.as_micros().iter().filter(|bound| **bound >= forty_minutes).count();
        assert!(over >= 2, "a 40 minute reply falls under a bound with another one above it");
        assert!(DURATION.as_micros().last().is_some_and(|last| *last >= 3_600_000_000));
    }
}
