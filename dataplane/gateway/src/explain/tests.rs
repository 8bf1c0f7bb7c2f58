//! What the header says is enough to take the decision again.

use std::sync::Arc;

use llmgw_kit::chance::Chance;
use llmgw_kit::clock::Mono;
use llmgw_router::endpoint::Sample;
use llmgw_router::scheduler::profile::RoutingProfile;
use llmgw_router::scheduler::run::Scheduler;
use llmgw_router::scheduler::{Candidate, Draw, registry};
use llmgw_router::session::Ring;
use llmgw_router::{Board, Dispatcher, Map, Wanted};
use llmgw_types::admission::{Admission, QueueOrder, Thresholds};
use llmgw_types::snapshot::{Endpoint, Member, ModelRoute, Placement, ProfileSpec, SessionSpec, Units};
use llmgw_types::{BoardSlot, CoreId, EndpointIdx, EngineKind, Pool, RouteTable, Snapshot};
use serde_json::Value;

use super::*;

const PICKERS: [(&str, f32); 5] =
    [("p2c", 0.0), ("max-score", 0.0), ("softmax", 0.3), ("softmax", 0.0), ("round-robin", 0.0)];

/// One model, one pool of `count` endpoints of unlike weights, a profile for each of [`PICKERS`].
fn table(count: u32, name: impl Fn(u32) -> String) -> RouteTable {
    let endpoint = |slot| Endpoint {
        name: name(slot),
        slot,
        addr: Some(([127, 0, 0, 1], 9000).into()),
        host: String::new(),
        authorization: None,
        engine: EngineKind::Sim,
        weight: 60 + slot % 3 * 20,
        idle_limit_ms: 4000,
        queue_order: QueueOrder::default(),
    };
    let profile = |(picker, temperature): (&str, f32)| ProfileSpec {
        name: picker.into(),
        scorers: vec![("queue".into(), 2.0), ("kv".into(), 1.0), ("load".into(), 0.5)],
        picker: picker.into(),
        temperature,
    };
    let session = Some(SessionSpec { header: "x-session-id".into(), load_factor: 1.25 });
    RouteTable {
        generation: 1,
        stale_after_ms: 6000,
        endpoints: (0..count).map(endpoint).collect(),
        pools: vec![Pool {
            model: 0,
            label: "none/l4".into(),
            priority: 100,
            metric_row: 1,
            slot: 0,
            gate: 1,
            thresholds: Thresholds::default(),
            prefix: None,
            members: (0..count).map(|endpoint| Member { endpoint, served_as: "m".into() }).collect(),
        }],
        models: vec![ModelRoute {
            name: "m".into(),
            created: 0,
            pools: vec![0],
            profile: 0,
            placement: Placement { session },
            admission: Admission::default(),
            fallbacks: Vec::new(),
            budget_fallback: None,
            units: Units::default(),
        }],
        profiles: PICKERS.map(profile).to_vec(),
        ..RouteTable::default()
    }
}

/// The replica that the pick comes to, from the header alone.
fn pick_again(decision: &Value) -> String {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let number = |value: &Value| value.as_f64().expect("a number") as f32;
    if !decision["session"].is_null() {
        return text(&decision["session"]);
    }
    let rows = decision["candidates"].as_array().expect("candidates");
    let kept = |row: &&Value| row.get("dropped_by").is_none();
    let mut candidates: Vec<Candidate> = (0u32..)
        .zip(rows.iter().filter(kept))
        .map(|(at, row)| Candidate {
            endpoint: EndpointIdx(at),
            member: at,
            slot: BoardSlot(at),
            weight: number(&row["weight"]),
            has_addr: true,
        })
        .collect();
    let rows: Vec<&Value> = rows.iter().filter(kept).collect();
    let mut chance = Chance::seeded(u64::from_str_radix(&text(&decision["seed"]), 16).expect("hex"));
    let mut turn = u32::try_from(decision["turn"].as_u64().expect("a number")).expect("32 bits");
    let mut draw = Draw { chance: &mut chance, turn: &mut turn, temperature: number(&decision["temperature"]) };
    let picker = registry::picker(&text(&decision["picker"])).expect("a picker");
    picker.shortlist(&mut candidates, &mut draw);
    let weights: Vec<f32> = decision["weights"].as_array().expect("weights").iter().map(number).collect();
    let total = |candidate: &Candidate| {
        let scores = rows[candidate.member as usize]["scores"].as_array().expect("whoever is on the list has scores");
        weights.iter().zip(scores).map(|(weight, score)| weight * number(score)).fold(0.0, |sum, part| sum + part)
    };
    let totals: Vec<f32> = candidates.iter().map(total).collect();
    let chosen = picker.choose(&candidates, &totals, &mut draw);
    text(&rows[candidates[chosen].member as usize]["replica"])
}

#[test]
fn the_pick_can_be_made_again_from_what_the_header_says() {
    let snapshot = Snapshot::of(&table(9, |slot| format!("engine-{slot}"))).expect("a table");
    let board = Arc::new(Board::new(1, 9));
    let now = Mono(1_000_000_000_000);
    let mut chance = Chance::seeded(11);
    for slot in (0..9).map(BoardSlot) {
        let cells = board.endpoint(slot);
        cells.set_ready(slot.0 != 4);
        cells.set_draining(slot.0 == 6);
        cells.set_ready_since(Mono(now.0 - 10_000_000_000));
        if slot.0 != 2 {
            cells.set_sample(&Sample {
                running: chance.below(9),
                waiting: chance.below(5),
                kv_usage_ratio: Some(chance.unit() as f32),
                drain_rate: Some(1.5),
                at: now,
            });
        }
    }
    let profiles: Vec<_> = snapshot.table().profiles.iter().map(RoutingProfile::of).collect();
    let rings = Ring::all(snapshot.table());
    let mut dispatcher = Dispatcher::new(board, CoreId(0), Scheduler::new(Chance::seeded(3)));
    let mut running = Vec::new();
    for at in 0..500u32 {
        let map = Map { table: snapshot.table(), rings: &rings, profiles: &profiles };
        let session = (at % 10 == 9).then_some(u64::from(at) << 40);
        let profile = Some(at % PICKERS.len() as u32);
        let wanted = Wanted { profile, session, tokens: chance.below(4000), now, ..Wanted::default() };
        let mut explanation = Explanation { attempt: 1, ..Explanation::default() };
        let first = dispatcher.dispatch(map, &wanted, Some(&mut explanation)).expect("a place");
        // The first place does not do: the request is tried again, never there.
        let excluded = [first.slot];
        explanation.attempt = 2;
        let again = Wanted { excluded: &excluded, ..wanted };
        let grant = dispatcher.dispatch(map, &again, Some(&mut explanation)).expect("a place");
        let text = text(&explanation, snapshot.table());
        assert!(text.len() <= BYTES_MAX && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{text}");
        let said: Value = serde_json::from_str(&text).expect("JSON");
        for (attempt, slot) in [(1, first.slot), (2, grant.slot)] {
            let decision = &said["decisions"][attempt - 1];
            let replica = format!("engine-{}", slot.0);
            assert_eq!((&decision["attempt"], &decision["model"]), (&attempt.into(), &"m".into()));
            assert_eq!(decision["chosen"], replica.as_str());
            assert_eq!(pick_again(decision), replica, "{text}");
            assert_eq!(decision["candidates"][4]["dropped_by"], "ready");
            assert_eq!(decision["candidates"][6]["dropped_by"], "draining");
        }
        assert_eq!(said["decisions"][1]["candidates"][first.slot.idx()]["dropped_by"], "excluded");
        assert_eq!(said["omitted"], 0);
        running.push(grant);
        if running.len() > 30 {
            running.swap_remove(chance.below(31) as usize);
        }
    }
}

#[test]
fn a_large_pool_is_shown_as_far_as_there_is_room() {
    let snapshot = Snapshot::of(&table(600, |slot| format!("{slot:0>200}"))).expect("a table");
    let board = Arc::new(Board::new(1, 600));
    (0..600).for_each(|slot| board.set_ready(BoardSlot(slot), true));
    let profiles: Vec<_> = snapshot.table().profiles.iter().map(RoutingProfile::of).collect();
    let mut dispatcher = Dispatcher::new(board, CoreId(0), Scheduler::new(Chance::seeded(3)));
    let mut explanation = Explanation::default();
    for _ in 0..40 {
        let map = Map { table: snapshot.table(), rings: &[], profiles: &profiles };
        let wanted = Wanted { profile: Some(1), ..Wanted::default() };
        dispatcher.dispatch(map, &wanted, Some(&mut explanation)).expect("a place");
    }
    let text = text(&explanation, snapshot.table());
    assert!(text.len() <= BYTES_MAX, "{}", text.len());
    let said: Value = serde_json::from_str(&text).expect("JSON");
    let first = &said["decisions"][0];
    let shown = first["candidates"].as_array().expect("candidates").len() as u64;
    assert!(shown > 3 && shown + first["omitted"].as_u64().expect("a number") == 600);
    let told = said["decisions"].as_array().expect("decisions").len() as u64;
    assert!(told >= 3, "a large pool leaves room for what was decided after it");
    assert_eq!(told + said["omitted"].as_u64().expect("a number"), 40);
}
