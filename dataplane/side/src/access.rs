//! The request log: cores' records, with names in place of rows and slots, into the log.
//!
//! One task, started by `run`. What finds the log full is counted there; what finds a ring full was counted by its
//! core.

use std::sync::Arc;
use std::time::Duration;

use llmgw_obs::access::AccessLine;
use llmgw_obs::log::{Format, Sink};
use llmgw_router::access::{AccessRecord, AccessRing};
use llmgw_types::BoardSlot;
use tokio::sync::watch;

use crate::table::View;

/// How often rings are emptied.
const EVERY: Duration = Duration::from_millis(50);

/// Takes records and writes lines.
pub(crate) struct Drain {
    pub rings: Vec<Arc<AccessRing>>,
    pub view: watch::Receiver<Arc<View>>,
    pub sink: Sink,
    pub format: Format,
}

impl Drain {
    /// Empties the rings until the runtime ends.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.empty();
        }
    }

    /// Writes what lies in the rings; what comes meanwhile may wait for the next time.
    pub(crate) fn empty(&self) {
        let view = self.view.borrow().clone();
        for ring in &self.rings {
            for _ in 0..ring.len() {
                let Some(record) = ring.pop() else { break };
                self.sink.put(line(&record, &view, self.format));
            }
        }
    }
}

fn line(record: &AccessRecord, view: &View, format: Format) -> Vec<u8> {
    let id = record.id.text();
    let names = view.row(record.metric_row);
    let mut out = Vec::with_capacity(512);
    AccessLine {
        at_unix_ms: record.at_unix_ms,
        request_id: id.as_str(),
        method: record.method,
        route: record.route,
        status: record.status,
        reason: record.reason,
        model: names.map(|[model, _]| model),
        pool: names.map(|[_, pool]| pool),
        replica: record.slot.and_then(|slot| view.replica(BoardSlot(slot))),
        node: None,
        key_id: record.caller.as_ref().map(|(key, _)| key.as_str()),
        project_id: record.caller.as_ref().map(|(_, project)| project.as_str()),
        is_streamed: record.is_streamed,
        attempt_count: record.attempt_count,
        body_us: record.body_us,
        route_us: record.route_us,
        queue_us: record.queue_us,
        connect_us: record.connect_us,
        first_byte_us: record.first_byte_us,
        first_token_us: record.first_token_us,
        duration_us: record.duration_us,
        overhead_us: record.overhead_us,
        prompt_tokens: record.prompt_tokens,
        cached_tokens: record.cached_tokens,
        completion_tokens: record.completion_tokens,
        audio_ms: record.audio_ms,
        sent_bytes: record.sent_bytes,
    }
    .write(format, &mut out);
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use llmgw_router::board::Board;
    use llmgw_types::{CoreId, RequestId, ShortId};

    use super::*;
    use crate::table::{Addrs, Book, table};

    pub(crate) fn record(metric_row: u32, slot: Option<u32>) -> AccessRecord {
        AccessRecord {
            id: RequestId::new(1_000, CoreId(0), 7),
            at_unix_ms: 1_500,
            caller: ShortId::of("key-1").zip(ShortId::of("proj-1")),
            method: "POST",
            route: "/v1/chat/completions",
            status: 502,
            reason: Some("broken_stream"),
            metric_row,
            slot,
            is_streamed: true,
            attempt_count: 2,
            body_us: Some(90),
            route_us: None,
            queue_us: None,
            connect_us: None,
            first_byte_us: None,
            first_token_us: Some(1_500),
            duration_us: 500_000,
            overhead_us: Some(80),
            prompt_tokens: Some(9),
            cached_tokens: None,
            completion_tokens: Some(4),
            audio_ms: None,
            sent_bytes: 123,
        }
    }

    fn view() -> View {
        let text =
            "endpoints: [{ name: gpu-1, url: 'http://127.0.0.1:1', model: org/m, fabric: ib0, gpu_class: h100 }]";
        let config = llmgw_config::from_text("server.yaml", text, []).expect("a configuration");
        let board = Board::new(1, 4);
        let mut book = Book::new(&board, 0);
        let table = table(&config, &Addrs::default(), &mut book, &board).expect("room");
        View::of(&table, &book)
    }

    fn written(record: &AccessRecord) -> serde_json::Value {
        serde_json::from_slice(&line(record, &view(), Format::Json)).expect("one object")
    }

    #[test]
    fn rows_and_slots_become_names() {
        let line = written(&record(1, Some(0)));
        assert_eq!(
            (&line["model"], &line["pool"], &line["replica"]),
            (&"org/m".into(), &"ib0/h100".into(), &"gpu-1".into())
        );
        assert_eq!(line["request_id"], record(1, None).id.to_string());
        assert_eq!((&line["key_id"], &line["project_id"]), (&"key-1".into(), &"proj-1".into()));
        assert_eq!((&line["status"], &line["reason"]), (&502.into(), &"broken_stream".into()));
        assert_eq!((&line["attempt_count"], &line["first_token_ms"]), (&2.into(), &1.5.into()));
    }

    #[test]
    fn a_request_that_found_no_model_and_no_endpoint_names_none() {
        let line = written(&record(0, None));
        for absent in ["model", "pool", "replica", "node", "cached_tokens"] {
            assert!(line.get(absent).is_none(), "{absent} in {line}");
        }
    }
}
