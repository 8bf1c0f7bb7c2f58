//! What must hold of limits: after every step, at every refusal, and when nothing is under way.

use llmgw_router::limiter::message::Look;
use llmgw_router::limiter::{Refused, Standing, ToHome, ToOwner};
use llmgw_router::quota::window::WINDOW_TICKS;
use llmgw_router::quota::{Amounts, Measure};
use llmgw_types::CoreId;

use super::world::World;

/// What the owner of a level counts there at this moment, with what is held; `None` where no chain leads to it.
fn standing(world: &mut World, row: u32) -> Option<(usize, Standing)> {
    let chain = (0..world.newest.chain_count() as u32).find(|chain| world.shape.rows(*chain).has(row))?;
    let owner = world.shape.org_of(chain / 2) as usize % world.plan.cores;
    let (table, now) = (world.tables[owner].clone(), world.now());
    let chains = (0..table.chain_count() as u32).filter(|chain| world.shape.rows(*chain).has(row));
    for number in chains.collect::<Vec<_>>() {
        let Some(chain) = table.chain(number) else { continue };
        let Some(nth) = chain.levels.iter().position(|level| level == row) else { continue };
        let look = Look { home: CoreId(0), number: 0, chain: number, nth: nth as u8 };
        let mut found = None;
        world.owners[owner].hear(&table, &ToOwner::Look(look), now, |_, message| {
            if let ToHome::Stands(standing) = message {
                found = Some(standing);
            }
        });
        return found.map(|standing| (owner, standing));
    }
    None
}

fn known(standing: &Standing) -> [i64; 4] {
    let counted = [standing.requests, standing.tokens, 0, standing.units];
    Measure::ALL.map(|measure| counted[measure as usize] + standing.held.of(measure))
}

/// Whether a level's refunds, or its counting, may be off after a change.
fn is_young(world: &World, row: u32) -> bool {
    let Some((from, until)) = world.young.get(&row).copied() else { return false };
    world.now().tick <= until || world.ledger.oldest_open() <= from
}

fn period(world: &World, owner: usize, row: u32, end: u32) -> (u32, u32) {
    let table = &world.tables[owner];
    let start = table.level(row).map_or(0, |level| table.period(level, end.saturating_sub(1)).start);
    (start, end)
}

/// Nothing that counts is unknown to its owner, and nothing grows above its limit.
pub(super) fn each_step(world: &mut World) {
    for row in 0..world.shape.levels.len() as u32 {
        let Some((owner, standing)) = standing(world, row) else {
            world.known.remove(&row);
            continue;
        };
        let counted = known(&standing);
        let tick = world.now().tick;
        let taken = world.ledger.floor(row, tick, period(world, owner, row, standing.period_end));
        let is_young = is_young(world, row);
        let before = world.known.insert(row, counted);
        for measure in Measure::ALL {
            let at = measure as usize;
            let Some(limit) = world.tables[owner].level(row).and_then(|level| level.limit(measure)) else { continue };
            if measure == Measure::Budget && world.reshaped.contains(&row) {
                continue;
            }
            if counted[at] < taken[at] && !is_young {
                let counted = counted[at];
                world.breaks(format!("level {row}: {} {measure:?} are taken, its owner counts {counted}", taken[at]));
            }
            // What came up just now, or while all came to rest, is looked at from here on.
            let before = before.map_or(i64::MAX, |before| before[at]);
            if counted[at] > limit && counted[at] > before && !world.may_grow && !is_young {
                let counted = counted[at];
                world.breaks(format!("level {row}: {counted} {measure:?} are counted or held, the limit is {limit}"));
            }
        }
    }
}

/// The owner said no: of something it asks for there was not enough, after all that could come back had.
pub(super) fn refused(world: &mut World, owner: usize, at: usize, refused: Refused) {
    let chain = world.requests[at].chain;
    let rows = world.shape.rows(chain);
    if rows.iter().any(|row| is_young(world, row)) {
        return;
    }
    let table = world.tables[owner].clone();
    let Some(measures) = table.chain(chain).map(llmgw_router::quota::Chain::measures) else { return };
    let ask = world.requests[at].ask.only(measures);
    let (tick, second) = (world.now().tick, world.now().second);
    let mut told = Vec::new();
    for row in rows.iter() {
        let Some(level) = table.level(row) else { continue };
        // The owner's clock does not go back, and may stand in a later period than the wall.
        let end = table.period(level, second).end;
        let mut taken = world.ledger.taken(row, tick, (table.period(level, second).start, end));
        let back = on_the_way(world, owner, row, table.period(level, second).start);
        for measure in Measure::ALL {
            taken[measure as usize] += back.of(measure);
        }
        for measure in Measure::ALL {
            let Some(limit) = level.limit(measure) else { continue };
            let asked = ask.of(measure);
            if asked == 0 {
                continue;
            }
            if measure == Measure::Budget && (world.plan.wall_steps > 0 || world.reshaped.contains(&row)) {
                return;
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
fn on_the_way(world: &World, owner: usize, row: u32, start: u32) -> Amounts {
    let mut sum = Amounts::default();
    for message in world.up.iter().flat_map(|lanes| &lanes[owner]) {
        match message {
            ToOwner::Report(report) if world.shape.rows(report.chain).has(row) => {
                sum += report.back;
                if report.tick + WINDOW_TICKS < world.now().tick {
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

/// Nothing runs and nothing is under way: nothing is held, and what is counted is what was used.
pub(super) fn at_rest(world: &mut World) {
    let now = world.now();
    for row in 0..world.shape.levels.len() as u32 {
        let org =
            if row < 2 * world.shape.orgs { row / 2 } else { world.shape.org_of((row - 2 * world.shape.orgs) / 2) };
        let owner = org as usize % world.plan.cores;
        let (_, held) = world.owners[owner].at_level(row, now);
        if held != [0; 4] {
            world.breaks(format!("level {row}: {held:?} are held when nothing runs"));
        }
        let Some((owner, standing)) = standing(world, row) else { continue };
        let taken = world.ledger.taken(row, now.tick, period(world, owner, row, standing.period_end));
        let counted = known(&standing);
        let (is_young, is_reshaped) = (is_young(world, row), world.reshaped.contains(&row));
        for measure in Measure::ALL {
            if world.tables[owner].level(row).and_then(|level| level.limit(measure)).is_none() {
                continue;
            }
            let is_off = if measure == Measure::Budget { is_reshaped } else { is_young };
            if counted[measure as usize] != taken[measure as usize] && !is_off {
                let (counted, taken) = (counted[measure as usize], taken[measure as usize]);
                world.breaks(format!("level {row}: {counted} {measure:?} are counted at rest, {taken} were used"));
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
        let Some((_, standing)) = standing(world, row) else { continue };
        if standing.requests != 0 || standing.tokens != 0 || !standing.held.is_zero() {
            world.breaks(format!("level {row}: {standing:?} when all has ended long ago"));
        }
    }
}
