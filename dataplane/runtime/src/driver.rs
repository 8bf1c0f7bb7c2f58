//! Which driver a core runs on: io_uring with the flags that were measured best, or epoll where io_uring is refused.

use std::fmt;
use std::io;

/// Submission queue entries of a core's ring. Completions have twice as many, and the kernel keeps what overflows.
const RING_ENTRIES: u32 = 4096;

/// A driver that cores can run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// io_uring with `COOP_TASKRUN` and `SINGLE_ISSUER` (Linux 6.0 and later).
    IoUring,
    /// epoll: slower at system calls, the same otherwise.
    Epoll,
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IoUring => "io_uring",
            Self::Epoll => "epoll",
        })
    }
}

/// What the operator asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DriverChoice {
    /// io_uring where it works, else epoll.
    #[default]
    Auto,
    /// This one.
    Only(Driver),
}

/// Finds the driver that works here, and why io_uring does not when it does not.
///
/// Errors: io_uring was asked for and the kernel refuses it.
pub fn choose(choice: DriverChoice) -> io::Result<(Driver, Option<String>)> {
    match choice {
        DriverChoice::Only(Driver::Epoll) => Ok((Driver::Epoll, Some("as asked".to_owned()))),
        DriverChoice::Only(Driver::IoUring) => try_ring().map(|()| (Driver::IoUring, None)),
        DriverChoice::Auto => match try_ring() {
            Ok(()) => Ok((Driver::IoUring, None)),
            Err(error) => Ok((Driver::Epoll, Some(format!("io_uring is refused here: {error}")))),
        },
    }
}

/// Runs `future` to its end on this thread, on `driver`. The runtime is built here because `SINGLE_ISSUER` ties a ring
/// to the thread that made it.
///
/// Errors: the runtime could not be built.
pub fn block_on<F: Future>(driver: Driver, future: F) -> io::Result<F::Output> {
    match driver {
        Driver::IoUring => {
            let mut runtime = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new()
                .with_entries(RING_ENTRIES)
                .uring_builder(ring_flags())
                .enable_timer()
                .build()?;
            let outcome = runtime.block_on(future);
            // Reads may still be armed; dropping the runtime would free buffers that the kernel writes to. A core ends
            // with its process, so nothing is lost by keeping them.
            std::mem::forget(runtime);
            Ok(outcome)
        }
        Driver::Epoll => {
            let mut runtime = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new().enable_timer().build()?;
            Ok(runtime.block_on(future))
        }
    }
}

/// Runs `future` on this thread on whichever driver works: for tests and small tools.
///
/// # Panics
/// When no runtime can be built at all.
#[expect(clippy::expect_used, reason = "a test without a runtime cannot go on")]
pub fn run_local<F: Future>(future: F) -> F::Output {
    let (driver, _) = choose(DriverChoice::Auto).expect("a driver");
    block_on(driver, future).expect("a runtime")
}

/// The flags that cost least (docs/decisions/0001). `DEFER_TASKRUN` gains nothing here and can hang.
fn ring_flags() -> io_uring::Builder {
    let mut builder = io_uring::IoUring::builder();
    builder.setup_coop_taskrun().setup_single_issuer();
    builder
}

fn try_ring() -> io::Result<()> {
    let mut builder = ring_flags();
    builder.dontfork();
    builder.build(8).map(|_: io_uring::IoUring| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_drivers_run_a_task_with_a_timer() {
        for driver in [Driver::Epoll, choose(DriverChoice::Auto).unwrap().0] {
            let slept = block_on(driver, async {
                crate::timer::sleep(std::time::Duration::from_millis(1)).await;
                7
            });
            assert_eq!(slept.unwrap(), 7);
        }
    }

    #[test]
    fn asking_for_epoll_says_that_it_was_asked_for() {
        let (driver, why) = choose(DriverChoice::Only(Driver::Epoll)).unwrap();
        assert_eq!((driver, why.as_deref()), (Driver::Epoll, Some("as asked")));
    }
}
