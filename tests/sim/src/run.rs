//! The command line: one seed, many seeds, mutants, and what CI runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;

use llmgw_kit::chance::Chance;

use crate::drive::{self, Outcome};
use crate::fired::Fired;
use crate::journal;
use crate::limits;
use crate::mutants::{self, Mutant, World};

const HELP: &str = "\
sim --seed N [--steps N]           one world, with its last events if it breaks
sim --seeds N [--from N] [--steps N]
                                   N worlds, from a seed on; a fresh one unless --from says which
sim --mutants [--steps N]          every planted mistake must be found within 200 seeds
sim --ci                           a fixed and a fresh set, then the mutants: what CI runs
      [--world gate|limits]        what worlds are of: gates unless said, both with --mutants and --ci
      [--mutant NAME]              with --seed and --seeds: with that mistake planted
sim journal …                      worlds of the journal of usage; `sim journal` says more
      [--threads N]                worlds at once; as many as there are CPUs unless said
";

const STEPS: u64 = 2_000;
/// Of a world with a mistake in it: some need an access in the one wrong moment.
const MUTANT_STEPS: u64 = 60_000;
/// Seeds within which a mutant must be found.
const MUTANT_SEEDS: u64 = 200;
/// Worlds of each set in CI.
const CI_SEEDS: u64 = 1_500;
/// The same, of tenants: what can go wrong there comes up often.
const CI_LIMIT_SEEDS: u64 = 1_500;
/// Steps of a world of tenants with a mistake in it.
const LIMIT_MUTANT_STEPS: u64 = 12_000;

#[derive(Default)]
struct Wanted {
    seed: Option<u64>,
    seeds: Option<u64>,
    from: Option<u64>,
    steps: Option<u64>,
    mutant: Option<String>,
    world: Option<String>,
    threads: Option<u64>,
    is_mutants: bool,
    is_ci: bool,
}

fn read(words: Vec<String>) -> Result<Option<Wanted>, String> {
    let mut wanted = Wanted::default();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let mut number = |to: &mut Option<u64>| {
            let value = words.next().ok_or_else(|| format!("{word} wants a number"))?;
            *to = Some(value.parse().map_err(|_| format!("{word}: cannot read {value:?}"))?);
            Ok::<(), String>(())
        };
        match word.as_str() {
            "--seed" => number(&mut wanted.seed)?,
            "--seeds" => number(&mut wanted.seeds)?,
            "--from" => number(&mut wanted.from)?,
            "--steps" => number(&mut wanted.steps)?,
            "--threads" => number(&mut wanted.threads)?,
            "--mutants" => wanted.is_mutants = true,
            "--ci" => wanted.is_ci = true,
            "--world" => wanted.world = Some(words.next().ok_or("--world wants a kind")?),
            "--mutant" => wanted.mutant = Some(words.next().ok_or("--mutant wants a name")?),
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("{other:?} is not known\n{HELP}")),
        }
    }
    Ok(Some(wanted))
}

/// Does what the words say.
pub(crate) fn main(words: Vec<String>) -> Result<(), String> {
    let Some(wanted) = read(words)? else {
        print!("{HELP}");
        return Ok(());
    };
    let steps = wanted.steps.unwrap_or(STEPS);
    let threads = match wanted.threads {
        Some(threads) => threads.max(1) as usize,
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    let mutant = match &wanted.mutant {
        Some(name) => Some(named(name)?),
        None => None,
    };
    let kind = match (mutant, wanted.world.as_deref()) {
        (Some((_, mutant)), _) => mutant.world(),
        (None, None | Some("gate")) => World::Gate,
        (None, Some("limits")) => World::Limits,
        (None, Some(other)) => return Err(format!("no worlds of {other:?}; gate or limits")),
    };
    let of = |kind: World, from: u64, count: u64| Set { from, count, steps, mutant, threads, kind }.run();
    let many = |from: u64, count: u64| of(kind, from, count);
    let fresh = || Chance::from_system().next_u64() >> 16;
    match (wanted.seed, wanted.seeds) {
        (Some(seed), _) => one(seed, steps, mutant, kind),
        (None, Some(count)) => many(wanted.from.unwrap_or_else(fresh), count).map(drop),
        (None, None) if wanted.is_mutants => {
            let only = wanted.world.is_some().then_some(kind);
            all_mutants(wanted.steps.unwrap_or(MUTANT_STEPS), threads, only)
        }
        (None, None) if wanted.is_ci => {
            for (kind, seeds) in [(World::Gate, CI_SEEDS), (World::Limits, CI_LIMIT_SEEDS)] {
                let (rarest, count) = of(kind, 1, seeds)?;
                if count == 0 && mutant.is_none() {
                    return Err(format!("{} worlds show nothing of this: {rarest}", kind.word()));
                }
                of(kind, fresh(), seeds)?;
            }
            all_mutants(MUTANT_STEPS, threads, None)?;
            journal::ci()
        }
        (None, None) => {
            print!("{HELP}");
            Ok(())
        }
    }
}

fn named(name: &str) -> Result<(&'static str, Mutant), String> {
    let found = mutants::ALL.iter().find(|(known, _)| *known == name).copied();
    let names = || mutants::ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    found.ok_or_else(|| format!("no mutant {name:?}; there are {:?}", names()))
}

/// Runs a world; a panic within it breaks it too.
fn world(kind: World, seed: u64, steps: u64, mutant: Option<Mutant>, is_logged: bool) -> Outcome {
    let outcome = catch_unwind(AssertUnwindSafe(|| match (kind, mutant) {
        (World::Gate, mutant) => drive::run(seed, steps, mutant, is_logged),
        (World::Limits, Some(Mutant::Limits(fault))) => limits::run(seed, steps, Some(fault), is_logged),
        (World::Limits, _) => limits::run(seed, steps, None, is_logged),
    }));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let broken = Some(format!("panic: {}", text.unwrap_or_default()));
        Outcome { broken, steps: 0, requests: 0, fired: Fired::default(), log: Default::default() }
    })
}

fn one(seed: u64, steps: u64, mutant: Option<(&'static str, Mutant)>, kind: World) -> Result<(), String> {
    let outcome = world(kind, seed, steps, mutant.map(|(_, mutant)| mutant), true);
    match outcome.broken {
        None => {
            println!("seed {seed}: {} steps, {} requests, sound", outcome.steps, outcome.requests);
            outcome
                .fired
                .iter()
                .filter(|(_, count)| *count > 0)
                .for_each(|(name, count)| println!("{count:>6}  {name}"));
            Ok(())
        }
        Some(broken) => {
            outcome.log.iter().for_each(|line| println!("{line}"));
            Err(format!("seed {seed} after {} steps: {broken}", outcome.steps))
        }
    }
}

/// The first seed of some that breaks, with what broke.
struct Found {
    seed: u64,
    broken: String,
}

struct Set {
    from: u64,
    count: u64,
    steps: u64,
    mutant: Option<(&'static str, Mutant)>,
    threads: usize,
    kind: World,
}

impl Set {
    /// Runs all of it. Answer: what came up the least, and how often.
    fn run(&self) -> Result<(&'static str, u64), String> {
        let (found, worlds, steps, requests, fired) = self.search();
        println!(
            "{}: seeds {} to {}: {worlds} worlds, {steps} steps, {requests} requests",
            self.kind.word(),
            self.from,
            self.from + self.count - 1
        );
        for (name, count) in fired.of(self.kind) {
            println!("{count:>9}  {name}");
        }
        let (rarest, count) = fired.rarest_of(self.kind);
        println!("{count:>9}  is the rarest: {rarest}");
        let Some(Found { seed, broken }) = found else { return Ok((rarest, count)) };
        let planted = self.mutant.map(|(name, _)| format!(" --mutant \"{name}\"")).unwrap_or_default();
        let again = format!("cargo x sim --world {} --seed {seed} --steps {}{planted}", self.kind.word(), self.steps);
        let _ = one(seed, self.steps, self.mutant, self.kind);
        Err(format!("seed {seed}: {broken}\nsee it again with: {again}"))
    }

    /// Runs worlds until one breaks; the lowest of those that were run counts.
    fn search(&self) -> (Option<Found>, u64, u64, u64, Fired) {
        let (next, stop) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        let sum = Mutex::new((0, 0, 0, Fired::default()));
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..self.threads {
                let (next, stop, sum, tell) = (&next, &stop, &sum, tell.clone());
                scope.spawn(move || {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        if at >= self.count || at > stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let seed = self.from + at;
                        let outcome = world(self.kind, seed, self.steps, self.mutant.map(|(_, mutant)| mutant), false);
                        if let Ok(mut sum) = sum.lock() {
                            (sum.0, sum.1, sum.2) = (sum.0 + 1, sum.1 + outcome.steps, sum.2 + outcome.requests as u64);
                            sum.3.add(&outcome.fired);
                        }
                        if let Some(broken) = outcome.broken {
                            stop.fetch_min(at, Ordering::Relaxed);
                            let _ = tell.send(Found { seed, broken });
                        }
                    }
                });
            }
        });
        drop(tell);
        let found = told.into_iter().min_by_key(|found| found.seed);
        let (worlds, steps, requests, fired) = sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        (found, worlds, steps, requests, fired)
    }
}

/// Every mistake must be found; those of one kind of world, if only they are wanted.
fn all_mutants(steps: u64, threads: usize, only: Option<World>) -> Result<(), String> {
    let mut missed = Vec::new();
    for mutant in mutants::ALL.iter().filter(|(_, mutant)| only.is_none_or(|only| mutant.world() == only)) {
        let kind = mutant.1.world();
        let steps = if kind == World::Limits { steps.min(LIMIT_MUTANT_STEPS) } else { steps };
        let set = Set { from: 1, count: MUTANT_SEEDS, steps, mutant: Some(*mutant), threads, kind };
        let (found, worlds, ..) = set.search();
        match found {
            Some(Found { seed, broken }) => println!("{:<42} seed {seed:>3}: {broken}", mutant.0),
            None => {
                println!("{:<42} not found in {worlds} worlds", mutant.0);
                missed.push(mutant.0);
            }
        }
    }
    if missed.is_empty() {
        Ok(())
    } else {
        Err(format!("not found within {MUTANT_SEEDS} seeds: {}", missed.join(", ")))
    }
}
