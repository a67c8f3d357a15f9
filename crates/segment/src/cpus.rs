//! The number of CPUs, which determines the number of lanes and stripes.

use std::sync::atomic::{AtomicUsize, Ordering};

/// On a machine with at most this number of CPUs, each counter begins with a lane for each CPU. On
/// a larger one, this would cost too much memory and slow down scrapes.
pub(crate) const FEW: usize = 16;
/// The maximum number of CPUs with a lane. Threads on other CPUs use the shared lanes.
pub(crate) const MAX_LANES: usize = 1024;
/// The number of shared lanes on a machine with many CPUs, for threads on a CPU without a lane. For
/// example, the CPU was plugged in later, or the file is from a smaller machine. This number is
/// part of the format, because it can be the number of lanes of a family's side allocations.
pub(crate) const SHARED: usize = 8;

/// Returns the number of the last online CPU, plus one. It is read only once, so a CPU that you
/// plug in later does not change it.
pub(crate) fn count() -> usize {
    #[cold]
    fn look() -> usize {
        let count = online().unwrap_or_else(parallelism).max(1);
        COUNT.store(count, Ordering::Relaxed);
        count
    }
    match COUNT.load(Ordering::Relaxed) {
        0 => look(),
        count => count,
    }
}

/// Pretends to this process that the machine has `count` CPUs. Call this in a test or benchmark
/// before you open a family, because open families keep their lanes.
#[doc(hidden)]
pub fn pretend_cpus(count: usize) {
    COUNT.store(count, Ordering::Relaxed);
}

/// Returns the number of lanes for CPUs, and the number of shared lanes.
pub(crate) fn lane_counts(has_sequences: bool) -> (usize, usize) {
    let cpus = count();
    if !has_sequences {
        // On Linux, a container may be allowed only some of the CPUs.
        return (0, parallelism().min(cpus).min(MAX_ATOMIC));
    }
    (cpus.min(MAX_LANES), if cpus > FEW { SHARED } else { 1 })
}

/// The maximum number of shared lanes on a machine without restartable sequences.
const MAX_ATOMIC: usize = 64;

/// The number of CPUs; 0 until it is known. This uses no lock, because a child that is forked while
/// another thread reads the number would wait forever. All threads find the same number.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn parallelism() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Reads the list of the online CPUs, such as `0-3,8-11`. The number of configured CPUs would
/// include the CPUs that a hypervisor could add.
#[cfg(all(target_os = "linux", not(any(miri, loom))))]
fn online() -> Option<usize> {
    online_by("/sys/devices/system/cpu/online")
}

/// Uses the number of configured CPUs if the list at `path` cannot be read, for example in a
/// sandbox. The standard library would only count the CPUs that the process may use.
#[cfg(all(target_os = "linux", not(any(miri, loom))))]
fn online_by(path: &str) -> Option<usize> {
    std::fs::read_to_string(path).ok().and_then(|list| last_of(&list)).or_else(|| {
        // SAFETY: sysconf has no preconditions.
        let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        usize::try_from(count).ok()
    })
}

#[cfg(not(all(target_os = "linux", not(any(miri, loom)))))]
fn online() -> Option<usize> {
    None
}

/// Returns the last number of a list of ranges, plus one.
#[cfg(any(test, all(target_os = "linux", not(any(miri, loom)))))]
fn last_of(list: &str) -> Option<usize> {
    let last = list.trim().rsplit([',', '-']).next()?;
    last.parse::<usize>().ok()?.checked_add(1)
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn without_a_list_of_cpus_the_configured_ones_count() {
        let (listed, configured) = (super::online(), super::online_by("/nowhere/online"));
        assert!(configured >= listed.filter(|count| *count > 0), "{listed:?}, {configured:?}");
    }

    #[test]
    fn the_last_cpu_that_is_online_counts() {
        for (list, count) in
            [("0\n", Some(1)), ("0-127\n", Some(128)), ("0-3,8-11", Some(12)), ("0,5", Some(6))]
        {
            assert_eq!(super::last_of(list), count, "{list:?}");
        }
        for list in ["", "x", "0-", "0-18446744073709551615"] {
            assert_eq!(super::last_of(list), None, "{list:?}");
        }
    }
}
