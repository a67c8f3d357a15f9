//! [`Pool`]: reusable arenas, for data that lives as long as one request.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

use crate::arena::Arena;
use crate::base::{BaseAllocator, Global};
use crate::policy::{Policy, Up};

/// A pool of reusable arenas.
///
/// [`get`](Pool::get) hands out an arena. When you drop its guard, the arena is reset, and waits
/// with its largest chunk for the next request. So after a while, requests no longer take memory
/// from the heap. For data that lives as long as the pool, use a
/// [`SharedArena`](crate::SharedArena).
///
/// ```
/// use quipu_arena::Pool;
///
/// static POOL: Pool = Pool::new();
///
/// let arena = POOL.get();
/// let line = arena.alloc_fmt(format_args!("request {}", 17));
/// assert_eq!(line, "request 17");
/// drop(arena);
/// assert_eq!(POOL.idle(), 1);
/// ```
pub struct Pool<P: Policy = Up, A: BaseAllocator + Clone = Global> {
    idle: Mutex<Vec<Arena<P, A>>>,
    keep: usize,
    base: A,
}

impl Pool {
    /// Creates a pool of arenas on the heap.
    #[must_use]
    pub const fn new() -> Pool {
        Pool::new_in(Global)
    }
}

impl Default for Pool {
    fn default() -> Pool {
        Pool::new()
    }
}

impl<P: Policy, A: BaseAllocator + Clone> Pool<P, A> {
    /// Creates a pool of arenas on a base allocator.
    #[must_use]
    pub const fn new_in(base: A) -> Pool<P, A> {
        Pool { idle: Mutex::new(Vec::new()), keep: usize::MAX, base }
    }

    /// Sets the maximum size of the chunk that a waiting arena keeps. An arena with a larger chunk
    /// is freed, because one large request must not hold memory. By default, every arena is kept.
    #[must_use]
    pub const fn keep_at_most(mut self, bytes: usize) -> Pool<P, A> {
        self.keep = bytes;
        self
    }

    /// Returns a waiting arena for exclusive use, or a new one without a chunk.
    #[must_use]
    pub fn get(&self) -> PoolGuard<'_, P, A> {
        let arena = self.lock().pop();
        let arena = arena.unwrap_or_else(|| Arena::empty_in(self.base.clone()));
        PoolGuard { arena: ManuallyDrop::new(arena), pool: self }
    }

    /// Returns the number of waiting arenas.
    pub fn idle(&self) -> usize {
        self.lock().len()
    }

    /// Returns the number of bytes that waiting arenas hold from the base allocator.
    pub fn reserved(&self) -> usize {
        self.lock().iter().map(|arena| arena.stats().reserved).sum()
    }

    /// Frees the waiting arenas.
    pub fn clear(&self) {
        let arenas = core::mem::take(&mut *self.lock());
        drop(arenas);
    }

    fn put_back(&self, mut arena: Arena<P, A>) {
        arena.reset();
        if arena.stats().reserved <= self.keep {
            let mut idle = self.lock();
            // If there is no memory to keep the arena, it is freed.
            if idle.try_reserve(1).is_ok() {
                idle.push(arena);
            }
        }
    }

    /// Locks the list. The code under the lock never panics, so we can ignore a poisoned lock.
    fn lock(&self) -> MutexGuard<'_, Vec<Arena<P, A>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Policy, A: BaseAllocator + Clone> fmt::Debug for Pool<P, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("idle", &self.idle()).finish_non_exhaustive()
    }
}

/// An arena of a pool. Dropping the guard returns the arena to the pool.
///
/// The guard is aligned, because the guards of two threads must never share a cache line.
///
/// ```
/// use quipu_arena::{Pool, PoolGuard};
///
/// fn respond(arena: &PoolGuard<'_>, status: u16) -> usize {
///     arena.alloc_fmt(format_args!("HTTP/1.1 {status}\r\n")).len()
/// }
///
/// let pool = Pool::new();
/// assert_eq!(respond(&pool.get(), 200), 14);
/// assert_eq!(pool.idle(), 1);
/// ```
#[repr(align(128))]
pub struct PoolGuard<'p, P: Policy = Up, A: BaseAllocator + Clone = Global> {
    arena: ManuallyDrop<Arena<P, A>>,
    pool: &'p Pool<P, A>,
}

impl<P: Policy, A: BaseAllocator + Clone> Deref for PoolGuard<'_, P, A> {
    type Target = Arena<P, A>;

    #[inline(always)]
    fn deref(&self) -> &Arena<P, A> {
        &self.arena
    }
}

impl<P: Policy, A: BaseAllocator + Clone> DerefMut for PoolGuard<'_, P, A> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Arena<P, A> {
        &mut self.arena
    }
}

impl<P: Policy, A: BaseAllocator + Clone> Drop for PoolGuard<'_, P, A> {
    fn drop(&mut self) {
        // SAFETY: The arena is taken only here, when the guard ends.
        let arena = unsafe { ManuallyDrop::take(&mut self.arena) };
        self.pool.put_back(arena);
    }
}

impl<P: Policy, A: BaseAllocator + Clone> fmt::Debug for PoolGuard<'_, P, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PoolGuard").field(&*self.arena).finish()
    }
}
