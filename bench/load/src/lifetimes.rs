//! The commands that end or change the gateway they measure, and so start one of their own: `drain` and `reloads`.

use std::time::Duration;

use llmgw_load::drain::{self, Drain};
use llmgw_load::fleet::EngineProcess;
use llmgw_load::prompt::{Chat, Delivery};
use llmgw_load::reloads::{self, Reloads};
use llmgw_load::scenario::Fleet;
use llmgw_load::streams::{self, Streams};
use serde_json::json;

use crate::args::Args;
use crate::commands::{self, Common, Ended, Run};

/// Between two events of a long stream.
const EVENT_EVERY: Duration = Duration::from_millis(100);

pub(crate) async fn drain(args: &Args, common: &Common) -> Run {
    let settle = args.time("--settle", Duration::from_secs(5))?;
    let timeouts = format!("router: {{ timeouts: {{ settle: {}ms, drain: 60s }} }}\n", settle.as_millis());
    let mut fleet = commands::fleet(args, common, 3, timeouts).await?;
    let (via, before) = (fleet.via()?, args.time("--before", Duration::from_secs(3))?);
    let stream_count = args.number("--streams", 50)?;
    let plan = Drain {
        requests: commands::requests(args, common, &via)?,
        calls_per_second: args.number("--rate", 2000.0)?,
        fresh_every: args.number("--fresh-every", 10)?,
        before,
        notices_after: args.time("--notices-after", Duration::from_secs(3))?,
        settle,
        within: common.within,
        admin: fleet.admin()?,
        // Two seconds longer than the listener lives.
        streams: long_streams(&fleet, common, stream_count, before + settle + Duration::from_secs(2)).await?,
        via,
    };
    args.finish()?;
    let report = drain::run(plan, &mut fleet.gateway.process, common.progress).await;
    commands::show(common, &report.map_err(Ended::Failed)?)
}

pub(crate) async fn reloads(args: &Args, common: &Common) -> Run {
    let mut fleet = commands::fleet(args, common, 6, String::new()).await?;
    let via = fleet.via()?;
    let stream_count = args.number("--streams", 100)?;
    let plan = Reloads {
        requests: commands::requests(args, common, &via)?,
        admin: fleet.admin()?,
        model: common.model.clone(),
        engine_urls: fleet.engines.iter().map(EngineProcess::url).collect(),
        connection_count: args.number("--connections", 32)?,
        measured_for: args.time("--measured-for", Duration::from_secs(5))?,
        share: args.number("--share", 0.5)?,
        reload_count: args.number("--reloads", 50)?,
        streams: long_streams(&fleet, common, stream_count, Duration::from_secs(8)).await?,
        within: common.within,
        pid: fleet.pid(),
        via,
    };
    args.finish()?;
    let report = reloads::run(plan, &mut fleet.gateway, common.progress).await;
    commands::show(common, &report.map_err(Ended::Failed)?)
}

/// Streams of such a length, each to be compared with one that an engine gives directly.
async fn long_streams(fleet: &Fleet, common: &Common, count: usize, length: Duration) -> Result<Streams, Ended> {
    let event_count = (length.as_secs_f64() / EVENT_EVERY.as_secs_f64()).ceil() as u64;
    let target = fleet.via()?;
    let chat = Chat {
        model: common.model.clone(),
        delivery: Delivery::StreamedWithUsage,
        instruction: Some(json!({ "events": event_count, "delay_us": EVENT_EVERY.as_micros() as u64 })),
        ..Chat::default()
    };
    let direct = fleet.direct()?;
    let direct = direct.first().ok_or_else(|| Ended::Usage("--engines must be 1 or more".to_owned()))?;
    common.progress.say("reading one stream directly from an engine, to compare the others with");
    let reference = streams::reference(direct, &chat.bytes(direct), length * 3).await.map_err(Ended::Failed)?;
    Ok(Streams {
        request: chat.bytes(&target),
        stream_count: count,
        ramp: Duration::from_secs(1),
        within: length * 3,
        reference: Some(reference),
        event_count_min: event_count,
        together_min: Duration::ZERO,
        pid: None,
        admin: None,
        gauge_within: Duration::ZERO,
        target,
    })
}
