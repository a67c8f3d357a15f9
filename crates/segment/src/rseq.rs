//! Restartable sequences (`rseq(2)`, Linux 4.18; Desnoyers, Turner, Hunter): additions to memory of
//! the current CPU, without a lock prefix. The kernel restarts the few instructions if the thread
//! loses its CPU between them. You can use this across all processes that share the memory.

pub(crate) use self::platform::Sequence;
use crate::sync::{AtomicU64, Ordering};

/// The location of the earned cells of CPUs, for a sequence. The cell of CPU `n` lies
/// `n * distance + offset` bytes after the origin, an address that the caller passes. Only this
/// process can write to these words, because no other process may decide how far a write reaches.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Reach {
    /// The number of CPUs with a cell; 0 until `raise` is called.
    cpus: AtomicU64,
    distance: AtomicU64,
    /// The offset of the first cell, modulo 2^64, because the cells may lie before the origin.
    offset: AtomicU64,
}

impl Reach {
    /// Returns a reach without a cell, for cells that are `distance` bytes apart.
    pub(crate) fn new(distance: u64) -> Self {
        let [cpus, distance, offset] = [0, distance, 0].map(AtomicU64::new);
        Self { cpus, distance, offset }
    }

    /// Adds a cell for each of `cpus` CPUs, unless there are cells already. Several threads can do
    /// this at once, with the same arguments.
    pub(crate) fn raise(&self, cpus: u64, offset: u64) {
        self.offset.store(offset, Ordering::Relaxed);
        // Release: a sequence that sees the number sees the offset.
        self.cpus.store(cpus, Ordering::Release);
    }

    /// Returns the offset that a sequence on this CPU finds; `None` if it owns no cell.
    #[cfg(loom)]
    pub(crate) fn offset_of(&self, cpu: u64) -> Option<u64> {
        // Acquire, because every load of x86-64 is one.
        let has_cell = cpu < self.cpus.load(Ordering::Acquire);
        let distance = self.distance.load(Ordering::Relaxed);
        has_cell.then(|| (cpu * distance).wrapping_add(self.offset.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
thread_local! {
    /// Whether this thread must find no sequences.
    pub(crate) static FORBIDDEN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu", not(any(miri, loom))))]
mod platform {
    //! Uses the area that glibc (2.35 and newer) registers for each thread, at `__rseq_offset` from
    //! the thread pointer.

    use std::arch::asm;
    use std::arch::x86_64::_mm_set_epi64x;
    use std::num::NonZeroI32;
    use std::sync::atomic::{AtomicI32, Ordering};

    use super::Reach;
    use crate::sync::AtomicU64;

    /// The offset of a thread's `struct rseq` from its thread pointer, which itself points to other
    /// data.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Sequence(NonZeroI32);

    /// Wraps `$body`, whose last instruction commits: an addition to the cell of the CPU. `$place`
    /// converts the number of the CPU in `rax` to the offset of this cell. If there is no such
    /// cell, it jumps to `{far}`, before the sequence writes.
    ///
    /// The sequence from 71 to 72 reads the CPU and commits. If the thread loses the CPU in
    /// between, the kernel jumps to 74, right after the registered signature.
    macro_rules! sequence {
        ([$($place:literal),+]; $($body:literal),+ ; $($operand:tt)+) => {
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
                $($place,)+
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

    /// Defines the three kinds of additions, for one way to compute the offset of a CPU's cell.
    macro_rules! additions {
        (
            $place:tt, [$($shift:ident)?], ($($name:ident: $type:ty),+), ($($operand:tt)+);
            $(#[$add_doc:meta])+ $add:ident;
            $(#[$float_doc:meta])+ $add_float:ident;
            $(#[$pair_doc:meta])+ $add_pair:ident;
        ) => {
            $(#[$add_doc])+
            #[inline]
            pub(crate) unsafe fn $add$(<const $shift: u32>)?(
                self,
                first: *const AtomicU64,
                $($name: $type,)+
                n: u64,
            ) -> bool {
                // SAFETY: glibc keeps this thread's `struct rseq` at the offset (cpu_id at 4,
                // rseq_cs at 8), for as long as the thread lives. The CPU is compared first, so
                // each write hits a cell that the caller vouches for. The cpu_id of an unregistered
                // thread is negative, and so beyond every cell as an unsigned number. The words of
                // a reach are read after that, and this processor reads in order: `Reach::raise`
                // stored their values before it raised the number of CPUs. The atomics can be
                // written through a shared reference, because other threads read them with atomic
                // loads, and on x86-64 the store is a release. The kernel reads the descriptor
                // until the next sequence. So you must not unload a library with this code while
                // threads that ran it live, but no std program can do so anyway.
                unsafe {
                    sequence!(
                        $place;
                        "add qword ptr [{first} + rax], {n}";
                        rseq = in(reg) self.0.get() as isize,
                        first = in(reg) first,
                        n = in(reg) n,
                        far = label { return false },
                        out("rax") _,
                        options(nostack),
                        $($operand)+
                    );
                }
                true
            }

            $(#[$float_doc])+
            #[inline]
            pub(crate) unsafe fn $add_float$(<const $shift: u32>)?(
                self,
                first: *const AtomicU64,
                $($name: $type,)+
                n: f64,
            ) -> bool {
                // SAFETY: as above. Only the last instruction writes.
                unsafe {
                    sequence!(
                        $place;
                        "movapd xmm15, {n}",
                        "addsd xmm15, qword ptr [{first} + rax]",
                        "movsd qword ptr [{first} + rax], xmm15";
                        rseq = in(reg) self.0.get() as isize,
                        first = in(reg) first,
                        n = in(xmm_reg) n,
                        far = label { return false },
                        out("rax") _,
                        out("xmm15") _,
                        options(nostack),
                        $($operand)+
                    );
                }
                true
            }

            $(#[$pair_doc])+
            #[inline]
            pub(crate) unsafe fn $add_pair$(<const $shift: u32>)?(
                self,
                first: *const AtomicU64,
                $($name: $type,)+
                n: u64,
                value: f64,
            ) -> bool {
                // SAFETY: as above. Only the last instruction writes: both cells. `addsd` keeps the
                // upper half of the register, the second cell. SSE2 is part of x86-64. `movups`
                // works at any address, because a damaged file can state any; at a multiple of 16,
                // where the pairs of a sound file lie, it is as fast as `movaps`. Other threads
                // read each cell by itself, and the processor never writes an aligned 8-byte word
                // in parts.
                unsafe {
                    sequence!(
                        $place;
                        "movups xmm15, xmmword ptr [{first} + rax]",
                        "paddq xmm15, {n}",
                        "addsd xmm15, {value}",
                        "movups xmmword ptr [{first} + rax], xmm15";
                        rseq = in(reg) self.0.get() as isize,
                        first = in(reg) first,
                        n = in(xmm_reg) _mm_set_epi64x(n.cast_signed(), 0),
                        value = in(xmm_reg) value,
                        far = label { return false },
                        out("rax") _,
                        out("xmm15") _,
                        options(nostack),
                        $($operand)+
                    );
                }
                true
            }
        };
    }

    impl Sequence {
        /// Checks whether the C library registers its threads, and returns the sequences if so.
        pub(crate) fn find() -> Option<Self> {
            #[cfg(test)]
            if super::FORBIDDEN.get() {
                return None;
            }
            // No lock here, because a child forked while another thread holds it would wait
            // forever. All threads find the same value.
            static FOUND: AtomicI32 = AtomicI32::new(UNKNOWN);
            const UNKNOWN: i32 = i32::MIN;
            const NONE: i32 = 0;
            #[cold]
            fn look() -> i32 {
                // Look up the names at run time, because older libraries lack them, and this code
                // must still load there.
                // SAFETY: both names belong to data objects, and are read only if they exist; dlsym
                // requires no more.
                let offset = unsafe {
                    let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr());
                    let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr());
                    let registered =
                        !offset.is_null() && !size.is_null() && size.cast::<u32>().read() > 0;
                    if registered { offset.cast::<isize>().read() } else { 0 }
                };
                // The C library's own thread-locals lie closer than 2 GiB to the pointer.
                let offset = i32::try_from(offset).unwrap_or(NONE);
                FOUND.store(offset, Ordering::Relaxed);
                offset
            }
            let found = match FOUND.load(Ordering::Relaxed) {
                UNKNOWN => look(),
                found => found,
            };
            NonZeroI32::new(found).map(Self)
        }

        additions! {
            ["cmp eax, {cpus:e}", "jae {far}", "shl rax, {shift}"],
            [SHIFT], (cpus: u32), (cpus = in(reg) cpus, shift = const SHIFT);

            /// Adds `n` to the cell of this thread's CPU. Returns false without adding if the CPU
            /// is not one of the first `cpus`, or if the thread is not registered.
            ///
            /// # Safety
            /// There must be a cell for each of these CPUs. The cell of CPU 0 is `first`, and the
            /// next cells follow at a distance of `1 << SHIFT` bytes.
            add;

            /// Like [`Sequence::add`], for a cell that contains the bits of a 64-bit float.
            ///
            /// # Safety
            /// Same as for [`Sequence::add`].
            add_float;

            /// Adds to a pair of cells of this thread's CPU, like [`Sequence::add`]: `value` to the
            /// first cell, which contains the bits of a 64-bit float, and `n` to the second. One
            /// store commits both, so a thread never leaves one without the other, for example when
            /// it is killed.
            ///
            /// # Safety
            /// Same as for [`Sequence::add`], with two adjacent cells for each CPU.
            add_pair;
        }

        additions! {
            [
                "cmp rax, qword ptr [{reach}]",
                "jae {far}",
                "imul rax, qword ptr [{reach} + 8]",
                "add rax, qword ptr [{reach} + 16]"
            ], [], (reach: &Reach), (reach = in(reg) reach);

            /// Like [`Sequence::add`], for the CPUs with a cell within `reach`.
            ///
            /// # Safety
            /// For each CPU within the reach, there must be a cell at the reach's offset from
            /// `first`.
            add_within;

            /// Like [`Sequence::add_within`], for a cell that contains the bits of a 64-bit float.
            ///
            /// # Safety
            /// Same as for [`Sequence::add_within`].
            add_float_within;

            /// Like [`Sequence::add_pair`], for the CPUs with a pair within `reach`.
            ///
            /// # Safety
            /// Same as for [`Sequence::add_within`], with two adjacent cells for each CPU.
            add_pair_within;
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
    //! This system lacks restartable sequences: all threads use the shared cells.

    use super::Reach;
    use crate::sync::AtomicU64;

    #[derive(Debug, Clone, Copy)]
    pub(crate) enum Sequence {}

    impl Sequence {
        pub(crate) fn find() -> Option<Self> {
            None
        }

        #[inline]
        pub(crate) unsafe fn add<const SHIFT: u32>(
            self,
            _first: *const AtomicU64,
            _cpus: u32,
            _n: u64,
        ) -> bool {
            match self {}
        }

        #[cfg(not(loom))]
        #[inline]
        pub(crate) unsafe fn add_within(
            self,
            _first: *const AtomicU64,
            _reach: &Reach,
            _n: u64,
        ) -> bool {
            match self {}
        }

        #[cfg(not(loom))]
        #[inline]
        pub(crate) unsafe fn add_float<const SHIFT: u32>(
            self,
            _first: *const AtomicU64,
            _cpus: u32,
            _n: f64,
        ) -> bool {
            match self {}
        }

        #[cfg(not(loom))]
        #[inline]
        pub(crate) unsafe fn add_float_within(
            self,
            _first: *const AtomicU64,
            _reach: &Reach,
            _n: f64,
        ) -> bool {
            match self {}
        }

        #[cfg(not(loom))]
        #[inline]
        pub(crate) unsafe fn add_pair<const SHIFT: u32>(
            self,
            _first: *const AtomicU64,
            _cpus: u32,
            _n: u64,
            _value: f64,
        ) -> bool {
            match self {}
        }

        #[cfg(not(loom))]
        #[inline]
        pub(crate) unsafe fn add_pair_within(
            self,
            _first: *const AtomicU64,
            _reach: &Reach,
            _n: u64,
            _value: f64,
        ) -> bool {
            match self {}
        }
    }
}

#[cfg(all(
    test,
    target_os = "linux",
    target_arch = "x86_64",
    target_env = "gnu",
    not(any(miri, loom))
))]
mod tests {
    use super::*;

    /// Keeps this thread on one CPU, and returns the CPU's number.
    fn stay() -> u32 {
        // SAFETY: both calls get a set of the given size, and this thread.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            let size = size_of_val(&set);
            assert_eq!(libc::sched_getaffinity(0, size, &raw mut set), 0);
            let first = (0..libc::CPU_SETSIZE as usize).find(|&cpu| libc::CPU_ISSET(cpu, &set));
            let cpu = first.expect("a thread may run somewhere");
            set = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            assert_eq!(libc::sched_setaffinity(0, size, &raw const set), 0);
            cpu as u32
        }
    }

    #[test]
    fn a_cpu_without_a_cell_adds_nowhere() {
        const SHIFT: u32 = 4;
        let Some(sequence) = Sequence::find() else { return };
        let cpu = stay();
        let cells: Vec<AtomicU64> = (0..2 * (cpu + 2)).map(|_| AtomicU64::new(0)).collect();
        let first = cells.as_ptr();
        for cpus in [0, cpu, cpu + 1, u32::MAX] {
            let reach = Reach::new(1 << SHIFT);
            reach.raise(cpus.into(), 0);
            // SAFETY: this thread stays on its CPU, and there is a pair of cells for the CPU.
            let added = unsafe {
                [
                    sequence.add::<SHIFT>(first, cpus, 1),
                    sequence.add_within(first, &reach, 1),
                    sequence.add_float::<SHIFT>(first.add(1), cpus, 0.0),
                    sequence.add_float_within(first.add(1), &reach, 0.0),
                    sequence.add_pair::<SHIFT>(first, cpus, 1, 0.0),
                    sequence.add_pair_within(first, &reach, 1, 0.0),
                ]
            };
            assert_eq!(added, [cpus > cpu; 6], "{cpus} CPUs, on CPU {cpu}");
            let own = 2 * cpu as usize;
            let values: Vec<u64> = cells.iter().map(|cell| cell.load(Ordering::Relaxed)).collect();
            let expected = if cpus > cpu { [2, 2] } else { [0, 0] };
            assert_eq!(values[own..own + 2], expected);
            assert_eq!(values.iter().sum::<u64>(), expected.iter().sum());
            cells.iter().for_each(|cell| cell.store(0, Ordering::Relaxed));
        }
    }
}
