//! A request's prompt: its fingerprint before it is placed, and what is learned when it was answered. Each thread makes
//! fingerprints in a scratch of its own; the rest is behind the lock of whoever decides.

use std::cell::RefCell;

use llmgw_gateway::intake::Intake;
use llmgw_openai::usage::Usage;
use llmgw_router::prefix::capacity::Evidence;
use llmgw_router::prefix::{Fingerprint, Prefilling};
use llmgw_router::scheduler::cached::Reuse;
use llmgw_types::BoardSlot;
use llmgw_types::snapshot::ArchivedRouteTable;

use crate::state::{CORE, Deciding, Gateway};

thread_local! {
    static SCRATCH: RefCell<Option<Fingerprint>> = const { RefCell::new(None) };
}

/// What is kept of a prompt until its answer has ended.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    /// Where its model's bytes a token are learned.
    row: u32,
    /// Its length; 0 where nothing is to be learned of it.
    bytes: u64,
}

/// A prompt that was placed.
#[derive(Default)]
pub(crate) struct Placed {
    pub(crate) sent: Option<Sent>,
    pub(crate) reuse: Option<Reuse>,
    /// What its engine has to prefill of it, until it did. To be dropped by whoever holds the lock.
    pub(crate) prefilling: Option<Prefilling>,
}

impl Sent {
    /// Its tokens as estimated; none where its bytes say nothing of them.
    pub(crate) fn tokens(self, deciding: &Deciding) -> Option<u32> {
        (self.bytes > 0).then(|| deciding.ratios.tokens(self.row, self.bytes))
    }
}

/// Does something with the fingerprint of a request's prompt, as one of row `model`; with none where no pool of it
/// looks for prompts, or there is none.
pub(crate) fn with<T>(
    gateway: &Gateway,
    intake: Option<&Intake>,
    table: &ArchivedRouteTable,
    model: u32,
    act: impl FnOnce(Option<(&Fingerprint, Sent)>) -> T,
) -> T {
    let found = intake.and_then(|intake| {
        let route = table.models.get(model as usize)?;
        let mut pools = route.pools.iter().filter_map(|row| table.pools.get(row.to_native() as usize)).peekable();
        let row = pools.peek()?.metric_row.to_native();
        pools.any(|pool| pool.prefix.is_some()).then_some((intake, route.name.as_str(), row))
    });
    let Some((intake, name, row)) = found else { return act(None) };
    SCRATCH.with_borrow_mut(|scratch| {
        let fingerprint = scratch.get_or_insert_with(|| Fingerprint::new(&gateway.seed));
        if !intake.fingerprint(fingerprint, name) {
            return act(None);
        }
        let bytes = if fingerprint.has_media() { 0 } else { fingerprint.bytes() };
        act(Some((fingerprint, Sent { row, bytes })))
    })
}

/// Learns from an answer's usage.
pub(crate) fn answered(gateway: &Gateway, slot: BoardSlot, sent: Sent, reuse: Option<&Reuse>, usage: &Usage) {
    let ledger = gateway.prefixes.ledger();
    gateway.decide(|deciding| {
        ledger.add_sent(CORE, slot, u32::try_from(usage.completion.unwrap_or(0)).unwrap_or(u32::MAX));
        let Some(prompt_tokens) = usage.prompt else { return };
        deciding.ratios.learn(sent.row, sent.bytes, prompt_tokens);
        if let (Some(given), Some(cached_tokens)) = (reuse.and_then(|reuse| reuse.given), usage.cached) {
            ledger.shares(CORE).set_right(slot, given, prompt_tokens.saturating_sub(cached_tokens));
        }
        let known = reuse.and_then(|reuse| Some((reuse.known?, reuse.blocks)));
        if let (Some(((known, age), blocks)), Some(cached_tokens)) = (known, usage.cached) {
            let known_tokens = prompt_tokens.saturating_mul(known.into()) / u64::from(blocks.max(1));
            let evidence = Evidence { age, known_tokens, cached_tokens };
            ledger.learn(CORE, slot, gateway.board.endpoint(slot).tenure(), &evidence);
        }
    });
}
