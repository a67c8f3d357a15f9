//! Restartable sequences (`rseq(2)`, Linux 4.18; Desnoyers, Turner, Hunter): additions to memory of
//! the current CPU, without a lock prefix. The kernel restarts the few instructions if the thread
//! loses its CPU between them. That works across all processes that share the memory.

pub(crate) use self::platform::Sequence;

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu", not(any(miri, loom))))]
mod platform {
    //! Uses the area that glibc (2.35 and newer) registers for each thread, at `__rseq_offset` from
    //! the thread pointer.

    use std::arch::asm;
    use std::num::NonZeroIsize;
    use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

    use crate::sync::AtomicU64;

    /// The offset of a thread's `struct rseq` from its thread pointer, which itself points to other
    /// things.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Sequence(NonZeroIsize);

    /// Wraps `$body`, which commits with its last instruction: an addition to the CPU's own part of
    /// memory. `rax` is the offset of that part; if it is not less than `{bytes}`, the sequence
    /// goes to `{far}` and has written nothing.
    ///
    /// The sequence from 71 to 72 reads the CPU and commits. If the thread loses the CPU in
    /// between, the kernel jumps to 74, right after the signature that was registered.
    macro_rules! sequence {
        ($($body:literal),+ ; $($operand:tt)+) => {
            asm!(
                ".pushsection __rseq_cs, \"aw\"",
                ".balign 32",
                "77:",
                ".long 0, 0",
                ".quad 71f, (72f - 71f), 74f",
                ".popsection",
                "70:",
                "lea rax, [rip + 77b]",
                "mov qword ptr fs:[{rseq} + 8], rax",
                "71:",
                "mov eax, dword ptr fs:[{rseq} + 4]",
                "shl rax, {shift}",
                "cmp rax, {bytes}",
                "jae {far}",
                $($body,)+
                "72:",
                ".pushsection __rseq_failure, \"ax\"",
                ".byte 0x0f, 0xb9, 0x3d",
                ".long 0x53053053",
                "74:",
                "jmp 70b",
                ".popsection",
                $($operand)+
            )
        };
    }

    impl Sequence {
        /// Finds out whether the C library registers its threads.
        pub(crate) fn find() -> Option<Self> {
            // Without a lock: a child that is forked while another thread is here would wait for
            // it. All threads find the same.
            static FOUND: AtomicIsize = AtomicIsize::new(UNKNOWN);
            const UNKNOWN: isize = isize::MIN;
            const NONE: isize = 0;
            #[cold]
            fn look() -> isize {
                // By name, at run time: older libraries lack it, and must still be able to load
                // this code.
                // SAFETY: both names are those of data objects, read only where they exist; dlsym
                // has no other preconditions.
                let offset = unsafe {
                    let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr());
                    let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr());
                    let registered =
                        !offset.is_null() && !size.is_null() && size.cast::<u32>().read() > 0;
                    if registered { offset.cast::<isize>().read() } else { NONE }
                };
                FOUND.store(offset, Ordering::Relaxed);
                offset
            }
            let found = match FOUND.load(Ordering::Relaxed) {
                UNKNOWN => look(),
                found => found,
            };
            NonZeroIsize::new(found).map(Self)
        }

        /// The number of CPUs that the machine may ever have.
        pub(crate) fn cpus(self) -> Option<usize> {
            // Without a lock, as above. 0 until the first call.
            static COUNT: AtomicUsize = AtomicUsize::new(0);
            #[cold]
            fn look() -> usize {
                // SAFETY: sysconf has no preconditions.
                let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
                let count = usize::try_from(count).unwrap_or(0);
                COUNT.store(count, Ordering::Relaxed);
                count
            }
            // The C library opens and reads a file, which takes longer than everything else that a
            // new family needs.
            let count = match COUNT.load(Ordering::Relaxed) {
                0 => look(),
                count => count,
            };
            Some(count).filter(|&count| count > 0)
        }

        /// Adds `n` to the cell of this thread's CPU: the cells of the CPUs lie `1 << SHIFT` bytes
        /// apart from `first` on. Returns false, and adds nothing, if that offset is not less than
        /// `bytes` or the thread is not registered.
        ///
        /// # Safety
        /// For each multiple of `1 << SHIFT` less than `bytes`, there is a cell that many bytes
        /// after `first`.
        #[inline]
        pub(crate) unsafe fn add_at<const SHIFT: u32>(
            self,
            first: *const AtomicU64,
            bytes: usize,
            n: u64,
        ) -> bool {
            // SAFETY: glibc keeps this thread's `struct rseq` at the offset (cpu_id at 4, rseq_cs
            // at 8), for as long as the thread lives. `rax` is compared before it is used, so that
            // no write leaves the cells that the caller vouches for; a thread that is not
            // registered has a negative cpu_id, which as an unsigned one is past every cell. The
            // atomics may be written through a shared reference; other threads read them with
            // atomic loads, and on x86-64 the store is a release. The kernel reads the descriptor
            // until the next sequence: a library that holds this code must not be unloaded while
            // threads that ran it live, which no std program can do anyway.
            unsafe {
                sequence!(
                    "add qword ptr [{first} + rax], {n}";
                    rseq = in(reg) self.0.get(),
                    bytes = in(reg) bytes,
                    first = in(reg) first,
                    n = in(reg) n,
                    shift = const SHIFT,
                    far = label { return false },
                    out("rax") _,
                    options(nostack),
                );
            }
            true
        }

        /// As [`Sequence::add_at`], for a cell that holds the bits of a 64-bit float.
        ///
        /// # Safety
        /// As for [`Sequence::add_at`].
        #[inline]
        pub(crate) unsafe fn add_float_at<const SHIFT: u32>(
            self,
            first: *const AtomicU64,
            bytes: usize,
            n: f64,
        ) -> bool {
            // SAFETY: as above. Only the last instruction writes.
            unsafe {
                sequence!(
                    "movapd xmm15, {n}",
                    "addsd xmm15, qword ptr [{first} + rax]",
                    "movsd qword ptr [{first} + rax], xmm15";
                    rseq = in(reg) self.0.get(),
                    bytes = in(reg) bytes,
                    first = in(reg) first,
                    n = in(xmm_reg) n,
                    shift = const SHIFT,
                    far = label { return false },
                    out("rax") _,
                    out("xmm15") _,
                    options(nostack),
                );
            }
            true
        }

        /// Adds to a pair of cells of this thread's CPU, like [`Sequence::add_at`]: `value` to the
        /// first cell, which holds the bits of a 64-bit float, and `n` to the cell after it. One
        /// store commits both, so a thread that is stopped or killed never leaves one without the
        /// other.
        ///
        /// # Safety
        /// As for [`Sequence::add_at`], with two cells in each place.
        #[inline]
        pub(crate) unsafe fn add_pair_at<const SHIFT: u32>(
            self,
            first: *const AtomicU64,
            bytes: usize,
            n: u64,
            value: f64,
        ) -> bool {
            use std::arch::x86_64::_mm_set_epi64x;
            // SAFETY: as above. Only the last instruction writes: both cells. `addsd` keeps the
            // upper half of the register, the second cell. SSE2 is part of x86-64. `movups` works
            // at any address, because a damaged file can state any; at a multiple of 16, where the
            // pairs of a sound file lie, it is as fast as `movaps`. Other threads read each cell by
            // itself, and the processor never writes an aligned 8-byte word in parts.
            unsafe {
                sequence!(
                    "movups xmm15, xmmword ptr [{first} + rax]",
                    "paddq xmm15, {n}",
                    "addsd xmm15, {value}",
                    "movups xmmword ptr [{first} + rax], xmm15";
                    rseq = in(reg) self.0.get(),
                    bytes = in(reg) bytes,
                    first = in(reg) first,
                    n = in(xmm_reg) _mm_set_epi64x(n.cast_signed(), 0),
                    value = in(xmm_reg) value,
                    shift = const SHIFT,
                    far = label { return false },
                    out("rax") _,
                    out("xmm15") _,
                    options(nostack),
                );
            }
            true
        }
    }
}

#[cfg(not(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_env = "gnu",
    not(any(miri, loom))
)))]
mod platform {
    //! No restartable sequences here: all threads use the shared cells.

    use crate::sync::AtomicU64;

    #[derive(Debug, Clone, Copy)]
    pub(crate) enum Sequence {}

    impl Sequence {
        pub(crate) fn find() -> Option<Self> {
            None
        }

        pub(crate) fn cpus(self) -> Option<usize> {
            match self {}
        }

        #[inline]
        pub(crate) unsafe fn add_at<const SHIFT: u32>(
            self,
            _first: *const AtomicU64,
            _bytes: usize,
            _n: u64,
        ) -> bool {
            match self {}
        }

        #[cfg(not(loom))]
        #[inline]
        pub(crate) unsafe fn add_float_at<const SHIFT: u32>(
            self,
            _first: *const AtomicU64,
            _bytes: usize,
            _n: f64,
        ) -> bool {
            match self {}
        }

        #[cfg(not(loom))]
        #[inline]
        pub(crate) unsafe fn add_pair_at<const SHIFT: u32>(
            self,
            _first: *const AtomicU64,
            _bytes: usize,
            _n: u64,
            _value: f64,
        ) -> bool {
            match self {}
        }
    }
}
