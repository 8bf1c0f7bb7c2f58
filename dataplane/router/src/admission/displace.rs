//! Who goes to make room for a higher band: the newest of the lowest. The oldest have waited most and are nearest to
//! their turn. Called by the controller when a line is full; decides, and takes nobody out.

use llmgw_types::BandRank;

use super::queue::{Line, Rank};

/// Whether room for a request of `band` with so many bytes can be made at all by taking from the bands below.
pub(super) fn is_enough_below(line: &Line, band: BandRank, bytes: u32) -> bool {
    let mut below = Rank::default();
    for rank in &line.ranks[..band.idx()] {
        below.count += rank.count;
        below.bytes += rank.bytes;
    }
    line.fits(bytes, below)
}

/// The next to go for one of `band`; `None` when nobody is below it.
///
/// `oldest` is the simulator's mistake ([`super::Fault::OldestDisplaced`]).
pub(super) fn victim(line: &Line, band: BandRank, oldest: bool) -> Option<u32> {
    let rank = line.ranks[..band.idx()].iter().find(|rank| rank.count > 0)?;
    Some(if oldest { rank.oldest } else { rank.newest })
}

#[cfg(test)]
mod tests {
    use llmgw_types::CoreId;

    use super::*;
    use crate::admission::queue::{Limits, Waiting};
    use crate::admission::slab::Slab;
    use crate::message::Ticket;

    #[test]
    fn the_newest_of_the_lowest_band_below_goes_and_only_where_that_is_enough() {
        let (mut line, mut tickets) = (Line::new(Limits { per_band: 9, total: 4, bytes: 100 }), Slab::default());
        let rows: Vec<u32> = [1, 2, 1, 3]
            .map(|band| {
                let ticket = Ticket { core: CoreId(0), number: 0 };
                let row = tickets.insert(Waiting { bytes: 20, ..Waiting::new(ticket, BandRank(band), 0, 0) });
                line.push(&mut tickets, row);
                row
            })
            .to_vec();
        let victim = |line: &Line, band| victim(line, BandRank(band), false);
        assert_eq!((victim(&line, 1), victim(&line, 2), victim(&line, 3)), (None, Some(rows[2]), Some(rows[2])));
        assert!(!is_enough_below(&line, BandRank(1), 0) && is_enough_below(&line, BandRank(2), 60));
        assert!(!is_enough_below(&line, BandRank(2), 61) && is_enough_below(&line, BandRank(4), 100));
        line.remove(&mut tickets, rows[2]);
        line.remove(&mut tickets, rows[0]);
        assert_eq!((victim(&line, 2), victim(&line, 3)), (None, Some(rows[1])));
    }
}
