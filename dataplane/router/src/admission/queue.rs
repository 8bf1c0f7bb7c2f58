//! Who waits for a gate: tickets by arrival in each band, within bounds of count and bytes.
//!
//! Kept by the controller, one [`Line`] for each gate. Knows nothing of turns, pools or cells; says only whether there
//! is room, and who is next to go where there is none ([`super::displace`]).

use llmgw_kit::clock::Mono;
use llmgw_types::BandRank;

use super::BANDS_MAX;
use super::slab::{NONE, Slab};
use crate::message::{TICKET_POOLS_MAX, Ticket, TicketPools};

/// Bounds of one gate's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests of one band.
    pub per_band: u32,
    /// Requests of all bands.
    pub total: u32,
    /// What they hold in memory.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_band: 2000, total: 8000, bytes: 2 << 30 }
    }
}

/// A ticket that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    pub(super) band: BandRank,
    pub(super) bytes: u32,
    pub(super) deadline: Mono,
    /// Whose line it stands in.
    pub(super) gate: u64,
    /// The table that names its pools.
    pub(super) generation: u64,
    /// Its pools, and its row in the turns of each; pools that are gone have none.
    pub(super) pools: TicketPools,
    pub(super) rows: [u32; TICKET_POOLS_MAX],
    /// Told apart from others that had the same row before.
    pub(super) stamp: u32,
    pub(super) older: u32,
    pub(super) newer: u32,
}

impl Waiting {
    pub(super) fn new(ticket: Ticket, band: BandRank, gate: u64, stamp: u32) -> Self {
        Self {
            ticket,
            band,
            gate,
            stamp,
            bytes: 0,
            deadline: Mono(0),
            generation: 0,
            pools: [].into_iter().collect(),
            rows: [NONE; TICKET_POOLS_MAX],
            older: NONE,
            newer: NONE,
        }
    }
}

/// Those of one band.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rank {
    pub(super) oldest: u32,
    pub(super) newest: u32,
    pub(super) count: u32,
    pub(super) bytes: u64,
}

impl Default for Rank {
    fn default() -> Self {
        Self { oldest: NONE, newest: NONE, count: 0, bytes: 0 }
    }
}

/// One gate's queue.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) limits: Limits,
    pub(super) ranks: [Rank; BANDS_MAX + 1],
    pub(super) count: u32,
    pub(super) bytes: u64,
}

impl Line {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, ranks: [Rank::default(); BANDS_MAX + 1], count: 0, bytes: 0 }
    }

    /// Whether the band has room for one more.
    pub(super) fn has_room_in(&self, band: BandRank) -> bool {
        self.ranks[band.idx()].count < self.limits.per_band
    }

    /// Whether so many requests fewer, and so many bytes fewer, leave room for one of `bytes`.
    pub(super) fn fits(&self, bytes: u32, fewer: Rank) -> bool {
        let bytes = self.bytes.saturating_sub(fewer.bytes).saturating_add(bytes.into());
        self.count.saturating_sub(fewer.count) < self.limits.total && bytes <= self.limits.bytes
    }

    /// Adds a ticket that is in the slab already, as the newest of its band.
    pub(super) fn push(&mut self, tickets: &mut Slab<Waiting>, row: u32) {
        let Some(ticket) = tickets.get_mut(row) else { return };
        let rank = &mut self.ranks[ticket.band.idx()];
        (ticket.older, ticket.newer) = (rank.newest, NONE);
        rank.count += 1;
        rank.bytes += u64::from(ticket.bytes);
        self.count += 1;
        self.bytes += u64::from(ticket.bytes);
        let before = std::mem::replace(&mut rank.newest, row);
        match tickets.get_mut(before) {
            Some(before) => before.newer = row,
            None => rank.oldest = row,
        }
    }

    /// Takes a ticket out of the line and out of the slab.
    pub(super) fn remove(&mut self, tickets: &mut Slab<Waiting>, row: u32) -> Option<Waiting> {
        let ticket = tickets.remove(row)?;
        let rank = &mut self.ranks[ticket.band.idx()];
        match tickets.get_mut(ticket.older) {
            Some(older) => older.newer = ticket.newer,
            None => rank.oldest = ticket.newer,
        }
        match tickets.get_mut(ticket.newer) {
            Some(newer) => newer.older = ticket.older,
            None => rank.newest = ticket.older,
        }
        rank.count -= 1;
        rank.bytes -= u64::from(ticket.bytes);
        self.count -= 1;
        self.bytes -= u64::from(ticket.bytes);
        Some(ticket)
    }
}

#[cfg(test)]
mod tests {
    use llmgw_types::CoreId;

    use super::*;

    fn add(line: &mut Line, tickets: &mut Slab<Waiting>, band: u8, bytes: u32) -> u32 {
        let ticket = Ticket { core: CoreId(0), number: tickets.end().into() };
        let row = tickets.insert(Waiting { bytes, ..Waiting::new(ticket, BandRank(band), 0, 0) });
        line.push(tickets, row);
        row
    }

    #[test]
    fn a_line_knows_its_oldest_and_newest_and_what_it_holds() {
        let (mut line, mut tickets) = (Line::new(Limits::default()), Slab::default());
        let rows: Vec<u32> = [(1, 10), (1, 20), (2, 40), (1, 80)]
            .map(|(band, bytes)| add(&mut line, &mut tickets, band, bytes))
            .to_vec();
        let ends = |line: &Line, band: usize| (line.ranks[band].oldest, line.ranks[band].newest);
        assert_eq!((ends(&line, 1), ends(&line, 2)), ((rows[0], rows[3]), (rows[2], rows[2])));
        assert_eq!((line.count, line.bytes, line.ranks[1].bytes), (4, 150, 110));
        assert!(line.remove(&mut tickets, rows[1]).is_some() && line.remove(&mut tickets, rows[1]).is_none());
        assert!(line.remove(&mut tickets, rows[3]).is_some());
        assert_eq!((ends(&line, 1), line.count, line.bytes), ((rows[0], rows[0]), 2, 50));
        line.remove(&mut tickets, rows[0]);
        line.remove(&mut tickets, rows[2]);
        assert_eq!((ends(&line, 1), line.count, line.bytes, tickets.len()), ((NONE, NONE), 0, 0, 0));
    }

    #[test]
    fn bounds_hold_by_band_in_total_and_in_bytes() {
        let limits = Limits { per_band: 2, total: 3, bytes: 100 };
        let (mut line, mut tickets) = (Line::new(limits), Slab::default());
        add(&mut line, &mut tickets, 1, 30);
        assert!(line.has_room_in(BandRank(1)) && line.fits(70, Rank::default()) && !line.fits(71, Rank::default()));
        add(&mut line, &mut tickets, 1, 30);
        assert!(!line.has_room_in(BandRank(1)) && line.has_room_in(BandRank(2)));
        add(&mut line, &mut tickets, 2, 30);
        assert!(!line.fits(0, Rank::default()));
        assert!(line.fits(70, Rank { count: 2, bytes: 60, ..Rank::default() }));
    }
}
