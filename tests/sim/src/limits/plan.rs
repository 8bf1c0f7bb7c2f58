//! What a world of tenants is like, drawn from its seed. Numbers are small on purpose: faults live at the last place.

use llmgw_kit::chance::Chance;
use llmgw_router::quota::Calendar;
use llmgw_tenancy::Period;
use llmgw_tenancy::calendar;

/// Where and when calendars do something: clocks that change, months of different lengths, a zone far east.
const EDGES: &[(&str, Period, i64)] = &[
    // 2026-03-29 and 2026-10-25, local midnights around both; unix seconds.
    ("Europe/Berlin", Period::Day, 1_774_652_400),
    ("Europe/Berlin", Period::Day, 1_792_792_800),
    ("Asia/Tokyo", Period::Day, 1_774_652_400),
    // From the 31st of January on.
    ("Europe/Berlin", Period::Month, 1_769_814_000),
    ("Asia/Tokyo", Period::Month, 1_769_814_000),
    ("UTC", Period::Day, 1_772_150_400),
];
/// Periods that a calendar knows.
const PERIODS: usize = 100;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) cores: usize,
    pub(crate) orgs: u32,
    pub(crate) keys: u32,
    pub(crate) tokens_max: u32,
    /// In a thousand requests: those that use more than they reserved.
    pub(crate) excess: u32,
    /// In a thousand steps.
    pub(crate) publications: u32,
    pub(crate) wall_steps: u32,
    pub(crate) stands: u32,
    pub(crate) jumps: u32,
    /// One step in so many lets time pass.
    pub(crate) hurry: u32,
    /// How much a delivery is preferred to an arrival, in a thousand.
    pub(crate) delivers: u32,
    pub(crate) lane_capacity: usize,
    /// Whether limits are few and large, so that most is lent out.
    pub(crate) lends: bool,
    /// How often slices are doubled from the first on.
    pub(crate) doublings: u8,
    /// Unix seconds.
    pub(crate) wall: i64,
    pub(crate) calendars: Vec<Calendar>,
    /// Of each calendar.
    pub(crate) zones: [&'static str; 2],
}

impl Plan {
    pub(crate) fn draw(chance: &mut Chance) -> Self {
        let orgs = 1 + chance.below(2);
        let first = EDGES[chance.below(EDGES.len() as u32) as usize];
        let other = EDGES[chance.below(EDGES.len() as u32) as usize];
        // Both by the first's time, so that their edges fall together or near.
        let calendars: Vec<Calendar> = [first, (other.0, other.1, first.2)]
            .iter()
            .map(|(zone, period, from)| Calendar {
                edges: calendar::edges(zone, *period, *from, PERIODS).unwrap_or_default(),
            })
            .collect();
        let edge = calendars[0].edges.get(1 + chance.below(3) as usize).copied().unwrap_or(1_774_652_400);
        let lends = chance.below(3) == 0;
        Self {
            cores: if lends { 2 } else { 1 } + chance.below(3) as usize,
            orgs,
            keys: orgs + chance.below(4),
            tokens_max: 1 + chance.below(if lends { 3 } else { 30 }),
            lends,
            doublings: if lends { [0, 20, 20, 20] } else { [0, 0, 2, 20] }[chance.below(4) as usize],
            excess: [0, 0, 50, 300][chance.below(4) as usize],
            publications: [0, 0, 3, 20][chance.below(4) as usize],
            wall_steps: [0, 0, 3][chance.below(3) as usize],
            stands: [0, 5, 30][chance.below(3) as usize],
            jumps: [0, 1, 4][chance.below(3) as usize],
            hurry: 3 + chance.below(40),
            delivers: 200 + chance.below(700),
            lane_capacity: [3, 64, 1000][chance.below(3) as usize],
            wall: i64::from(edge) - i64::from(chance.below(90)),
            calendars,
            zones: [first.0, other.0],
        }
    }
}
