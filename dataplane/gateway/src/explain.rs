//! A decision in one line of JSON, for the header `x-llmgw-explain`: why the request went where it went.
//!
//! Written only when a client asks. Printable ASCII throughout, and bounded: candidates beyond the bound are counted.
//! With everything in it the decision can be taken again: candidates in the pool's order, filters, scores, weights, and
//! the seed the picker drew from.

use std::fmt::Write as _;

use llmgw_openai::json;
use llmgw_router::admission::UNBOUNDED;
use llmgw_router::scheduler::explain::{AdmissionLook, CandidateLook, Explanation, PoolLook};
use llmgw_types::snapshot::ArchivedRouteTable;

/// The longest header value. Common clients take 8 KiB and more of a whole head.
const BYTES_MAX: usize = 6 << 10;
/// Kept free for what follows the decisions: some names of 256 bytes, gates and a few words.
const END_BYTES: usize = 2200;
/// What a decision may take whatever comes after it.
const DECISION_BYTES: usize = 1800;
/// Kept free for what follows the candidates.
const TAIL_BYTES: usize = 256;

/// The explanation as JSON.
pub fn text(explanation: &Explanation, table: &ArchivedRouteTable) -> String {
    let mut out = String::from("{\"decisions\":[");
    let mut omitted = explanation.lost;
    let mut left = explanation.pools.len();
    for look in &explanation.pools {
        // A large pool leaves room for the attempts after it.
        let room = (BYTES_MAX - END_BYTES).saturating_sub(out.len());
        let one = decision(look, table, room.min((room / left.max(1)).max(DECISION_BYTES)));
        left -= 1;
        match one {
            Some(one) => {
                out.push_str(if out.ends_with('[') { "" } else { "," });
                out.push_str(&one);
            }
            None => omitted += 1,
        }
    }
    let _ = write!(out, "],\"omitted\":{omitted}");
    if let Some((model, endpoint)) = explanation.last_resort {
        out.push_str(",\"last_resort\":{\"model\":");
        string(&mut out, model_name(model, table));
        out.push_str(",\"replica\":");
        string(&mut out, table.endpoints.get(endpoint.idx()).map_or("", |endpoint| endpoint.name.as_str()));
        out.push('}');
    }
    if let Some(look) = &explanation.admission {
        admission(&mut out, look, table);
    }
    if explanation.is_over_budget {
        out.push_str(",\"is_over_budget\":true");
    }
    out.push('}');
    out
}

/// How the request came by its place: what its band is held to, and what stood at the gates when it was tried last.
fn admission(out: &mut String, look: &AdmissionLook, table: &ArchivedRouteTable) {
    let Some(bands) = table.models.get(look.model as usize).map(|model| &model.admission.bands) else { return };
    let Some(band) = bands.get(look.band) else { return };
    out.push_str(",\"admission\":{\"band\":");
    string(out, &band.name);
    let (ceiling, share) = (band.saturation_ceiling.to_native(), band.capacity_share.to_native());
    let _ =
        write!(out, ",\"saturation_ceiling\":{ceiling},\"capacity_share\":{share},\"waited_ms\":{}", look.waited_ms);
    if share < 1.0 {
        out.push_str(
            ",\"note\":\"capacity_share leaves places of the batch free for higher bands: a full batch makes \
            anybody wait for a place\"",
        );
    }
    out.push_str(",\"gates\":[");
    for (at, gate) in look.gates.iter().enumerate() {
        out.push_str(if at > 0 { ",{\"pool\":" } else { "{\"pool\":" });
        string(out, table.pools.get(gate.pool as usize).map_or("", |pool| pool.label.as_str()));
        let _ = write!(out, ",\"load\":{},\"room\":", gate.load);
        let is_unbounded = gate.room == UNBOUNDED;
        let _ = if is_unbounded { write!(out, "null") } else { write!(out, "{}", gate.room) };
        let waiting = gate.waiting.idx().checked_sub(1).and_then(|at| bands.get(at));
        if let Some(waiting) = waiting {
            out.push_str(",\"waiting\":");
            string(out, &waiting.name);
        }
        let why = if is_unbounded {
            "this band never waits"
        } else if gate.load >= gate.room.into() {
            "as many requests as this band may be the last of"
        } else if gate.waiting.idx() > look.band {
            "others of this band or a higher one wait"
        } else {
            "there is room"
        };
        out.push_str(",\"why\":");
        string(out, why);
        out.push('}');
    }
    out.push_str("]}");
}

/// One look at a pool; `None` when there is no room for any of it.
fn decision(look: &PoolLook, table: &ArchivedRouteTable, room: usize) -> Option<String> {
    let mut out = format!("{{\"attempt\":{},\"model\":", look.attempt);
    string(&mut out, model_name(look.model, table));
    out.push_str(",\"pool\":");
    string(&mut out, table.pools.get(look.pool as usize).map_or("", |pool| pool.label.as_str()));
    out.push_str(",\"picker\":");
    string(&mut out, look.picker);
    let _ = write!(out, ",\"temperature\":{},\"seed\":\"{:016x}\",\"turn\":{}", look.temperature, look.seed, look.turn);
    out.push_str(",\"scorers\":[");
    for (at, (name, _)) in look.scorers.iter().enumerate() {
        out.push_str(if at > 0 { "," } else { "" });
        string(&mut out, name);
    }
    out.push_str("],\"weights\":[");
    numbers(&mut out, look.scorers.iter().map(|(_, weight)| *weight));
    out.push(']');
    for (key, member) in [("session", look.session), ("chosen", look.chosen)] {
        let _ = write!(out, ",\"{key}\":");
        match member.and_then(|member| look.candidates.get(member as usize)) {
            Some(candidate) => string(&mut out, name(candidate, table)),
            None => out.push_str("null"),
        }
    }
    if let Some(w_overlap) = look.w_overlap {
        let _ = write!(out, ",\"w_overlap\":{w_overlap}");
    }
    if let Some(reuse) = &look.reuse {
        let (word, blocks, cached) = (reuse.decision.word(), reuse.blocks, reuse.cached);
        let _ = write!(out, ",\"prompt\":{{\"decision\":\"{word}\",\"blocks\":{blocks},\"cached\":{cached}}}");
    }
    out.push_str(",\"candidates\":[");
    let mut shown = 0;
    for look in &look.candidates {
        let mut one = String::new();
        candidate(&mut one, look, table);
        if out.len() + one.len() + TAIL_BYTES > room {
            break;
        }
        out.push_str(if shown > 0 { "," } else { "" });
        out.push_str(&one);
        shown += 1;
    }
    let _ = write!(out, "],\"omitted\":{}}}", look.candidates.len() - shown);
    (out.len() + TAIL_BYTES <= room).then_some(out)
}

fn candidate(out: &mut String, look: &CandidateLook, table: &ArchivedRouteTable) {
    out.push_str("{\"replica\":");
    string(out, name(look, table));
    let _ = write!(out, ",\"weight\":{}", look.weight);
    if let Some(filter) = look.dropped_by {
        out.push_str(",\"dropped_by\":");
        string(out, filter);
    }
    if let Some(cached) = look.cached {
        let _ = write!(out, ",\"cached\":{cached}");
    }
    if let Some(beyond) = look.beyond {
        let _ = write!(out, ",\"beyond\":{}", beyond as i64);
    }
    if !look.scores.is_empty() {
        out.push_str(",\"scores\":[");
        numbers(out, look.scores.iter().copied());
        out.push(']');
    }
    out.push('}');
}

fn model_name(row: u32, table: &ArchivedRouteTable) -> &str {
    table.models.get(row as usize).map_or("", |model| model.name.as_str())
}

fn name<'t>(look: &CandidateLook, table: &'t ArchivedRouteTable) -> &'t str {
    table.endpoints.get(look.endpoint.idx()).map_or("", |endpoint| endpoint.name.as_str())
}

/// The shortest digits that read back as the same numbers.
fn numbers(out: &mut String, numbers: impl Iterator<Item = f32>) {
    for (at, number) in numbers.enumerate() {
        out.push_str(if at > 0 { "," } else { "" });
        if number.is_finite() {
            let _ = write!(out, "{number}");
        } else {
            out.push_str("null");
        }
    }
}

/// A JSON string in printable ASCII: what is not becomes a question mark, names of the configuration have none of it.
fn string(out: &mut String, text: &str) {
    let mut escaped = Vec::with_capacity(text.len() + 2);
    json::write_string(&mut escaped, text);
    out.extend(
        escaped.into_iter().map(|byte| if byte.is_ascii_graphic() || byte == b' ' { byte as char } else { '?' }),
    );
}

#[cfg(test)]
mod tests;
