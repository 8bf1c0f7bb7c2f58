//! Reads sections out of the YAML tree, and collects what is wrong on the way.
//!
//! The trees in `server.rs` are made through the `section!` and `choice!` macros, which keep one description a key for
//! both the code and the reference page. Reading goes on after a problem, so that all are found. Never judges one
//! section
//! by another: `checked` does.

use std::ops::Deref;

use crate::availability::{self, Rule};
use crate::error::{Place, Problem, WithoutEffect};
use crate::values::one_of;
use crate::yaml::{self, Entry, Node, Value};

/// A value and where it came from.
#[derive(Clone, Debug)]
pub struct Field<T> {
    /// The value.
    pub value: T,
    /// Where it was written, or that nobody wrote it.
    pub place: Place,
}

/// Two fields are equal when their values are, wherever they were written.
impl<T: PartialEq> PartialEq for Field<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T> Deref for Field<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

/// What can be read from the tree.
pub(crate) trait Read: Sized {
    /// What the reference page calls such a value.
    fn shape() -> String;
    /// Reads it; says what is wrong to the reader and returns none otherwise.
    fn read(node: &Node, reader: &mut Reader) -> Option<Self>;
    /// The value when the key is not there and has no default.
    fn absent() -> Option<Self> {
        None
    }
    /// The keys inside, for values that are sections or hold them.
    fn section() -> Option<Section> {
        None
    }
}

/// The description of one section, for the reference page and for overrides.
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) about: Vec<&'static str>,
    pub(crate) keys: Vec<Key>,
}

/// The description of one key.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) shape: String,
    pub(crate) default: Option<&'static str>,
    pub(crate) is_required: bool,
    pub(crate) text: Vec<&'static str>,
    pub(crate) section: Option<Section>,
}

/// One step into the tree.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Key(&'static str),
    Item(usize),
    Name(String),
}

/// The most problems that are collected; a file with more has one reason for them all.
pub(crate) const PROBLEM_COUNT_MAX: usize = 200;
/// The most names among which a near one is looked for.
const HINT_NAMES_MAX: usize = 1000;

/// Collects what is wrong, and knows where in the tree the reading is.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) problems: Vec<Problem>,
    pub(crate) without_effect: Vec<WithoutEffect>,
    pub(crate) path: Vec<Step>,
    /// Some item of a list or table could not be read, so what refers to it cannot be judged.
    pub(crate) has_lost_items: bool,
    /// Sections with a key that is likely a misspelt one: what seems to be missing there is not said again.
    pub(crate) misspelt: Vec<Place>,
}

impl Reader {
    pub(crate) fn problem(&mut self, place: &Place, message: String) {
        if self.problems.len() < PROBLEM_COUNT_MAX {
            self.problems.push(Problem { place: place.clone(), message: clipped(message) });
        }
    }

    /// No further problem will be kept, so none need be looked for.
    fn is_full(&self) -> bool {
        self.problems.len() >= PROBLEM_COUNT_MAX
    }

    /// The path as people write it: `endpoints[0].url`.
    pub(crate) fn path(&self) -> String {
        render(&self.path, |step, out| match step {
            Step::Key(key) => dotted(out, key),
            Step::Item(at) => *out += &format!("[{at}]"),
            Step::Name(name) => dotted(out, name),
        })
    }

    /// The path as tables name it: `endpoints[].url`, `router.profiles.*.picker`.
    fn pattern(&self) -> String {
        render(&self.path, |step, out| match step {
            Step::Key(key) => dotted(out, key),
            Step::Item(_) => *out += "[]",
            Step::Name(_) => dotted(out, "*"),
        })
    }

    /// Says that a value is not of its kind, and what would be right.
    fn wrong(&mut self, node: &Node, message: &str) {
        let path = self.path();
        let prefix = if path.is_empty() { String::new() } else { format!("{path}: ") };
        self.problem(&node.place, format!("{prefix}{message}"));
    }

    pub(crate) fn scalar<'n>(&mut self, node: &'n Node, expected: &str) -> Option<&'n str> {
        match &node.value {
            Value::Scalar(text) => Some(text),
            Value::Null => self.refuse(node, &format!("nothing is written here; expected {expected}")),
            Value::List(_) => self.refuse(node, &format!("a list is written here; expected {expected}")),
            Value::Map(_) => self.refuse(node, &format!("keys are written here; expected {expected}")),
        }
    }

    pub(crate) fn refuse<T>(&mut self, node: &Node, message: &str) -> Option<T> {
        self.wrong(node, message);
        None
    }

    /// The entries of a section, once every key in it is known.
    pub(crate) fn entries<'n>(&mut self, node: &'n Node, known: &[&str]) -> Option<&'n [Entry]> {
        let entries = self.map(node, "keys")?;
        for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            if self.is_full() {
                break;
            }
            let hint = hint(&entry.key, known);
            if !hint.is_empty() {
                self.misspelt.push(node.place.clone());
            }
            let path = self.path();
            let inside = if path.is_empty() || !hint.is_empty() { String::new() } else { format!(" in {path}") };
            let keys =
                if hint.is_empty() && known.len() <= 12 { format!("; known here: {}", known.join(", ")) } else { hint };
            self.problem(&entry.key_place, format!("unknown key {:?}{inside}{keys}", entry.key));
        }
        Some(entries)
    }

    pub(crate) fn map<'n>(&mut self, node: &'n Node, expected: &str) -> Option<&'n [Entry]> {
        match &node.value {
            Value::Map(entries) => Some(entries),
            Value::Null => Some(&[]),
            Value::Scalar(text) if text.is_empty() => Some(&[]),
            Value::Scalar(text) => self.refuse(node, &format!("expected {expected}, found {text:?}")),
            Value::List(_) => self.refuse(node, &format!("expected {expected}, found a list")),
        }
    }

    /// One key of a section: what is written, else the default.
    pub(crate) fn field<T: Read + PartialEq>(
        &mut self,
        place: &Place,
        entries: &[Entry],
        key: &'static str,
        default: Option<&'static str>,
    ) -> Option<Field<T>> {
        self.path.push(Step::Key(key));
        let written = entries.iter().find(|entry| entry.key == key && !matches!(entry.value.value, Value::Null));
        let fallback = || match default {
            Some(text) => read_default(text),
            None => T::absent(),
        };
        let field = match written {
            None => match fallback() {
                Some(value) => Some(Field { value, place: Place::Default }),
                None => {
                    if !self.misspelt.contains(place) {
                        let message = format!("{} is missing", self.path());
                        self.problem(place, message);
                    }
                    None
                }
            },
            Some(entry) => {
                let value = T::read(&entry.value, self);
                if let Some(value) = &value {
                    let is_default = entry.value.is_blank() || fallback().is_some_and(|default| default == *value);
                    self.judge_availability(entry, is_default, default);
                }
                value.or_else(fallback).map(|value| Field { value, place: entry.value.place.clone() })
            }
        };
        self.path.pop();
        field
    }

    /// A key whose feature is not there yet may be off or at its default, and is named.
    fn judge_availability(&mut self, entry: &Entry, is_default: bool, default: Option<&str>) {
        let Some(rule) = availability::rule(&self.pattern()) else { return };
        let key = self.path();
        match rule {
            Rule::Off if !is_default => {
                let right = match default {
                    None | Some("{}" | "[]" | "''") => String::new(),
                    Some(default) => format!(", or write {default}"),
                };
                let message = format!("{key} is not available in this version; leave it out{right}");
                self.problem(&entry.key_place, message);
            }
            Rule::Off => self.no_effect(&entry.key_place, key, availability::OFF),
            Rule::NoEffect => self.no_effect(&entry.key_place, key, availability::NO_EFFECT),
            Rule::NeverAnyEffect => self.no_effect(&entry.key_place, key, availability::NEVER_ANY_EFFECT),
        }
    }

    pub(crate) fn no_effect(&mut self, place: &Place, key: String, reason: &'static str) {
        self.without_effect.push(WithoutEffect { place: place.clone(), key, reason });
    }
}

/// The middle of a long message goes: it repeats what the file says.
fn clipped(message: String) -> String {
    const CHARACTERS_MAX: usize = 700;
    let count = message.chars().count();
    if count <= CHARACTERS_MAX {
        return message;
    }
    let begin: String = message.chars().take(CHARACTERS_MAX / 2).collect();
    let end: String = message.chars().skip(count - CHARACTERS_MAX / 2).collect();
    format!("{begin} … {end}")
}

fn render(steps: &[Step], mut add: impl FnMut(&Step, &mut String)) -> String {
    let mut out = String::new();
    steps.iter().for_each(|step| add(step, &mut out));
    out
}

fn dotted(out: &mut String, name: &str) {
    if !out.is_empty() {
        out.push('.');
    }
    out.push_str(name);
}

/// `; did you mean "endpoints"?`, if one of the known names is close enough.
pub(crate) fn hint(written: &str, known: &[&str]) -> String {
    // Texts from a file have no bound of their own, and the distance costs the product of both lengths.
    if written.len() > 64 {
        return String::new();
    }
    let folded = written.to_lowercase().replace('-', "_");
    let best = known
        .iter()
        .take(HINT_NAMES_MAX)
        .map(|name| (strsim::damerau_levenshtein(&folded, &name.to_lowercase().replace('-', "_")), *name))
        .min_by_key(|(distance, _)| *distance);
    match best {
        Some((distance, name)) if distance <= 1 + name.len() / 5 && distance < name.len() => {
            format!("; did you mean {name:?}?")
        }
        _ => String::new(),
    }
}

/// Reads a documented default, written as YAML; where it came from is that nobody wrote it.
pub(crate) fn read_default<T: Read>(text: &str) -> Option<T> {
    let mut node = yaml::parse(text).ok()?;
    forget_places(&mut node);
    let mut reader = Reader::default();
    T::read(&node, &mut reader).filter(|_| reader.problems.is_empty())
}

fn forget_places(node: &mut Node) {
    node.place = Place::Default;
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(forget_places),
        Value::Map(entries) => entries.iter_mut().for_each(|entry| {
            entry.key_place = Place::Default;
            forget_places(&mut entry.value);
        }),
        Value::Null | Value::Scalar(_) => {}
    }
}

/// Describes a section once: fields, their kinds, defaults and texts, for the code and for the reference page.
macro_rules! section {
    (
        $(#[doc = $about:literal])*
        pub struct $name:ident {
            $( $(#[doc = $text:literal])* $field:ident $(as $key:literal)? : $kind:ty $(= $default:literal)?, )*
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $(
                $(#[doc = $text])*
                $(#[doc = concat!("\nDefault: `", $default, "`.")])?
                pub $field: $crate::read::Field<$kind>,
            )*
        }

        impl $crate::read::Read for $name {
            fn shape() -> String {
                "section".to_owned()
            }
            fn read(node: &$crate::yaml::Node, reader: &mut $crate::read::Reader) -> Option<Self> {
                let known = [$( section!(@key $field $($key)?) ),*];
                let entries = reader.entries(node, &known)?;
                $(
                    let key = section!(@key $field $($key)?);
                    let $field = reader.field::<$kind>(&node.place, entries, key, section!(@default $($default)?));
                )*
                Some(Self { $( $field: $field? ),* })
            }
            fn section() -> Option<$crate::read::Section> {
                Some($crate::read::Section {
                    name: stringify!($name),
                    about: vec![$( $about ),*],
                    keys: vec![$( $crate::read::Key {
                        name: section!(@key $field $($key)?),
                        shape: <$kind as $crate::read::Read>::shape(),
                        default: section!(@default $($default)?),
                        is_required: section!(@default $($default)?).is_none()
                            && <$kind as $crate::read::Read>::absent().is_none(),
                        text: vec![$( $text ),*],
                        section: <$kind as $crate::read::Read>::section(),
                    } ),*],
                })
            }
        }
    };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
    (@default) => { None::<&'static str> };
    (@default $default:literal) => { Some($default) };
}
pub(crate) use section;

/// Describes a closed set of words.
macro_rules! choice {
    (
        $(#[doc = $about:literal])*
        pub enum $name:ident { $( $(#[doc = $text:literal])* $case:ident = $word:literal, )* }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $( $(#[doc = $text])* $case, )* }

        impl $name {
            /// The word used in the file.
            pub const fn word(self) -> &'static str {
                match self { $( Self::$case => $word, )* }
            }
        }

        impl $crate::read::Read for $name {
            fn shape() -> String {
                [$( concat!("`", $word, "`") ),*].join(", ")
            }
            fn read(node: &$crate::yaml::Node, reader: &mut $crate::read::Reader) -> Option<Self> {
                reader.word(node, &[$( ($word, Self::$case) ),*])
            }
        }
    };
}
pub(crate) use choice;

impl Reader {
    /// One word of a closed set.
    pub(crate) fn word<T: Clone>(&mut self, node: &Node, words: &[(&str, T)]) -> Option<T> {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let text = self.scalar(node, &one_of(&known))?;
        match words.iter().find(|(word, _)| *word == text) {
            Some((_, case)) => Some(case.clone()),
            None => {
                let hint = hint(text, &known);
                let end = if hint.is_empty() { format!("; expected {}", one_of(&known)) } else { hint };
                self.refuse(node, &format!("{text:?} is not known here{end}"))
            }
        }
    }
}
