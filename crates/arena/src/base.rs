//! Base allocators: the source of an arena's chunks.
//!
//! This file contains the trait, and base allocators for the heap, for a buffer of the caller, and
//! for a part of another base allocator's memory. Trait and error belong to this crate, because the
//! standard library's are unstable, and each version of allocator-api2 has its own.

use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use crate::sync::{AtomicUsize, Ordering, const_unless_loom};

/// The error of a fallible allocation: the base allocator is out of memory. Like in the standard
/// library, this error contains nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "base allocators create it")]
pub struct AllocError;

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory allocation failed")
    }
}

impl core::error::Error for AllocError {}

/// A base allocator: the source of an arena's chunks. References to a base allocator are base
/// allocators too, and so are references to arenas, scopes and batches.
///
/// ```
/// use std::alloc::Layout;
/// use std::cell::Cell;
/// use std::ptr::NonNull;
///
/// use quipu_arena::{AllocError, Arena, BaseAllocator, Global, Up};
///
/// /// Counts the chunks that it returns.
/// struct Counting(Cell<usize>);
///
/// // SAFETY: Every block is the heap's.
/// unsafe impl BaseAllocator for Counting {
///     fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
///         self.0.set(self.0.get() + 1);
///         Global.allocate(layout)
///     }
///
///     unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
///         // SAFETY: By contract.
///         unsafe { Global.deallocate(block, layout) };
///     }
/// }
///
/// let arena: Arena<Up, Counting> = Arena::empty_in(Counting(Cell::new(0)));
/// arena.alloc(17);
/// arena.alloc_slice_fill(10_000, 0u8);
/// assert_eq!(arena.base().0.get(), 2);
/// ```
///
/// # Safety
///
/// A block is valid, and its owner has exclusive access to it, until it is deallocated, or the base
/// allocator and all of its clones are dropped. Moving the base allocator does not invalidate its
/// blocks. A clone can deallocate the blocks of the original.
pub unsafe trait BaseAllocator {
    /// Returns a block of at least the layout's size, at its alignment. The block can be larger.
    ///
    /// # Errors
    ///
    /// If there is no memory.
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError>;

    /// Frees a block.
    ///
    /// # Safety
    ///
    /// This base allocator or a clone returned the block, which is no longer used. The alignment is
    /// the requested one, and the size is between the requested and the returned one.
    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout);
}

// SAFETY: Every call is forwarded.
unsafe impl<B: BaseAllocator + ?Sized> BaseAllocator for &B {
    #[inline(always)]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        (**self).allocate(layout)
    }

    #[inline(always)]
    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: By contract.
        unsafe { (**self).deallocate(block, layout) };
    }
}

/// The heap, as a base allocator.
#[cfg(feature = "alloc")]
#[derive(Clone, Copy, Debug, Default)]
#[allow(
    clippy::exhaustive_structs,
    reason = "to be named as a value, like in the standard library"
)]
pub struct Global;

// SAFETY: Every block is the heap's. Blocks without bytes are never dereferenced.
#[cfg(feature = "alloc")]
unsafe impl BaseAllocator for Global {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let block = if layout.size() == 0 {
            core::ptr::without_provenance_mut(layout.align())
        } else {
            // SAFETY: The layout has bytes.
            unsafe { alloc::alloc::alloc(layout) }
        };
        let block = NonNull::new(block).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(block, layout.size()))
    }

    #[inline]
    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        if layout.size() != 0 {
            // SAFETY: By contract; the block has exactly the requested size.
            unsafe { alloc::alloc::dealloc(block.as_ptr(), layout) };
        }
    }
}

/// Defines a type whose parameters have defaults with the feature `alloc`, and none without this
/// feature. So the feature only adds to the meaning of a name, and never changes it.
macro_rules! default_to_heap {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident<
            $($lifetime:lifetime $(, $type:ident)?;)?
            $($parameter:ident: $bound:path = $default:ty),*
        > { $($fields:tt)* }
    ) => {
        #[cfg(feature = "alloc")]
        $(#[$attribute])*
        pub struct $name<
            $($lifetime, $($type,)?)? $($parameter: $bound = $default),*
        > { $($fields)* }

        #[cfg(not(feature = "alloc"))]
        $(#[$attribute])*
        pub struct $name<$($lifetime, $($type,)?)? $($parameter: $bound),*> { $($fields)* }
    };
}
pub(crate) use default_to_heap;

/// The base allocator of an arena in a buffer. It never returns memory, because the buffer is all.
///
/// ```
/// use std::mem::MaybeUninit;
/// use quipu_arena::{Arena, InBuffer, Up};
///
/// let mut buffer = [MaybeUninit::uninit(); 256];
/// let arena: Arena<Up, InBuffer<'_>> = Arena::in_buffer(&mut buffer);
/// assert_eq!(arena.alloc_str("GET /"), "GET /");
/// assert!(arena.try_alloc([0_u8; 1000]).is_err());
/// ```
pub struct InBuffer<'b>(PhantomData<&'b mut [MaybeUninit<u8>]>);

impl InBuffer<'_> {
    pub(crate) const fn new() -> Self {
        InBuffer(PhantomData)
    }
}

// SAFETY: This never returns a block; the buffer belongs to the caller.
unsafe impl BaseAllocator for InBuffer<'_> {
    fn allocate(&self, _: Layout) -> Result<NonNull<[u8]>, AllocError> {
        Err(AllocError)
    }

    unsafe fn deallocate(&self, _: NonNull<u8>, _: Layout) {}
}

impl fmt::Debug for InBuffer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InBuffer")
    }
}

/// A base allocator that takes memory from another base allocator, up to a limit.
///
/// All bytes count, including chunk headers. You can use one `LimitedAllocator` for many arenas by
/// reference, on many threads.
///
/// ```
/// use quipu_arena::{Arena, Global, LimitedAllocator, Up};
///
/// let memory = LimitedAllocator::new(64 * 1024, Global);
/// let arena: Arena<Up, _> = Arena::new_in(&memory);
/// assert!(arena.try_alloc_slice_fill(100_000, 0u8).is_err());
/// assert_eq!(memory.used(), 496);
/// ```
#[derive(Debug)]
pub struct LimitedAllocator<A> {
    limit: AtomicUsize,
    used: AtomicUsize,
    peak: AtomicUsize,
    base: A,
}

impl<A> LimitedAllocator<A> {
    const_unless_loom! {
        /// Takes at most `limit` bytes from `base`.
        pub fn new(limit: usize, base: A) -> LimitedAllocator<A> {
            LimitedAllocator {
                limit: AtomicUsize::new(limit),
                used: AtomicUsize::new(0),
                peak: AtomicUsize::new(0),
                base,
            }
        }
    }

    /// Returns the number of bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the largest number of bytes that were in use at a time.
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of bytes in use.
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. Memory in use stays, even if this is more than the new limit.
    pub fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Counts `more` bytes, if the limit allows it.
    fn reserve(&self, more: usize) -> Result<(), AllocError> {
        let limit = self.limit();
        let allowed = |used: usize| used.checked_add(more).filter(|&sum| sum <= limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, allowed) {
            Ok(used) => {
                self.peak.fetch_max(used + more, Ordering::Relaxed);
                Ok(())
            }
            Err(_) => Err(AllocError),
        }
    }

    fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

// SAFETY: Every block is the base allocator's; this type only counts.
unsafe impl<A: BaseAllocator> BaseAllocator for LimitedAllocator<A> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.reserve(layout.size())?;
        match self.base.allocate(layout) {
            // Drop any excess that the base allocator returned, because a block is freed with the
            // size that was counted.
            Ok(block) => Ok(NonNull::slice_from_raw_parts(block.cast(), layout.size())),
            Err(AllocError) => {
                self.release(layout.size());
                Err(AllocError)
            }
        }
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: By contract.
        unsafe { self.base.deallocate(block, layout) };
        self.release(layout.size());
    }
}
