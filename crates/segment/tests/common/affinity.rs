//! Moves threads between CPUs, in the middle of their additions.

/// Moves a thread to the next CPU that this process may use.
pub(crate) fn pin(thread: i32, turn: usize) {
    // SAFETY: zeros are an empty set, and both calls get the size of their set.
    unsafe {
        let size = size_of::<libc::cpu_set_t>();
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size, &raw mut allowed) != 0 {
            return;
        }
        let cpus = 0..libc::CPU_SETSIZE as usize;
        let cpus: Vec<usize> = cpus.filter(|&cpu| libc::CPU_ISSET(cpu, &allowed)).collect();
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpus[turn % cpus.len()], &mut one);
        // A thread that has ended cannot be moved.
        libc::sched_setaffinity(thread, size, &raw const one);
    }
}
