//! The buffers that the kernel puts received bytes into.
//!
//! One block of memory per core, cut into equal buffers. The kernel takes one when bytes have come, not when somebody
//! waits for them: an idle connection holds none. Lent out by completions, given back within the same turn. The kernel
//! takes them in turn, so only as many circulate as were ever wanted at once: few enough to stay in the cache.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

/// One buffer. Units: bytes. What comes together in more than this is put together again when it is read.
pub(super) const BUFFER_BYTES: usize = 4096;
/// The only group of buffers there is.
pub(super) const GROUP: u16 = 0;

/// Buffers that circulate at first, and that join them when all are lent out.
const STEP: u16 = 32;

const PAGE: usize = 4096;

/// A lent buffer's place in its connection's chain.
#[derive(Clone, Copy, Default)]
struct Link {
    /// The bytes that nobody has taken: from here ...
    start: u16,
    /// ... to here.
    end: u16,
    next: u16,
}

/// Lent buffers of one connection that hold bytes nobody has taken yet, in the order in which they came.
#[derive(Clone, Copy, Default)]
pub(super) struct Chain {
    first: u16,
    last: u16,
    count: u16,
}

impl Chain {
    pub(super) fn is_empty(self) -> bool {
        self.count == 0
    }
}

/// Buffers shared with the kernel. Kept for ever: the kernel may write to them as long as the ring is there.
pub(super) struct Buffers {
    ring: *mut BufRingEntry,
    bytes: *mut u8,
    count: u16,
    /// Those above this number are still unused.
    circulating: u16,
    tail: u16,
    links: Vec<Link>,
}

impl Buffers {
    /// Makes `count` buffers (a power of two) and shares them.
    ///
    /// Errors: the kernel refuses (before Linux 5.19).
    pub(super) fn share(uring: &IoUring, count: u16) -> io::Result<Self> {
        assert!(count.is_power_of_two(), "a ring of buffers has a power of two of them");
        let ring = pages(usize::from(count) * size_of::<BufRingEntry>())?.cast::<BufRingEntry>();
        let bytes = pages(usize::from(count) * BUFFER_BYTES)?;
        // SAFETY: page-aligned, zeroed, as long as `count` entries, and never freed.
        unsafe { uring.submitter().register_buf_ring(ring as u64, count, GROUP)? };
        let links = vec![Link::default(); usize::from(count)];
        let mut this = Self { ring, bytes, count, circulating: 0, tail: 0, links };
        this.add();
        Ok(this)
    }

    /// All are lent out, to so many connections: more circulate from now on where most of them hold one each.
    pub(super) fn add_for(&mut self, connections: usize) {
        if connections * 2 > usize::from(self.circulating) {
            self.add();
        }
    }

    fn add(&mut self) {
        let until = (self.circulating + STEP).min(self.count);
        (self.circulating..until).for_each(|id| self.give_back(id));
        self.circulating = until;
    }

    /// Puts a buffer with `len` bytes at the end of a chain.
    pub(super) fn append(&mut self, chain: &mut Chain, id: u16, len: u16) {
        let Some(link) = self.links.get_mut(usize::from(id)) else { return };
        *link = Link { start: 0, end: len, next: 0 };
        match self.links.get_mut(usize::from(chain.last)) {
            Some(last) if chain.count > 0 => last.next = id,
            _ => chain.first = id,
        }
        (chain.last, chain.count) = (id, chain.count + 1);
    }

    /// Takes up to `room` bytes from the front of a chain, piece by piece, and gives back the buffers that are empty
    /// then. Answer: bytes taken.
    pub(super) fn take(&mut self, chain: &mut Chain, room: usize, mut with: impl FnMut(&[u8])) -> usize {
        let mut taken = 0;
        while chain.count > 0 && taken < room {
            let id = chain.first;
            let Some(&Link { start, end, next }) = self.links.get(usize::from(id)) else { break };
            let count = usize::from(end - start).min(room - taken);
            with(&self.bytes(id, usize::from(end))[usize::from(start)..usize::from(start) + count]);
            taken += count;
            if usize::from(start) + count < usize::from(end) {
                if let Some(link) = self.links.get_mut(usize::from(id)) {
                    link.start = start + count as u16;
                }
                break;
            }
            (chain.first, chain.count) = (next, chain.count - 1);
            self.give_back(id);
        }
        taken
    }

    /// The first `len` bytes of a buffer that a completion lent.
    fn bytes(&self, id: u16, len: usize) -> &[u8] {
        assert!(id < self.count && len <= BUFFER_BYTES, "the kernel lends what it was given");
        // SAFETY: within the block, and initialised (zeroed, then written by the kernel). The kernel does not write to
        // a lent buffer until `give_back`, which takes `&mut self`.
        unsafe { std::slice::from_raw_parts(self.bytes.add(usize::from(id) * BUFFER_BYTES), len) }
    }

    /// Gives a lent buffer back. Cost: five stores.
    pub(super) fn give_back(&mut self, id: u16) {
        assert!(id < self.count, "the kernel lends what it was given");
        // SAFETY: the place is within the ring of `count` entries, and ours until the tail says otherwise. The tail
        // lies within the first entry, in a field that entries do not use, and is written by this thread alone.
        unsafe {
            let entry = &mut *self.ring.add(usize::from(self.tail & (self.count - 1)));
            entry.set_addr(self.bytes.add(usize::from(id) * BUFFER_BYTES) as u64);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(id);
            self.tail = self.tail.wrapping_add(1);
            let tail = BufRingEntry::tail(self.ring).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}

/// Zeroed whole pages from the system, in RAM only once they are used: an allocator that is asked for zeroed pages
/// writes zeros to all of them. Errors: there are none left.
fn pages(bytes: usize) -> io::Result<*mut u8> {
    let (bytes, access) = (bytes.max(PAGE).next_multiple_of(PAGE), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping, at a place that the system chooses.
    let pages = unsafe { libc::mmap(ptr::null_mut(), bytes, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    if pages == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(pages.cast()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What bytes a chain gives for rooms of the sizes given, when it holds buffers of the lengths given.
    fn taken(buffers: &mut Buffers, lens: &[u16], rooms: &[usize]) -> Vec<Vec<u8>> {
        let mut chain = Chain::default();
        for (id, len) in (0..).zip(lens) {
            // SAFETY: within the block; nothing reads it meanwhile.
            unsafe {
                buffers.bytes.add(usize::from(id) * BUFFER_BYTES).write_bytes(b'a' + id as u8, usize::from(*len))
            };
            buffers.append(&mut chain, id, *len);
        }
        let took = rooms.iter().map(|&room| {
            let mut bytes = Vec::new();
            let count = buffers.take(&mut chain, room, |piece| bytes.extend_from_slice(piece));
            assert_eq!(count, bytes.len());
            bytes
        });
        took.collect()
    }

    #[test]
    fn buffers_that_nobody_was_lent_are_not_in_ram() {
        let Ok(uring) = IoUring::new(8) else { return };
        let Ok(buffers) = Buffers::share(&uring, 1024) else { return };
        let mut is_in_ram = vec![0u8; 1024 * BUFFER_BYTES / PAGE];
        // SAFETY: the block is mapped, and there is a byte for each of its pages.
        let asked = unsafe { libc::mincore(buffers.bytes.cast(), 1024 * BUFFER_BYTES, is_in_ram.as_mut_ptr()) };
        assert_eq!(asked, 0);
        assert_eq!(is_in_ram.iter().filter(|page| **page & 1 == 1).count(), 0);
    }

    #[test]
    fn a_chain_gives_its_bytes_in_order_whatever_the_rooms() {
        let Ok(uring) = IoUring::new(8) else { return };
        let Ok(mut buffers) = Buffers::share(&uring, 64) else { return };
        let text = |bytes: &[Vec<u8>]| String::from_utf8(bytes.concat()).unwrap();
        for rooms in [&[2, 1, 100, 5][..], &[6, 6], &[1, 1, 1, 1, 1, 1, 1], &[3, 3]] {
            assert_eq!(text(&taken(&mut buffers, &[3, 1, 2], rooms)), "aaabcc");
        }
        let full = taken(&mut buffers, &[4096, 4096], &[5000, 5000]);
        assert_eq!((full[0].len(), full[1].len()), (5000, 3192));
        assert_eq!(taken(&mut buffers, &[], &[10]), [Vec::<u8>::new()]);
    }
}
