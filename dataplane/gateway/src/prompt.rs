//! A request's prompt on its way through a core: its fingerprint before it is placed, what is learned when it was
//! answered.
//!
//! Called by `retry` right before each placement and by `finish` at the end. A fingerprint is made anew for each
//! placement, since that costs less than to keep it while a request waits. Never looks into the table: that is the
//! dispatcher's.

use std::cell::{Ref, RefCell};
use std::sync::Arc;

use llmgw_openai::usage::Usage;
use llmgw_router::prefix::capacity::Evidence;
use llmgw_router::prefix::ratio::Ratios;
use llmgw_router::prefix::{Fingerprint, Seed, StampTable};
use llmgw_router::scheduler::cached::Reuse;
use llmgw_router::{Board, Wanted};
use llmgw_types::snapshot::ArchivedRouteTable;
use llmgw_types::{BoardSlot, CoreId};

use crate::intake::Intake;

/// What a core knows of prompts. Owner: that core; the table is shared by all.
pub(crate) struct Prompts {
    core: CoreId,
    board: Arc<Board>,
    table: Arc<StampTable>,
    /// The scratch in which each prompt's fingerprint is made.
    fingerprint: RefCell<Fingerprint>,
    ratios: RefCell<Ratios>,
}

/// A prompt that was read.
pub(crate) struct Read<'p> {
    fingerprint: Ref<'p, Fingerprint>,
    /// Its tokens as estimated; none where its bytes say nothing of them.
    tokens: Option<u32>,
    pub(crate) sent: Sent,
}

/// What is kept of a prompt until its answer has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// Where its model's bytes a token are learned.
    row: u32,
    /// Its length; 0 where nothing is to be learned of it.
    bytes: u64,
}

/// Where what is of a model, and of none of its pools, is counted and learned: at its first.
pub(crate) fn model_row(table: &ArchivedRouteTable, model: u32) -> Option<u32> {
    let first = table.models.get(model as usize)?.pools.first()?.to_native();
    Some(table.pools.get(first as usize)?.metric_row.to_native())
}

impl Read<'_> {
    /// What a request wants, by its prompt.
    pub(crate) fn wanted<'w>(&'w self, wanted: Wanted<'w>) -> Wanted<'w> {
        Wanted { prompt: Some(&self.fingerprint), tokens: self.tokens.unwrap_or(wanted.tokens), ..wanted }
    }
}

impl Prompts {
    pub(crate) fn new(core: CoreId, board: Arc<Board>, table: Arc<StampTable>, seed: &Seed) -> Self {
        Self { core, board, table, fingerprint: RefCell::new(Fingerprint::new(seed)), ratios: RefCell::default() }
    }

    /// Where prompts are cached.
    pub(crate) fn table(&self) -> Arc<StampTable> {
        self.table.clone()
    }

    /// Makes the fingerprint of a request to row `model`; none where no pool of it looks for prompts, or there is none.
    ///
    /// Cost: 0.1 ns a byte, no allocation once the scratch has grown to it.
    pub(crate) fn read(&self, intake: &Intake, table: &ArchivedRouteTable, model: u32) -> Option<Read<'_>> {
        let (route, row) = (table.models.get(model as usize)?, model_row(table, model)?);
        let mut pools = route.pools.iter().filter_map(|row| table.pools.get(row.to_native() as usize));
        if !pools.any(|pool| pool.prefix.is_some()) {
            return None;
        }
        // Nobody holds the one before: it is let go of within the step that placed its request.
        if !intake.fingerprint(&mut *self.fingerprint.try_borrow_mut().ok()?, &route.name) {
            return None;
        }
        let fingerprint = self.fingerprint.borrow();
        let has_media = fingerprint.has_media();
        let tokens = (!has_media).then(|| self.ratios.borrow().tokens(row, fingerprint.bytes()));
        let bytes = if has_media { 0 } else { fingerprint.bytes() };
        Some(Read { fingerprint, tokens, sent: Sent { row, bytes } })
    }

    /// Learns from an answer's usage: how long a token is, what its engine holds and had to do, what the answer took.
    pub(crate) fn answered(&self, slot: BoardSlot, sent: Sent, reuse: Option<&Reuse>, usage: &Usage) {
        let ledger = self.table.ledger();
        // Answers take room in the cache too.
        ledger.add_sent(self.core, slot, u32::try_from(usage.completion.unwrap_or(0)).unwrap_or(u32::MAX));
        let Some(prompt_tokens) = usage.prompt else { return };
        self.ratios.borrow_mut().learn(sent.row, sent.bytes, prompt_tokens);
        if let (Some(given), Some(cached_tokens)) = (reuse.and_then(|reuse| reuse.given), usage.cached) {
            ledger.shares(self.core).set_right(slot, given, prompt_tokens.saturating_sub(cached_tokens));
        }
        let known = reuse.and_then(|reuse| Some((reuse.known?, reuse.blocks)));
        if let (Some(((known, age), blocks)), Some(cached_tokens)) = (known, usage.cached) {
            let known_tokens = prompt_tokens.saturating_mul(known.into()) / u64::from(blocks.max(1));
            let evidence = Evidence { age, known_tokens, cached_tokens };
            ledger.learn(self.core, slot, self.board.endpoint(slot).tenure(), &evidence);
        }
    }
}
