//! What must hold of limits: after every step, at every refusal, and when nothing is under way.

use llmgw_router::limiter::message::Look;
use llmgw_router::limiter::{Refused, Standing, ToHome, ToOwner};
use llmgw_router::quota::window::WINDOW_TICKS;
use llmgw_router::quota::{Amounts, Chain, Measure};
use llmgw_types::CoreId;

use super::ledger::{Span, When};
use super::world::World;

/// The core that counts what is used at a level.
fn owner_of(world: &World, row: u32) -> usize {
    world.owner_of(world.shape.org_of_level(row).into())
}

/// What the owner of a level counts there at this moment, with what is held; `None` where no chain leads to it.
fn standing(world: &mut World, row: u32) -> Option<Standing> {
    let owner = owner_of(world, row);
    let (limits, now) = (world.tables[owner].clone(), world.now());
    let chains = (0..limits.table.chain_count() as u32).filter(|chain| world.shape.rows(*chain).has(row));
    for number in chains.collect::<Vec<_>>() {
        let Some(chain) = limits.table.chain(number) else { continue };
        let Some(nth) = chain.levels.iter().position(|level| level == row) else { continue };
        let look = Look { home: CoreId(0), number: 0, chain: number, nth: nth as u8 };
        let mut found = None;
        world.owners[owner].hear(&limits.table, &ToOwner::Look(look), now, |_, message| {
            if let ToHome::Stands(standing) = message {
                found = Some(standing);
            }
        });
        return found;
    }
    None
}

fn known(standing: &Standing) -> [i64; 4] {
    let counted = [standing.requests, standing.tokens, 0, standing.units];
    Measure::ALL.map(|measure| counted[measure as usize] + standing.held.of(measure))
}

/// What of the truth counts at a level, by the limits and the time that its owner goes by.
fn span(world: &World, row: u32, standing: &Standing) -> Span {
    let period = world.shape.period(row, standing.period_end - 1);
    let limits = &world.tables[owner_of(world, row)];
    Span { tick: world.now().tick, period, since: limits.since[row as usize] }
}

/// Nothing that counts is unknown to its owner, and nothing grows above its limit.
pub(super) fn each_step(world: &mut World) {
    for row in 0..world.shape.levels.len() as u32 {
        let Some(standing) = standing(world, row) else {
            world.known.remove(&row);
            world.periods.remove(&row);
            continue;
        };
        world.sees_period(row, standing.period_end);
        let counted = known(&standing);
        let least = world.ledger.least(row, &span(world, row, &standing), When::UnderWay);
        let before = world.known.insert(row, counted);
        let limits = world.tables[owner_of(world, row)].clone();
        for measure in Measure::ALL {
            let at = measure as usize;
            let Some(limit) = limits.table.level(row).and_then(|level| level.limit(measure)) else { continue };
            if counted[at] < least[at] {
                let counted = counted[at];
                world.breaks(format!("level {row}: {} {measure:?} are taken, its owner counts {counted}", least[at]));
            }
            // What came up just now, or while all came to rest, is looked at from here on.
            let before = before.map_or(i64::MAX, |before| before[at]);
            let may_grow = world.may_grow || world.fresh.contains(&row);
            if counted[at] > limit && counted[at] > before && !may_grow {
                let counted = counted[at];
                world.breaks(format!("level {row}: {counted} {measure:?} are counted or held, the limit is {limit}"));
            }
        }
    }
}

/// The owner said no: of something it asks for there was not enough, after all that could come back had.
pub(super) fn refused(world: &mut World, owner: usize, at: usize, refused: Refused) {
    let (chain, tick) = (world.requests[at].chain, world.now().tick);
    let limits = world.tables[owner].clone();
    let Some(measures) = limits.table.chain(chain).map(Chain::measures) else { return };
    let ask = world.requests[at].ask.only(measures);
    let mut told = Vec::new();
    for row in world.shape.rows(chain).iter() {
        let (Some(level), Some(standing)) = (limits.table.level(row), standing(world, row)) else { continue };
        let span = span(world, row, &standing);
        let mut taken = world.ledger.most(row, &span);
        let back = on_the_way(world, owner, row, tick, span.period.start);
        for measure in Measure::ALL {
            taken[measure as usize] += back.of(measure);
            let (Some(limit), asked) = (level.limit(measure), ask.of(measure)) else { continue };
            if asked == 0 {
                continue;
            }
            if taken[measure as usize] + asked > limit {
                return;
            }
            told.push((row, measure, taken[measure as usize], asked, limit));
        }
    }
    world.breaks(format!("request {at} is refused for {:?}, and there was room: {told:?}", refused.measure));
}

/// Given back, or used too long ago to count, and not heard yet.
fn on_the_way(world: &World, owner: usize, row: u32, tick: u32, start: u32) -> Amounts {
    let mut sum = Amounts::default();
    for message in world.up.iter().flat_map(|lanes| &lanes[owner]) {
        match &message.what {
            ToOwner::Report(report) if world.shape.rows(report.chain).has(row) => {
                sum += report.back;
                if report.tick + WINDOW_TICKS < tick {
                    sum.requests += report.used_requests;
                    sum.tokens += report.used_tokens;
                }
                if report.second < start {
                    sum.units += report.used_units;
                }
            }
            ToOwner::Settle(settle) if world.shape.rows(settle.chain).has(row) && settle.tokens >= 0 => {
                sum += Amounts { requests: settle.requests, tokens: settle.tokens, ..Amounts::default() };
            }
            _ => {}
        }
    }
    sum
}

/// A home core said no by itself: by its own table nothing of the kind can ever be had.
pub(super) fn refused_here(world: &mut World, core: usize, chain: u32, ask: Amounts, refused: Refused) {
    let limits = world.tables[core].clone();
    let is_short = |row| {
        let limit = limits.table.level(row).and_then(|level| level.limit(refused.measure));
        limit.is_some_and(|limit| ask.of(refused.measure) > limit)
    };
    if !world.shape.rows(chain).iter().any(is_short) {
        world.breaks(format!("core {core} refuses {ask:?} by itself for {refused:?}"));
    }
}

/// Nothing runs and nothing is under way: nothing is held, and what is counted is what was used.
pub(super) fn at_rest(world: &mut World) {
    let now = world.now();
    for row in 0..world.shape.levels.len() as u32 {
        let owner = owner_of(world, row);
        let (_, held) = world.owners[owner].at_level(row, now);
        if held != [0; 4] {
            world.breaks(format!("level {row}: {held:?} are held when nothing runs"));
        }
        let Some(standing) = standing(world, row) else { continue };
        let (span, counted) = (span(world, row, &standing), known(&standing));
        let (least, most) = (world.ledger.least(row, &span, When::AtRest), world.ledger.most(row, &span));
        for measure in Measure::ALL {
            let (at, limits) = (measure as usize, world.tables[owner].clone());
            if limits.table.level(row).and_then(|level| level.limit(measure)).is_none() {
                continue;
            }
            if !(least[at]..=most[at]).contains(&counted[at]) {
                let (counted, least, most) = (counted[at], least[at], most[at]);
                let used = if least == most { least.to_string() } else { format!("{least} to {most}") };
                world.breaks(format!("level {row}: {counted} {measure:?} are counted at rest, {used} were used"));
            }
        }
    }
    if let Some(core) = world.owners.iter().position(|owner| owner.parked_count() > 0) {
        world.breaks(format!("core {core} has parked what nobody asks for"));
    }
    if let Some(core) = world.owners.iter().position(|owner| !owner.is_idle()) {
        world.breaks(format!("core {core} takes slices for out that nobody has"));
    }
}

/// A window after that nothing is counted but what was spent.
pub(super) fn empty(world: &mut World) {
    for row in 0..world.shape.levels.len() as u32 {
        let Some(standing) = standing(world, row) else { continue };
        if standing.requests != 0 || standing.tokens != 0 || !standing.held.is_zero() {
            world.breaks(format!("level {row}: {standing:?} when all has ended long ago"));
        }
    }
}
