//! Generating: a plan put into the model, and its tokens written as they come or all at the end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::answer::Request;
use crate::api::Answered;
use crate::api::plan::{Form, Plan};
use crate::api::shape::{End, Extra, Kind, Shape, Usage};
use crate::batch::Job;
use crate::mix::{fold, mix};
use crate::reply::{Reply, Written};
use crate::shared::{Lease, Shared};
use crate::store::Memory;

const MIB: u64 = 1 << 20;
/// Size of an event where only a total size is asked for.
const LARGE_EVENT_BYTES: usize = 16 << 10;
/// Bytes written at once of a large body.
const LARGE_PIECE_BYTES: usize = 64 << 10;

/// Chat and text completions.
pub(crate) async fn generate(request: &Request, reply: &mut Reply<'_, '_>, kind: Kind) -> Answered {
    let cfg = reply.shared.lock().cfg.clone();
    if let Some(mib) = reply.faults.body_mib {
        let bytes = reply.faults.event_bytes.unwrap_or(LARGE_EVENT_BYTES).max(1);
        reply.faults.event_bytes = Some(bytes);
        reply.faults.events = Some((u64::from(mib) * MIB).div_ceil(bytes as u64).min(u64::from(u32::MAX)) as u32);
        // A body of that size says nothing about the batch.
        reply.faults.delay_us = reply.faults.delay_us.or(Some(0));
    }
    let plan = match Plan::read(request, Form::of(kind), &cfg, &reply.faults) {
        Ok(plan) => plan,
        Err(refusal) => return Ok(Some(refusal)),
    };
    if let (Some(mib), false) = (reply.faults.body_mib, plan.is_stream) {
        return large_body(reply, u64::from(mib) * MIB).await.map(|()| None);
    }
    let suffix = match &reply.asked.request_id {
        Some(id) => id.clone(),
        None => format!("{:016x}", fold(mix(reply.shared.started_unix_ns()), reply.asked.seq)),
    };
    let shape = Shape { kind, suffix, model: plan.model.clone(), created: reply.shared.unix_s() };
    let every = if plan.is_stream { cfg.stream_interval } else { u32::MAX };
    let source = Source::start(&reply.shared, &plan, reply.faults.delay_us, every);
    let written = if plan.is_stream {
        stream(reply, &plan, &shape, source).await
    } else {
        whole(reply, &plan, &shape, source).await
    };
    written.map(|()| None)
}

/// Takes a request out of the model and counts it, before the last bytes go out: who has read them then finds the
/// counts.
pub(super) fn close(reply: &Reply<'_, '_>, plan: &Plan, source: Source) {
    drop(source);
    let mut state = reply.shared.lock();
    for choice in &plan.choices {
        match choice.finish_reason {
            "length" => state.finished_length += 1,
            _ => state.finished_stop += 1,
        }
    }
}

/// A JSON body of exactly `bytes` bytes.
async fn large_body(reply: &mut Reply<'_, '_>, bytes: u64) -> Written {
    let (start, end) = (&b"{\"pad\":\""[..], &b"\"}"[..]);
    reply.sized(200, "application/json", &[], bytes).await?;
    reply.piece(start).await?;
    let mut left = bytes.saturating_sub((start.len() + end.len()) as u64);
    let letters = vec![b'x'; LARGE_PIECE_BYTES];
    while left > 0 {
        let take = (letters.len() as u64).min(left);
        reply.piece(&letters[..take as usize]).await?;
        left -= take;
    }
    reply.piece(end).await?;
    reply.end().await
}

/// Where a request's tokens come from.
pub(super) enum Source {
    Batch {
        leases: Vec<Lease>,
        wake: Arc<Notify>,
    },
    /// Token `n` of every choice comes `n` delays after the start.
    SelfPaced {
        start: Instant,
        delay: Duration,
        _counted: SelfPaced,
    },
}

/// Counts a self-paced request for as long as it lives.
pub(super) struct SelfPaced(Arc<Shared>);

impl Drop for SelfPaced {
    fn drop(&mut self) {
        self.0.lock().self_paced -= 1;
    }
}

impl Source {
    /// `every`: the tokens that are written at once.
    pub(super) fn start(shared: &Arc<Shared>, plan: &Plan, delay_us: Option<u64>, every: u32) -> Source {
        if let Some(us) = delay_us {
            {
                let mut state = shared.lock();
                state.self_paced += 1;
                state.self_paced_tokens += plan.choices.iter().map(|choice| u64::from(choice.tokens)).sum::<u64>();
            }
            let counted = SelfPaced(shared.clone());
            return Source::SelfPaced { start: Instant::now(), delay: Duration::from_micros(us), _counted: counted };
        }
        let wake = Arc::new(Notify::new());
        let leases = plan.choices.iter().map(|choice| {
            let job = Job {
                prompt: plan.prompts.get(choice.prompt_idx).cloned().unwrap_or_default(),
                output_tokens: choice.tokens,
                priority: plan.priority,
                salt: plan.salt,
                answer_seed: choice.seed,
            };
            shared.submit(job, wake.clone(), every)
        });
        Source::Batch { leases: leases.collect(), wake }
    }

    /// Tokens of choice `idx` that are there, and whether no more will come.
    pub(super) fn available(&self, idx: usize, tokens: u32) -> (u32, bool) {
        match self {
            Source::Batch { leases, .. } => match leases.get(idx) {
                // The end is read first: what it ends is complete then.
                Some(lease) => {
                    let ended = lease.progress.has_ended();
                    (lease.progress.produced().min(tokens), ended)
                }
                None => (0, true),
            },
            Source::SelfPaced { start, delay, .. } => {
                let passed = start.elapsed().as_nanos().checked_div(delay.as_nanos());
                let there = passed.map_or(tokens, |n| u32::try_from(n + 1).unwrap_or(u32::MAX)).min(tokens);
                (there, there == tokens)
            }
        }
    }

    /// Waits for more than `sent` tokens a choice.
    pub(super) async fn more(&self, sent: u32) {
        match self {
            Source::Batch { wake, .. } => wake.notified().await,
            Source::SelfPaced { start, delay, .. } => tokio::time::sleep_until(*start + *delay * sent).await,
        }
    }

    fn cached_tokens(&self, idx: usize) -> u64 {
        match self {
            Source::Batch { leases, .. } => {
                leases.get(idx).map_or(0, |lease| u64::from(lease.progress.cached_tokens()))
            }
            Source::SelfPaced { .. } => 0,
        }
    }
}

pub(super) fn usage_of(reply: &Reply<'_, '_>, plan: &Plan, source: &Source, completion: u64) -> Usage {
    // What a prompt finds is told once, not again for each of its choices.
    let (mut cached, mut whole_blocks, mut last) = (0, 0, None);
    let block_tokens = match reply.shared.lock().cfg.batch.memory {
        Memory::Blocks { block_tokens, prefix_caching: true, .. } => block_tokens.max(1),
        _ => 0,
    };
    for (idx, choice) in plan.choices.iter().enumerate() {
        if last.replace(choice.prompt_idx) != Some(choice.prompt_idx) {
            cached += source.cached_tokens(idx);
            let prompt = plan.prompts.get(choice.prompt_idx).map_or(0, Vec::len);
            whole_blocks += prompt.checked_div(block_tokens).map_or(0, |blocks| blocks * block_tokens) as u64;
        }
    }
    Usage { prompt: plan.prompt_tokens(), completion, cached, created_cache: whole_blocks.saturating_sub(cached) }
}

async fn whole(reply: &mut Reply<'_, '_>, plan: &Plan, shape: &Shape, source: Source) -> Written {
    let mut choices = Vec::with_capacity(plan.choices.len());
    for (idx, choice) in plan.choices.iter().enumerate() {
        loop {
            let (there, ended) = source.available(idx, choice.tokens);
            if ended {
                choices.push((choice.clone(), there));
                break;
            }
            source.more(there).await;
        }
    }
    let completion = choices.iter().map(|(_, tokens)| u64::from(*tokens)).sum();
    let usage = match &reply.faults.usage {
        Some(chosen) => format!(",\"usage\":{}", chosen.get()),
        None => shape.whole_usage(usage_of(reply, plan, &source, completion)),
    };
    close(reply, plan, source);
    reply.shared.lock().begin(&plan.model, plan.prompt_tokens());
    reply.shared.lock().give(&plan.model, completion);
    let body = shape.whole(&choices, &usage);
    reply.whole(200, "application/json", &[], body.as_bytes()).await
}

async fn stream(reply: &mut Reply<'_, '_>, plan: &Plan, shape: &Shape, source: Source) -> Written {
    reply.begin(200, "text/event-stream; charset=utf-8", &[]).await?;
    reply.shared.lock().begin(&plan.model, plan.prompt_tokens());
    let mut sent = vec![0u32; plan.choices.len()];
    let mut done = vec![false; plan.choices.len()];
    let prompt = plan.prompt_tokens();
    let event_bytes = reply.faults.event_bytes.unwrap_or_default();
    // A stream that paces itself says how far apart its events are.
    let interval = match source {
        Source::Batch { .. } => reply.shared.lock().cfg.stream_interval.max(1),
        Source::SelfPaced { .. } => 1,
    };
    let (mut events, mut has_roles) = (0, shape.kind == Kind::Completion);
    loop {
        let mut progressed = false;
        for (idx, choice) in plan.choices.iter().enumerate() {
            let (there, ended) = source.available(idx, choice.tokens);
            let least = if sent[idx] == 0 { 1 } else { interval };
            if done[idx] || there.saturating_sub(sent[idx]) < least && !ended {
                continue;
            }
            if !has_roles {
                has_roles = true;
                for idx in 0..plan.choices.len() {
                    let usage = if plan.continuous_usage { Shape::running_usage(prompt, 0) } else { String::new() };
                    reply.piece(shape.role_event(idx, &usage).as_bytes()).await?;
                }
            }
            progressed = true;
            if there > sent[idx] {
                let at = sent[idx];
                sent[idx] += least.min(there - at);
                events += 1;
                let is_last = ended && sent[idx] == there;
                done[idx] = is_last;
                let end = match is_last {
                    false => End::No,
                    true if plan.include_usage || !done.iter().all(|done| *done) => End::Choice,
                    true => End::Reply,
                };
                let completion = sent.iter().map(|tokens| u64::from(*tokens)).sum();
                let mut usage = event_usage(reply, plan, events, prompt, completion);
                if reply.faults.stamp == Some(true) {
                    usage.push_str(&format!(",\"sent_unix_ns\":{}", reply.shared.unix_ns()));
                }
                let event = shape.token_event(idx, choice, at..sent[idx], end, Extra { usage: &usage, event_bytes });
                reply.shared.lock().give(&plan.model, u64::from(sent[idx] - at));
                reply.piece(event.as_bytes()).await?;
            } else {
                done[idx] = true;
            }
        }
        if done.iter().all(|done| *done) {
            break;
        }
        if !progressed {
            source.more(sent.iter().copied().max().unwrap_or_default()).await;
        }
    }
    let completion = sent.iter().map(|tokens| u64::from(*tokens)).sum();
    let usage = match &reply.faults.usage {
        Some(chosen) => format!(",\"usage\":{}", chosen.get()),
        None => shape.final_usage(usage_of(reply, plan, &source, completion)),
    };
    close(reply, plan, source);
    if plan.include_usage {
        reply.piece(shape.usage_event(&usage).as_bytes()).await?;
    }
    reply.piece(b"data: [DONE]\n\n").await?;
    reply.end().await
}

fn event_usage(reply: &Reply<'_, '_>, plan: &Plan, event: u32, prompt: usize, completion: u64) -> String {
    match reply.faults.usage_of_event(event) {
        Some(chosen) => format!(",\"usage\":{}", chosen.get()),
        None if plan.continuous_usage => Shape::running_usage(prompt, completion),
        None => String::new(),
    }
}
