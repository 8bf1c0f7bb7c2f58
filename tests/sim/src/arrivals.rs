//! Who comes when: bursts, or the intervals and lengths of a real trace, faster and smaller.

use llmgw_kit::chance::Chance;
use llmgw_types::BandRank;

use crate::fired::Trouble;
use crate::plan::{Arrivals, MODELS, MS, Plan};
use crate::requests::{Request, State};
use crate::world::{Due, World};

/// Requests of one hour of a conversation service.
const TRACE: &str = include_str!("../../../bench/data/azure_2023_conv.csv");
/// The trace is run so many times as fast.
const FASTER: u64 = 100;
/// Tokens of the trace for one of ours.
const SMALLER: u32 = 40;

/// Nobody comes while so many jobs wait for their core.
const BACKLOG_MAX: usize = 40;

pub(crate) struct Arriving {
    /// The last arrival that is laid out.
    until: u64,
    trace: Option<Vec<(u64, u32, u32)>>,
    at: usize,
}

/// Nanoseconds since the first, prompt and answer tokens.
fn trace() -> Vec<(u64, u32, u32)> {
    let row = |line: &str| {
        let mut fields = line.split(',');
        let clock = fields.next()?.split(' ').nth(1)?;
        let mut parts = clock.split(':');
        let (hours, minutes) = (parts.next()?.parse::<u64>().ok()?, parts.next()?.parse::<u64>().ok()?);
        let seconds = parts.next()?.parse::<f64>().ok()?;
        let time = (hours * 3600 + minutes * 60) * 1_000_000_000 + (seconds * 1e9) as u64;
        Some((time, fields.next()?.parse().ok()?, fields.next()?.trim().parse().ok()?))
    };
    TRACE.lines().skip(1).filter_map(row).collect()
}

impl Arriving {
    pub(crate) fn new(plan: &Plan) -> Self {
        let trace = (plan.arrivals == Arrivals::Trace).then(trace);
        Self { until: 0, trace, at: 0 }
    }

    /// Lays out arrivals a little ahead of the time.
    pub(crate) fn keep_up(&mut self, world: &World, chance: &mut Chance) {
        let backlog: usize = world.jobs.borrow().iter().map(std::collections::VecDeque::len).sum();
        if self.until > world.now.get() + 20 * MS || backlog > BACKLOG_MAX {
            return;
        }
        self.until = self.until.max(world.now.get());
        match &self.trace {
            Some(trace) => {
                if self.at == 0 {
                    self.at = 1 + chance.below(trace.len() as u32 - 1) as usize;
                }
                let (before, (time, prompt, output)) = (trace[self.at - 1].0, trace[self.at]);
                self.until += time.saturating_sub(before) / FASTER;
                self.at = (self.at + 1) % trace.len();
                self.one(
                    world,
                    chance,
                    (prompt / SMALLER).clamp(1, 100),
                    (output / SMALLER).clamp(1, 2 * world.plan.output_max),
                );
            }
            None => {
                self.until += 1 + u64::from(chance.below((2 * world.plan.gap_ns) as u32));
                let count = 1 + chance.below(world.plan.burst_max);
                if count > 4 {
                    world.count(Trouble::Burst);
                }
                for _ in 0..count {
                    let (prompt, output) = (1 + chance.below(60), 1 + chance.below(world.plan.output_max));
                    self.one(world, chance, prompt, output);
                }
            }
        }
    }

    fn one(&self, world: &World, chance: &mut Chance, prompt: u32, output: u32) {
        let plan = &world.plan;
        let band = BandRank(1 + chance.below(plan.bands.len() as u32) as u8);
        let request = Request {
            home: chance.below(plan.cores as u32) as usize,
            // Most want the base model, so that its pools fill.
            model: chance.below(6).saturating_sub(6 - MODELS as u32),
            band,
            tenant: chance.below(plan.tenants),
            cost: 1 + chance.below(plan.cost_max),
            bytes: 1 + chance.below(400),
            prompt,
            output,
            retries: chance.below(3),
            state: State::New,
            deadline: 0,
            pools: [].into_iter().collect(),
            owner: 0,
            gate: 0,
            generation: 0,
            instance: None,
            job: None,
            holds: None,
            counts: false,
            asks: 0,
            answers: 0,
            verdicts: 0,
        };
        let mut requests = world.requests.borrow_mut();
        requests.push(request);
        let at = requests.len() - 1;
        world.at(self.until, Due::Arrive(at));
        if chance.below(1000) < plan.leavers {
            world.at(self.until + u64::from(chance.below(200)) * MS, Due::Leave(at));
        }
    }
}
