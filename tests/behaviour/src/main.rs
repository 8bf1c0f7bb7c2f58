//! The behaviour suite: scripted engines behind a proxy, a raw client before it, one named check a behaviour.
//!
//! Started by `cargo x test behaviour`, or by hand against any proxy by its URL. Knows of the gateway only how to start
//! it: everything else is judged from the two wires, so that other proxies can be put beside it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks on its standard streams")]

mod args;
mod check;
mod checks;
mod gateway;
mod report;
mod upstream;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use args::{Args, HELP};
use check::{Bench, Check, Fault, For, Runs};
use report::Ran;
use upstream::{Engines, guard};

/// Checks that run beside each other.
const TOGETHER: usize = 12;
/// How long a proxy may hold engines back after a check in which they failed.
const SETTLE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let args = match Args::read(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(message) => {
            eprintln!("llmgw-behaviour: {message}");
            return ExitCode::from(64);
        }
    };
    if args.is_help {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let wanted = |check: &Check| args.only.is_empty() || args.only.iter().any(|part| check.name.contains(part));
    let checks: Vec<Check> = checks::all().into_iter().filter(wanted).collect();
    if checks.is_empty() {
        eprintln!("llmgw-behaviour: no check is called that; --list names them");
        return ExitCode::from(64);
    }
    if args.is_list {
        for check in checks {
            let mark = if check.is_for == For::Extra { " (extra)" } else { "" };
            println!("{:<38}{mark}  {}", check.name, check.says);
        }
        return ExitCode::SUCCESS;
    }
    match judge(&args, &checks) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("llmgw-behaviour: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the checks and reports; whether the proxy passed.
///
/// Errors: the engines or the gateway could not be started, or no request gets through.
fn judge(args: &Args, checks: &[Check]) -> Result<bool, String> {
    // Where nothing else is said, other runs on the machine are left alone.
    let ports = match (&args.ports, args.url) {
        (Some(ports), _) => ports.clone(),
        (None, Some(_)) => vec![19001, 19002, 19003],
        (None, None) => vec![0, 0, 0],
    };
    // Many clients at once are many sockets; the system's own limit is enough for most.
    let _ = llmgw_test_kit::usage::raise_open_files();
    let engines = Engines::start(&ports)?;
    let program = args.llmgw.as_deref();
    let (mut own, keyed) = match args.url {
        Some(_) => (None, None),
        None => {
            let own = gateway::start(program, &engines, &args.limits)?;
            // Where its checks are not asked for, nobody waits for it.
            let is_wanted = checks.iter().any(|check| check.name.starts_with("keys."));
            let keyed = is_wanted.then(|| gateway::start_keyed(program, &engines, &args.limits)).transpose()?;
            (Some(own), keyed)
        }
    };
    let proxy = match (args.url, &own) {
        (Some(addr), _) => addr,
        (None, Some(gateway)) => gateway.addr(),
        (None, None) => return Err("no proxy".to_owned()),
    };
    let pid = args.pid.or_else(|| own.as_mut().map(|gateway| gateway.process().pid()));
    let bench = Bench { proxy, pid, engines, limits: args.limits.clone(), keyed };
    if !bench.settle(SETTLE) {
        return Err(format!("{proxy} does not pass requests to all of {:?}", bench.engines.addrs()));
    }
    let begin = Instant::now();
    let ran = run_all(&bench, checks, args.is_json);
    let took = begin.elapsed();
    match args.is_json {
        true => println!("{:#}", report::document(&ran, &proxy.to_string(), took)),
        false => println!("\n{}", report::summary(&ran, took)),
    }
    let passed = report::passed(&ran);
    if let Some(expected) = args.expect.filter(|expected| *expected != passed) {
        return Err(format!(
            "{} + {} checks passed; expected were {} + {}",
            passed[0], passed[1], expected[0], expected[1]
        ));
    }
    Ok(report::is_good(&ran, own.is_some()))
}

fn run_all(bench: &Bench, checks: &[Check], is_quiet: bool) -> Vec<Ran> {
    let done: Mutex<Vec<(usize, Ran)>> = Mutex::default();
    let run = |at: usize, check: &Check| {
        let ran = run_one(bench, check);
        if !is_quiet {
            println!("{}", ran.line());
        }
        guard(&done).push((at, ran));
    };
    let of = |runs: Runs| checks.iter().enumerate().filter(move |(_, check)| check.runs == runs).collect::<Vec<_>>();
    let (together, next) = (of(Runs::Together), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..TOGETHER {
            scope.spawn(|| {
                while let Some((at, check)) = together.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run(*at, check);
                }
            });
        }
    });
    for (at, check) in of(Runs::Alone) {
        run(at, check);
        if !bench.settle(SETTLE) && !is_quiet {
            println!("      after it, not every engine was used again within {SETTLE:?}");
        }
    }
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, ran)| ran).collect()
}

fn run_one(bench: &Bench, check: &Check) -> Ran {
    let begin = Instant::now();
    // A check that trips over what came has failed; the others still have their say.
    let verdict = catch_unwind(AssertUnwindSafe(|| (check.run)(bench)))
        .unwrap_or_else(|_| Err(Fault::Failed("the check itself panicked".to_owned())));
    Ran { check: *check, verdict, took: begin.elapsed() }
}
