//! Scopes: allocations in a scope are freed when it ends, and cannot outlive it.
//!
//! A [`Scope`] is a reference to its arena. Opening a scope within another borrows the outer one
//! mutably, so the outer one cannot allocate until the inner one ends. Earlier allocations of the
//! outer scope stay usable, because they borrow from the arena and not from the handle.

use core::alloc::Layout;
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use crate::allocate::{allocating, expect_array, refuse_drop, uninit};
use crate::arena::{Arena, out_of_memory};
use crate::base::{AllocError, BaseAllocator, default_to_heap};
use crate::boxed::ArenaBox;
use crate::policy::Policy;
use crate::string::ArenaString;
use crate::vec::ArenaVec;

default_to_heap! {
    /// A handle for allocations that live as long as `'a` and are freed together.
    ///
    /// You get a scope from [`Arena::scoped`], [`ScopeGuard::scope`] or [`Arena::as_scope`]. A
    /// function that allocates takes the scope by reference. Its results live as long as the scope,
    /// and can outlive this reference:
    ///
    /// ```
    /// use quipu_arena::{Arena, Scope};
    ///
    /// fn fields<'a>(scope: &Scope<'a>, line: &'a str) -> &'a [&'a str] {
    ///     scope.alloc_iter(line.split(' '))
    /// }
    ///
    /// let mut arena = Arena::new();
    /// assert_eq!(arena.scoped(|scope| fields(&scope, "GET / 200").len()), 3);
    /// ```
    ///
    /// A function that opens inner scopes takes `&mut Scope<'_>`.
    pub struct Scope<'a; P: Policy = crate::Up, A: BaseAllocator = crate::Global> {
        arena: &'a Arena<P, A>,
    }
}

impl<'a, P: Policy, A: BaseAllocator> Scope<'a, P, A> {
    #[inline(always)]
    pub(crate) fn new(arena: &'a mut Arena<P, A>) -> Scope<'a, P, A> {
        Scope { arena }
    }

    #[inline(always)]
    pub(crate) fn arena(&self) -> &'a Arena<P, A> {
        self.arena
    }

    allocating!([][] 'a);

    /// Calls a function with a scope within this one, and frees the allocations of that scope, even
    /// if the function panics.
    #[inline]
    pub fn scoped<R>(&mut self, f: impl for<'s> FnOnce(Scope<'s, P, A>) -> R) -> R {
        let mut guard = self.guard();
        f(guard.scope())
    }

    /// Returns a guard. When you drop this guard, it frees the allocations of its scope.
    #[inline]
    pub fn guard(&mut self) -> ScopeGuard<'_, P, A> {
        ScopeGuard { arena: self.arena, start: self.arena.checkpoint() }
    }

    /// Returns statistics of the whole arena.
    pub fn stats(&self) -> crate::Stats {
        self.arena.stats()
    }

    /// Returns the arena's base allocator.
    pub fn base(&self) -> &'a A {
        self.arena.base()
    }
}

impl<P: Policy, A: BaseAllocator> Arena<P, A> {
    /// `self`, because the macro below also writes methods for types that contain an arena.
    #[inline(always)]
    pub(crate) fn arena(&self) -> &Arena<P, A> {
        self
    }

    allocating!(['s]['s] 's);
}

impl<P: Policy, A: BaseAllocator> fmt::Debug for Scope<'_, P, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("arena", self.arena).finish()
    }
}

default_to_heap! {
    /// Frees the allocations of its scope when you drop it.
    ///
    /// If you leak a guard with `mem::forget`, the allocations of its scope stay until the outer
    /// scope ends, or the arena is reset.
    ///
    /// ```
    /// use quipu_arena::Arena;
    ///
    /// let mut arena = Arena::new();
    /// let mut guard = arena.guard();
    /// for line in ["GET /a", "GET /b"] {
    ///     let scope = guard.scope();
    ///     assert_eq!(scope.alloc_str(line).len(), 6);
    ///     guard.reset();
    /// }
    /// drop(guard);
    /// assert_eq!(arena.stats().allocated, 0);
    /// ```
    pub struct ScopeGuard<'a; P: Policy = crate::Up, A: BaseAllocator = crate::Global> {
        arena: &'a Arena<P, A>,
        start: Checkpoint,
    }
}

impl<'a, P: Policy, A: BaseAllocator> ScopeGuard<'a, P, A> {
    #[inline]
    pub(crate) fn new(arena: &'a mut Arena<P, A>) -> ScopeGuard<'a, P, A> {
        let start = arena.checkpoint();
        ScopeGuard { arena, start }
    }

    /// Returns the scope. You can use its allocations until the guard is reset or dropped, or
    /// returns another scope.
    #[inline]
    pub fn scope(&mut self) -> Scope<'_, P, A> {
        Scope { arena: self.arena }
    }

    /// Frees all allocations that the scope made so far.
    #[inline]
    pub fn reset(&mut self) {
        // SAFETY: The guard took the checkpoint, and outlives the allocations of its scope. While
        // the guard lives, it borrows the arena or the outer scope mutably, so no other code can
        // allocate or reset. Guards and scopes within it are gone, because they borrow it.
        unsafe { self.arena.reset_to(self.start) };
    }
}

impl<P: Policy, A: BaseAllocator> Drop for ScopeGuard<'_, P, A> {
    #[inline]
    fn drop(&mut self) {
        self.reset();
    }
}

impl<P: Policy, A: BaseAllocator> fmt::Debug for ScopeGuard<'_, P, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopeGuard").field("arena", self.arena).finish_non_exhaustive()
    }
}

/// A position in an arena; see [`Arena::checkpoint`].
///
/// ```
/// use quipu_arena::Arena;
///
/// let arena = Arena::new();
/// let kept = arena.alloc(1_u64);
/// let checkpoint = arena.checkpoint();
/// arena.alloc_str("a text that is needed for a moment");
/// // SAFETY: No reference to the text is left.
/// unsafe { arena.reset_to(checkpoint) };
/// assert_eq!((*kept, arena.stats().allocated), (1, 8));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub(crate) pos: NonNull<u8>,
    pub(crate) limit: NonNull<u8>,
}
