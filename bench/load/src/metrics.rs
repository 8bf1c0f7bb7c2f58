//! A metrics page in Prometheus' text form, read into values.
//!
//! Called by the scenarios, which wait for gauges, and by the suites. Reads what a page of ours may hold; lines it does
//! not understand are skipped, since a page is never a reason to stop a measurement.

use std::collections::BTreeMap;

/// Every sample of a page, by name with its labels in the order of the page.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    samples: Vec<Sample>,
}

#[derive(Debug, Clone)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

impl Metrics {
    #[must_use]
    pub fn parse(page: &str) -> Self {
        let lines = page.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self { samples: lines.filter_map(Sample::parse).collect() }
    }

    /// The samples of a name that carry all these labels.
    pub fn matching<'m>(&'m self, name: &'m str, labels: &'m [(&'m str, &'m str)]) -> impl Iterator<Item = &'m Sample> {
        self.samples.iter().filter(move |sample| {
            sample.name == name
                && labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|found| found == value))
        })
    }

    /// Their sum; `None` when there is none.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.matching(name, labels).map(|sample| sample.value).reduce(|sum, value| sum + value)
    }

    /// Every sample whose name contains the text, as `name{labels} value`: for messages.
    #[must_use]
    pub fn lines_about(&self, part: &str) -> Vec<String> {
        self.samples.iter().filter(|sample| sample.name.contains(part)).map(Sample::to_string).collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter()
    }
}

impl Sample {
    fn parse(line: &str) -> Option<Self> {
        let name_end = line.find(['{', ' ', '\t'])?;
        let (name, mut rest) = line.split_at(name_end);
        let mut labels = BTreeMap::new();
        if let Some(mut inside) = rest.strip_prefix('{') {
            loop {
                inside = inside.trim_start_matches([',', ' ']);
                if let Some(after) = inside.strip_prefix('}') {
                    rest = after;
                    break;
                }
                let (key, after) = inside.split_once("=\"")?;
                let (value, after) = quoted(after)?;
                labels.insert(key.trim().to_owned(), value);
                inside = after;
            }
        }
        let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
        Some(Self { name: name.to_owned(), labels, value })
    }
}

impl std::fmt::Display for Sample {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let labels: Vec<String> = self.labels.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
        write!(to, "{}{{{}}} {}", self.name, labels.join(","), self.value)
    }
}

/// The text up to the closing quote with its escapes resolved, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP a x\n# TYPE a gauge\na{replica=\"e-0\",model=\"m/1\"} 3\n\
                        a{replica=\"e-1\",model=\"m/1\"} 4\n\
                        b 1e3 1700000000\nc{x=\"q\\\"}\\\\,\"} +Inf\nbroken{x=\"\nalso broken\n";

    #[test]
    fn samples_are_summed_by_name_and_labels() {
        let page = Metrics::parse(PAGE);
        assert_eq!(page.sum("a", &[]), Some(7.0));
        assert_eq!(page.sum("a", &[("replica", "e-1"), ("model", "m/1")]), Some(4.0));
        assert_eq!(page.sum("a", &[("replica", "e-9")]), None);
        assert_eq!(page.sum("b", &[]), Some(1000.0));
        assert_eq!(page.sum("c", &[("x", "q\"}\\,")]), Some(f64::INFINITY));
        assert_eq!(page.iter().count(), 4);
        assert_eq!(page.lines_about("b"), ["b{} 1000"]);
    }
}
