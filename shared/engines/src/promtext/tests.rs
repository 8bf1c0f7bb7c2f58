//! What is read, what is skipped, and that nothing a peer writes stops the reader.

use proptest::prelude::*;

use super::*;

/// Name, labels with their values, and number.
type Found = (String, Vec<(String, String)>, f64);

/// All samples, and how many lines were skipped.
fn read(page: &str) -> (Vec<Found>, usize) {
    let mut samples = Samples::new(page.as_bytes());
    let mut found = Vec::new();
    for sample in samples.by_ref() {
        let labels = sample.labels.iter().map(|label| (label.name.into(), label.value().into_owned())).collect();
        found.push((sample.name.into(), labels, sample.value));
    }
    (found, samples.skipped_lines())
}

/// The line holds one sample with these labels and this value.
fn check(line: &str, name: &str, labels: &[(&str, &str)], value: f64) {
    let (found, skipped) = read(line);
    assert_eq!((found.len(), skipped), (1, 0), "{line:?} gives {found:?}");
    assert_eq!(found[0].0, name, "{line:?}");
    let expected: Vec<(String, String)> =
        labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    assert_eq!(found[0].1, expected, "{line:?}");
    assert!(found[0].2 == value || found[0].2.is_nan() && value.is_nan(), "{line:?} gives {}", found[0].2);
}

#[test]
fn a_sample_is_read_however_it_is_written() {
    check("a 1", "a", &[], 1.0);
    check(
        "vllm:x_total{engine=\"0\",model_name=\"m\"} 4.0\n",
        "vllm:x_total",
        &[("engine", "0"), ("model_name", "m")],
        4.0,
    );
    check("a{} 1", "a", &[], 1.0);
    check("a{b=\"c\",} 1", "a", &[("b", "c")], 1.0);
    check("  a  { b = \"c\" , d=\"e\" }\t-1.5e-3  1700000000000\r\n", "a", &[("b", "c"), ("d", "e")], -1.5e-3);
    check(r#"a{b="x\"y\\z\nw\q",c="}# 7"} 2"#, "a", &[("b", "x\"y\\z\nw\\q"), ("c", "}# 7")], 2.0);
    check(r#"a{b="é\\"} 2"#, "a", &[("b", "é\\")], 2.0);
    check(r#"{"http.requests",b="c"} 3"#, "http.requests", &[("b", "c")], 3.0);
    check(r#"a{"b c"="d"} 3"#, "a", &[("b c", "d")], 3.0);
    check("a{le=\"+Inf\"} 3 # {trace_id=\"x y\"} 0.5 1700000000.123", "a", &[("le", "+Inf")], 3.0);
    check("a_created 1.795978530452634e+09", "a_created", &[], 1.795_978_530_452_634e9);
}

#[test]
fn every_spelling_of_a_number_is_understood() {
    let inf = f64::INFINITY;
    let cases = [
        ("NaN", f64::NAN),
        ("nan", f64::NAN),
        ("+Inf", inf),
        ("Inf", inf),
        ("-Inf", -inf),
        ("+4", 4.0),
        ("1e3", 1e3),
        ("1E+03", 1e3),
        (".5", 0.5),
        ("5.", 5.0),
        ("-0", 0.0),
        ("1e999", inf),
    ];
    for (number, value) in cases {
        check(&format!("a {number}"), "a", &[], value);
    }
}

#[test]
fn what_is_no_sample_is_skipped_and_the_next_line_is_read() {
    let lines = [
        "a",
        "a{b=\"c\"}",
        "a{b=\"c\" 1",
        "a{b=\"c} 1",
        "a{b=c} 1",
        "a{b} 1",
        "a{=\"c\"} 1",
        "a{b=\"c\"d=\"e\"} 1",
        "a{b=\"c\\",
        "a one",
        "a 1 2 3",
        "a 1 two",
        "a 1 # exemplar",
        "{b=\"c\"} 1",
        "{\"a\",\"b\"} 1",
        "a{\"b\"} 1",
        "=\"} 1",
        "a\\ 1",
        "a{b\\=\"c\"} 1",
        "a{b c=\"d\"} 1",
        "{\"\"} 1",
    ];
    for line in lines {
        let (found, skipped) = read(&format!("{line}\nlast 7"));
        assert_eq!((found.len(), skipped), (1, 1), "{line:?} gives {found:?}");
        assert_eq!(found[0].0, "last");
    }
}

#[test]
fn comments_blank_lines_and_the_end_mark_are_no_samples() {
    let page = "# HELP a Text with {braces} \"and\" 1\n# TYPE a gauge\n\n \t\r\n#a 1\na 1\n# UNIT a s\n# EOF";
    assert_eq!(read(page), (vec![("a".into(), vec![], 1.0)], 0));
    assert_eq!(read(""), (vec![], 0));
    assert_eq!(read("\n\n"), (vec![], 0));
}

#[test]
fn bytes_that_are_no_text_cost_their_line_only() {
    let mut samples = Samples::new(b"a 1\nb{c=\"\xff\"} 2\nd 3");
    assert_eq!(samples.by_ref().map(|sample| sample.name).collect::<Vec<_>>(), ["a", "d"]);
    assert_eq!(samples.skipped_lines(), 1);
}

#[test]
fn a_line_without_end_is_skipped_unread() {
    let page = format!("a{{b=\"{}\"}} 1\nlast 7", "x".repeat(LINE_BYTES_MAX));
    let (found, skipped) = read(&page);
    assert_eq!((found[0].0.as_str(), found.len(), skipped), ("last", 1, 1));
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}

proptest! {
    #[test]
    fn no_bytes_stop_the_reader(page in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut samples = Samples::new(&page);
        for sample in samples.by_ref() {
            sample.labels.iter().for_each(|label| drop(label.value()));
        }
        let lines = page.split(|byte| *byte == b'\n').count();
        prop_assert!(samples.skipped_lines() <= lines);
    }

    /// As above with bytes that the format means something by, where the corners are.
    #[test]
    fn no_grammar_stops_the_reader(page in "[a-b{}\",=\\\\n#. 1\\n+eé]{0,120}") {
        let (found, skipped) = read(&page);
        prop_assert!(found.len() + skipped <= page.split('\n').count());
    }

    /// Looking at names first finds what reading every line finds.
    #[test]
    fn wanted_samples_are_those_of_the_whole_page(
        page in "[a-b{}\",=\\\\n#. \\t\\x0c1\\n+eé]{0,120}",
        name in "[ab.]{1,2}",
    ) {
        let is_wanted = |found: &[u8]| found == name.as_bytes();
        let show = |sample: Sample<'_>| format!("{sample:?}");
        let all: Vec<String> =
            Samples::new(page.as_bytes()).filter(|sample| is_wanted(sample.name.as_bytes())).map(show).collect();
        prop_assert_eq!(wanted(page.as_bytes(), is_wanted).map(show).collect::<Vec<_>>(), all);
        let any: Vec<String> = Samples::new(page.as_bytes()).map(show).collect();
        prop_assert_eq!(wanted(page.as_bytes(), |_| true).map(show).collect::<Vec<_>>(), any);
    }

    #[test]
    fn what_is_written_is_read_back(
        name in "[a-zA-Z_:][a-zA-Z0-9_:]{0,12}",
        labels in proptest::collection::vec(("[a-z_][a-z0-9_]{0,6}", "\\PC{0,12}|[\\\\\"\n{}#, =]{0,6}"), 0..6),
        value in any::<f64>().prop_filter("equal to itself", |value| !value.is_nan()),
        last_newline in any::<bool>(),
    ) {
        let list: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let end = if last_newline { "\n" } else { "" };
        let page = format!("{name}{{{}}} {value:?}{end}", list.join(","));
        prop_assert_eq!(read(&page), (vec![(name, labels, value)], 0));
    }

    /// Cutting a page anywhere leaves the samples of its whole lines as they were.
    #[test]
    fn a_cut_page_keeps_its_whole_lines(cut in 0usize..200) {
        let page = "a{b=\"c\",d=\"e\\n\"} 1\nb 2 1700\nc{x=\"é\"} 3 # {t=\"u\"} 1\nd +Inf\n".repeat(3);
        let bytes = &page.as_bytes()[..cut.min(page.len())];
        let whole = bytes.iter().filter(|byte| **byte == b'\n').count();
        let all: Vec<&str> = Samples::new(page.as_bytes()).map(|sample| sample.name).collect();
        let read: Vec<&str> = Samples::new(bytes).map(|sample| sample.name).collect();
        prop_assert_eq!(&read[..whole], &all[..whole]);
        prop_assert!(read.len() <= whole + 1);
    }
}
