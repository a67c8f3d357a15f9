//! A lock in a word of a segment, for the threads of all processes that share the segment. A thread
//! holds it while it creates a family, inserts or removes a series, or grows the file. If its
//! process dies, the lock is released.
//!
//! The word is 0, or contains the token of the owning process and, in the bits above, a number that
//! changes each time the process takes a lock. A waiting thread checks whether the owner lives. If
//! not, the thread takes the lock over, and learns that work may be half done and must be mended.
//! An owner that lives may be stopped for any length of time, for example by a signal or a freezer.
//! Each caller therefore limits its wait for one owner. It waits at most ten times as long for
//! several owners in turn.

use std::cell::Cell;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::sync::{AtomicU64, Ordering};

/// The maximum wait of an update. After this, it counts in the overflow series instead.
pub(crate) const UPDATE: Duration = Duration::from_millis(100);
/// The maximum wait of the removal of series.
pub(crate) const REMOVAL: Duration = Duration::from_secs(1);
/// The maximum wait of the registration of a metric. Many processes can start at the same time,
/// with a slow disk.
pub(crate) const REGISTRATION: Duration = Duration::from_secs(10);
/// The wait of a scrape. It spins and yields briefly for a lock, but never sleeps, and then
/// continues without the lock.
pub(crate) const SCRAPE: Duration = Duration::ZERO;

/// Holds the lock until it is dropped, by the thread that took it.
#[must_use]
pub(crate) struct Guard<'a> {
    word: &'a AtomicU64,
    /// Set if the last owner may have left its work half done.
    broken: &'a AtomicU64,
    /// Dropped after the lock is released.
    _taking: LockNote,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.broken.store(1, Ordering::Relaxed);
        }
        // Release: the next owner sees all stores of this one.
        self.word.store(0, Ordering::Release);
    }
}

/// The reason why a lock could not be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BusyReason {
    /// A thread of a living process held it for this whole time.
    Held(Duration),
    /// A signal handler interrupted this thread while it held the lock or was about to take it.
    Interrupted,
}

/// Remembers that the owner of a lock did not release it in time. With this, only the first of many
/// updates waits for this owner.
#[derive(Debug, Default)]
pub(crate) struct StuckLock {
    /// The owner's mark in the lock's word; 0 for none.
    owner: AtomicU64,
    /// The time when this process gave up, in milliseconds since boot.
    since: AtomicU64,
}

impl StuckLock {
    /// The milliseconds until an update waits again for an owner that still holds the lock.
    const PAUSE: u64 = 1000;

    fn remember(&self, owner: u64) {
        // Relaxed, here and below: a mix of two stores costs one wait more or less.
        self.since.store(now(), Ordering::Relaxed);
        self.owner.store(owner, Ordering::Relaxed);
    }

    fn is_by(&self, owner: u64) -> bool {
        owner != 0
            && self.owner.load(Ordering::Relaxed) == owner
            && now().wrapping_sub(self.since.load(Ordering::Relaxed)) < Self::PAUSE
    }

    /// Clears the note, because the lock was taken and so its owner did release it.
    fn forget(&self) {
        if self.owner.load(Ordering::Relaxed) != 0 {
            self.owner.store(0, Ordering::Relaxed);
        }
    }
}

fn now() -> u64 {
    crate::readings::since_boot() / 1_000_000
}

/// The bits of a token in the word of a lock.
const TOKEN_BITS: u32 = 38;

/// The last token. No process draws it, because a reader of a copy uses it.
pub(crate) const LAST_TOKEN: u64 = u64::MAX >> (u64::BITS - TOKEN_BITS);

/// Returns the value that the process of this token stores in the word of a lock this time.
fn mark(token: u64) -> u64 {
    static ACQUISITIONS: AtomicU64 = AtomicU64::new(0);
    // The shift cuts off the upper bits of the number.
    ACQUISITIONS.fetch_add(1, Ordering::Relaxed) << TOKEN_BITS | token
}

fn token_of(mark: u64) -> u64 {
    mark & LAST_TOKEN
}

/// Takes the lock for the process of this token. Also returns whether an earlier owner left its
/// work half done, which remains set until you clear `broken`. `is_alive` returns whether the
/// process of a token lives, `stuck` belongs to the lock, and `wait` is the longest wait for one
/// owner.
pub(crate) fn acquire<'a>(
    word: &'a AtomicU64,
    broken: &'a AtomicU64,
    token: u64,
    is_alive: impl Fn(u64) -> bool,
    stuck: &StuckLock,
    wait: Duration,
) -> Result<(Guard<'a>, bool), BusyReason> {
    debug_assert!(token != 0 && token == token_of(token));
    let mark = mark(token);
    let taking = LockNote::begin(word).ok_or(BusyReason::Interrupted)?;
    // Acquire: sees the stores of the last owner.
    let half_done = match word.compare_exchange(0, mark, Ordering::Acquire, Ordering::Relaxed) {
        Ok(_) => broken.load(Ordering::Relaxed) != 0,
        Err(_) => contend(word, broken, mark, is_alive, stuck, wait)?,
    };
    stuck.forget();
    Ok((Guard { word, broken, _taking: taking }, half_done))
}

#[cold]
fn contend(
    word: &AtomicU64,
    broken: &AtomicU64,
    mark: u64,
    is_alive: impl Fn(u64) -> bool,
    stuck: &StuckLock,
    wait: Duration,
) -> Result<bool, BusyReason> {
    let yields = if wait.is_zero() { FEW_YIELDS } else { YIELDS };
    let (mut rounds, mut last) = (0_u32, None::<Instant>);
    // `waited`: the total wait. `since`, `asked`: its value when the current owner was first seen,
    // and when it was last checked.
    let (mut waited, mut since) = (Duration::ZERO, Duration::ZERO);
    let (mut seen, mut asked) = (0, None::<Duration>);
    loop {
        // Load first, because an exchange would take the cache line away from the owner and from
        // all other waiting threads, even if it fails.
        let mut owner = word.load(Ordering::Relaxed);
        if owner == 0 {
            // Acquire: as above.
            match word.compare_exchange_weak(0, mark, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(broken.load(Ordering::Relaxed) != 0),
                Err(found) => owner = found,
            }
        }
        if wait <= UPDATE && stuck.is_by(owner) && is_alive(token_of(owner)) {
            return Err(BusyReason::Held(waited));
        }
        rounds = rounds.saturating_add(1);
        if rounds < SPINS {
            std::hint::spin_loop();
            continue;
        }
        if rounds < yields {
            std::thread::yield_now();
            continue;
        }
        if owner != seen {
            (seen, since, asked) = (owner, waited, None);
        }
        if owner != 0 && asked.is_none_or(|asked| waited - asked > LIVENESS_CHECK_INTERVAL) {
            asked = Some(waited);
            if !is_alive(token_of(owner)) {
                // No owner shares the token of an earlier one, so no lock is taken over twice.
                if word.compare_exchange(owner, mark, Ordering::Acquire, Ordering::Relaxed).is_ok()
                {
                    // This remains set until the work is mended. If this process dies before the
                    // store, the next one finds a dead owner again.
                    broken.store(1, Ordering::Relaxed);
                    return Ok(true);
                }
                continue;
            }
        }
        if waited - since >= wait || waited >= wait * 10 {
            if !wait.is_zero() {
                stuck.remember(owner);
            }
            return Err(BusyReason::Held(waited));
        }
        std::thread::sleep(NAP);
        // Don't count the time while this process itself was stopped, because the owner may have
        // been stopped, too.
        let now = Instant::now();
        waited += last.map_or(NAP, |last| now - last).min(LONGEST_NAP);
        last = Some(now);
    }
}

/// A note that this thread is taking a lock. A signal handler that interrupts the thread and wants
/// the same lock finds the note, and gives up instead of waiting forever.
struct LockNote {
    /// The index of the note in `TAKEN`; the length of `TAKEN` if all are in use.
    place: usize,
    /// Not `Send`, because the thread that takes the lock must release it.
    _thread: PhantomData<*const ()>,
}

thread_local! {
    /// The addresses of the locks that this thread holds or is about to take. The array needs no
    /// destructor, because its first access must need no registration even in a signal handler.
    static TAKEN: [Cell<usize>; 8] = const { [const { Cell::new(0) }; 8] };
}

impl LockNote {
    /// Makes a note; `None` if this thread holds the lock already, or is taking it.
    fn begin(word: &AtomicU64) -> Option<Self> {
        let address = std::ptr::from_ref(word).addr();
        TAKEN.with(|taken| {
            if taken.iter().any(|place| place.get() == address) {
                return None;
            }
            // If a thread takes more locks than there are notes, the last are not noted. No code
            // does so.
            let place = taken.iter().position(|place| place.get() == 0).unwrap_or(taken.len());
            if let Some(place) = taken.get(place) {
                place.set(address);
            }
            // A signal handler that runs from here on finds the note.
            std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
            Some(Self { place, _thread: PhantomData })
        })
    }
}

impl Drop for LockNote {
    fn drop(&mut self) {
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        TAKEN.with(|taken| {
            if let Some(place) = taken.get(self.place) {
                place.set(0);
            }
        });
    }
}

const SPINS: u32 = 64;
const YIELDS: u32 = 256;
const FEW_YIELDS: u32 = SPINS + 8;
const NAP: Duration = Duration::from_micros(50);
/// The maximum that one sleep adds to the wait, because an overloaded machine slows down the owner,
/// too.
const LONGEST_NAP: Duration = Duration::from_millis(2);
/// How long a waiting thread relies on its last check that the owner lives, because a check takes a
/// system call.
const LIVENESS_CHECK_INTERVAL: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn take<'a>(
        words: &'a [AtomicU64; 2],
        stuck: &StuckLock,
        wait: Duration,
    ) -> Result<(Guard<'a>, bool), BusyReason> {
        acquire(&words[0], &words[1], 1, |token| token != 3, stuck, wait)
    }

    #[test]
    fn an_owner_that_lives_and_does_nothing_is_waited_for_once() {
        let (words, stuck) = (<[AtomicU64; 2]>::default(), StuckLock::default());
        words[0].store(2, Ordering::Relaxed);
        let wait = Duration::from_millis(20);
        assert!(wait < UPDATE);
        assert!(
            matches!(take(&words, &stuck, wait), Err(BusyReason::Held(waited)) if waited >= wait)
        );
        for _ in 0..10 {
            let busy = take(&words, &stuck, UPDATE).err().unwrap();
            assert_eq!(busy, BusyReason::Held(Duration::ZERO));
        }
        // Another owner is waited for again, and a dead one is not.
        words[0].store(4, Ordering::Relaxed);
        assert!(
            matches!(take(&words, &stuck, wait), Err(BusyReason::Held(waited)) if waited >= wait)
        );
        words[0].store(3, Ordering::Relaxed);
        let (guard, half_done) = take(&words, &stuck, SCRAPE).unwrap();
        assert!(half_done);
        drop(guard);
        assert!(take(&words, &stuck, SCRAPE).is_ok());
    }

    #[test]
    fn a_scrape_does_not_wait() {
        let (words, stuck) = (<[AtomicU64; 2]>::default(), StuckLock::default());
        words[0].store(2, Ordering::Relaxed);
        assert_eq!(take(&words, &stuck, SCRAPE).err(), Some(BusyReason::Held(Duration::ZERO)));
        // A scrape does not keep an update from waiting either.
        let wait = Duration::from_millis(1);
        assert!(
            matches!(take(&words, &stuck, wait), Err(BusyReason::Held(waited)) if waited >= wait)
        );
    }

    #[test]
    fn a_thread_that_has_the_lock_is_told_so() {
        let (words, stuck) = (<[AtomicU64; 2]>::default(), StuckLock::default());
        let (guard, _) = take(&words, &stuck, SCRAPE).unwrap();
        assert_eq!(take(&words, &stuck, REGISTRATION).err(), Some(BusyReason::Interrupted));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| take(&words, &stuck, SCRAPE).err());
            assert!(matches!(other.join().unwrap(), Some(BusyReason::Held(_))));
        });
        drop(guard);
        assert!(take(&words, &stuck, SCRAPE).is_ok());
    }
}
