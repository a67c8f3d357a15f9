//! A lock in a word of a segment: held by who makes a family, inserts or removes a series, or makes
//! the file longer, in any thread of any process, and released by its owner's death.
//!
//! It is one word in the segment: 0, or the token of the process that holds it. Who waits for long
//! asks whether the owner lives. If not, it takes the lock over, and is told so: what the dead one
//! was at must be mended.

use std::time::{Duration, Instant};

use crate::fork;
use crate::sync::{AtomicU64, Ordering};

/// Holds the lock until it is dropped.
#[must_use]
pub(crate) struct Guard<'a> {
    word: &'a AtomicU64,
    /// Set when the holder's work may be half done.
    broken: &'a AtomicU64,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.broken.store(1, Ordering::Relaxed);
        }
        // Release: the next owner sees everything that this one wrote.
        self.word.store(0, Ordering::Release);
    }
}

/// Takes the lock for the process of that token. Also tells whether an earlier owner left its work
/// half done, which stays so until `broken` is cleared. `is_alive` says whether the process of a
/// token lives.
pub(crate) fn acquire<'a>(
    word: &'a AtomicU64,
    broken: &'a AtomicU64,
    token: u64,
    is_alive: impl Fn(u64) -> bool,
) -> (Guard<'a>, bool) {
    debug_assert_ne!(token, 0);
    let mut rounds = 0_u32;
    let mut asked = None::<Instant>;
    loop {
        // Acquire: sees what the last owner wrote.
        let owner = match word.compare_exchange_weak(0, token, Ordering::Acquire, Ordering::Relaxed)
        {
            Ok(_) => {
                let half_done = broken.load(Ordering::Relaxed) != 0;
                return (Guard { word, broken }, half_done);
            }
            Err(owner) => owner,
        };
        rounds += 1;
        if rounds < SPINS {
            std::hint::spin_loop();
            continue;
        }
        if rounds < YIELDS {
            std::thread::yield_now();
            continue;
        }
        if owner != 0 && asked.is_none_or(|asked| asked.elapsed() > PATIENCE) {
            asked = Some(Instant::now());
            if !is_alive(owner) {
                // No owner has the token of an earlier one: nobody takes it over twice.
                if word.compare_exchange(owner, token, Ordering::Acquire, Ordering::Relaxed).is_ok()
                {
                    // Stays until it is mended. Should this one die before, the next one finds a
                    // dead owner again.
                    broken.store(1, Ordering::Relaxed);
                    return (Guard { word, broken }, true);
                }
            }
        }
        std::thread::sleep(NAP);
    }
}

/// Takes the lock, unless somebody has it, dead or not.
pub(crate) fn try_acquire<'a>(
    word: &'a AtomicU64,
    broken: &'a AtomicU64,
    token: u64,
) -> Option<Guard<'a>> {
    // Acquire: as above.
    let taken = word.compare_exchange(0, token, Ordering::Acquire, Ordering::Relaxed);
    taken.is_ok().then_some(Guard { word, broken })
}

const SPINS: u32 = 64;
const YIELDS: u32 = 256;
const NAP: Duration = Duration::from_micros(50);
/// How often a waiting thread asks whether the owner lives, which takes a system call.
const PATIENCE: Duration = Duration::from_millis(2);

/// A lock of one process' threads. A child that is forked while another thread of its parent holds
/// it finds it free, as no lock of the standard library would be.
#[derive(Debug, Default)]
pub(crate) struct Latch {
    word: AtomicU64,
    broken: AtomicU64,
}

impl Latch {
    pub(crate) fn lock(&self) -> Guard<'_> {
        let own = u64::from(fork::generation()) + 1;
        acquire(&self.word, &self.broken, own, |token| token == own).0
    }
}
