//! Which pools share a gate, and the board slots of pools.
//!
//! Pools of the same engines are one pool to the gate, whatever number of models those engines serve: a model and its
//! adapters fill the same batch. A model whose pools meet those of another shares that one's owner core too, since its
//! requests may wait for all of them at once. Called by the table above; no I/O.

use std::collections::{HashMap, HashSet};

use llmgw_config::ServerConfig;
use llmgw_router::board::{Board, POOL_SLOTS_MAX, SlotBook};
use llmgw_router::session::key_hash;
use llmgw_types::PoolSlot;

use super::{BoardFull, PoolDraft};

/// Model and label: what a pool is called.
type Name = (String, String);

/// A pool as the gate sees it.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    name: Name,
    /// The name of the first pool of the file with these very engines.
    first: Name,
    /// The first model of the file of those that share an owner.
    base: String,
}

impl Gate {
    /// What the owner core is found by.
    pub(super) fn hash(&self) -> u64 {
        key_hash(self.base.as_bytes())
    }
}

/// The gates of all drafts, by model and draft.
pub(super) fn plan(config: &ServerConfig, drafts: &[Vec<PoolDraft>]) -> Vec<Vec<Gate>> {
    let mut first_of: HashMap<(String, Vec<u32>), usize> = HashMap::new();
    // Each model's group, as the row of an earlier member or its own.
    let mut leads: Vec<usize> = (0..drafts.len()).collect();
    let mut holders: Vec<Vec<(usize, String)>> = Vec::with_capacity(drafts.len());
    for (model, pools) in drafts.iter().enumerate() {
        let mut of_model = Vec::with_capacity(pools.len());
        for draft in pools {
            let label = draft.key.label();
            let mut members: Vec<u32> = draft.members.iter().map(|member| member.endpoint).collect();
            members.sort_unstable();
            let first = *first_of.entry((label.clone(), members)).or_insert(model);
            let (a, b) = (lead(&leads, first), lead(&leads, model));
            leads[a.max(b)] = a.min(b);
            of_model.push((first, label));
        }
        holders.push(of_model);
    }
    let name = |row: usize| config.models.get(row).map_or_else(String::new, |model| model.name.clone());
    let gate = |model: usize, (first, label): (usize, String)| Gate {
        base: name(lead(&leads, first)),
        name: (name(model), label.clone()),
        first: (name(first), label),
    };
    let of_model = |(model, pools): (usize, Vec<_>)| pools.into_iter().map(|pool| gate(model, pool)).collect();
    holders.into_iter().enumerate().map(of_model).collect()
}

fn lead(leads: &[usize], mut row: usize) -> usize {
    while leads[row] != row {
        row = leads[row];
    }
    row
}

/// The slots that pools hold. Owner: the publisher.
pub(super) struct GateBook {
    slots: SlotBook<PoolSlot>,
    /// With the base model of the gate: a pool that changes owner changes its slot, for a slot's queue has one keeper.
    held: HashMap<Name, (PoolSlot, String)>,
}

impl GateBook {
    pub(super) fn new() -> Self {
        Self { slots: SlotBook::new(POOL_SLOTS_MAX), held: HashMap::new() }
    }

    /// The slot of a pool of the last table.
    pub(super) fn slot(&self, gate: &Gate) -> Option<PoolSlot> {
        self.held.get(&gate.name).map(|(slot, _)| *slot)
    }

    /// Errors: more pools than slots. Changes nothing but what is free.
    pub(super) fn check_room(&mut self, gates: &[Vec<Gate>], board: &Board) -> Result<(), BoardFull> {
        let kept = self.kept(gates);
        let newcomers: HashSet<&Name> =
            gates.iter().flatten().map(|gate| &gate.first).filter(|first| !kept.contains_key(*first)).collect();
        match newcomers.iter().next() {
            Some((model, label)) if newcomers.len() > self.slots.free_count(board) => {
                Err(BoardFull::Pools { pool: format!("{model} {label}"), slots: POOL_SLOTS_MAX })
            }
            _ => Ok(()),
        }
    }

    /// Gives newcomers a slot and takes leave of those that are in the table of `generation` no more.
    pub(super) fn assign(&mut self, gates: &[Vec<Gate>], board: &Board, generation: u64) {
        let mut by_first = self.kept(gates);
        let stay: HashSet<PoolSlot> = by_first.values().copied().collect();
        let gone: HashSet<PoolSlot> =
            self.held.values().map(|(slot, _)| *slot).filter(|slot| !stay.contains(slot)).collect();
        gone.into_iter().for_each(|slot| self.slots.leave(slot, generation));
        self.held.clear();
        for gate in gates.iter().flatten() {
            let known = by_first.get(&gate.first).copied();
            if let Some(slot) = known.or_else(|| self.slots.take(board)) {
                by_first.insert(gate.first.clone(), slot);
                self.held.insert(gate.name.clone(), (slot, gate.base.clone()));
            }
        }
    }

    /// The slots that go on, by the first name of who holds them: that of any of their names, each slot once.
    fn kept(&self, gates: &[Vec<Gate>]) -> HashMap<Name, PoolSlot> {
        let (mut kept, mut taken) = (HashMap::new(), HashSet::new());
        for gate in gates.iter().flatten() {
            if let Some((slot, base)) = self.held.get(&gate.name)
                && *base == gate.base
                && !kept.contains_key(&gate.first)
                && taken.insert(*slot)
            {
                kept.insert(gate.first.clone(), *slot);
            }
        }
        kept
    }
}
