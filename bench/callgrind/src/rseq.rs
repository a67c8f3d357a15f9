//! Restartable sequences under valgrind. Valgrind refuses `rseq(2)`, so the library would otherwise
//! take its path for machines that lack them.
//!
//! The C library announces the area of a thread by `__rseq_offset` and `__rseq_size`, which the
//! library looks up by name. This program defines both, and announces its own area, whose CPU is 0.
//! This is sound for a process with one thread that counts in private memory, because no other
//! thread runs on CPU 0, and so no other thread can interrupt a sequence.

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod platform {
    use std::arch::asm;
    use std::sync::atomic::{AtomicIsize, AtomicU32, Ordering};

    /// `struct rseq`: the CPU at 0 and 4, the descriptor of the current sequence at 8.
    #[repr(C, align(32))]
    struct Area([AtomicU32; 8]);

    thread_local! {
        static AREA: Area = const { Area([const { AtomicU32::new(0) }; 8]) };
    }

    /// The offset of a thread's area from its thread pointer.
    #[unsafe(export_name = "__rseq_offset")]
    static OFFSET: AtomicIsize = AtomicIsize::new(0);

    /// The size of the area in bytes, or 0 if no area is registered.
    #[unsafe(export_name = "__rseq_size")]
    static SIZE: AtomicU32 = AtomicU32::new(0);

    /// Announces this thread's area. Call it before the first use of the library.
    pub fn register() {
        let pointer: isize;
        // SAFETY: The first word that fs addresses is the thread pointer itself.
        unsafe { asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, readonly)) };
        let area = AREA.with(|area| area.0.as_ptr() as isize);
        OFFSET.store(area - pointer, Ordering::Relaxed);
        SIZE.store(32, Ordering::Relaxed);
    }

    /// Writes another CPU into this thread's area.
    pub fn pretend_to_be_on(cpu: u32) {
        AREA.with(|area| {
            area.0[0].store(cpu, Ordering::Relaxed);
            area.0[1].store(cpu, Ordering::Relaxed);
        });
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
mod platform {
    /// Registers no area, because the library does not use restartable sequences here.
    pub fn register() {}

    /// Ignores the CPU, because the library does not ask for one here.
    pub fn pretend_to_be_on(_cpu: u32) {}
}

pub use platform::{pretend_to_be_on, register};
