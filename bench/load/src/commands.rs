//! From options to runs: each command reads what it knows, refuses the rest, runs, and shows its report.

mod compare;
mod quality;
mod traffic;

use std::path::PathBuf;
use std::time::Duration;

use llmgw_load::cancel::{self, Cancel};
use llmgw_load::client::Pool;
use llmgw_load::closed::{self, Closed, Ends};
use llmgw_load::mixed::{self, Mixed};
use llmgw_load::open::{self, Open};
use llmgw_load::overhead::{self, Overhead};
use llmgw_load::progress::Progress;
use llmgw_load::prompt::{self, Chat, Delivery};
use llmgw_load::report::{self, Report};
use llmgw_load::ring::{self, Kinds, Ring};
use llmgw_load::scenario::{self, Fleet, Setup};
use llmgw_load::stalled::{self, Stalled};
use llmgw_load::streams::{self, Streams};
use llmgw_load::target::Target;
use llmgw_load::uploads::{self, Uploads};
use serde_json::json;

use crate::args::Args;
use crate::lifetimes;

/// Why there is no report.
pub(crate) enum Ended {
    Usage(String),
    Failed(String),
    /// It cannot be measured on this machine or by this user.
    Unavailable(String),
}

/// A run's outcome for the person who asked.
pub(crate) struct Shown {
    pub(crate) table: String,
    pub(crate) is_good: bool,
}

pub(crate) type Run = Result<Shown, Ended>;

/// A message without more words is about the command line.
impl From<String> for Ended {
    fn from(message: String) -> Self {
        Self::Usage(message)
    }
}

/// Where a command's servers are: named by options, or started for it.
struct Place {
    via: Option<Target>,
    direct: Vec<Target>,
    admin: Option<Target>,
    pid: Option<u32>,
    /// Ends with the command.
    _fleet: Option<Fleet>,
}

/// What every command has.
pub(crate) struct Common {
    pub(crate) command: String,
    pub(crate) model: String,
    json: Option<PathBuf>,
    pub(crate) progress: Progress,
    pub(crate) within: Duration,
}

pub(crate) async fn run(args: &Args) -> Run {
    let words: Vec<&str> = args.words.iter().map(String::as_str).collect();
    let (command, is_scenario) = match words.as_slice() {
        ["scenario", command] => (*command, true),
        ["scenario"] => return Err(Ended::Usage("scenario needs a command, such as: scenario streams".to_owned())),
        [command] => (*command, false),
        _ => return Err(Ended::Usage(format!("too many words: {}", words.join(" ")))),
    };
    match (command, is_scenario) {
        ("mock", false) => return compare::mock(args),
        ("compare", false) => return compare::compare(args),
        ("quality", false) => return quality::quality(args).await,
        _ => {}
    }
    let known = [
        "closed", "open", "streams", "overhead", "cancel", "stalled", "uploads", "mixed", "ring", "replay", "sessions",
        "compare", "mock", "quality",
    ];
    let of_lifetimes = ["drain", "reloads"];
    if !known.contains(&command) && !of_lifetimes.contains(&command) {
        let all = [&known[..], &of_lifetimes].concat().join(", ");
        return Err(Ended::Usage(format!("no command {command:?}; there are {all}")));
    }
    if of_lifetimes.contains(&command) && !is_scenario {
        return Err(Ended::Usage(format!("{command} ends or changes a gateway of its own; say: scenario {command}")));
    }
    let default_within = if matches!(command, "streams" | "uploads") { 120 } else { 60 };
    let common = Common {
        command: command.to_owned(),
        model: args.text("--model")?.unwrap_or_else(|| scenario::MODEL.to_owned()),
        json: args.text("--json")?.map(PathBuf::from),
        progress: if args.is_on("--quiet") { Progress::Silent } else { Progress::Shown },
        within: args.time("--timeout", Duration::from_secs(default_within))?,
    };
    match command {
        "drain" => return lifetimes::drain(args, &common).await,
        "reloads" => return lifetimes::reloads(args, &common).await,
        _ => {}
    }
    let place = if is_scenario { started(args, &common).await? } else { named(args)? };
    match command {
        "closed" => closed(args, &common, &place).await,
        "open" => open(args, &common, &place).await,
        "streams" => streams(args, &common, &place).await,
        "overhead" => overhead(args, &common, &place).await,
        "cancel" => cancel(args, &common, &place).await,
        "stalled" => stalled(args, &common, &place).await,
        "uploads" => uploads(args, &common, &place).await,
        "replay" => traffic::replay(args, &common, &place).await,
        "sessions" => traffic::sessions(args, &common, &place).await,
        "ring" => ring(args, &common, &place).await,
        _ => mixed(args, &common, &place).await,
    }
}

fn named(args: &Args) -> Result<Place, Ended> {
    let via = match args.text("--url")? {
        Some(url) => Some(url),
        None => args.text("--via")?,
    };
    let mut direct = args.all("--engine");
    direct.extend(args.text("--direct")?);
    let direct = direct.iter().map(|url| Target::parse(url)).collect::<Result<Vec<_>, String>>()?;
    let admin = args.text("--admin")?.map(|url| Target::parse(&url)).transpose()?;
    let via = via.map(|url| Target::parse(&url)).transpose()?;
    Ok(Place { via, direct, admin, pid: args.number_or_none("--pid")?, _fleet: None })
}

async fn started(args: &Args, common: &Common) -> Result<Place, Ended> {
    let fleet = fleet(args, common, 3, String::new()).await?;
    let (via, direct, admin) = (Some(fleet.via()?), fleet.direct()?, Some(fleet.admin()?));
    Ok(Place { via, direct, admin, pid: Some(fleet.pid()), _fleet: Some(fleet) })
}

/// Engines and a gateway as the options say, ready.
pub(crate) async fn fleet(
    args: &Args,
    common: &Common,
    engine_count: usize,
    more_config: String,
) -> Result<Fleet, Ended> {
    let setup = Setup {
        llmgw: args.needed("--llmgw")?.into(),
        engine_count: args.number("--engines", engine_count)?,
        engine_flags: args.all("--engine-flag"),
        more_config,
    };
    let fleet = Fleet::start(&setup).map_err(|error| Ended::Failed(error.to_string()))?;
    scenario::wait_until_ready(&fleet).await.map_err(Ended::Failed)?;
    common.progress.say(&format!("{} engines behind {}", setup.engine_count, fleet.gateway.addr));
    Ok(fleet)
}

impl Place {
    fn via(&self) -> Result<Target, Ended> {
        self.via.clone().ok_or_else(|| Ended::Usage("--url is needed; --help shows an example".to_owned()))
    }

    fn pid(&self) -> Result<u32, Ended> {
        self.pid.ok_or_else(|| Ended::Usage("--pid is needed: the process whose memory counts".to_owned()))
    }

    fn first_engine(&self) -> Result<Target, Ended> {
        let first = self.direct.first().cloned();
        first.ok_or_else(|| Ended::Usage("--direct (or --engine) is needed: an engine's URL".to_owned()))
    }
}

/// The options of a prompt, read once.
fn chat(args: &Args, common: &Common) -> Result<Chat, Ended> {
    Ok(Chat {
        model: common.model.clone(),
        prompt_bytes: args.number("--prompt-bytes", 256)?,
        max_tokens: Some(args.number("--max-tokens", 8)?),
        delivery: if args.is_on("--stream") { Delivery::Streamed } else { Delivery::Whole },
        ..Chat::default()
    })
}

pub(crate) fn requests(args: &Args, common: &Common, target: &Target) -> Result<Vec<Vec<u8>>, Ended> {
    let chat = chat(args, common)?;
    let count: u64 = args.number("--prompts", 16)?;
    let spread = match args.text("--prompt-bytes-to")? {
        None => chat.prompt_bytes,
        Some(text) => text.parse().map_err(|error| format!("--prompt-bytes-to {text:?}: {error}"))?,
    };
    let sizes = prompt::sizes(chat.prompt_bytes, spread, count.max(1));
    let sized = sizes.into_iter().zip(0..);
    Ok(sized.map(|(prompt_bytes, seed)| Chat { seed, prompt_bytes, ..chat.clone() }.bytes(target)).collect())
}

async fn closed(args: &Args, common: &Common, place: &Place) -> Run {
    let target = place.via()?;
    let ends = match args.number_or_none("--calls")? {
        Some(calls) => Ends::AfterCalls(calls),
        None => Ends::AfterTime(args.time("--for", Duration::from_secs(10))?),
    };
    let plan = Closed {
        requests: requests(args, common, &target)?,
        connection_count: args.number("--connections", 16)?,
        ends,
        warm_up: args.time("--warm-up", Duration::from_secs(1))?,
        within: common.within,
        pid: place.pid,
        target,
    };
    args.finish()?;
    show(common, &closed::run(plan, common.progress).await)
}

async fn open(args: &Args, common: &Common, place: &Place) -> Run {
    let target = place.via()?;
    let calls_per_second: f64 = args.number("--rate", 200.0)?;
    let plan = Open {
        requests: requests(args, common, &target)?,
        calls_per_second,
        time: args.time("--for", Duration::from_secs(10))?,
        warm_up_count: (calls_per_second / 2.0).ceil() as u64,
        open_max: args.number("--max-open", 2000)?,
        pid: place.pid,
        is_over: std::rc::Rc::default(),
    };
    args.finish()?;
    let pool = Pool::new(target, common.within);
    let report = open::run(plan, &pool, common.progress).await;
    show(common, &report.map_err(|error| Ended::Failed(error.to_string()))?)
}

async fn streams(args: &Args, common: &Common, place: &Place) -> Run {
    let target = place.via()?;
    let event_count: u64 = args.number("--events", 100)?;
    let delay = args.time("--delay", Duration::from_millis(20))?;
    let mut instruction = json!({ "events": event_count, "delay_us": delay.as_micros() as u64, "stamp": true });
    if let (Some(bytes), Some(fields)) = (args.number_or_none::<u64>("--event-bytes")?, instruction.as_object_mut()) {
        fields.insert("event_bytes".to_owned(), bytes.into());
    }
    let usage = args.text("--usage")?;
    let chat = Chat {
        model: common.model.clone(),
        delivery: match usage.as_deref() {
            None | Some("asked") => Delivery::StreamedWithUsage,
            Some("absent") => Delivery::Streamed,
            Some(other) => return Err(Ended::Usage(format!("--usage {other:?} is neither asked nor absent"))),
        },
        instruction: Some(instruction),
        ..Chat::default()
    };
    let mut plan = Streams {
        request: chat.bytes(&target),
        stream_count: args.number("--streams", 100)?,
        ramp: args.time("--ramp", Duration::from_secs(1))?,
        within: common.within,
        reference: None,
        event_count_min: event_count,
        together_min: args.time("--together", Duration::ZERO)?,
        pid: place.pid,
        admin: place.admin.clone(),
        gauge_within: Duration::from_secs(10),
        target,
    };
    let direct = match args.text("--expect-from")? {
        Some(url) => Some(Target::parse(&url)?),
        // An engine that is asked for usage may word its last events otherwise than one that is not, and a gateway asks
        // on its own account: then only streams that passed it can be compared.
        None if chat.delivery == Delivery::StreamedWithUsage => place.direct.first().cloned(),
        None => None,
    };
    args.finish()?;
    if let Some(direct) = direct {
        common.progress.say("reading one stream directly from the engine, to compare the others with");
        let reference = streams::reference(&direct, &chat.bytes(&direct), common.within).await;
        plan.reference = Some(reference.map_err(Ended::Failed)?);
    }
    show(common, &streams::run(plan, common.progress).await)
}

async fn overhead(args: &Args, common: &Common, place: &Place) -> Run {
    let plan = Overhead {
        direct: place.first_engine()?,
        via: place.via()?,
        chat: chat(args, common)?,
        calls_per_second: args.number("--rate", 200.0)?,
        round_count: args.number("--rounds", 10)?,
        round_time: args.time("--round", Duration::from_secs(1))?,
        within: common.within,
        added_p99_us_max: args.time("--added-p99-max", Duration::from_millis(2))?.as_secs_f64() * 1e6,
        pid: place.pid,
    };
    args.finish()?;
    let report = overhead::run(plan, common.progress).await;
    show(common, &report.map_err(|error| Ended::Failed(error.to_string()))?)
}

async fn cancel(args: &Args, common: &Common, place: &Place) -> Run {
    place.first_engine()?;
    let plan = Cancel {
        via: place.via()?,
        engines: place.direct.clone(),
        model: common.model.clone(),
        call_count: args.number("--calls", 8)?,
        cut_after: args.time("--cut-after", Duration::from_secs(1))?,
        delay_us_max: args.time("--delay-max", Duration::from_millis(5))?.as_secs_f64() * 1e6,
        seen_within: Duration::from_secs(10),
    };
    args.finish()?;
    show(common, &cancel::run(plan, common.progress).await.map_err(Ended::Failed)?)
}

async fn stalled(args: &Args, common: &Common, place: &Place) -> Run {
    let plan = Stalled {
        via: place.via()?,
        model: common.model.clone(),
        client_count: args.number("--clients", 32)?,
        stream_mib: args.number("--stream-mib", 200)?,
        pid: place.pid()?,
        held_bytes_max: args.number("--held-max-kib", 256u64)? * 1024,
    };
    args.finish()?;
    show(common, &stalled::run(plan, common.progress).await)
}

async fn uploads(args: &Args, common: &Common, place: &Place) -> Run {
    let plan = Uploads {
        via: place.via()?,
        model: common.model.clone(),
        body_count: args.number("--bodies", 100)?,
        body_bytes: args.number("--body-mb", 30usize)? * 1_000_000,
        pid: place.pid()?,
        ratio_max: args.number("--ratio-max", 1.2)?,
        within: common.within,
    };
    args.finish()?;
    show(common, &uploads::run(plan, common.progress).await)
}

async fn mixed(args: &Args, common: &Common, place: &Place) -> Run {
    let admin = place.admin.clone();
    let plan = Mixed {
        via: place.via()?,
        admin: admin.ok_or_else(|| Ended::Usage("--admin is needed: where the metrics page is".to_owned()))?,
        model: common.model.clone(),
        call_count: args.number("--calls", 100_000)?,
        connection_count: args.number("--connections", 32)?,
        pid: place.pid()?,
        growth_bytes_max: args.number("--growth-max-kib", 8192u64)? * 1024,
        within: common.within,
    };
    args.finish()?;
    show(common, &mixed::run(plan, common.progress).await.map_err(Ended::Failed)?)
}

async fn ring(args: &Args, common: &Common, place: &Place) -> Run {
    let load = match args.text("--only")?.as_deref() {
        None => Kinds::Mixed(args.time("--seconds", Duration::from_secs(10))?),
        Some("whole") => Kinds::Whole(args.number("--calls", 2000)?),
        Some("streams") => Kinds::Streams(args.number("--calls", 100)?),
        Some(other) => return Err(Ended::Usage(format!("--only {other:?} is neither whole nor streams"))),
    };
    let plan = Ring {
        via: place.via()?,
        model: common.model.clone(),
        pid: place.pid()?,
        load,
        connection_count: args.number("--connections", 16)?,
        within: common.within,
    };
    args.finish()?;
    let report = ring::run(plan, common.progress).await.map_err(|error| match error {
        ring::Error::Unavailable(message) => Ended::Unavailable(message),
        ring::Error::Failed(message) => Ended::Failed(message),
    });
    show(common, &report?)
}

pub(crate) fn show(common: &Common, report: &impl Report) -> Run {
    if let Some(path) = &common.json {
        let text = report::json(&common.command, report).map_err(Ended::Failed)?;
        let written = std::fs::write(path, text + "\n");
        written.map_err(|error| Ended::Failed(format!("cannot write {}: {error}", path.display())))?;
    }
    Ok(Shown { table: report::table(&common.command, report), is_good: report.faults().is_empty() })
}
