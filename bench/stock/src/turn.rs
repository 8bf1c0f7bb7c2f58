//! What a client connection and the request in hand know of each other: whose turn it is, since when, until when.
//!
//! One a connection, shared by its socket, its watch and its request, which all run in one task: the atomics are there
//! because the task may move between threads.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use llmgw_kit::clock::Mono;

use crate::patience::Patience;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing of a request has come.
    Idle = 0,
    /// A head is arriving.
    Head = 1,
    /// A request is being served.
    Busy = 2,
    /// The answer is complete, some of it perhaps still unsent.
    Answered = 3,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Turn {
    phase: AtomicU8,
    since: AtomicU64,
    busy_until: AtomicU64,
    is_write_blocked: AtomicBool,
    lingers: AtomicBool,
    is_overdue: AtomicBool,
    is_cut: AtomicBool,
    /// Of the requests, one after the other.
    patience: Mutex<Patience>,
}

impl Turn {
    pub(crate) fn new() -> Self {
        Self {
            phase: AtomicU8::new(Phase::Idle as u8),
            since: AtomicU64::new(Mono::now().0),
            busy_until: AtomicU64::new(u64::MAX),
            is_write_blocked: AtomicBool::new(false),
            lingers: AtomicBool::new(false),
            is_overdue: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            patience: Mutex::default(),
        }
    }

    /// Ready when `until` has come, or when this gateway waits no longer. For the request in hand.
    pub(crate) fn poll_until(&self, cx: &mut Context<'_>, until: Mono) -> Poll<()> {
        if self.is_cut() {
            return Poll::Ready(());
        }
        self.patience.lock().unwrap_or_else(PoisonError::into_inner).poll(cx, until)
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Idle,
            1 => Phase::Head,
            2 => Phase::Busy,
            _ => Phase::Answered,
        }
    }

    /// When the phase began; said of all but [`Phase::Busy`].
    pub(crate) fn since(&self) -> Mono {
        Mono(self.since.load(Relaxed))
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
        // Of a request in hand it is its end that counts.
        if phase != Phase::Busy {
            self.since.store(Mono::now().0, Relaxed);
        }
    }

    /// Bytes came from the client.
    pub(crate) fn heard(&self) {
        if matches!(self.phase(), Phase::Idle | Phase::Answered) {
            self.enter(Phase::Head);
        }
    }

    /// When the request in hand must be over, its answer taken in.
    pub(crate) fn busy_until(&self) -> Mono {
        Mono(self.busy_until.load(Relaxed))
    }

    pub(crate) fn set_busy_until(&self, until: Mono) {
        self.busy_until.store(until.0, Relaxed);
    }

    /// The client has not taken in what was written last.
    pub(crate) fn is_write_blocked(&self) -> bool {
        self.is_write_blocked.load(Relaxed)
    }

    pub(crate) fn set_write_blocked(&self, is_blocked: bool) {
        self.is_write_blocked.store(is_blocked, Relaxed);
    }

    /// The client may be sending what nobody will read: its connection is not torn down at once, so that it can read
    /// the answer.
    pub(crate) fn lingers(&self) -> bool {
        self.lingers.load(Relaxed)
    }

    pub(crate) fn linger(&self) {
        self.lingers.store(true, Relaxed);
    }

    /// This gateway ends before the request could.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Relaxed)
    }

    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Relaxed);
    }

    /// The request ends because its time is up.
    pub(crate) fn is_overdue(&self) -> bool {
        self.is_overdue.load(Relaxed)
    }

    pub(crate) fn set_overdue(&self) {
        self.is_overdue.store(true, Relaxed);
    }
}
