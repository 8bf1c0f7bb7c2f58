//! The `replay` and `sessions` commands.

use std::time::Duration;

use llmgw_load::client::Pool;
use llmgw_load::replay::{self, Replay};
use llmgw_load::sessions::{self, Sessions};
use llmgw_load::trace;

use super::{Common, Ended, Place, Run, show};
use crate::args::Args;

pub(super) async fn replay(args: &Args, common: &Common, place: &Place) -> Run {
    let target = place.via()?;
    let path = args.needed("--trace")?;
    let count_max = args.number("--calls", usize::MAX)?;
    let text = std::fs::read_to_string(&path).map_err(|error| Ended::Failed(format!("{path}: {error}")))?;
    let mut entries = trace::parse(&text).map_err(|what| Ended::Failed(format!("{path}, {what}")))?;
    entries.truncate(count_max);
    let plan = Replay {
        target: target.clone(),
        model: common.model.clone(),
        entries,
        speed: args.number("--speed", 1.0)?,
        bytes_per_token: args.number("--bytes-per-token", 4.0)?,
        output_tokens_max: args.number("--output-max", u64::MAX)?,
        pid: place.pid,
    };
    args.finish()?;
    let pool = Pool::new(target, common.within);
    let report = replay::run(plan, &pool, common.progress).await;
    show(common, &report.map_err(|error| Ended::Failed(error.to_string()))?)
}

pub(super) async fn sessions(args: &Args, common: &Common, place: &Place) -> Run {
    let target = place.via()?;
    let plan = Sessions {
        target: target.clone(),
        model: common.model.clone(),
        session_count: args.number("--sessions", 32)?,
        turn_count: args.number("--turns", 5)?,
        system_bytes: args.number("--system-bytes", 4000)?,
        turn_bytes: args.number("--turn-bytes", 500)?,
        max_tokens: args.number("--max-tokens", 32)?,
        think: args.time("--think", Duration::from_millis(200))?,
        pid: place.pid,
    };
    args.finish()?;
    let pool = Pool::new(target, common.within);
    show(common, &sessions::run(plan, &pool, common.progress).await)
}
