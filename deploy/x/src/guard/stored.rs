//! The figures that are held, in a file of lines `name words figure`, and the judgement of what was counted.

use std::collections::BTreeMap;
use std::path::Path;

use crate::args::Outcome;

/// How far a count may lie above its figure: the compiler's choices elsewhere in a crate move it by less.
const MARGIN: f64 = 1.05;
/// And by how much more in any case: connections open and close a few times in a run.
const GRAIN: f64 = 0.02;
/// So far below, the figure is worth writing anew.
const SLACK: f64 = 0.90;

const HEADING: &str = "# What the guard holds (`cargo x guard`): instructions an operation, and kernel work a request.
# Written by `cargo x guard --bless`, by whoever makes something dearer on purpose or cheaper for good.
";

/// Figures by name.
#[derive(Debug, Default)]
pub(crate) struct Stored(BTreeMap<String, f64>);

impl Stored {
    /// Reads the file; one that is not there holds nothing.
    ///
    /// Errors: a line that is no figure.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        Self::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let figure = |line: &str| {
            let (name, figure) = line.rsplit_once(' ')?;
            Some((name.trim().to_owned(), figure.parse().ok()?))
        };
        let figures = lines.map(|line| figure(line).ok_or_else(|| format!("{line:?} is no figure")));
        figures.collect::<Result<_, _>>().map(Self)
    }

    /// Whether a count is within the margin of its figure. One that has no figure is never too much.
    pub(crate) fn allows(&self, name: &str, count: f64) -> bool {
        self.0.get(name).is_none_or(|figure| count <= figure * MARGIN + GRAIN)
    }

    /// Errors: the file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Outcome {
        std::fs::write(path, self.to_text()).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn to_text(&self) -> String {
        let lines = self.0.iter().map(|(name, figure)| format!("{name:<52} {figure:.3}\n"));
        HEADING.to_owned() + &lines.collect::<String>()
    }
}

/// Judges counts one by one and fails at the end, so that one run tells all.
#[derive(Debug)]
pub(crate) struct Held {
    is_blessing: bool,
    over: Vec<String>,
}

impl Held {
    pub(crate) fn new(is_blessing: bool) -> Self {
        Self { is_blessing, over: Vec::new() }
    }

    /// Says a count beside its figure, or writes it down.
    pub(crate) fn hold(&mut self, stored: &mut Stored, name: &str, count: f64) {
        let before = stored.0.get(name).copied();
        let says = match before {
            _ if self.is_blessing => "written down",
            None => "no figure for this CPU's instructions: not judged",
            Some(figure) if !stored.allows(name, count) => {
                self.over.push(format!("{name}: {count:.3}, held to {figure:.3}"));
                "TOO MANY"
            }
            Some(figure) if count < figure * SLACK - GRAIN => "fewer for good? `cargo x guard --bless` writes it down",
            Some(_) => "ok",
        };
        println!("{name:<52} {count:>12.3} {:>12}  {says}", before.map_or("-".into(), |figure| format!("{figure:.3}")));
        if self.is_blessing {
            stored.0.insert(name.to_owned(), count);
        }
    }

    /// Errors: what was too much.
    pub(crate) fn finish(self) -> Outcome {
        if self.over.is_empty() { Ok(()) } else { Err(self.over.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_as_they_were_written() {
        let stored = Stored::parse("# heading\n\nkernel whole ring-operations   4.00\na 12.5\n").expect("figures");
        assert_eq!(Stored::parse(&stored.to_text()).expect("figures").0, stored.0);
        assert_eq!(stored.0.get("kernel whole ring-operations"), Some(&4.0));
        assert!(Stored::parse("a b\n").is_err());
    }

    #[test]
    fn a_count_fails_only_above_its_margin() {
        let check = |count: f64, fails: bool| {
            let mut stored = Stored::parse("a 100\n").expect("figures");
            let mut held = Held::new(false);
            held.hold(&mut stored, "a", count);
            assert_eq!(held.finish().is_err(), fails, "{count}");
            assert_eq!(stored.0.get("a"), Some(&100.0));
        };
        check(104.9, false);
        check(50.0, false);
        check(105.1, true);
    }

    #[test]
    fn what_has_no_figure_is_said_and_blessing_gives_it_one() {
        let mut stored = Stored::default();
        let mut held = Held::new(false);
        held.hold(&mut stored, "a", 1.0);
        assert_eq!((held.finish(), stored.0.len()), (Ok(()), 0));
        Held::new(true).hold(&mut stored, "a", 1.0);
        assert_eq!(stored.0.get("a"), Some(&1.0));
    }
}
