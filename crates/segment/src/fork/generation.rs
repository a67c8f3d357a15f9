//! Detects forks. A child shares its parent's memory and open files, but is another process.
//!
//! [`generation`] distinguishes a child from its parent at the cost of a load. A lock that marks
//! its process as alive must not survive in a child: `hold.rs` holds such locks. If this takes
//! descriptors, [`close_in_children`] closes these descriptors in children.

#[cfg(unix)]
pub(crate) use self::platform::forks;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use self::platform::{ClosedInChildren, calm, close_in_children};
pub use self::platform::{generation, watch};

#[cfg(all(target_os = "linux", not(miri)))]
mod platform {
    use std::io;
    use std::os::fd::RawFd;
    use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
    use std::time::Duration;

    /// The number of forks from the process that first called `watch` to this one.
    static GENERATION: AtomicU32 = AtomicU32::new(0);
    /// The number of forks of this process that began or ended.
    static FORKS: AtomicU32 = AtomicU32::new(0);
    /// The number of forks that are still under way.
    static UNDER_WAY: AtomicU32 = AtomicU32::new(0);

    /// Returns a number that differs between a parent and its child, once [`watch`] was called or a
    /// segment was created. It costs a load.
    #[inline]
    pub fn generation() -> u32 {
        GENERATION.load(Ordering::Relaxed)
    }

    /// Returns a number that changes when this process starts to fork, and again when the fork is
    /// done. If two calls return the same number and no fork was under way, you can be sure that no
    /// child inherited a descriptor or lock created between them.
    #[inline]
    pub(crate) fn forks() -> u32 {
        FORKS.load(Ordering::SeqCst)
    }

    /// Starts to detect forks. Creating a segment calls this, too. Only forks of the C library are
    /// detected, not those where a program calls the kernel directly.
    pub fn watch() {
        static WATCHED: AtomicBool = AtomicBool::new(false);
        if !WATCHED.load(Ordering::Acquire) {
            // SAFETY: the handlers only load and store atomics, which is allowed around a fork. If
            // they cannot be registered, children are not distinguished. Two threads can both
            // register them, because a second call is harmless. A lock instead could be held by a
            // thread that does not exist in a child.
            unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
            WATCHED.store(true, Ordering::Release);
        }
    }

    /// Waits until no fork is under way, and returns the value of [`forks`] then. The wait is
    /// bounded, because this may be called in a fork handler, where the fork under way is this
    /// thread's.
    pub(crate) fn calm() -> u32 {
        let mut rounds = 0;
        loop {
            let begun = forks();
            if UNDER_WAY.load(Ordering::SeqCst) == 0 || rounds == ROUNDS {
                return begun;
            }
            rounds += 1;
            std::thread::sleep(NAP);
        }
    }

    const ROUNDS: u32 = 1000;
    const NAP: Duration = Duration::from_micros(50);

    extern "C" fn before() {
        UNDER_WAY.fetch_add(1, Ordering::SeqCst);
        FORKS.fetch_add(1, Ordering::SeqCst);
    }

    extern "C" fn in_parent() {
        FORKS.fetch_add(1, Ordering::SeqCst);
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
    }

    extern "C" fn in_child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
        UNDER_WAY.store(0, Ordering::Relaxed);
        for place in &CLOSED_IN_CHILDREN {
            place.close();
        }
    }

    /// A descriptor that children of this process close, as long as this value lives.
    #[derive(Debug)]
    pub(crate) struct ClosedInChildren(usize);

    /// A slot of the table: a descriptor plus one, or 0 if the slot is free, and the ID of its
    /// file.
    struct DescriptorSlot {
        descriptor: AtomicU64,
        device: AtomicU64,
        inode: AtomicU64,
    }

    static CLOSED_IN_CHILDREN: [DescriptorSlot; 1024] = [const {
        DescriptorSlot {
            descriptor: AtomicU64::new(0),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
        }
    }; 1024];
    /// The descriptor of a slot while the slot is being filled.
    const TAKEN: u64 = u64::MAX;

    /// Closes a descriptor in each child that is forked from now on, if it then still refers to the
    /// file with this device and inode.
    pub(crate) fn close_in_children(
        descriptor: RawFd,
        (device, inode): (u64, u64),
    ) -> io::Result<ClosedInChildren> {
        watch();
        let take = |place: &DescriptorSlot| {
            let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
            place.descriptor.compare_exchange(0, TAKEN, success, failure).is_ok()
        };
        let number = CLOSED_IN_CHILDREN.iter().position(take).ok_or_else(|| {
            io::Error::other(
                "too many segment files on overlayfs are open in this process; put them on a \
                 volume or in /dev/shm",
            )
        })?;
        let place = &CLOSED_IN_CHILDREN[number];
        place.device.store(device, Ordering::Relaxed);
        place.inode.store(inode, Ordering::Relaxed);
        // Release: a child that finds the descriptor finds the file. Descriptors are not negative.
        place.descriptor.store(descriptor as u64 + 1, Ordering::Release);
        Ok(ClosedInChildren(number))
    }

    impl Drop for ClosedInChildren {
        fn drop(&mut self) {
            CLOSED_IN_CHILDREN[self.0].descriptor.store(0, Ordering::Release);
        }
    }

    impl DescriptorSlot {
        /// Closes the descriptor in a child, with calls that are allowed after a fork.
        fn close(&self) {
            let packed = self.descriptor.swap(0, Ordering::Acquire);
            if packed == 0 || packed == TAKEN {
                return;
            }
            // The cast is safe, because descriptors are small.
            let descriptor = (packed - 1) as RawFd;
            // SAFETY: all bytes of a `stat` can be zero, and the call fills it.
            let mut found: libc::stat = unsafe { std::mem::zeroed() };
            // SAFETY: the call only writes the `stat`, even if the descriptor is invalid.
            let is_open = unsafe { libc::fstat(descriptor, &raw mut found) } == 0;
            let (device, inode) = (found.st_dev, found.st_ino);
            if is_open
                && device == self.device.load(Ordering::Relaxed)
                && inode == self.inode.load(Ordering::Relaxed)
            {
                // SAFETY: the descriptor is the parent's, and the child does not use it.
                unsafe { libc::close(descriptor) };
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod platform {
    //! On this system, the generation is the process ID.

    /// Returns a number that differs between a parent and its child.
    pub fn generation() -> u32 {
        std::process::id()
    }

    pub(crate) fn forks() -> u32 {
        0
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn calm() -> u32 {
        0
    }

    /// A marker without a function, because this system closes no descriptors in a child.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[derive(Debug)]
    pub(crate) struct ClosedInChildren;

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn close_in_children(
        _: std::os::fd::RawFd,
        _: (u64, u64),
    ) -> std::io::Result<ClosedInChildren> {
        Ok(ClosedInChildren)
    }

    /// An empty function, because a process ID needs no watching.
    pub fn watch() {}
}
