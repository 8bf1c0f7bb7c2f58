//! When a budget's periods begin: midnights, and first midnights of months, in a named time zone.
//!
//! Asked off the cores, which get the instants. The zones' rules are in the binary; no file of the system is read.

use jiff::civil::Date;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan};

use crate::limits::Period;

/// Whether there is a time zone of that name.
pub fn is_zone(name: &str) -> bool {
    zone(name).is_some()
}

/// The beginnings of so many periods, the first of them the one that holds `from`. Units: unix seconds, rising.
///
/// A midnight that a zone's clocks skip begins the day when they go on; one that they show twice begins it the first
/// time. `None` when there is no such zone, or no such time.
pub fn edges(name: &str, period: Period, from: i64, count: usize) -> Option<Vec<u32>> {
    let zone = zone(name)?;
    let today = Timestamp::from_second(from).ok()?.to_zoned(zone.clone()).date();
    let mut date = match period {
        Period::Day => today,
        Period::Month => today.first_of_month(),
    };
    let mut edges = Vec::with_capacity(count);
    for _ in 0..count {
        edges.push(begin(&zone, date)?);
        let next = match period {
            Period::Day => date.checked_add(1.day()),
            Period::Month => date.checked_add(1.month()),
        };
        date = next.ok()?;
    }
    Some(edges)
}

fn begin(zone: &TimeZone, date: Date) -> Option<u32> {
    let begin = zone.to_ambiguous_timestamp(date.at(0, 0, 0, 0)).compatible().ok()?;
    u32::try_from(begin.as_second()).ok()
}

fn zone(name: &str) -> Option<TimeZone> {
    if name == "UTC" {
        return Some(TimeZone::UTC);
    }
    TimeZoneDatabase::bundled().get(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(text: &str) -> i64 {
        text.parse::<Timestamp>().expect("a time").as_second()
    }

    #[track_caller]
    fn check(zone: &str, period: Period, from: &str, expected: &[&str]) {
        let edges = edges(zone, period, second(from), expected.len()).expect("a zone");
        let shown: Vec<_> =
            edges.iter().map(|edge| Timestamp::from_second((*edge).into()).expect("a time").to_string()).collect();
        assert_eq!(shown, expected, "{zone} from {from}");
    }

    #[test]
    fn days_begin_at_local_midnight_also_where_clocks_change() {
        let (day, berlin) = (Period::Day, "Europe/Berlin");
        // 23 hours, 25 hours.
        let spring = ["2026-03-27T23:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "2026-03-30T22:00:00Z"];
        check(berlin, day, "2026-03-28T12:00:00Z", &spring);
        let autumn = ["2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"];
        check(berlin, day, "2026-10-25T00:30:00Z", &autumn);
        check("Asia/Tokyo", day, "2026-02-28T15:00:00Z", &["2026-02-28T15:00:00Z", "2026-03-01T15:00:00Z"]);
        check("UTC", day, "2026-01-01T00:00:00Z", &["2026-01-01T00:00:00Z"]);
        check("Asia/Kolkata", day, "2026-01-01T18:29:59Z", &["2025-12-31T18:30:00Z", "2026-01-01T18:30:00Z"]);
    }

    #[test]
    fn a_midnight_that_clocks_skip_or_show_twice_begins_one_day() {
        // Beirut goes from 00:00 to 01:00 in spring, and from 00:00 back to 23:00 in autumn.
        check("Asia/Beirut", Period::Day, "2026-03-29T12:00:00Z", &["2026-03-28T22:00:00Z", "2026-03-29T21:00:00Z"]);
        let days = edges("Asia/Beirut", Period::Day, second("2026-10-20T12:00:00Z"), 10).expect("a zone");
        assert!(days.windows(2).all(|pair| (82_000..91_000).contains(&(pair[1] - pair[0]))), "{days:?}");
    }

    #[test]
    fn months_begin_on_their_first_whatever_their_length() {
        check(
            "Europe/Berlin",
            Period::Month,
            "2026-01-31T12:00:00Z",
            &["2025-12-31T23:00:00Z", "2026-01-31T23:00:00Z", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"],
        );
        check("Asia/Tokyo", Period::Month, "2026-01-31T15:00:00Z", &["2026-01-31T15:00:00Z", "2026-02-28T15:00:00Z"]);
    }

    #[test]
    fn only_zones_that_are_known_are_zones() {
        for name in ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires"] {
            assert!(is_zone(name), "{name}");
        }
        for name in ["", "Europe/Atlantis", "../etc/passwd"] {
            assert!(!is_zone(name), "{name}");
        }
    }
}
