//! Where log lines go: one bounded queue, one thread that writes them out.
//!
//! Whoever logs only puts a line into the queue. When the reader of standard error is slow the queue fills, further
//! lines are dropped and counted, and the count is written once there is room: nobody waits for a log.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Bounds of the queue. Beyond either of them lines are lost.
const LINES_MAX: usize = 8192;
const BYTES_MAX: usize = 8 << 20;
/// What is written with one call.
const BATCH_BYTES: usize = 64 << 10;
/// How long the end of the process waits for room in a full queue, and again for what is queued to be written.
const FLUSH_TRY: Duration = Duration::from_millis(10);
const FLUSH_TRIES: u32 = 100;

enum Entry {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// The writing end; cheap to clone, for any thread.
#[derive(Clone, Debug)]
pub struct Sink {
    entries: SyncSender<Entry>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    queued_bytes: AtomicUsize,
    lost_lines: AtomicU64,
}

impl Sink {
    /// Starts the thread. `lost` makes the line that tells of lost ones.
    pub(crate) fn start(out: Box<dyn Write + Send>, lost: fn(u64) -> Vec<u8>) -> io::Result<Sink> {
        let (entries, queue) = sync_channel(LINES_MAX);
        let counts = Arc::new(Counts::default());
        let writer = Writer { out, queue, counts: counts.clone(), lost, told: 0 };
        std::thread::Builder::new().name("llmgw-log".into()).spawn(move || writer.run())?;
        Ok(Sink { entries, counts })
    }

    /// Queues one whole line, its newline included.
    ///
    /// Loss: a line that finds the queue full is dropped and counted.
    pub fn put(&self, line: Vec<u8>) {
        let bytes = line.len();
        let fits = self.counts.queued_bytes.fetch_add(bytes, Relaxed).saturating_add(bytes) <= BYTES_MAX;
        if fits && self.entries.try_send(Entry::Line(line)).is_ok() {
            return;
        }
        self.counts.queued_bytes.fetch_sub(bytes, Relaxed);
        self.counts.lost_lines.fetch_add(1, Relaxed);
    }

    /// Lines lost since the start, for the metrics page.
    pub fn lost_lines(&self) -> u64 {
        self.counts.lost_lines.load(Relaxed)
    }

    /// Waits until everything queued before is written, some two seconds at most. For the end of the process.
    pub(crate) fn flush(&self) {
        let (done, written) = sync_channel(1);
        let mut entry = Entry::Flush(done);
        for _ in 0..FLUSH_TRIES {
            match self.entries.try_send(entry) {
                Ok(()) => {
                    let _: Result<(), RecvTimeoutError> = written.recv_timeout(FLUSH_TRY * FLUSH_TRIES);
                    return;
                }
                Err(TrySendError::Full(again)) => entry = again,
                Err(TrySendError::Disconnected(_)) => return,
            }
            std::thread::sleep(FLUSH_TRY);
        }
    }
}

/// One call is one line: the formatting layer hands over whole lines.
impl Write for Sink {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Writer {
    out: Box<dyn Write + Send>,
    queue: Receiver<Entry>,
    counts: Arc<Counts>,
    lost: fn(u64) -> Vec<u8>,
    told: u64,
}

impl Writer {
    /// Writes until the last sink is gone. An error of the output is not reported: there is nowhere to report it.
    fn run(mut self) {
        let mut batch = Vec::new();
        while let Ok(first) = self.queue.recv() {
            let mut flushes = Vec::new();
            let mut next = Some(first);
            while let Some(entry) = next {
                match entry {
                    Entry::Line(line) => {
                        self.counts.queued_bytes.fetch_sub(line.len(), Relaxed);
                        batch.extend_from_slice(&line);
                    }
                    Entry::Flush(done) => flushes.push(done),
                }
                next = if batch.len() < BATCH_BYTES { self.queue.try_recv().ok() } else { None };
            }
            let lost = self.counts.lost_lines.load(Relaxed);
            if lost > self.told {
                batch.extend_from_slice(&(self.lost)(lost - self.told));
                self.told = lost;
            }
            let _ = self.out.write_all(&batch).and_then(|()| self.out.flush());
            batch.clear();
            for done in flushes {
                let _ = done.try_send(());
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc::Sender;

    /// An output the test can read.
    #[derive(Clone, Default)]
    pub(crate) struct Kept(pub(crate) Arc<Mutex<Vec<u8>>>);

    impl Kept {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().expect("no panic while held").clone()).expect("logs are text")
        }
    }

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic while held").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    pub(crate) fn lost(count: u64) -> Vec<u8> {
        format!("lost {count}\n").into_bytes()
    }

    /// An output that says when it is entered and stays stuck until it is let go.
    struct Stuck(Sender<()>, Receiver<()>, Kept);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(());
            let _ = self.1.recv();
            self.2.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_come_out_whole_and_in_order() {
        let kept = Kept::default();
        let sink = Sink::start(Box::new(kept.clone()), lost).expect("a thread");
        (0..100).for_each(|n| sink.put(format!("line {n}\n").into_bytes()));
        sink.flush();
        let expected: String = (0..100).map(|n| format!("line {n}\n")).collect();
        assert_eq!(kept.text(), expected);
        assert_eq!(sink.lost_lines(), 0);
    }

    #[test]
    fn a_stuck_reader_costs_lines_and_holds_up_nobody() {
        let kept = Kept::default();
        let (entered, is_stuck) = std::sync::mpsc::channel();
        let (let_go, held) = std::sync::mpsc::channel();
        let sink = Sink::start(Box::new(Stuck(entered, held, kept.clone())), lost).expect("a thread");
        sink.put(b"first\n".to_vec());
        is_stuck.recv().expect("the writer is in its write");
        (0..LINES_MAX + 10).for_each(|_| sink.put(b"x\n".to_vec()));
        assert_eq!(sink.lost_lines(), 10);
        sink.put(vec![b'y'; BYTES_MAX + 1]);
        assert_eq!(sink.lost_lines(), 11);
        drop(let_go);
        while kept.text().len() < "first\n".len() + 2 * LINES_MAX {
            std::thread::yield_now();
        }
        sink.flush();
        assert!(kept.text().contains("lost 11\n"));
    }
}
