//! The command line: names with values, nothing else. Flag parsers are kept out of library rooms, and this binary is
//! small.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

/// Options as given. Each is taken once by the command that knows it; what is left over is an error.
#[derive(Debug, Default)]
pub(crate) struct Args {
    /// Words before the first option.
    pub(crate) words: Vec<String>,
    options: RefCell<BTreeMap<String, Vec<String>>>,
}

/// Options that stand alone.
const SWITCHES: &[&str] = &["--help", "--quiet", "--stream", "--quick", "--publish"];

impl Args {
    /// Takes `--name value`, `--name=value`, switches and leading words apart.
    ///
    /// Errors: a message for the person who typed it.
    pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut found = Self::default();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let arg = if arg == "-h" { "--help".to_owned() } else { arg };
            if !arg.starts_with("--") {
                if !found.options.borrow().is_empty() {
                    return Err(format!("{arg:?} stands where an option should; options begin with --"));
                }
                found.words.push(arg);
                continue;
            }
            let (name, value) = match arg.split_once('=') {
                Some((name, value)) => (name.to_owned(), value.to_owned()),
                None if SWITCHES.contains(&arg.as_str()) => (arg, "true".to_owned()),
                None => {
                    let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
                    (arg, value)
                }
            };
            found.options.get_mut().entry(name).or_default().push(value);
        }
        Ok(found)
    }

    /// Every value of an option.
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        self.options.borrow_mut().remove(name).unwrap_or_default()
    }

    /// The value of an option that may be given once.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, String> {
        let mut all = self.all(name);
        if all.len() > 1 { Err(format!("{name} is given more than once")) } else { Ok(all.pop()) }
    }

    pub(crate) fn needed(&self, name: &str) -> Result<String, String> {
        self.text(name)?.ok_or_else(|| format!("{name} is needed; --help shows an example"))
    }

    pub(crate) fn is_on(&self, name: &str) -> bool {
        !self.all(name).is_empty()
    }

    pub(crate) fn number<T: FromStr<Err: Display>>(&self, name: &str, default: T) -> Result<T, String> {
        Ok(self.number_or_none(name)?.unwrap_or(default))
    }

    pub(crate) fn number_or_none<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, String> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|error| format!("{name} {text:?}: {error}"))
    }

    /// `250us`, `30ms`, `1.5s`, `2m`; a bare number is seconds.
    pub(crate) fn time(&self, name: &str, default: Duration) -> Result<Duration, String> {
        let Some(text) = self.text(name)? else { return Ok(default) };
        duration(&text).ok_or_else(|| format!("{name} {text:?} is no time; say 250us, 30ms, 1.5s or 2m"))
    }

    /// Refuses what no command has taken.
    pub(crate) fn finish(&self) -> Result<(), String> {
        let options = self.options.borrow();
        let left: Vec<&str> = options.keys().map(String::as_str).collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("unknown here: {}; --help lists what there is", left.join(", ")))
        }
    }
}

fn duration(text: &str) -> Option<Duration> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits_end);
    let number: f64 = number.parse().ok()?;
    let seconds = match unit {
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "s" | "" => number,
        "m" => number * 60.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        Args::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_taken_by_name_and_the_rest_is_refused() {
        let args = parse("scenario streams --streams=5 --url http://a --url http://b --quiet").expect("parsed");
        assert_eq!(args.words, ["scenario", "streams"]);
        assert_eq!(args.number("--streams", 1), Ok(5));
        assert!(args.finish().expect_err("two are left").contains("--quiet, --url"));
        assert_eq!(args.all("--url"), ["http://a", "http://b"]);
        assert!(args.is_on("--quiet") && !args.is_on("--stream"));
        assert_eq!(args.finish(), Ok(()));
    }

    #[test]
    fn mistakes_are_explained() {
        let message = |line: &str, take: fn(&Args) -> Result<(), String>| {
            parse(line).and_then(|args| take(&args)).expect_err(line)
        };
        assert!(message("x --url", |_| Ok(())).contains("--url needs a value"));
        assert!(message("x --a 1 word", |_| Ok(())).contains("options begin with --"));
        assert!(message("x --n q", |args| args.number("--n", 1).map(drop)).contains("--n \"q\""));
        assert!(message("x", |args| args.needed("--url").map(drop)).contains("--url is needed"));
        assert!(message("x --t 5h", |args| args.time("--t", Duration::ZERO).map(drop)).contains("is no time"));
        assert!(message("x --t 5 --t 6", |args| args.time("--t", Duration::ZERO).map(drop)).contains("more than once"));
    }

    #[test]
    fn times_have_units() {
        let cases = [("250us", 250), ("30ms", 30_000), ("1.5s", 1_500_000), ("2", 2_000_000), ("2m", 120_000_000)];
        for (text, us) in cases {
            assert_eq!(duration(text), Some(Duration::from_micros(us)), "{text}");
        }
        for text in ["", "ms", "-1s", "1h", "1..5s"] {
            assert_eq!(duration(text), None, "{text:?}");
        }
    }
}
