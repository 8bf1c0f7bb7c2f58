//! Which driver a core runs on: its own ring, or epoll where io_uring is refused.

use std::fmt;
use std::io;

/// A driver that cores can run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The core's own ring (Linux 6.0 and later).
    IoUring,
    /// monoio's epoll driver: slower at system calls, the same otherwise.
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
        DriverChoice::Only(Driver::IoUring) => crate::local::probe().map(|()| (Driver::IoUring, None)),
        DriverChoice::Auto => match crate::local::probe() {
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
        Driver::IoUring => crate::local::block_on(future),
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
