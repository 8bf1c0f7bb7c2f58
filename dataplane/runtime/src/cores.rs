//! Starting the cores: one pinned, named thread each, with its own runtime.

use std::io;
use std::thread::JoinHandle;

use crate::driver::{Driver, block_on};

/// CPUs this process may use, in order.
pub fn usable_cpus() -> Vec<usize> {
    let cpus: Vec<usize> = core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id).collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// Keeps this thread, and those it starts from now on, to `cpus`. Where that is refused they run anywhere: slower, not
/// wrong.
pub fn keep_to(cpus: &[usize]) {
    // SAFETY: a set of bits in a local variable, which the macro-like functions of libc fill within its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as usize) {
            libc::CPU_SET(cpu, &mut set);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Starts a thread per entry of `cpus`, pins it there and runs `main` with the setup of the same position until that
/// ends.
///
/// `main` is called on the new thread, since a ring belongs to the thread that made it. Where pinning is refused the
/// thread runs unpinned: slower, not wrong.
///
/// Errors: a thread could not be started.
pub fn spawn_cores<S, M, F>(
    cpus: &[usize],
    driver: Driver,
    setups: impl IntoIterator<Item = S>,
    main: M,
) -> io::Result<Vec<JoinHandle<io::Result<()>>>>
where
    S: Send + 'static,
    M: Fn(S) -> F + Clone + Send + 'static,
    F: Future<Output = io::Result<()>>,
{
    cpus.iter()
        .zip(setups)
        .enumerate()
        .map(|(number, (&cpu, setup))| {
            let main = main.clone();
            std::thread::Builder::new().name(format!("core-{number}")).spawn(move || {
                core_affinity::set_for_current(core_affinity::CoreId { id: cpu });
                block_on(driver, async move { main(setup).await })?
            })
        })
        .collect()
}

/// Raises the limit on open files to what is allowed. Answer: the limit now in force.
pub fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a plain system call on a local struct.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: as above.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_core_runs_its_main_under_its_own_name() {
        let seen = Arc::new(AtomicUsize::new(0));
        let cpu = usable_cpus()[0];
        let threads = spawn_cores(&[cpu, cpu], Driver::Epoll, [0usize, 1], {
            let seen = seen.clone();
            move |number| {
                let seen = seen.clone();
                async move {
                    assert_eq!(std::thread::current().name(), Some(format!("core-{number}").as_str()));
                    seen.fetch_add(1 + number, Ordering::Relaxed);
                    Ok(())
                }
            }
        })
        .unwrap();
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
        assert_eq!(seen.load(Ordering::Relaxed), 3);
    }
}
