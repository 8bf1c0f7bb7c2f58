//! What a duration, a size, a ratio, a list is in the file, and what to say when it is not.
//!
//! The leaves of the trees in `server.rs`. Each type holds only values that are right.

use std::time::Duration;

use llmgw_kit::units;
use llmgw_types::EngineKind;

use crate::error::Place;
use crate::read::{Field, Read, Reader, Section, Step};
use crate::yaml::{Node, Value};

/// `a, b or c`.
pub(crate) fn one_of(words: &[&str]) -> String {
    match words {
        [] => "nothing".to_owned(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// ` (line 4)`, for messages that speak of two places.
pub(crate) fn line_of(place: &Place) -> String {
    match place {
        Place::At { line, .. } => format!(" (line {line})"),
        Place::Variable(name) => format!(" ({name})"),
        Place::File | Place::Default => String::new(),
    }
}

impl Read for String {
    fn shape() -> String {
        "text".to_owned()
    }
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.scalar(node, "a text").map(str::to_owned)
    }
}

impl Read for bool {
    fn shape() -> String {
        "`true`, `false`".to_owned()
    }
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.word(node, &[("true", true), ("false", false)])
    }
}

impl Read for EngineKind {
    fn shape() -> String {
        Self::ALL.map(|kind| format!("`{kind}`")).join(", ")
    }
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.word(node, &Self::ALL.map(|kind| (kind.name(), kind)))
    }
}

macro_rules! whole_numbers {
    ($($kind:ty),*) => { $(
        impl Read for $kind {
            fn shape() -> String {
                "whole number".to_owned()
            }
            fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
                let expected = format!("a whole number from {} to {}", Self::MIN, Self::MAX);
                let text = reader.scalar(node, &expected)?;
                match text.parse() {
                    Ok(number) => Some(number),
                    Err(_) => reader.refuse(node, &format!("{text:?} is not {expected}")),
                }
            }
        }
    )* };
}
whole_numbers!(u16, u32, u64, i32);

/// Numbers that are held within their range by their type.
macro_rules! numbers {
    ($($(#[doc = $about:literal])* $name:ident, $shape:literal, $is_right:expr;)*) => { $(
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
        pub struct $name(f64);

        impl $name {
            /// The number.
            pub const fn as_f64(self) -> f64 {
                self.0
            }
        }

        impl Read for $name {
            fn shape() -> String {
                $shape.to_owned()
            }
            fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
                let expected = concat!("a ", $shape);
                let text = reader.scalar(node, expected)?;
                let is_right: fn(f64) -> bool = $is_right;
                match text.parse::<f64>() {
                    Ok(number) if number.is_finite() && is_right(number) => Some(Self(number)),
                    _ => reader.refuse(node, &format!("{text:?} is not {expected}")),
                }
            }
        }
    )* };
}
numbers! {
    /// From 0 to 1, both included.
    Ratio, "number from 0 to 1", |number| (0.0..=1.0).contains(&number);
    /// Above 0, up to 1.
    Share, "number above 0, up to 1", |number| number > 0.0 && number <= 1.0;
    /// 0 or more.
    Weight, "number, 0 or more", |number| number >= 0.0;
    /// 1 or more.
    Factor, "number, 1 or more", |number| number >= 1.0;
}

/// A duration that is longer than nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(pub Duration);

/// The longest duration that is accepted: a year. Longer ones overflow clocks, and mean "never" anyway.
const DURATION_MAX: Duration = Duration::from_secs(366 * 86_400);

impl Read for Duration {
    fn shape() -> String {
        "duration".to_owned()
    }
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let text = reader.scalar(node, "a duration, for example 2s, 5m or 100ms")?;
        match units::parse_duration(text) {
            Ok(duration) if duration <= DURATION_MAX => Some(duration),
            Ok(_) => reader.refuse(node, &format!("{text:?} is longer than a year; write at most 366d")),
            Err(error) => reader.refuse(node, &error.to_string()),
        }
    }
}

impl Read for Period {
    fn shape() -> String {
        "duration above 0".to_owned()
    }
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let duration = Duration::read(node, reader)?;
        if duration.is_zero() {
            return reader.refuse(node, "must be longer than 0; write for example 2s, 5m or 100ms");
        }
        Some(Self(duration))
    }
}

/// A size in bytes, more than none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Read for Bytes {
    fn shape() -> String {
        "size".to_owned()
    }
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let text = reader.scalar(node, "a size, for example 64MiB")?;
        match units::parse_bytes(text) {
            Ok(0) => reader.refuse(node, "must be more than 0; write for example 64MiB"),
            Ok(bytes) if i64::try_from(bytes).is_ok() => Some(Self(bytes)),
            Ok(_) => reader.refuse(node, &format!("{text:?} is more than any machine holds")),
            Err(error) => reader.refuse(node, &error.to_string()),
        }
    }
}

/// Absent, null, an empty text or `{}`: not set.
impl<T: Read> Read for Option<T> {
    fn shape() -> String {
        T::shape()
    }
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.value {
            Value::Null => Some(None),
            Value::Scalar(text) if text.is_empty() => Some(None),
            Value::Map(entries) if entries.is_empty() => Some(None),
            _ => T::read(node, reader).map(Some),
        }
    }
    fn absent() -> Option<Self> {
        Some(None)
    }
    fn section() -> Option<Section> {
        T::section()
    }
}

/// A list; what cannot be read is left out, once said.
impl<T: Read> Read for Vec<Field<T>> {
    fn shape() -> String {
        match T::section() {
            Some(_) => "list of sections".to_owned(),
            None => format!("list of {}", T::shape()),
        }
    }
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.value {
            Value::List(items) => Some(read_items(items, reader)),
            Value::Null => Some(Self::new()),
            Value::Scalar(text) if text.is_empty() => Some(Self::new()),
            _ => reader.refuse(node, "expected a list: [ … ], or lines that begin with \"- \""),
        }
    }
    fn section() -> Option<Section> {
        T::section()
    }
}

fn read_items<T: Read>(items: &[Node], reader: &mut Reader) -> Vec<Field<T>> {
    let mut list = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        reader.path.push(Step::Item(at));
        match T::read(item, reader) {
            Some(value) => list.push(Field { value, place: item.place.clone() }),
            None => reader.has_lost_items = true,
        }
        reader.path.pop();
    }
    list
}

/// One value, or a list of them.
#[derive(Clone, Debug, PartialEq)]
pub struct OneOrMore<T>(pub Vec<Field<T>>);

impl<T: Read> Read for OneOrMore<T> {
    fn shape() -> String {
        match T::section() {
            Some(_) => "section, or a list of them".to_owned(),
            None => format!("{}, or a list of them", T::shape()),
        }
    }
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        if let Value::List(items) = &node.value {
            return Some(Self(read_items(items, reader)));
        }
        T::read(node, reader).map(|value| Self(vec![Field { value, place: node.place.clone() }]))
    }
    fn section() -> Option<Section> {
        T::section()
    }
}

/// Values under names that the file chooses.
#[derive(Clone, Debug, PartialEq)]
pub struct Named<T>(pub Vec<(Field<String>, Field<T>)>);

impl<T: Read> Read for Named<T> {
    fn shape() -> String {
        match T::section() {
            Some(_) => "sections by name".to_owned(),
            None => format!("{} by name", T::shape()),
        }
    }
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let entries = reader.map(node, "names, each with its value")?;
        let mut table = Vec::with_capacity(entries.len());
        for entry in entries {
            reader.path.push(Step::Name(entry.key.clone()));
            match T::read(&entry.value, reader) {
                Some(value) => table.push((
                    Field { value: entry.key.clone(), place: entry.key_place.clone() },
                    Field { value, place: entry.value.place.clone() },
                )),
                None => reader.has_lost_items = true,
            }
            reader.path.pop();
        }
        Some(Self(table))
    }
    fn section() -> Option<Section> {
        T::section()
    }
}

/// A number of CPUs, or as many as there are to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreCount {
    /// `auto`: decided at start from the CPUs this process may use.
    Auto,
    /// That many.
    Exactly(u16),
}

impl Read for CoreCount {
    fn shape() -> String {
        "`auto`, or a whole number".to_owned()
    }
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let text = reader.scalar(node, "auto, or a number of CPUs")?;
        match text.parse::<u16>() {
            Ok(count) if count <= 1024 => Some(Self::Exactly(count)),
            _ if text == "auto" => Some(Self::Auto),
            _ => reader.refuse(node, &format!("{text:?} is neither auto nor a number of CPUs up to 1024")),
        }
    }
}
