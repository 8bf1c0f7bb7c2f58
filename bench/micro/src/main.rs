//! `llmgw-micro`: what the parts of the data plane cost, one by one. `--help` says what there is.
//!
//! Started by `cargo x bench micro` for figures, and by `cargo x guard`, which counts instructions of the pure parts.
//! Never judges a time: bars are shown beside figures, and only allocations where there must be none fail a run.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks on its standard streams")]

mod allocator;
mod measure;
mod report;

mod prompts;
mod samples;
mod world;

mod pure;
mod threads;

use std::path::PathBuf;
use std::process::ExitCode;

use measure::{Figure, Plan};

const HELP: &str = "\
llmgw-micro [NAME…] [--rounds N] [--json FILE] [--page FILE]
    Measures the parts whose names begin with one of the words, or all. N rounds each, 15 unless said, at least 10.
    FILE gets every figure as JSON, or the table as a page.

llmgw-micro list
    The parts' names.

llmgw-micro repeat NAME COUNT
    Prepares one pure part and does it COUNT times, for tools that count instructions. Prints on which vector
    instructions it runs.
";

/// Rounds of each part, unless the command line says otherwise.
const ROUNDS: usize = 15;
const ROUNDS_MIN: usize = 10;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("llmgw-micro: {message}");
            ExitCode::from(64)
        }
    }
}

fn run(words: &[String]) -> Result<ExitCode, String> {
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--help" | "-h", ..] => print!("{HELP}"),
        ["list"] => {
            pure::PARTS.iter().for_each(|part| println!("{}", part.name));
            threads::NAMES.iter().for_each(|name| println!("{name}"));
        }
        ["repeat", name, count] => {
            let count: u64 = count.parse().map_err(|_| format!("{count:?} is not a count"))?;
            let part = pure::PARTS.iter().find(|part| part.name == *name);
            let part = part.ok_or_else(|| format!("there is no pure part {name:?}; `list` names them"))?;
            println!("{}", vectors());
            (part.repeat)(count);
        }
        _ => return figures(words),
    }
    Ok(ExitCode::SUCCESS)
}

/// What the command line of a measurement says.
struct Wish {
    names: Vec<String>,
    plan: Plan,
    json: Option<PathBuf>,
    page: Option<PathBuf>,
}

fn wish(words: &[String]) -> Result<Wish, String> {
    let mut wish = Wish { names: Vec::new(), plan: Plan { rounds: ROUNDS }, json: None, page: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        match word.as_str() {
            "--rounds" => {
                let rounds = value()?.parse().map_err(|_| "--rounds wants a number".to_owned())?;
                wish.plan.rounds = ROUNDS_MIN.max(rounds);
            }
            "--json" => wish.json = Some(value()?.into()),
            "--page" => wish.page = Some(value()?.into()),
            other if other.starts_with('-') => return Err(format!("{other:?} is not known; see --help")),
            name => wish.names.push(name.to_owned()),
        }
    }
    Ok(wish)
}

fn figures(words: &[String]) -> Result<ExitCode, String> {
    let Wish { names, plan, json, page } = wish(words)?;
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|word| name.starts_with(word.as_str()));
    let mut figures: Vec<Figure> = Vec::new();
    let mut take = |more: Vec<Figure>| {
        more.iter().for_each(|figure| println!("{}", report::line(figure)));
        figures.extend(more);
    };
    println!("{}", report::heading());
    for part in pure::PARTS.iter().filter(|part| is_wanted(part.name)) {
        let timing = (part.measure)(plan);
        take(vec![Figure {
            name: part.name.to_owned(),
            timing,
            bar_ns: part.bar_ns,
            must_not_allocate: part.must_not,
        }]);
    }
    for name in threads::NAMES.iter().filter(|name| is_wanted(name)) {
        take(threads::measure(name, plan)?);
    }
    if figures.is_empty() {
        return Err(format!("no part begins with {}; `list` names them", names.join(" or ")));
    }
    let write = |path: &PathBuf, text: String| {
        std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    json.map(|path| write(&path, report::json(&figures, plan))).transpose()?;
    page.map(|path| write(&path, report::page(&figures, plan))).transpose()?;
    let is_clean = |figure: &&Figure| figure.must_not_allocate && figure.timing.allocations > 0.0;
    let allocating: Vec<&str> = figures.iter().filter(is_clean).map(|figure| figure.name.as_str()).collect();
    if !allocating.is_empty() {
        eprintln!("llmgw-micro: these must not allocate and do: {}", allocating.join(", "));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Which vector instructions searches choose on this CPU when they run: instruction counts depend on it.
fn vectors() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    return if std::arch::is_x86_feature_detected!("avx2") { "x86_64-avx2" } else { "x86_64-sse2" };
    #[cfg(not(target_arch = "x86_64"))]
    std::env::consts::ARCH
}
