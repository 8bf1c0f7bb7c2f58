//! What configurations become: pools, names, slots, rows.

use llmgw_types::{CoreId, Snapshot};

use super::*;

const TWO_MODELS: &str = "
endpoints:
  - { name: a, url: 'http://10.0.0.1:8000', model: big, served_as: org/big, fabric: ib0, gpu_class: h100, priority: 50 }
  - { name: b, url: 'http://[::1]:8000', models: [{ name: big }, { name: small, served_as: s }], gpu_class: l4 }
  - { name: c, url: 'http://c.local:8000', model: big, fabric: ib0, gpu_class: h100, priority: 200, engine: llamacpp,
      weight: 7 }
  - { name: d, url: 'http://10.0.0.4', model: big, fabric: ib1, gpu_class: h100, priority: -5, api_key_env: KEY }
models:
  - { name: small, aliases: [zz, default] }
";

fn config(text: &str) -> ServerConfig {
    llmgw_config::from_text("server.yaml", text, [("KEY".to_owned(), "k1".to_owned())])
        .unwrap_or_else(|e| panic!("{e}"))
}

struct World {
    board: Board,
    book: Book,
}

impl World {
    fn new(slots: usize) -> Self {
        let board = Board::new(1, slots);
        let book = Book::new(&board, 1_700_000_000);
        Self { board, book }
    }

    fn table(&mut self, text: &str) -> RouteTable {
        table(&config(text), &Addrs::default(), &mut self.book, &self.board).expect("room")
    }
}

/// Model, pool, priority and `endpoint as served` of every pool, in the order in which models would try them.
fn pools(table: &RouteTable) -> Vec<String> {
    let members = |pool: &Pool| {
        let name =
            |member: &Member| format!("{} as {}", table.endpoints[member.endpoint as usize].name, member.served_as);
        pool.members.iter().map(name).collect::<Vec<_>>().join(", ")
    };
    let describe = |model: &ModelRoute, pool: &Pool| {
        format!("{} on {} ({}): {}", model.name, pool.label, pool.priority, members(pool))
    };
    table
        .models
        .iter()
        .flat_map(|model| model.pools.iter().map(move |pool| describe(model, &table.pools[*pool as usize])))
        .collect()
}

#[test]
fn endpoints_form_pools_by_model_fabric_and_class_and_the_highest_priority_comes_first() {
    let table = World::new(8).table(TWO_MODELS);
    assert_eq!(
        pools(&table),
        [
            "small on none/l4 (100): b as s",
            "big on ib0/h100 (200): a as org/big, c as big",
            "big on none/l4 (100): b as big",
            "big on ib1/h100 (0): d as big",
        ]
    );
    assert!(Snapshot::of(&table).is_ok());
}

#[test]
fn names_and_aliases_are_sorted_and_mean_their_model() {
    let table = World::new(8).table(TWO_MODELS);
    let names: Vec<_> =
        table.names.iter().map(|row| (row.name.as_str(), table.models[row.model as usize].name.as_str())).collect();
    assert_eq!(names, [("big", "big"), ("default", "small"), ("small", "small"), ("zz", "small")]);
    assert!(table.models.iter().all(|model| model.created == 1_700_000_000));
}

#[test]
fn an_endpoints_row_says_how_it_is_reached() {
    let mut world = World::new(8);
    let config = config(TWO_MODELS);
    let addrs = Addrs(HashMap::from([("c.local".to_owned(), Some([10, 0, 0, 9].into()))]));
    let table = table(&config, &addrs, &mut world.book, &world.board).expect("room");
    let addr = |at: usize| table.endpoints[at].addr.as_ref().map(|addr| addr.to_string());
    assert_eq!(addr(0).as_deref(), Some("10.0.0.1:8000"));
    assert_eq!(addr(1).as_deref(), Some("[::1]:8000"));
    assert_eq!(addr(2).as_deref(), Some("10.0.0.9:8000"));
    assert_eq!(table.endpoints[3].authorization.as_deref(), Some("Bearer k1"));
    assert_eq!(table.endpoints[3].host, "10.0.0.4");
    assert_eq!((table.endpoints[2].weight, table.endpoints[0].authorization.as_ref()), (7, None));
    assert_eq!(table.endpoints[0].idle_limit_ms, 4000);
    assert_eq!(World::new(8).table(TWO_MODELS).endpoints[2].addr, None, "not looked up yet");
}

#[test]
fn an_endpoint_keeps_its_slot_when_another_goes_and_a_third_comes() {
    let text = |names: &[&str]| {
        let line = |name: &&str| format!("  - {{ name: {name}, url: 'http://{name}.local:1', model: m }}\n");
        format!("endpoints:\n{}", names.iter().map(line).collect::<String>())
    };
    let mut world = World::new(4);
    let slots = |table: &RouteTable| -> HashMap<String, u32> {
        table.endpoints.iter().map(|endpoint| (endpoint.name.clone(), endpoint.slot)).collect()
    };
    let first = world.table(&text(&["a", "b", "c"]));
    let second = world.table(&text(&["c", "a", "d"]));
    let (was, is) = (slots(&first), slots(&second));
    assert_eq!((was["a"], was["c"]), (is["a"], is["c"]));
    assert_ne!(is["d"], was["b"], "the core may still count on b");
    assert_eq!((first.generation, second.generation), (1, 2));

    // The core has moved on: b's slot is free for the next.
    world.board.set_generation(CoreId(0), 2);
    let third = world.table(&text(&["c", "a", "d", "e"]));
    assert_eq!(slots(&third)["e"], was["b"]);

    let config = config(&text(&["c", "a", "d", "e", "f"]));
    let error = table(&config, &Addrs::default(), &mut world.book, &world.board).expect_err("four slots");
    assert_eq!(error, BoardFull::Endpoints { endpoint: "f".into(), slots: 4 });
    assert_eq!(world.book.slot("d"), Some(BoardSlot(is["d"])), "nobody's slot has changed");
    assert_eq!(world.table(&text(&["a"])).generation, 4, "a table that was not made does not count");
}

#[test]
fn a_name_with_another_url_is_another_endpoint_and_its_old_self_gets_nothing_more() {
    let mut world = World::new(4);
    let text = |port: u16| format!("endpoints: [{{ name: a, url: 'http://10.0.0.1:{port}', model: m }}]");
    let slot = |table: &RouteTable| BoardSlot(table.endpoints[0].slot);
    let (first, same) = (world.table(&text(1)), world.table(&text(1)));
    assert_eq!(slot(&first), slot(&same));
    let moved = world.table(&text(2));
    assert_ne!(slot(&moved), slot(&first));
    assert!(world.board.endpoint(slot(&first)).is_draining() && !world.board.endpoint(slot(&moved)).is_draining());
}

#[test]
fn slots_come_back_however_often_endpoints_come_and_go() {
    let mut world = World::new(3);
    let text = |name: &str| format!("endpoints: [{{ name: {name}, url: 'http://10.0.0.1:1', model: m }}]");
    for round in 0..100 {
        let generation = world.table(&text(["a", "b"][round % 2])).generation;
        // The core takes the table a little later.
        world.board.set_generation(CoreId(0), generation);
    }
}

#[test]
fn models_of_the_same_engines_share_a_gate_and_keep_its_slot_others_have_their_own() {
    let text = |more: &str| {
        format!(
            "endpoints:\n  \
             - {{ name: a, url: 'http://10.0.0.1:1', models: [{{ name: base }}, {{ name: adapter }}] }}\n  \
             - {{ name: b, url: 'http://10.0.0.2:1', models: [{{ name: base }}, {{ name: adapter }}] }}\n  \
             - {{ name: c, url: 'http://10.0.0.3:1', models: [{{ name: other }}{more}], gpu_class: h100 }}\n"
        )
    };
    let mut world = World::new(8);
    let gates = |table: &RouteTable| -> HashMap<String, (u32, u64)> {
        let name = |pool: &Pool| format!("{} {}", table.models[pool.model as usize].name, pool.label);
        table.pools.iter().map(|pool| (name(pool), (pool.slot, pool.gate))).collect()
    };
    let first = gates(&world.table(&text("")));
    assert_eq!(first["base none/unknown"], first["adapter none/unknown"]);
    assert_ne!(first["base none/unknown"].0, first["other none/h100"].0);
    assert_ne!(first["base none/unknown"].1, first["other none/h100"].1);

    // A model that waits for pools of two gates makes them one: its ticket has one owner. A pool whose owner changes
    // begins anew.
    let second = gates(&world.table(&text(", { name: adapter }")));
    assert_eq!(second["base none/unknown"], first["base none/unknown"]);
    assert_eq!(second["adapter none/unknown"].0, first["base none/unknown"].0);
    assert_eq!(second["adapter none/h100"], second["other none/h100"]);
    assert_ne!(second["other none/h100"].0, first["other none/h100"].0);
    let gates: HashSet<u64> = second.values().map(|(_, gate)| *gate).collect();
    assert_eq!(gates.len(), 1, "{second:?}");
}

#[test]
fn profiles_keep_what_this_version_can_do() {
    let text = format!(
        "{TWO_MODELS}\nrouter: {{ profiles: {{ mine: \
         {{ scorers: {{ inflight: 2 }}, picker: {{ type: max-score }} }} }} }}"
    );
    let table = World::new(8).table(&text);
    let profile = |name: &str| table.profiles.iter().find(|profile| profile.name == name).expect(name);
    assert_eq!(profile("mine").scorers, [("inflight".to_owned(), 2.0)]);
    assert_eq!(profile("mine").picker, "max-score");
    assert_eq!(
        (&profile("chat").scorers[..], profile("chat").picker.as_str()),
        (&[("cost".to_owned(), 4.0)][..], "p2c")
    );
    assert!(profile("batch").scorers.contains(&("prefix".to_owned(), 0.5)));
    assert!(table.profiles.iter().all(|profile| registry::picker(&profile.picker).is_some()));
    let used = &table.profiles[table.models[0].profile as usize];
    assert_eq!(used.name, config(TWO_MODELS).router.default_profile);
}

#[test]
fn prompts_are_followed_by_the_values_of_the_router_the_model_and_its_profile() {
    let text = format!(
        "{TWO_MODELS}  - name: big
    prefix: {{ approx_tree: {{ cache_threshold: 0.5, balance_abs_threshold: 4 }} }}
    profiles:
      - {{ name: p, gpu_class: l4, prefix: {{ approx_tree: {{ enabled: false }} }} }}
      - {{ name: q, gpu_class: h100, prefix: {{ approx_tree: {{ balance_abs_threshold: 9 }} }} }}
router: {{ prefix: {{ approx_tree: {{ cache_threshold: 0.25, balance_rel_threshold: 2 }} }} }}"
    );
    let table = World::new(8).table(&text);
    let of = |model: &str, label: &str| {
        let pool = |pool: &&Pool| pool.label == label && table.models[pool.model as usize].name == model;
        let spec = table.pools.iter().find(pool).expect(label).prefix;
        spec.map(|spec| (spec.cache_threshold, spec.balance_abs, spec.balance_rel))
    };
    assert_eq!(of("small", "none/l4"), Some((0.25, 16.0, 2.0)));
    assert_eq!(of("big", "none/l4"), None);
    assert_eq!(of("big", "ib0/h100"), Some((0.5, 9.0, 2.0)));
    assert_eq!(of("big", "ib1/h100"), Some((0.5, 9.0, 2.0)));
}

#[test]
fn rows_stay_with_their_model_and_pool_and_only_those_in_use_are_shown() {
    let mut world = World::new(8);
    let first = world.table(TWO_MODELS);
    let view = View::of(&first, &world.book);
    let shown: Vec<_> = view.rows.iter().map(|(_, names)| names.join("@")).collect();
    assert_eq!(shown, ["other@other", "big@ib0/h100", "big@ib1/h100", "big@none/l4", "small@none/l4"]);
    let replicas: Vec<_> = view.replicas.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(replicas, ["a", "b", "c", "d"]);
    let served: Vec<_> = view.models.iter().map(|(name, slots)| (name.as_str(), slots.len())).collect();
    assert_eq!(served, [("big", 4), ("small", 1)]);

    let second = world.table("endpoints: [{ name: b, url: 'http://[::1]:8000', model: big, gpu_class: l4 }]");
    let later = View::of(&second, &world.book);
    assert_eq!(later.rows.len(), 2);
    assert_eq!(later.replicas.len(), 1);
    let (a_slot, row) = (BoardSlot(first.endpoints[0].slot), first.pools[0].metric_row);
    assert_eq!((later.replica(a_slot), later.row(row)), (Some("a"), Some(["small", "none/l4"])), "for late records");
    assert_eq!((later.row(0), later.row(99), later.replica(BoardSlot(99))), (None, None, None));
}

#[test]
fn bands_stand_by_rising_priority_and_thresholds_are_the_pools_own() {
    let text = "
endpoints:
  - { name: a, url: 'http://h:1', model: big, gpu_class: h100, engine: sglang }
  - { name: b, url: 'http://h:2', model: big, gpu_class: l4 }
  - { name: c, url: 'http://h:3', model: small }
router: { admission: { target_waiting_per_replica: 6, queue_ttl: 3s } }
models:
  - name: big
    admission:
      kv_ceiling: 0.5
      bands:
        - { name: now, priority: 9, saturation_ceiling: 1000 }
        - { name: later, priority: -1, saturation_ceiling: 0.5, capacity_share: 0.75 }
    profiles:
      - { name: on-l4, gpu_class: l4, admission: { target_waiting_per_replica: 2 } }
";
    let table = World::new(8).table(text);
    assert!(Snapshot::of(&table).is_ok());
    let thresholds = |pool: usize| table.pools[pool].thresholds.clone();
    let big = Thresholds { target_waiting: 6, kv_ceiling: 0.5, kv_by_band: false };
    assert_eq!(thresholds(0), big, "the model's over the router's");
    assert_eq!(thresholds(1), Thresholds { target_waiting: 2, ..big }, "the profile's over the model's");
    assert_eq!(thresholds(2), Thresholds { target_waiting: 6, ..Thresholds::default() });
    let bands = |model: usize| {
        let bands = table.models[model].admission.bands.iter();
        bands.map(|band| (band.name.as_str(), band.saturation_ceiling, band.capacity_share)).collect::<Vec<_>>()
    };
    assert_eq!(bands(0), [("later", 0.5, 0.75), ("now", 1000.0, 1.0)]);
    assert_eq!(bands(1), [("bronze", 0.3, 0.95), ("silver", 0.6, 1.0), ("gold", 0.85, 1.0), ("platinum", 1.0, 1.0)]);
    assert_eq!((table.models[0].admission.queue_ttl_ms, table.models[0].admission.heartbeat_ms), (3000, 0));
}
