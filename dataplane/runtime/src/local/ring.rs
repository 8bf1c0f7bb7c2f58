//! The ring of a core, and what it knows of each descriptor.
//!
//! Three operations are all there is: a receive that stays armed and brings bytes in lent buffers, a poll for one
//! readiness, and the cancelling of either. No operation holds memory of a task, so a task may be dropped at any
//! moment. Sending, accepting and connecting are plain calls that do not block, tried first and polled for when they
//! would.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::buffers::{Buffers, Chain, GROUP};

/// Entries of the submission queue; one that is full is handed over and used again.
pub(super) const ENTRIES: u32 = 1024;
/// Completions that fit the queue; the kernel keeps what overflows.
const COMPLETIONS: u32 = 16 * 1024;
/// Most receive buffers of a core: 4 MiB.
pub(super) const BUFFERS: u16 = 1024;
/// Bytes kept for a descriptor that nobody reads before its receive is taken back. What was under way still comes.
const INBOX_BYTES_MAX: usize = 32 * 1024;
/// A reader with this much room reads by itself, straight into its own buffer.
const DIRECT_BYTES_MIN: usize = 32 * 1024;
/// Buffers for unread bytes kept for reuse.
const SPARE_MAX: usize = 64;

const ENTER_GETEVENTS: u32 = 1;

/// How long a turn waits for something to happen.
pub(super) enum Wait {
    None,
    For(Duration),
    ForEver,
}

/// What an operation is for; part of its number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Receive = 1,
    Readable = 2,
    Writable = 3,
    Cancel = 4,
}

/// Kind (8 bits), life of the place (24 bits), place (32 bits).
fn number(kind: Kind, life: u32, place: u32) -> u64 {
    (kind as u64) << 56 | u64::from(life & 0x00ff_ffff) << 32 | u64::from(place)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Receive {
    Off,
    Armed,
    /// To be off; its last completion is still to come.
    Cancelled,
}

/// How the peer's side of a connection ended.
#[derive(Clone, Copy)]
enum End {
    Eof,
    Failed(i32),
}

struct Slot {
    fd: RawFd,
    life: u32,
    /// The handle is gone; the place is free when nothing is outstanding.
    is_dropped: bool,
    receive: Receive,
    lent: Chain,
    /// Bytes that came and were not taken within their turn.
    inbox: VecDeque<u8>,
    end: Option<End>,
    polls_in: bool,
    polls_out: bool,
    was_readable: bool,
    was_writable: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Slot {
    fn new(life: u32) -> Self {
        Self {
            fd: -1,
            life,
            is_dropped: true,
            receive: Receive::Off,
            lent: Chain::default(),
            inbox: VecDeque::new(),
            end: None,
            polls_in: false,
            polls_out: false,
            was_readable: false,
            was_writable: false,
            reader: None,
            writer: None,
        }
    }

    fn is_idle(&self) -> bool {
        self.receive == Receive::Off && !self.polls_in && !self.polls_out
    }
}

/// The ring, its buffers and its descriptors.
pub(super) struct Ring {
    uring: IoUring,
    buffers: Buffers,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Places that were lent a buffer in this turn.
    lending: Vec<u32>,
    spare: Vec<VecDeque<u8>>,
}

impl Ring {
    /// Errors: the kernel refuses (before Linux 6.0, or where io_uring is forbidden).
    pub(super) fn new(entries: u32, buffers: u16) -> io::Result<Self> {
        let uring = build(entries)?;
        let buffers = Buffers::share(&uring, buffers)?;
        Ok(Self { uring, buffers, slots: Vec::new(), free: Vec::new(), lending: Vec::new(), spare: Vec::new() })
    }

    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: the operations used here hold no memory but the shared buffers, which are never freed.
            if unsafe { self.uring.submission().push(entry) }.is_ok() {
                return;
            }
            self.submit();
        }
    }

    /// Hands over what was asked for, and waits for nothing.
    pub(super) fn submit(&mut self) {
        // An error here is one of an interrupted or busy system call: the entries stay and go with the next one.
        let _ = self.uring.submit();
    }

    /// Ends a turn: hands over what was asked for, waits, and takes in what was finished.
    pub(super) fn turn(&mut self, wait: &Wait) {
        self.keep_lent();
        match wait {
            Wait::None => {
                let count = u32::try_from(self.uring.submission().len()).unwrap_or(0);
                // SAFETY: no argument is passed, and the entries are those pushed above.
                let _ = unsafe { self.uring.submitter().enter::<()>(count, 0, ENTER_GETEVENTS, None) };
            }
            Wait::ForEver => {
                let _ = self.uring.submit_and_wait(1);
            }
            Wait::For(time) => {
                let time = Timespec::new().sec(time.as_secs()).nsec(time.subsec_nanos());
                let _ = self.uring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time));
            }
        }
        let Self { uring, buffers, slots, free, lending, .. } = self;
        for done in uring.completion() {
            let (number, result, flags) = (done.user_data(), done.result(), done.flags());
            let lent = cqueue::buffer_select(flags);
            let place = number as u32;
            let slot = slots.get_mut(place as usize).filter(|slot| slot.life == (number >> 32) as u32 & 0x00ff_ffff);
            let Some(slot) = slot else {
                lent.into_iter().for_each(|id| buffers.give_back(id));
                continue;
            };
            match number >> 56 {
                1 => {
                    if let Some(id) = lent {
                        match u16::try_from(result) {
                            Ok(len @ 1..) if !slot.is_dropped => {
                                if slot.lent.is_empty() {
                                    lending.push(place);
                                }
                                buffers.append(&mut slot.lent, id, len);
                            }
                            _ => buffers.give_back(id),
                        }
                    }
                    if !cqueue::more(flags) {
                        slot.receive = Receive::Off;
                    }
                    match result {
                        1.. => {}
                        0 => slot.end = Some(End::Eof),
                        // All lent out: armed again by whoever reads. One that sends a lot at once is no reason for
                        // more.
                        _ if -result == libc::ENOBUFS => buffers.add_for(lending.len()),
                        _ if matches!(-result, libc::ECANCELED | libc::EAGAIN | libc::EINTR) => {}
                        _ => slot.end = Some(End::Failed(-result)),
                    }
                    slot.reader.take().into_iter().for_each(Waker::wake);
                }
                2 => {
                    (slot.polls_in, slot.was_readable) = (false, true);
                    slot.reader.take().into_iter().for_each(Waker::wake);
                }
                3 => {
                    (slot.polls_out, slot.was_writable) = (false, true);
                    slot.writer.take().into_iter().for_each(Waker::wake);
                }
                _ => continue,
            }
            if slot.is_dropped && slot.is_idle() {
                slot.life = slot.life.wrapping_add(1) & 0x00ff_ffff;
                free.push(place);
            }
        }
    }

    /// Moves what was not taken within its turn out of the kernel's buffers, so that nobody's slowness is another's
    /// want of them.
    fn keep_lent(&mut self) {
        let Self { buffers, slots, lending, spare, .. } = self;
        let mut cancelled = std::mem::take(lending);
        cancelled.retain(|&place| {
            let Some(slot) = slots.get_mut(place as usize) else { return false };
            if !slot.lent.is_empty() {
                if slot.inbox.capacity() == 0 {
                    slot.inbox = spare.pop().unwrap_or_default();
                }
                buffers.take(&mut slot.lent, usize::MAX, |bytes| slot.inbox.extend(bytes));
            }
            slot.receive == Receive::Armed && slot.inbox.len() >= INBOX_BYTES_MAX
        });
        for &place in &cancelled {
            self.stop_receiving(place);
        }
        cancelled.clear();
        self.lending = cancelled;
    }

    fn stop_receiving(&mut self, place: u32) {
        let Some(slot) = self.slots.get_mut(place as usize) else { return };
        slot.receive = Receive::Cancelled;
        let (receive, cancel) = (number(Kind::Receive, slot.life, place), number(Kind::Cancel, slot.life, place));
        self.push(&opcode::AsyncCancel::new(receive).build().user_data(cancel));
    }

    fn poll_for(&mut self, place: u32, kind: Kind) {
        let Some(slot) = self.slots.get_mut(place as usize) else { return };
        let (polls, events) = match kind {
            Kind::Writable => (&mut slot.polls_out, libc::POLLOUT),
            _ => (&mut slot.polls_in, libc::POLLIN),
        };
        if !std::mem::replace(polls, true) {
            let (fd, number) = (slot.fd, number(kind, slot.life, place));
            self.push(&opcode::PollAdd::new(Fd(fd), events as u32).build().user_data(number));
        }
    }

    fn open(&mut self, fd: RawFd) -> (u32, u32) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::new(0));
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let mut life = 0;
        if let Some(slot) = self.slots.get_mut(place as usize) {
            life = slot.life;
            *slot = Slot { fd, is_dropped: false, ..Slot::new(life) };
        }
        (place, life)
    }

    fn close(&mut self, place: u32) {
        let Self { buffers, slots, spare, .. } = self;
        let Some(slot) = slots.get_mut(place as usize) else { return };
        buffers.take(&mut slot.lent, usize::MAX, |_| {});
        retire(&mut slot.inbox, spare);
        (slot.is_dropped, slot.reader, slot.writer) = (true, None, None);
        if slot.is_idle() {
            slot.life = slot.life.wrapping_add(1) & 0x00ff_ffff;
            self.free.push(place);
            return;
        }
        let cancel = number(Kind::Cancel, slot.life, place);
        let outstanding = [
            (slot.receive == Receive::Armed).then(|| number(Kind::Receive, slot.life, place)),
            slot.polls_in.then(|| number(Kind::Readable, slot.life, place)),
            slot.polls_out.then(|| number(Kind::Writable, slot.life, place)),
        ];
        for operation in outstanding.into_iter().flatten() {
            self.push(&opcode::AsyncCancel::new(operation).build().user_data(cancel));
        }
        // What was asked for in this turn names the descriptor by its number, which is free as soon as it is closed: a
        // connection that gets it would lose its first bytes to this one's receive.
        self.submit();
    }

    fn poll_read(&mut self, place: u32, cx: &Context<'_>, buf: &mut Vec<u8>, room: usize) -> Poll<io::Result<usize>> {
        let Self { buffers, slots, spare, .. } = self;
        let Some(slot) = slots.get_mut(place as usize) else { return Poll::Ready(Ok(0)) };
        let mut taken = 0;
        if !slot.inbox.is_empty() {
            taken = room.min(slot.inbox.len());
            let (front, back) = slot.inbox.as_slices();
            let in_front = taken.min(front.len());
            buf.extend_from_slice(&front[..in_front]);
            buf.extend_from_slice(&back[..taken - in_front]);
            slot.inbox.drain(..taken);
            if slot.inbox.is_empty() {
                retire(&mut slot.inbox, spare);
            }
        }
        if !slot.lent.is_empty() {
            taken += buffers.take(&mut slot.lent, room - taken, |bytes| buf.extend_from_slice(bytes));
        }
        if taken > 0 {
            return Poll::Ready(Ok(taken));
        }
        match slot.end {
            Some(End::Eof) => return Poll::Ready(Ok(0)),
            Some(End::Failed(error)) => return Poll::Ready(Err(io::Error::from_raw_os_error(error))),
            None => {}
        }
        if !slot.reader.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            slot.reader = Some(cx.waker().clone());
        }
        let (is_direct, receive, fd) = (room >= DIRECT_BYTES_MIN, slot.receive, slot.fd);
        match receive {
            Receive::Armed if is_direct => self.stop_receiving(place),
            Receive::Off if is_direct => return self.read_directly(place, fd, buf, room),
            Receive::Off if !slot.polls_in => {
                slot.receive = Receive::Armed;
                let number = number(Kind::Receive, slot.life, place);
                self.push(&opcode::RecvMulti::new(Fd(fd), GROUP).build().user_data(number));
            }
            _ => {}
        }
        Poll::Pending
    }

    /// Many bytes are to come: they go to their place without a stop.
    fn read_directly(&mut self, place: u32, fd: RawFd, buf: &mut Vec<u8>, room: usize) -> Poll<io::Result<usize>> {
        let result = receive_now(fd, buf, room);
        let Some(slot) = self.slots.get_mut(place as usize) else { return Poll::Ready(result) };
        match &result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.poll_for(place, Kind::Readable);
                return Poll::Pending;
            }
            Err(error) => slot.end = Some(End::Failed(error.raw_os_error().unwrap_or(libc::EIO))),
            Ok(0) => slot.end = Some(End::Eof),
            Ok(_) => {}
        }
        slot.reader = None;
        Poll::Ready(result)
    }
}

/// Receives what is there into the spare room of `buf`, at most `room` bytes; makes room where there is none.
pub(crate) fn receive_now(fd: RawFd, buf: &mut Vec<u8>, room: usize) -> io::Result<usize> {
    if buf.capacity() == buf.len() {
        buf.reserve_exact(room.min(64 * 1024));
    }
    let spare = buf.spare_capacity_mut();
    let len = spare.len().min(room);
    loop {
        // SAFETY: `len` bytes of spare room from this pointer on belong to `buf`.
        let got = unsafe { libc::recv(fd, spare.as_mut_ptr().cast(), len, libc::MSG_DONTWAIT) };
        if got >= 0 {
            let got = got as usize;
            // SAFETY: the kernel has written so many bytes there, and they fit.
            unsafe { buf.set_len(buf.len() + got) };
            return Ok(got);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn retire(inbox: &mut VecDeque<u8>, spare: &mut Vec<VecDeque<u8>>) {
    let mut inbox = std::mem::take(inbox);
    if (1..=INBOX_BYTES_MAX).contains(&inbox.capacity()) && spare.len() < SPARE_MAX {
        inbox.clear();
        spare.push(inbox);
    }
}

/// Completions are run in the turn that asks for them where the kernel can do that (Linux 6.1), else between any two
/// system calls.
fn build(entries: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_single_issuer().setup_submit_all().setup_cqsize(COMPLETIONS.min(entries * 16));
    let mut deferring = builder.clone();
    deferring.setup_defer_taskrun();
    match deferring.build(entries) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            builder.setup_coop_taskrun();
            builder.build(entries)
        }
        built => built,
    }
}

/// A descriptor on this core's ring. Closed when it is dropped.
pub(crate) struct RingFd {
    fd: OwnedFd,
    place: u32,
    life: u32,
}

impl RingFd {
    /// Takes a non-blocking descriptor into the ring of this thread; gives it back where there is none.
    pub(crate) fn new(fd: OwnedFd) -> Result<Self, OwnedFd> {
        match super::with(|local| local.ring.borrow_mut().open(fd.as_raw_fd())) {
            Some((place, life)) => Ok(Self { fd, place, life }),
            None => Err(fd),
        }
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Where it is, for as long as it lives.
    pub(crate) fn place(&self) -> RingPlace {
        RingPlace(self.place)
    }

    /// Ready once after the descriptor became readable; for those that are not received from.
    pub(crate) fn poll_readable(&self, cx: &Context<'_>) -> Poll<()> {
        self.poll_for(cx, Kind::Readable)
    }

    /// Ready once after the descriptor became writable.
    pub(crate) fn poll_writable(&self, cx: &Context<'_>) -> Poll<()> {
        self.poll_for(cx, Kind::Writable)
    }

    fn poll_for(&self, cx: &Context<'_>, kind: Kind) -> Poll<()> {
        super::with(|local| {
            let mut ring = local.ring.borrow_mut();
            let Some(slot) = ring.slots.get_mut(self.place as usize) else { return Poll::Ready(()) };
            let (was_ready, waiting) = match kind {
                Kind::Writable => (&mut slot.was_writable, &mut slot.writer),
                _ => (&mut slot.was_readable, &mut slot.reader),
            };
            if std::mem::take(was_ready) {
                return Poll::Ready(());
            }
            if !waiting.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *waiting = Some(cx.waker().clone());
            }
            ring.poll_for(self.place, kind);
            Poll::Pending
        })
        .unwrap_or(Poll::Ready(()))
    }
}

/// Where a descriptor is on this core's ring. To be used only while its [`RingFd`] lives.
#[derive(Clone, Copy)]
pub(crate) struct RingPlace(u32);

impl RingPlace {
    /// See [`crate::io::Io::poll_read`].
    pub(crate) fn poll_read(self, cx: &Context<'_>, buf: &mut Vec<u8>, room: usize) -> Poll<io::Result<usize>> {
        super::with(|local| local.ring.borrow_mut().poll_read(self.0, cx, buf, room))
            .unwrap_or(Poll::Ready(Err(io::ErrorKind::NotConnected.into())))
    }
}

impl Drop for RingFd {
    fn drop(&mut self) {
        // An armed operation keeps the connection open in the kernel although its descriptor is closed: end it here. On
        // what is no socket this does nothing.
        // SAFETY: the descriptor is open as long as `self` lives.
        unsafe { libc::shutdown(self.fd.as_raw_fd(), libc::SHUT_RDWR) };
        super::with(|local| {
            let mut ring = local.ring.borrow_mut();
            let is_ours = ring.slots.get(self.place as usize).is_some_and(|slot| slot.life == self.life);
            if is_ours {
                ring.close(self.place);
            }
        });
    }
}
