//! Renders `docs/reference/metrics.md` from the tables.
//!
//! Called by the chore that writes the page and by the test that fails when it is stale. Touches no file.

use std::fmt::Write as _;

use crate::expose::Millionths;
use crate::registry::{Kind, MetricDesc, Values};

/// What rewrites the page, said in the page and by `stale`.
pub const REWRITE: &str = "cargo x docs";

/// One crate's metrics under a heading.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    pub title: &'a str,
    pub metrics: &'a [&'a MetricDesc],
}

/// The whole page.
pub fn render(sections: &[Section<'_>]) -> String {
    let mut page = format!(
        "# Metrics\n\nWhat `/metrics` on the admin address answers, in Prometheus text format 0.0.4. Each number is \
         the sum over all cores.\nA label whose values are names holds names out of our own tables; anything else a \
         client sends counts as `other`.\n\nThis page is rendered from the code: `{REWRITE}` rewrites it.\n"
    );
    for section in sections {
        let _ = write!(page, "\n## {}\n", section.title);
        section.metrics.iter().for_each(|desc| render_metric(&mut page, desc));
    }
    page
}

fn render_metric(page: &mut String, desc: &MetricDesc) {
    let _ = write!(page, "\n### `{}`\n\n{}. A {}.\n", desc.name, desc.help, desc.kind.word());
    for (at, label) in desc.labels.iter().enumerate() {
        let gap = if at == 0 { "\n" } else { "" };
        let _ = match label.values {
            Values::Closed(words) => writeln!(page, "{gap}- `{}`: `{}`", label.name, words.join("`, `")),
            Values::Known(source) => writeln!(page, "{gap}- `{}`: {source}", label.name),
        };
    }
    if let Kind::Histogram(bounds) = desc.kind {
        let uppers: Vec<String> = bounds.as_micros().iter().map(|micros| Millionths(*micros).to_string()).collect();
        let _ = write!(page, "\nBuckets: {}.\n", uppers.join(", "));
    }
}

/// Where the committed page first differs from the rendered one, and what to do about it; `None` if it does not.
pub fn stale(path: &str, committed: &str, rendered: &str) -> Option<String> {
    if committed == rendered {
        return None;
    }
    let (mut old, mut new) = (committed.lines(), rendered.lines());
    let mut line = 1;
    loop {
        match (old.next(), new.next()) {
            (Some(was), Some(is)) if was == is => line += 1,
            (was, is) => {
                let (was, is) = (was.unwrap_or("(end of page)"), is.unwrap_or("(end of page)"));
                return Some(format!(
                    "{path} is stale at line {line}: it says `{was}`, the code says `{is}`; run `{REWRITE}`"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Bounds, Label};

    const METRICS: &[&MetricDesc] = &[
        &MetricDesc {
            name: "llmgw_requests_total",
            help: "Requests answered",
            kind: Kind::Counter,
            labels: &[Label::known("model", "public model names"), Label::closed("direction", &["in", "out"])],
        },
        &MetricDesc {
            name: "llmgw_ttft_seconds",
            help: "Time to first token",
            kind: Kind::Histogram(Bounds::micros(&[500_000, 1_000_000])),
            labels: &[],
        },
    ];

    #[test]
    fn the_page_says_labels_and_buckets() {
        let page = render(&[Section { title: "Gateway", metrics: METRICS }]);
        let expected = concat!(
            "## Gateway\n\n### `llmgw_requests_total`\n\nRequests answered. A counter.\n\n",
            "- `model`: public model names\n- `direction`: `in`, `out`\n\n",
            "### `llmgw_ttft_seconds`\n\nTime to first token. A histogram.\n\nBuckets: 0.5, 1.\n",
        );
        assert!(page.ends_with(expected), "{page}");
    }

    #[test]
    fn a_stale_page_is_told_with_its_line_and_its_remedy() {
        let page = render(&[Section { title: "Gateway", metrics: METRICS }]);
        assert_eq!(stale("metrics.md", &page, &page), None);
        let old = page.replace("Requests answered", "Requests");
        let told = stale("metrics.md", &old, &page).unwrap_or_default();
        assert!(told.contains("line 12") && told.contains(REWRITE), "{told}");
        assert!(stale("metrics.md", "", &page).is_some());
        assert!(stale("metrics.md", &format!("{page}\n"), &page).is_some());
    }
}
