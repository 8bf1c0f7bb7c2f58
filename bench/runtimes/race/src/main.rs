//! `runtime-race PROGRAMS [--rounds N] [--json FILE] [--page FILE]`: the bare proxy on each runtime in turn, under the
//! same load, round after round.
//!
//! Started by `cargo x bench runtimes`. The proxy has the first CPU for itself; load and engine share the second. What
//! is compared is the proxy's CPU time, since rates hang on what else the machine does.

mod load;
mod mock;
mod process;
mod report;
mod wire;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use load::{LOADS, Round};
use process::{Proxy, VARIANTS, Variant};

const WARM_UP: Duration = Duration::from_millis(300);
const ROUND: Duration = Duration::from_millis(1000);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("runtime-race: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What the command line says.
struct Wish {
    programs: PathBuf,
    rounds: usize,
    json: Option<PathBuf>,
    page: Option<PathBuf>,
}

fn wish() -> io::Result<Wish> {
    let wrong =
        || io::Error::new(io::ErrorKind::InvalidInput, "say: PROGRAMS [--rounds N] [--json FILE] [--page FILE]");
    let mut words = std::env::args().skip(1);
    let mut wish = Wish { programs: words.next().ok_or_else(wrong)?.into(), rounds: 10, json: None, page: None };
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(wrong)?;
        match word.as_str() {
            "--rounds" => wish.rounds = value.parse().map_err(|_| wrong())?,
            "--json" => wish.json = Some(value.into()),
            "--page" => wish.page = Some(value.into()),
            _ => return Err(wrong()),
        }
    }
    Ok(wish)
}

fn run() -> io::Result<()> {
    let wish = wish()?;
    let cpus = bare_proxy::cpus();
    let (proxy_cpu, other_cpu) = (cpus[0], cpus[1 % cpus.len()]);
    bare_proxy::pin(other_cpu);
    let variants: Vec<Variant> = VARIANTS.into_iter().filter(|one| wish.programs.join(one.program).is_file()).collect();
    for missing in VARIANTS.iter().filter(|one| !wish.programs.join(one.program).is_file()) {
        println!("left out: {} ({} was not built)", missing.name, missing.program);
    }
    let engine = std::net::TcpListener::bind("127.0.0.1:0")?;
    engine.set_nonblocking(true)?;
    let port = engine.local_addr()?.port();
    std::thread::spawn(move || serve_engine(engine));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut rounds: Vec<Vec<Vec<Round>>> = vec![vec![Vec::new(); variants.len()]; LOADS.len()];
    for number in 0..wish.rounds {
        for (load, of_load) in LOADS.iter().zip(&mut rounds) {
            for (variant, of_variant) in variants.iter().zip(of_load) {
                let proxy = Proxy::start(&wish.programs, *variant, port, proxy_cpu)?;
                let ran = load::run(*load, &proxy, WARM_UP, ROUND);
                let round = tokio::task::LocalSet::new().block_on(&runtime, ran);
                of_variant.push(round.map_err(|error| io::Error::other(format!("{}: {error}", variant.name)))?);
            }
        }
        println!("round {} of {}", number + 1, wish.rounds);
    }
    let found = report::Found { variants: &variants, rounds: &rounds };
    print!("{}", found.table());
    wish.json.map(|path| std::fs::write(path, found.json())).transpose()?;
    wish.page.map(|path| std::fs::write(path, found.page(wish.rounds))).transpose()?;
    Ok(())
}

/// Serves the mock on this thread until the program ends; without it every round fails and says so.
fn serve_engine(listener: std::net::TcpListener) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    tokio::task::LocalSet::new().block_on(&runtime, async {
        if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
            mock::serve(listener).await;
        }
    });
}
