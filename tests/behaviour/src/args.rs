//! The command line. Read once by `main`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const HELP: &str = "\
llmgw-behaviour: what a proxy before inference engines should do, one named check a behaviour

  llmgw-behaviour [--llmgw PATH]              starts llmgw before the suite's engines and judges it
  llmgw-behaviour --url URL [--pid PID]       judges any proxy whose upstreams are the suite's engines

  --url URL              http://HOST:PORT of the proxy under test
  --pid PID              its process, for the checks of memory and descriptors
  --engine-ports A,B,C   where the suite's engines listen (with --url: default 19001,19002,19003)
  --llmgw PATH           the gateway's program (default: beside this one)
  --limit NAME=VALUE     a limit the proxy is configured with, or `none`; may be given again. Times in seconds:
                         engine=3   silence of an engine, before and within an answer
                         head=2     a client's head        body=2   a client's body        idle=4   between requests
                         size=33554432   bytes of a body
  --expect A+B           how many must pass, of the checks for every proxy and of the extras: a check that did not run,
                         or did not apply, fails the run
  --only NAME            only the checks whose name contains this; may be given again
  --list                 the checks and what each says
  --json                 the report as one JSON document

Exits 0 when every check that applies passed (checks marked extra count with llmgw alone), 1 when not, 64 for a wrong
command line.
";

/// Limits the proxy under test is configured with; none: it has no such limit.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) engine: Option<Duration>,
    pub(crate) head: Option<Duration>,
    pub(crate) body: Option<Duration>,
    pub(crate) idle: Option<Duration>,
    pub(crate) size: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = |count| Some(Duration::from_secs(count));
        Self { engine: seconds(3), head: seconds(2), body: seconds(2), idle: seconds(4), size: Some(32 << 20) }
    }
}

/// What is to be judged.
#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) url: Option<SocketAddr>,
    pub(crate) pid: Option<u32>,
    pub(crate) ports: Option<Vec<u16>>,
    pub(crate) llmgw: Option<PathBuf>,
    pub(crate) limits: Limits,
    /// How many checks must pass: those for every proxy, and the extras.
    pub(crate) expect: Option<[usize; 2]>,
    pub(crate) only: Vec<String>,
    pub(crate) is_json: bool,
    pub(crate) is_list: bool,
    pub(crate) is_help: bool,
}

impl Args {
    /// Errors: one sentence that names the word and what would be right.
    pub(crate) fn read(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut args = Self {
            url: None,
            pid: None,
            ports: None,
            llmgw: None,
            limits: Limits::default(),
            expect: None,
            only: Vec::new(),
            is_json: false,
            is_list: false,
            is_help: false,
        };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
            match word.as_str() {
                "--url" => args.url = Some(address(&value()?)?),
                "--pid" => args.pid = Some(number(&word, &value()?)?),
                "--engine-ports" => {
                    let ports: Result<Vec<u16>, _> = value()?.split(',').map(|port| number(&word, port)).collect();
                    args.ports = Some(ports?).filter(|ports| ports.len() == 3);
                    args.ports.as_ref().ok_or("--engine-ports wants three ports, as in 19001,19002,19003")?;
                }
                "--llmgw" => args.llmgw = Some(value()?.into()),
                "--limit" => limit(&mut args.limits, &value()?)?,
                "--expect" => args.expect = Some(counts(&value()?)?),
                "--only" => args.only.push(value()?),
                "--json" => args.is_json = true,
                "--list" => args.is_list = true,
                "--help" | "-h" => args.is_help = true,
                _ => return Err(format!("{word:?} is not known; --help lists what is")),
            }
        }
        if args.url.is_none() && args.pid.is_some() {
            return Err("--pid belongs to --url: the suite knows the gateway that it starts".to_owned());
        }
        Ok(args)
    }
}

fn limit(limits: &mut Limits, text: &str) -> Result<(), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("--limit {text}: expected NAME=VALUE"))?;
    let count: Option<u64> = if value == "none" { None } else { Some(number("--limit", value)?) };
    let time = count.map(Duration::from_secs);
    match name {
        "engine" => limits.engine = time,
        "head" => limits.head = time,
        "body" => limits.body = time,
        "idle" => limits.idle = time,
        "size" => limits.size = count,
        _ => return Err(format!("--limit {name}: there are engine, head, body, idle and size")),
    }
    Ok(())
}

fn counts(text: &str) -> Result<[usize; 2], String> {
    let (plain, extra) = text.split_once('+').ok_or_else(|| format!("--expect {text}: expected A+B, as in 139+16"))?;
    Ok([number("--expect", plain)?, number("--expect", extra)?])
}

fn number<T: std::str::FromStr>(word: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{word}: {text:?} is no such number"))
}

fn address(url: &str) -> Result<SocketAddr, String> {
    let expected = || format!("--url {url}: expected http://HOST:PORT");
    let rest = url.strip_prefix("http://").ok_or_else(expected)?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    rest.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::Args;

    fn check(line: &str, error: Option<&str>) {
        match (Args::read(line.split_whitespace().map(str::to_owned)), error) {
            (Ok(_), None) => {}
            (Err(said), Some(part)) => assert!(said.contains(part), "{line}: {said}"),
            (got, _) => panic!("{line}: {got:?}"),
        }
    }

    #[test]
    fn a_slip_on_the_command_line_is_named() {
        check("--url http://127.0.0.1:80 --pid 7 --engine-ports 1,2,3 --limit size=none --only a --only b", None);
        check("--expect 139+16", None);
        check("--expect 155", Some("A+B"));
        check("--url 127.0.0.1:80", Some("http://HOST:PORT"));
        check("--engine-ports 1,2", Some("three ports"));
        check("--limit heads=1", Some("there are engine"));
        check("--limit head=soon", Some("soon"));
        check("--pid 7", Some("--url"));
        check("--only", Some("wants a value"));
        check("--colour", Some("--help"));
    }
}
