//! What a drain is judged by, and how it is shown.

use super::{DrainReport, Phase, TOLD_WITHIN};
use crate::report::{Report, row, watched_rows};

impl Report for DrainReport {
    fn rows(&self) -> Vec<(String, String)> {
        let shown = |phase: &Phase| format!("{}; {} on fresh connections", phase.endings, phase.fresh_count);
        let at = |seconds: f64| format!("{seconds:.3} s after the signal");
        let mut rows = vec![
            row("planned calls/s", format!("{:.0}", self.calls_per_second)),
            row("calls before the signal", shown(&self.before)),
            row("until readiness was gone", shown(&self.signalled)),
            row("after that", shown(&self.unready)),
            row("of these ending their connection", format!("{}, {} not", self.last_count, self.kept_count)),
            row("kept connections found closed", self.stale_count.to_string()),
            row("readiness withdrawn", at(self.unready_after)),
            row("client stopped sending", at(self.left_after)),
            row("listener closed", format!("{}, the settle time being {:.1} s", at(self.closed_after), self.settle)),
            row("process ended", at(self.ended_after)),
            row("streams across the end", format!("{} good of {}", self.streams.good_count, self.streams.stream_count)),
        ];
        rows.extend(watched_rows(&self.watched, None));
        rows
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.streams.faults();
        for (name, phase) in [("before", &self.before), ("signalled", &self.signalled), ("unready", &self.unready)] {
            if phase.bad_count > 0 {
                faults.push(format!("{} calls failed, {name}: {}", phase.bad_count, phase.endings));
            }
        }
        if self.before.ok_count == 0 || self.unready.ok_count == 0 || self.unready.fresh_count == 0 {
            faults.push("no call was made before the signal, or none after readiness was gone".to_owned());
        }
        if self.kept_count > 0 {
            let count = self.kept_count;
            faults.push(format!("{count} answers kept their connection {TOLD_WITHIN:?} after readiness was gone"));
        }
        if self.stale_count > 0 {
            faults.push(format!("{} kept connections were closed under their client", self.stale_count));
        }
        if self.closed_after < self.settle {
            let (closed, settle) = (self.closed_after, self.settle);
            faults.push(format!("the listener closed after {closed:.3} s, before the settle time of {settle:.1} s"));
        }
        if self.left_after > self.settle {
            faults.push("the client sent beyond the settle time: the run shows nothing".to_owned());
        }
        if let Some(end) = &self.bad_end {
            faults.push(format!("the gateway ended with {end}"));
        }
        faults
    }
}
