//! What reloads are judged by, and how they are shown.

use super::ReloadsReport;
use crate::report::{Report, row, spread};

impl Report for ReloadsReport {
    fn rows(&self) -> Vec<(String, String)> {
        let named = |name: &str, report: &dyn Fn() -> Vec<(String, String)>| {
            let rows = report().into_iter().map(|(key, value)| (format!("  {key}"), value));
            std::iter::once(row(name, "")).chain(rows).collect::<Vec<_>>()
        };
        let mut rows = named("how much it takes", &|| self.capacity.rows());
        rows.extend(named("reloads under half of it", &|| self.load.rows()));
        rows.push(row("  reloads", format!("{} of {} came into force", self.applied_count, self.reload_count)));
        for (how, times) in &self.applied {
            rows.push(row(&format!("  in force, {how}"), spread(times)));
        }
        rows.push(row("  in the log", format!("{} loaded, {} refused", self.loaded_lines, self.refused_lines)));
        let (good, all, waves) = (self.good_stream_count, self.stream_count, self.waves);
        rows.push(row("  streams", format!("{good} good of {all}, in {waves} waves")));
        let gauges: Vec<String> = self.gauges.iter().map(|(name, value)| format!("{name} {value}")).collect();
        rows.push(row("  gauges at the end", gauges.join(", ")));
        rows
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.capacity.faults();
        faults.extend(self.load.faults());
        faults.extend(self.stream_faults.iter().cloned());
        faults.extend(self.problems.iter().cloned());
        if self.load.stale_count > 0 {
            faults.push(format!("{} kept connections were closed under their client", self.load.stale_count));
        }
        if self.applied_count != self.reload_count || self.loaded_lines < self.reload_count {
            let (applied, all, lines) = (self.applied_count, self.reload_count, self.loaded_lines);
            faults.push(format!("{applied} of {all} reloads came into force, {lines} by the log"));
        }
        if self.refused_lines > 0 {
            faults.push(format!("{} configurations were refused", self.refused_lines));
        }
        for (name, value) in self.gauges.iter().filter(|(_, value)| **value != 0.0) {
            faults.push(format!("{name} is {value} with nothing open"));
        }
        faults
    }
}
