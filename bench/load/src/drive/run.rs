//! The driver's loop.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use super::call::{Call, Fate};
use super::cost::Meter;
use super::outcome::{Outcome, Tallies};
use super::schedule::{Constant, ramp};
use crate::poll::{Poll, Ready};
use crate::progress::Progress;
use crate::target::Target;
use crate::usage::{cpu_time, monotonic_ns, own_cpu};

const READ_BYTES: usize = 256 * 1024;
/// How often memory is looked at.
const SAMPLE_EVERY_NS: u64 = 50_000_000;
/// After a failure a connection pauses, so that a dead gateway is not hammered.
const PAUSE_NS: u64 = 10_000_000;
/// A call without a byte for so long when the window ends has stalled.
const STALLED_NS: u64 = 3_000_000_000;

/// One window of load.
#[derive(Debug, Clone)]
pub struct Drive {
    pub target: Target,
    /// Whole requests, sent in turn.
    pub requests: Vec<Vec<u8>>,
    pub arrivals: Arrivals,
    /// How many events each stream must have; none for whole answers.
    pub expected_event_count: Option<u64>,
    /// Before the window.
    pub warm_up: Duration,
    pub time: Duration,
    /// The gateway.
    pub pid: Option<u32>,
    /// The engine behind it.
    pub mock_pid: Option<u32>,
}

/// When calls begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// So many connections, begun over `ramp`, each asks again when it is answered.
    Closed { connection_count: usize, ramp: Duration },
    /// A constant rate, latency from the time a call was due. Never more than `open_max` open.
    Open { calls_per_second: f64, open_max: usize },
    /// So many calls, begun over `ramp`; the window is the whole run, `time` its limit.
    Once { call_count: usize, ramp: Duration },
}

/// Runs it on this thread.
///
/// Errors: the system has no epoll or no descriptors for us. What the gateway does wrong is in the outcome.
pub fn run(plan: &Drive, progress: Progress) -> io::Result<Outcome> {
    let mut beat = progress.beat();
    let mut state = State::new(plan)?;
    let start = monotonic_ns();
    let warm_until = start + nanoseconds(plan.warm_up);
    let mut window: Option<Window> = None;
    let mut end = warm_until + nanoseconds(plan.time);
    let mut sample_at = start;
    let (mut ready, mut buffer) = (Vec::new(), vec![0; READ_BYTES]);
    let is_once = matches!(plan.arrivals, Arrivals::Once { .. });
    state.plan_starts(start);
    loop {
        let now = monotonic_ns();
        if window.is_none() && (is_once || now >= warm_until) {
            state.tallies.is_measuring = true;
            if let Some(meter) = &mut state.meter {
                meter.restart();
            }
            window = Some(Window::open(plan.mock_pid));
            if !is_once {
                end = monotonic_ns() + nanoseconds(plan.time);
            }
        }
        if now >= end || is_once && state.is_over() {
            break;
        }
        if now >= sample_at {
            sample_at = now + SAMPLE_EVERY_NS;
            if let Some(meter) = &mut state.meter {
                meter.sample();
            }
            beat.show(|| format!("{} open, {} events", state.open_count, state.tallies.event_count));
        }
        state.begin_due(now)?;
        let until = [Some(end), Some(sample_at), state.next_due(), window.is_none().then_some(warm_until)];
        state.poll.wait(until.into_iter().flatten().min(), &mut ready)?;
        let now = monotonic_ns();
        for one in &ready {
            state.on_ready(*one, now, &mut buffer)?;
        }
    }
    state.tallies.is_measuring = false;
    let window = window.unwrap_or_else(|| Window::open(plan.mock_pid));
    Ok(state.outcome(window))
}

/// The clocks at the window's start.
struct Window {
    start_ns: u64,
    own_cpu: Duration,
    mock: Option<(u32, Duration)>,
}

impl Window {
    fn open(mock_pid: Option<u32>) -> Self {
        let mock = mock_pid.and_then(|pid| Some((pid, cpu_time(pid)?)));
        Self { start_ns: monotonic_ns(), own_cpu: own_cpu(), mock }
    }
}

struct State<'p> {
    plan: &'p Drive,
    poll: Poll,
    calls: Vec<Option<Call>>,
    /// Connections without a call, the warmest last.
    idle: Vec<usize>,
    free: Vec<usize>,
    /// Connections of a closed loop that begin, or begin again, at a time; in its order.
    starts: VecDeque<u64>,
    pauses: VecDeque<u64>,
    constant: Option<Constant>,
    open_max: usize,
    /// Calls that are due and wait for a place.
    waiting: VecDeque<u64>,
    turn: usize,
    open_count: u64,
    open_peak_count: u64,
    /// Calls of `Once` that are still to end.
    left_count: u64,
    tallies: Tallies,
    meter: Option<Meter>,
}

impl<'p> State<'p> {
    fn new(plan: &'p Drive) -> io::Result<Self> {
        let open_max = match plan.arrivals {
            Arrivals::Open { open_max, .. } => open_max,
            Arrivals::Closed { .. } | Arrivals::Once { .. } => usize::MAX,
        };
        Ok(Self {
            plan,
            poll: Poll::new()?,
            calls: Vec::new(),
            idle: Vec::new(),
            free: Vec::new(),
            starts: VecDeque::new(),
            pauses: VecDeque::new(),
            constant: None,
            open_max,
            waiting: VecDeque::new(),
            turn: 0,
            open_count: 0,
            open_peak_count: 0,
            left_count: 0,
            tallies: Tallies::default(),
            meter: plan.pid.map(Meter::start),
        })
    }

    fn plan_starts(&mut self, start_ns: u64) {
        match self.plan.arrivals {
            Arrivals::Open { calls_per_second, .. } => self.constant = Some(Constant::new(start_ns, calls_per_second)),
            Arrivals::Closed { connection_count: count, ramp: over }
            | Arrivals::Once { call_count: count, ramp: over } => {
                let at = ramp(start_ns, count, over);
                self.starts = (0..count).map(at).collect();
                self.left_count = count as u64;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.left_count == 0
    }

    fn next_due(&self) -> Option<u64> {
        let constant = self.constant.as_ref().map(Constant::next_ns);
        [self.starts.front().copied(), self.pauses.front().copied(), constant].into_iter().flatten().min()
    }

    fn begin_due(&mut self, now: u64) -> io::Result<()> {
        while let Some(constant) = &mut self.constant
            && let Some(due) = constant.take(now)
        {
            self.waiting.push_back(due);
        }
        while self.starts.front().is_some_and(|at| *at <= now) {
            self.starts.pop_front();
            self.waiting.push_back(now);
        }
        while self.pauses.front().is_some_and(|at| *at <= now) {
            self.pauses.pop_front();
            self.waiting.push_back(now);
        }
        while (self.open_count as usize) < self.open_max
            && let Some(due) = self.waiting.pop_front()
        {
            let turn = self.turn;
            self.turn += 1;
            self.begin(turn, due, now)?;
        }
        Ok(())
    }

    /// Begins a call on an idle connection, or on a new one.
    fn begin(&mut self, turn: usize, due: u64, now: u64) -> io::Result<()> {
        self.open_count += 1;
        self.open_peak_count = self.open_peak_count.max(self.open_count);
        let idx = match self.idle.pop() {
            Some(idx) => idx,
            None => match self.connect() {
                Ok(idx) => idx,
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => {
                    return Err(error);
                }
                Err(_) => return self.settle(None, Fate::Failed("connect"), now),
            },
        };
        self.begin_on(idx, turn, due, now)
    }

    fn begin_on(&mut self, idx: usize, turn: usize, due: u64, now: u64) -> io::Result<()> {
        let Some(request) = self.plan.requests.get(turn % self.plan.requests.len().max(1)) else { return Ok(()) };
        let Some(Some(call)) = self.calls.get_mut(idx) else { return Ok(()) };
        let fate = call.begin(request, turn, due, now);
        self.settle(Some(idx), fate, now)
    }

    fn connect(&mut self) -> io::Result<usize> {
        let call = Call::connect(&self.plan.target)?;
        let idx = self.free.pop().unwrap_or_else(|| {
            self.calls.push(None);
            self.calls.len() - 1
        });
        self.poll.add(call.socket(), idx as u64)?;
        if let Some(place) = self.calls.get_mut(idx) {
            *place = Some(call);
        }
        Ok(idx)
    }

    fn on_ready(&mut self, ready: Ready, now: u64, buffer: &mut [u8]) -> io::Result<()> {
        let idx = usize::try_from(ready.token).unwrap_or(usize::MAX);
        let Some(Some(call)) = self.calls.get_mut(idx) else { return Ok(()) };
        if (ready.is_writable || call.is_opening()) && call.is_busy {
            let (_, turn) = call.asked();
            let Some(request) = self.plan.requests.get(turn % self.plan.requests.len().max(1)) else { return Ok(()) };
            match call.write(request) {
                Fate::Open => {}
                fate => return self.settle(Some(idx), fate, now),
            }
        }
        if ready.is_readable {
            let fate = call.read(ready.is_ending, buffer, self.plan.expected_event_count, now, &mut self.tallies);
            return self.settle(Some(idx), fate, now);
        }
        Ok(())
    }

    /// Acts on what became of a call.
    fn settle(&mut self, idx: Option<usize>, fate: Fate, now: u64) -> io::Result<()> {
        let is_closed = matches!(self.plan.arrivals, Arrivals::Closed { .. });
        let was_idle = fate != Fate::Open && idx.is_some_and(|idx| self.idle.contains(&idx));
        if was_idle {
            self.idle.retain(|other| Some(*other) != idx);
            self.drop_call(idx);
            return Ok(());
        }
        match fate {
            Fate::Open => return Ok(()),
            Fate::Stale => {
                let asked = idx.and_then(|idx| self.calls.get(idx)?.as_ref().map(Call::asked));
                self.drop_call(idx);
                self.open_count -= 1;
                let Some((due, turn)) = asked else { return Ok(()) };
                return self.begin(turn, due, now);
            }
            Fate::Failed(what) => {
                self.tallies.failed(what);
                self.drop_call(idx);
            }
            Fate::DoneAndClosed => self.drop_call(idx),
            Fate::Done => {}
        }
        self.open_count -= 1;
        self.left_count = self.left_count.saturating_sub(1);
        if is_closed {
            match (fate, idx) {
                (Fate::Done, Some(idx)) => {
                    let turn = self.turn;
                    self.turn += 1;
                    self.open_count += 1;
                    return self.begin_on(idx, turn, now, now);
                }
                (Fate::Failed(_), _) => self.pauses.push_back(now + PAUSE_NS),
                _ => self.waiting.push_back(now),
            }
        } else if let (Fate::Done, Some(idx)) = (fate, idx) {
            self.idle.push(idx);
        }
        Ok(())
    }

    fn drop_call(&mut self, idx: Option<usize>) {
        let Some(idx) = idx else { return };
        if self.calls.get_mut(idx).and_then(Option::take).is_some() {
            self.free.push(idx);
        }
    }

    fn outcome(mut self, window: Window) -> Outcome {
        let now = monotonic_ns();
        let seconds = (now.saturating_sub(window.start_ns) as f64 / 1e9).max(1e-9);
        if let Some(meter) = &mut self.meter {
            meter.sample();
        }
        let is_once = matches!(self.plan.arrivals, Arrivals::Once { .. });
        let open = self.calls.iter().flatten().filter(|call| call.is_busy);
        let stalled = open.filter(|call| is_once || now.saturating_sub(call.heard_ns) > STALLED_NS).count();
        for _ in 0..stalled {
            self.tallies.failed("not_ended");
        }
        if self.tallies.call_count + self.tallies.event_count == 0 && self.tallies.failures.is_empty() {
            self.tallies.failed("nothing_ended");
        }
        let mock_util = window.mock.and_then(|(pid, before)| Some(cpu_time(pid)?.saturating_sub(before)));
        Outcome {
            seconds,
            call_count: self.tallies.call_count,
            event_count: self.tallies.event_count,
            latency: self.tallies.latency.quantiles(),
            first_event: self.tallies.first_event.quantiles(),
            gap: self.tallies.gap.quantiles(),
            one_way: self.tallies.one_way.quantiles(),
            failures: self.tallies.failures,
            open_peak_count: self.open_peak_count,
            load_util: own_cpu().saturating_sub(window.own_cpu).as_secs_f64() / seconds,
            mock_util: mock_util.map_or(0.0, |cpu| cpu.as_secs_f64() / seconds),
            gateway: self.meter.map(|meter| meter.cost(seconds)),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::{mark, started};
    use crate::prompt::Chat;

    fn mock() -> Target {
        let addr = started(1)[0];
        Target::parse(&format!("http://{addr}")).expect("a URL")
    }

    fn plan(target: &Target, arrivals: Arrivals, events: Option<u64>) -> Drive {
        let tag = events.map_or_else(String::new, |count| mark(count, 200, 0));
        Drive {
            target: target.clone(),
            requests: vec![Chat { tag, ..Chat::default() }.bytes(target)],
            arrivals,
            expected_event_count: events,
            warm_up: Duration::ZERO,
            time: Duration::from_millis(200),
            pid: None,
            mock_pid: None,
        }
    }

    #[test]
    fn whole_answers_are_counted_in_closed_and_open_loops() {
        let target = mock();
        let arrivals = [
            Arrivals::Closed { connection_count: 4, ramp: Duration::ZERO },
            Arrivals::Open { calls_per_second: 200.0, open_max: 100 },
        ];
        for arrivals in arrivals {
            let found = run(&plan(&target, arrivals, None), Progress::Silent).expect("it ran");
            assert!(found.call_count > 0 && found.failures.is_empty(), "{found:?}");
            assert_eq!((found.event_count, found.latency.count), (0, found.call_count));
        }
    }

    #[test]
    fn every_stream_of_a_crowd_is_read_to_its_end() {
        let target = mock();
        let once = Arrivals::Once { call_count: 50, ramp: Duration::from_millis(10) };
        let crowd = Drive { time: Duration::from_secs(20), ..plan(&target, once, Some(10)) };
        let found = run(&crowd, Progress::Silent).expect("it ran");
        assert_eq!((found.call_count, found.event_count, found.failure_count()), (50, 500, 0));
        assert_eq!((found.one_way.count, found.first_event.count), (500, 50));
        assert!(found.open_peak_count > 0);
    }

    #[test]
    fn a_stream_with_fewer_events_than_asked_for_is_a_fault_and_so_is_a_closed_door() {
        let target = mock();
        let once = Arrivals::Once { call_count: 2, ramp: Duration::ZERO };
        let short = Drive { expected_event_count: Some(11), ..plan(&target, once, Some(10)) };
        let found = run(&short, Progress::Silent).expect("it ran");
        assert_eq!(found.failures.get("short_stream"), Some(&2));
        let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
        let nobody = Target::parse(&format!("http://{port}")).expect("a URL");
        let found = run(&plan(&nobody, once, None), Progress::Silent).expect("it ran");
        assert_eq!((found.failures.get("refused"), found.call_count), (Some(&2), 0));
    }
}
