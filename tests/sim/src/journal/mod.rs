//! `cargo x sim journal`: the journal of usage over a disk that loses what was not synced, with a store that is locked
//! at times, and processes that end anywhere.
//!
//! The writer and the reader are the product's; `disk` is theirs to write to, `world` runs lives of processes one after
//! the other and checks what is left.

mod disk;
mod world;

use llmgw_journal::Entry;
use llmgw_kit::chance::Chance;

use self::world::Sound;

const HELP: &str = "\
sim journal --seed N [--steps N]   one world of the journal of usage
sim journal --seeds N [--from N]   N worlds, from a seed on; a fresh one unless --from says which
sim journal --mutants              every planted mistake must be found within 200 seeds
sim journal --ci                   a fixed and a fresh set, then the mutants
            [--mutant NAME]        with --seed and --seeds: with that mistake planted
";

const STEPS: u64 = 600;
const MUTANT_SEEDS: u64 = 200;
const CI_SEEDS: u64 = 1_500;

/// A mistake in an otherwise sound world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// What was written is said to be on the disk, and nobody brought it there.
    NoSync,
    /// A segment is synced, and that there is one is not.
    NoFolderSync,
    /// A commit says that what was written after it began is on the disk.
    WrittenLater,
    /// A segment is taken away whose records are not in the store.
    NotStored,
}

const MUTANTS: &[(&str, Mutant)] = &[
    ("missing fdatasync", Mutant::NoSync),
    ("missing sync of the folder", Mutant::NoFolderSync),
    ("a commit acknowledges what was written after it began", Mutant::WrittenLater),
    ("taken away before it is stored", Mutant::NotStored),
];

/// What was recorded under an id: of it alone, so that it can be told from a record that was made up.
fn record(id: u128) -> Entry<'static> {
    const NAMES: [&str; 3] = ["m", "org/a-model-with-a-long-name", ""];
    let number = id as u64;
    let name = NAMES[(number % 3) as usize];
    Entry {
        record_id: id,
        admitted_at: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        ended_at: number,
        key_id: name,
        project_id: "p",
        model: name,
        served_model: "m",
        pool: name,
        replica: "gpu-1",
        reason: "",
        status: 200,
        prompt_tokens: number >> 3,
        cached_tokens: 0,
        completion_tokens: number >> 5,
        units_micros: number,
        is_estimated: number.is_multiple_of(2),
        ttft_ms: number.is_multiple_of(5).then_some(number),
        duration_ms: 1,
        queue_ms: None,
    }
}

/// Does what the words say.
pub(crate) fn main(words: &[String]) -> Result<(), String> {
    let (mut seed, mut seeds, mut from, mut steps) = (None, None, None, STEPS);
    let (mut mutant, mut is_mutants, mut is_ci) = (None, false, false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut next = || words.next().ok_or_else(|| format!("{word} wants a value"));
        let number = |text: &String| text.parse::<u64>().map_err(|_| format!("{word}: cannot read {text:?}"));
        match word.as_str() {
            "--seed" => seed = Some(number(next()?)?),
            "--seeds" => seeds = Some(number(next()?)?),
            "--from" => from = Some(number(next()?)?),
            "--steps" => steps = number(next()?)?,
            "--mutant" => mutant = Some(named(next()?)?),
            "--mutants" => is_mutants = true,
            "--ci" => is_ci = true,
            _ => return Err(format!("{word:?} is not known\n{HELP}")),
        }
    }
    let fresh = || Chance::from_system().next_u64() >> 16;
    match (seed, seeds) {
        (Some(seed), _) => many(seed, 1, steps, mutant),
        (None, Some(count)) => many(from.unwrap_or_else(fresh), count, steps, mutant),
        (None, None) if is_mutants => all_mutants(steps),
        (None, None) if is_ci => ci(),
        (None, None) => {
            print!("{HELP}");
            Ok(())
        }
    }
}

/// A fixed and a fresh set, and every planted mistake.
pub(crate) fn ci() -> Result<(), String> {
    many(1, CI_SEEDS, STEPS, None)?;
    many(Chance::from_system().next_u64() >> 16, CI_SEEDS, STEPS, None)?;
    all_mutants(STEPS)
}

fn named(name: &str) -> Result<Mutant, String> {
    let found = MUTANTS.iter().find(|(known, _)| *known == name);
    let names = || MUTANTS.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    found.map(|(_, mutant)| *mutant).ok_or_else(|| format!("no mutant {name:?}; there are {:?}", names()))
}

fn many(from: u64, count: u64, steps: u64, mutant: Option<Mutant>) -> Result<(), String> {
    let mut all = Sound::default();
    for seed in from..from + count {
        match world::run(seed, steps, mutant) {
            Ok(sound) => all.add(&sound),
            Err(broken) => {
                let planted = MUTANTS.iter().find(|(_, known)| Some(*known) == mutant);
                let planted = planted.map(|(name, _)| format!(" --mutant \"{name}\"")).unwrap_or_default();
                let again = format!("cargo x sim journal --seed {seed} --steps {steps}{planted}");
                return Err(format!("seed {seed}: {broken}\nsee it again with: {again}"));
            }
        }
    }
    println!("journal, seeds {from} to {}: {count} worlds, {all}", from + count - 1);
    Ok(())
}

/// Every mistake must be found.
fn all_mutants(steps: u64) -> Result<(), String> {
    for (name, mutant) in MUTANTS {
        let mut seeds = 1..=MUTANT_SEEDS;
        let found = seeds.find_map(|seed| Some((seed, world::run(seed, steps, Some(*mutant)).err()?)));
        let (seed, broken) = found.ok_or_else(|| format!("{name}: not found within {MUTANT_SEEDS} seeds"))?;
        println!("{name:<56} seed {seed:>3}: {broken}");
    }
    Ok(())
}
