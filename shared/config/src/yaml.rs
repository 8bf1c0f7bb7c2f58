//! YAML text → a small tree in which every key and value knows its line and column.
//!
//! Called by `load` and for the documented defaults. Bounded: size of the text, depth, and number of nodes after
//! aliases
//! are expanded, so that no file can make the process large. Never gives a scalar a meaning: that is the reader's part.

use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use crate::error::{Place, Problem};

/// The longest text that is read, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 4 << 20;
/// The most values a file may hold once its aliases are expanded.
const NODE_COUNT_MAX: usize = 200_000;
/// The deepest nesting; the tree of keys itself needs eight.
const DEPTH_MAX: usize = 32;

/// One value and where it was written.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

/// What a value is before anybody says what it means.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// `~`, `null` or nothing at all: as if the key were not there.
    Null,
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One `key: value` of a map.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_place: Place,
    pub(crate) value: Node,
}

impl Node {
    /// Nothing written: null, an empty text, an empty list, or a map of nothing but those.
    pub(crate) fn is_blank(&self) -> bool {
        match &self.value {
            Value::Null => true,
            Value::Scalar(text) => text.is_empty(),
            Value::List(items) => items.is_empty(),
            Value::Map(entries) => entries.iter().all(|entry| entry.value.is_blank()),
        }
    }

    /// Values in this node, itself included.
    fn count(&self) -> usize {
        match &self.value {
            Value::Null | Value::Scalar(_) => 1,
            Value::List(items) => items.iter().fold(1, |sum, item| sum + item.count()),
            Value::Map(entries) => entries.iter().fold(1, |sum, entry| sum + 1 + entry.value.count()),
        }
    }

    /// Levels in this node, itself included.
    fn depth(&self) -> usize {
        1 + match &self.value {
            Value::Null | Value::Scalar(_) => 0,
            Value::List(items) => items.iter().map(Self::depth).max().unwrap_or(0),
            Value::Map(entries) => entries.iter().map(|entry| entry.value.depth()).max().unwrap_or(0),
        }
    }
}

/// Reads one document. An empty text is an empty map.
pub(crate) fn parse(text: &str) -> Result<Node, Problem> {
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("the file has {} bytes; at most {TEXT_BYTES_MAX} are read", text.len());
        return Err(Problem { place: Place::File, message });
    }
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let mark = error.marker();
            Problem { place: at(mark.line(), mark.col()), message: format!("this is not YAML: {}", error.info()) }
        })?;
        builder.take(event, span)?;
    }
    Ok(builder.root.unwrap_or(Node { place: Place::File, value: Value::Map(Vec::new()) }))
}

fn at(line: usize, column_from_0: usize) -> Place {
    Place::At { line: line.max(1), column: column_from_0 + 1 }
}

/// A list or map that is not finished.
struct Open {
    anchor: usize,
    place: Place,
    items: Items,
}

enum Items {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, seen: HashSet<String>, pending: Option<(String, Place)> },
}

#[derive(Default)]
struct Builder {
    root: Option<Node>,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    node_count: usize,
    document_count: usize,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Problem> {
        let place = at(span.start.line(), span.start.col());
        match event {
            Event::DocumentStart(_) => {
                self.document_count += 1;
                if self.document_count > 1 {
                    return Err(Problem { place, message: "a second document begins here; write one".to_owned() });
                }
                Ok(())
            }
            Event::Scalar(text, style, anchor, _) => {
                let is_null = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let value = if is_null { Value::Null } else { Value::Scalar(text.into_owned()) };
                self.place_node(Node { place, value }, anchor, 1)
            }
            Event::SequenceStart(anchor, _) => self.begin(Open { anchor, place, items: Items::List(Vec::new()) }),
            Event::MappingStart(anchor, _) => self.begin(Open {
                anchor,
                place,
                items: Items::Map { entries: Vec::new(), seen: HashSet::new(), pending: None },
            }),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor) else {
                    return Err(Problem { place, message: "an alias may not stand inside its own anchor".to_owned() });
                };
                let (count, depth) = (node.count(), node.depth());
                self.check_bounds(&place, count, depth)?;
                let node = self.anchors.get(&anchor).cloned().unwrap_or(Node { place, value: Value::Null });
                self.place_node(node, 0, count)
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, open: Open) -> Result<(), Problem> {
        if let Some(Open { items: Items::Map { pending: None, .. }, .. }) = self.open.last() {
            return Err(Problem { place: open.place, message: "a key must be a plain text".to_owned() });
        }
        self.check_bounds(&open.place, 1, 1)?;
        self.open.push(open);
        Ok(())
    }

    fn end(&mut self) -> Result<(), Problem> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let value = match open.items {
            Items::List(items) => Value::List(items),
            Items::Map { entries, .. } => Value::Map(entries),
        };
        self.place_node(Node { place: open.place, value }, open.anchor, 1)
    }

    /// Gives a finished node to the list or map around it.
    fn place_node(&mut self, node: Node, anchor: usize, count: usize) -> Result<(), Problem> {
        self.check_bounds(&node.place, count, 0)?;
        self.node_count += count;
        if anchor > 0 {
            let copied = node.count();
            self.check_bounds(&node.place, copied, 0)?;
            self.node_count += copied;
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open { items: Items::List(items), .. }) => items.push(node),
            Some(Open { items: Items::Map { entries, seen, pending }, .. }) => match pending.take() {
                Some((key, key_place)) => entries.push(Entry { key, key_place, value: node }),
                None => *pending = Some(key_of(node, entries, seen)?),
            },
        }
        Ok(())
    }

    fn check_bounds(&self, place: &Place, count: usize, depth: usize) -> Result<(), Problem> {
        let problem = |message| Err(Problem { place: place.clone(), message });
        if self.node_count + count > NODE_COUNT_MAX {
            return problem(format!("more than {NODE_COUNT_MAX} values, counting what aliases repeat"));
        }
        if self.open.len() + depth > DEPTH_MAX {
            return problem(format!("nested deeper than {DEPTH_MAX} levels"));
        }
        Ok(())
    }
}

/// The key a node is, unless the map has it already.
fn key_of(node: Node, entries: &[Entry], seen: &mut HashSet<String>) -> Result<(String, Place), Problem> {
    let problem = |message| Err(Problem { place: node.place.clone(), message });
    let Value::Scalar(key) = node.value else {
        return problem("a key must be a plain text".to_owned());
    };
    if key == "<<" {
        return problem(
            "merge keys (<<) are not understood; write the keys out, or use an alias as a value".to_owned(),
        );
    }
    if !seen.insert(key.clone()) {
        let line = match entries.iter().find(|entry| entry.key == key).map(|entry| &entry.key_place) {
            Some(Place::At { line, .. }) => format!(" (first on line {line})"),
            _ => String::new(),
        };
        return problem(format!("{key:?} is written twice{line}; keep one"));
    }
    Ok((key, node.place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        let problem = parse(text).expect_err(text);
        match problem.place {
            Place::At { line, column } => format!("{line}:{column}: {}", problem.message),
            _ => problem.message,
        }
    }

    #[test]
    fn every_key_and_value_knows_its_place() {
        let root = parse("a: 1\nb:\n  - x: é\n  - { y: ~ }\n").expect("YAML");
        let Value::Map(entries) = &root.value else { panic!("not a map: {root:?}") };
        assert_eq!(entries[0].key_place, at(1, 0));
        assert_eq!(entries[0].value.place, at(1, 3));
        let Value::List(items) = &entries[1].value.value else { panic!("not a list: {root:?}") };
        assert_eq!(items[0].place, at(3, 4));
        let Value::Map(inner) = &items[1].value else { panic!("not a map: {root:?}") };
        assert_eq!(inner[0].value.place, at(4, 9));
        assert!(inner[0].value.is_blank());
    }

    #[test]
    fn an_alias_repeats_its_anchor_within_bounds() {
        let root = parse("a: &x [1, 2]\nb: *x\n").expect("YAML");
        assert_eq!(root.count(), 9);
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let before = level - 1;
            bomb += &format!("a{level}: &a{level} [{}]\n", vec![format!("*a{before}"); 10].join(", "));
        }
        assert!(message(&bomb).contains("counting what aliases repeat"), "{}", message(&bomb));
        assert!(message(&format!("a: {}{}", "[".repeat(40), "]".repeat(40))).contains("nested deeper than 32 levels"));
    }

    #[test]
    fn what_is_not_understood_is_named_with_its_place() {
        for (text, expected) in [
            ("a: 1\na: 2\n", "2:1: \"a\" is written twice (first on line 1); keep one"),
            ("a: &x 1\nb: { <<: *x }\n", "2:6: merge keys (<<) are not understood"),
            ("a: 1\n---\nb: 2\n", "2:1: a second document begins here"),
            ("a: &x [*x]\n", "1:8: an alias may not stand inside its own anchor"),
            ("? [a]\n: 1\n", "1:3: a key must be a plain text"),
        ] {
            assert!(message(text).starts_with(expected), "{text:?} gave {}", message(text));
        }
        assert!(message("a: [1\nb: 2\n").contains("this is not YAML: "));
        assert!(message(&"#".repeat(TEXT_BYTES_MAX + 1)).contains("at most 4194304 are read"));
    }
}
