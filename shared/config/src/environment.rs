//! Environment variables over the file: `LLMGW__ROUTER__RETRIES=3` sets `router.retries`.
//!
//! Called by `load` between parsing and reading, on the tree of nodes, so that an override is read, checked and
//! explained
//! as if it stood in the file. Two underscores separate keys; list items go by number from 0; a value that begins with
//! `[` or `{` is YAML, any other is the text itself. Never reads the process's environment: it is given one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Place, Problem};
use crate::yaml::{self, Entry, Node, Value};

const PREFIX: &str = "LLMGW__";
/// The deepest path; the tree of keys itself needs eight.
const SEGMENT_COUNT_MAX: usize = 16;

/// The environment a configuration is loaded with.
pub(crate) type Environment = BTreeMap<String, String>;

/// Writes every override into the tree; those that cannot be are returned as problems.
pub(crate) fn apply(root: &mut Node, environment: &Environment) -> Vec<Problem> {
    let mut overrides: Vec<(Vec<Segment>, &str, &str)> = environment
        .iter()
        .filter_map(|(name, text)| Some((segments(name.strip_prefix(PREFIX)?), name.as_str(), text.as_str())))
        .collect();
    // Outer before inner, and item 2 before item 10, whatever order the environment has.
    overrides.sort();
    let mut problems = Vec::new();
    for (path, name, text) in overrides {
        let place = Place::Variable(Arc::from(name));
        let result = value_of(text, &place).and_then(|value| set(root, &path, value, &place));
        if let Err(message) = result {
            problems.push(Problem { place, message });
        }
    }
    problems
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Segment {
    Number(usize),
    Word(String),
}

fn segments(path: &str) -> Vec<Segment> {
    let segment = |text: &str| match text.parse::<usize>() {
        Ok(number) => Segment::Number(number),
        Err(_) => Segment::Word(text.to_lowercase()),
    };
    path.split("__").map(segment).collect()
}

fn value_of(text: &str, place: &Place) -> Result<Node, String> {
    if !text.trim_start().starts_with(['[', '{']) {
        return Ok(Node { place: place.clone(), value: Value::Scalar(text.to_owned()) });
    }
    let mut node = yaml::parse(text).map_err(|problem| problem.message)?;
    move_to(&mut node, place);
    Ok(node)
}

fn move_to(node: &mut Node, place: &Place) {
    node.place = place.clone();
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| move_to(item, place)),
        Value::Map(entries) => entries.iter_mut().for_each(|entry| {
            entry.key_place = place.clone();
            move_to(&mut entry.value, place);
        }),
        Value::Null | Value::Scalar(_) => {}
    }
}

fn set(root: &mut Node, path: &[Segment], value: Node, place: &Place) -> Result<(), String> {
    let is_path = path.len() <= SEGMENT_COUNT_MAX && path.iter().all(|s| *s != Segment::Word(String::new()));
    if !is_path {
        return Err("this names no key; write for example LLMGW__ROUTER__RETRIES for router.retries".to_owned());
    }
    let mut node = root;
    let mut so_far = String::new();
    for segment in path {
        node = step(node, segment, &so_far, place)?;
        match segment {
            Segment::Number(at) => so_far += &format!("[{at}]"),
            Segment::Word(word) if so_far.is_empty() => so_far.push_str(word),
            Segment::Word(word) => so_far += &format!(".{word}"),
        }
    }
    *node = value;
    Ok(())
}

/// The child of that name or number, made if it is not there yet.
fn step<'n>(node: &'n mut Node, segment: &Segment, path: &str, place: &Place) -> Result<&'n mut Node, String> {
    let is_nothing =
        matches!(&node.value, Value::Null) || matches!(&node.value, Value::Scalar(text) if text.is_empty());
    if is_nothing {
        node.place = place.clone();
        node.value = match segment {
            Segment::Number(_) => Value::List(Vec::new()),
            Segment::Word(_) => Value::Map(Vec::new()),
        };
    }
    let missing = || Node { place: place.clone(), value: Value::Null };
    match (&mut node.value, segment) {
        (Value::List(items), Segment::Number(at)) => {
            let count = items.len();
            if *at == count {
                items.push(missing());
            }
            items.get_mut(*at).ok_or_else(|| format!("{path} has {count} items; the next one is number {count}"))
        }
        (Value::List(_), Segment::Word(word)) => {
            Err(format!("{path} is a list; write a number from 0 in place of {word}"))
        }
        (Value::Map(entries), segment) => {
            let word = match segment {
                Segment::Word(word) => word.clone(),
                Segment::Number(number) => number.to_string(),
            };
            let found = entries.iter().position(|entry| folded(&entry.key) == folded(&word));
            let at = found.unwrap_or_else(|| {
                entries.push(Entry { key: word, key_place: place.clone(), value: missing() });
                entries.len() - 1
            });
            entries[at].key_place = place.clone();
            Ok(&mut entries[at].value)
        }
        (Value::Null | Value::Scalar(_), _) => Err(format!("{path} holds a value, no keys")),
    }
}

/// Names of variables know neither case nor hyphens.
fn folded(key: &str) -> String {
    key.to_lowercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, variables: &[(&str, &str)], expected: &str) {
        let mut root = yaml::parse(file).expect("YAML");
        let environment = variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let problems = apply(&mut root, &environment);
        let shown = match problems.first() {
            Some(problem) => problem.message.clone(),
            None => show(&root),
        };
        assert_eq!(shown, expected, "{file:?} with {variables:?}");
    }

    fn show(node: &Node) -> String {
        match &node.value {
            Value::Null => "~".to_owned(),
            Value::Scalar(text) => text.clone(),
            Value::List(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(" ")),
            Value::Map(entries) => {
                let show_entry = |entry: &Entry| format!("{}:{}", entry.key, show(&entry.value));
                format!("{{{}}}", entries.iter().map(show_entry).collect::<Vec<_>>().join(" "))
            }
        }
    }

    #[test]
    fn a_variable_sets_a_key_wherever_it_stands() {
        check("router: { retries: 2 }", &[("LLMGW__ROUTER__RETRIES", "3")], "{router:{retries:3}}");
        check("", &[("LLMGW__ROUTER__LIMITS__BODY", "1MiB"), ("LLMGW_X", "1")], "{router:{limits:{body:1MiB}}}");
        check("a: { long-context: 1 }", &[("LLMGW__A__LONG_CONTEXT", "2")], "{a:{long-context:2}}");
        check("", &[("LLMGW__LISTEN", ":1: x")], "{listen::1: x}");
        check("", &[("LLMGW__X", "{ a: [1, 2] }")], "{x:{a:[1 2]}}");
        check("router:", &[("LLMGW__ROUTER__RETRIES", "")], "{router:{retries:}}");
    }

    #[test]
    fn list_items_go_by_number_in_their_order() {
        let many: Vec<(String, String)> = (0..12).map(|at| (format!("LLMGW__L__{at}"), at.to_string())).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        check("", &many, "{l:[0 1 2 3 4 5 6 7 8 9 10 11]}");
        check("l: [{ a: 1 }]", &[("LLMGW__L__0__A", "2"), ("LLMGW__L__1__A", "3")], "{l:[{a:2} {a:3}]}");
        check("", &[("LLMGW__L", "[{ a: 1 }]"), ("LLMGW__L__0__A", "2")], "{l:[{a:2}]}");
    }

    #[test]
    fn a_variable_that_fits_nowhere_is_explained() {
        check("l: [1]", &[("LLMGW__L__3", "x")], "l has 1 items; the next one is number 1");
        check("l: [1]", &[("LLMGW__L__A", "x")], "l is a list; write a number from 0 in place of a");
        check("l: 1", &[("LLMGW__L__A", "x")], "l holds a value, no keys");
        let no_key = "this names no key; write for example LLMGW__ROUTER__RETRIES for router.retries";
        check("", &[("LLMGW__", "x")], no_key);
        check("", &[("LLMGW__A____B", "x")], no_key);
        check("", &[("LLMGW__A", "[1")], &yaml::parse("[1").expect_err("open list").message);
    }
}
