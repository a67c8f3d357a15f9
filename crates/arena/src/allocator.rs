//! Implements the trait `Allocator` of each version of allocator-api2 for references to arenas and
//! scopes, so you can use collections in them.
//!
//! The last allocation can grow and, if the policy allows it, shrink and be freed. We recognise it
//! by its end (upwards) or its start (downwards), which equals the position. A block of another
//! chunk cannot be mistaken for the last one, because a header lies between them.

use core::alloc::Layout;
use core::hint::assert_unchecked;
use core::ptr::{self, NonNull};

use crate::arena::Arena;
use crate::arithmetic::{self, LOW, round_up};
use crate::base::{AllocError, BaseAllocator};
use crate::policy::Policy;
use crate::scope::Scope;

impl<P: Policy, A: BaseAllocator> Arena<P, A> {
    /// Like [`block_slow`](Arena::block_slow), with a negated alignment, and with the length in the
    /// result. This lets the fast path jump, because all arguments are already in registers.
    #[cold]
    #[inline(never)]
    fn allocate_slow(&self, mask: usize, size: usize) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: Size and alignment are taken from a layout.
        let layout = unsafe { Layout::from_size_align_unchecked(size, mask.wrapping_neg()) };
        match self.block_slow(layout) {
            Ok(block) => Ok(NonNull::slice_from_raw_parts(block, size)),
            Err(AllocError) => Err(AllocError),
        }
    }

    #[inline(always)]
    pub(crate) fn allocate_block(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        match self.place(layout.size(), layout.align(), arithmetic::StaticFacts::Nothing) {
            // SAFETY: The place was just found.
            Some(place) => unsafe {
                Ok(NonNull::slice_from_raw_parts(self.commit(place), layout.size()))
            },
            None => self.allocate_slow(layout.align().wrapping_neg(), layout.size()),
        }
    }

    /// Frees a block, if it is the last one.
    ///
    /// # Safety
    ///
    /// The block belongs to this arena, is of this size, and is no longer used.
    #[inline(always)]
    pub(crate) unsafe fn free_block(&self, block: NonNull<u8>, size: usize) {
        let start = block.addr().get();
        let size = round_up(size, P::MIN_ALIGN);
        // SAFETY: The last block ends, or starts, at the position.
        unsafe {
            if P::UP {
                if start.wrapping_add(size) == self.pos() {
                    self.set_pos(start);
                }
            } else if start == self.pos() {
                self.set_pos(start + size);
            }
        }
    }

    /// Makes a block larger: in place if it is the last one and the chunk is large enough.
    ///
    /// # Safety
    ///
    /// The block belongs to this arena and is of the old layout; the new size is not smaller.
    #[inline(always)]
    pub(crate) unsafe fn grow_block(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let start = block.addr().get();
        // SAFETY: Every block starts at a multiple of both its alignment and the minimum alignment.
        unsafe {
            assert_unchecked(start & (old.align() - 1) == 0);
            assert_unchecked(start & (P::MIN_ALIGN - 1) == 0);
        }
        let (pos, limit) = (self.pos(), self.limit());
        if P::UP {
            let end = start.wrapping_add(round_up(old.size(), P::MIN_ALIGN));
            // Checks in one branch that the block is the last one, and that it is aligned.
            if ((end ^ pos) | (start & (new.align() - 1))) == 0
                && let Some(pos) =
                    arithmetic::grown_upwards::<LOW>(start, limit, new.size(), P::MIN_ALIGN)
            {
                // SAFETY: The block is the last one, and ends there.
                unsafe { self.set_pos(pos) };
                return Ok(NonNull::slice_from_raw_parts(block, new.size()));
            }
        } else if start == pos {
            let more = new.size() - old.size();
            if let Some(start) =
                arithmetic::grown_downwards::<LOW>(start, limit, more, new.align(), P::MIN_ALIGN)
            {
                // SAFETY: From the new start up to the end of the old block there is room for the
                // new size. The two overlap.
                unsafe {
                    let to = self.set_pos(start);
                    ptr::copy(block.as_ptr(), to.as_ptr(), old.size());
                    return Ok(NonNull::slice_from_raw_parts(to, new.size()));
                }
            }
        }
        // SAFETY: By contract.
        unsafe { self.move_block(block, old.size(), new) }
    }

    /// Makes a block smaller. With `RECLAIM`, frees the rest if the block is the last one.
    ///
    /// # Safety
    ///
    /// The block belongs to this arena and is of the old layout; the new size is not larger.
    #[inline(always)]
    pub(crate) unsafe fn shrink_block<const RECLAIM: bool>(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let start = block.addr().get();
        // SAFETY: Every block starts at a multiple of both its alignment and the minimum alignment.
        unsafe {
            assert_unchecked(start & (old.align() - 1) == 0);
            assert_unchecked(start & (P::MIN_ALIGN - 1) == 0);
        }
        if start & (new.align() - 1) != 0 {
            // SAFETY: By contract.
            return unsafe { self.move_block(block, new.size(), new) };
        }
        if RECLAIM {
            let pos = self.pos();
            if P::UP {
                if start.wrapping_add(round_up(old.size(), P::MIN_ALIGN)) == pos {
                    // SAFETY: The block is the last one, and ends there.
                    unsafe { self.set_pos(start + round_up(new.size(), P::MIN_ALIGN)) };
                }
            } else if start == pos {
                let start = (start + (old.size() - new.size()))
                    & new.align().wrapping_neg()
                    & P::MIN_ALIGN.wrapping_neg();
                // SAFETY: From the new start up to the end of the old block there is room for the
                // new size. The two overlap.
                unsafe {
                    let to = self.set_pos(start);
                    ptr::copy(block.as_ptr(), to.as_ptr(), new.size());
                    return Ok(NonNull::slice_from_raw_parts(to, new.size()));
                }
            }
        }
        Ok(NonNull::slice_from_raw_parts(block, new.size()))
    }

    /// Copies the first `bytes` bytes of a block into a new one.
    ///
    /// # Safety
    ///
    /// Both the block and the new layout are at least this number of bytes long.
    #[cold]
    #[inline(never)]
    unsafe fn move_block(
        &self,
        block: NonNull<u8>,
        bytes: usize,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let to = self.allocate_block(new)?;
        // SAFETY: By contract; the new block does not overlap with the old one.
        unsafe { ptr::copy_nonoverlapping(block.as_ptr(), to.cast().as_ptr(), bytes) };
        Ok(to)
    }
}

/// Implements the base allocator for references to arenas, scopes and batches.
macro_rules! base_allocator {
    ($([$($generics:tt)*] $type:ty: $policy:ty),* $(,)?) => {$(
        // SAFETY: Blocks stay where they are until the arena is reset, released or dropped, or the
        // scope ends; none of these can happen while it is borrowed. Copies of the reference are
        // the same arena, so they can free its blocks.
        unsafe impl<$($generics)*> BaseAllocator for $type {
            #[inline(always)]
            fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
                self.arena().allocate_block(layout)
            }

            #[inline(always)]
            unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
                if <$policy>::FREE {
                    // SAFETY: By contract. The size is the block's, because blocks are never larger
                    // than requested.
                    unsafe { self.arena().free_block(block, layout.size()) }
                }
            }
        }
    )*};
}

base_allocator! {
    [P: Policy, A: BaseAllocator] &Arena<P, A>: P,
    [P: Policy, A: BaseAllocator] &Scope<'_, P, A>: P,
}
#[cfg(feature = "alloc")]
base_allocator! {
    [A: BaseAllocator] &crate::Batch<'_, A>: crate::Pieces,
}

/// Implements a version of the trait for references to arenas, scopes and batches, and for shared
/// arenas.
#[cfg(any(
    feature = "allocator-api2-02",
    feature = "allocator-api2-03",
    feature = "allocator-api2-04"
))]
macro_rules! allocator {
    ($allocator:path, $error:path, $result:path) => {
        allocator! { $allocator, $error, $result,
            [P: Policy, A: BaseAllocator] &Arena<P, A>: P,
            [P: Policy, A: BaseAllocator] &Scope<'_, P, A>: P,
        }
        #[cfg(feature = "alloc")]
        allocator! { $allocator, $error, $result,
            [A: BaseAllocator] &crate::Batch<'_, A>: crate::Pieces,
        }
        // SAFETY: Blocks stay in place until the arena is dropped or is reset, which borrows it
        // mutably.
        #[cfg(feature = "alloc")]
        unsafe impl<A: BaseAllocator> $allocator for crate::SharedArena<A> {
            #[inline(always)]
            fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, $error> {
                $result(BaseAllocator::allocate(self, layout))
            }

            /// Has no effect: a shared arena frees all memory at once.
            #[inline(always)]
            unsafe fn deallocate(&self, _: NonNull<u8>, _: Layout) {}
        }
    };
    ($allocator:path, $error:path, $result:path,
        $([$($generics:tt)*] $type:ty: $policy:ty),* $(,)?
    ) => {$(
        // SAFETY: Blocks stay where they are until the arena is reset, released or dropped, or the
        // scope ends; none of these can happen while it is borrowed. Copies of the reference are
        // the same arena.
        unsafe impl<$($generics)*> $allocator for $type {
            #[inline(always)]
            fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, $error> {
                $result(self.arena().allocate_block(layout))
            }

            #[inline(always)]
            unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
                if <$policy>::FREE {
                    // SAFETY: By contract.
                    unsafe { self.arena().free_block(block, layout.size()) }
                }
            }

            #[inline(always)]
            unsafe fn grow(
                &self,
                block: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, $error> {
                // SAFETY: By contract.
                $result(unsafe { self.arena().grow_block(block, old, new) })
            }

            #[inline(always)]
            unsafe fn grow_zeroed(
                &self,
                block: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, $error> {
                // SAFETY: By contract; the new block contains the old one's bytes, and these.
                unsafe {
                    let block = $result(self.arena().grow_block(block, old, new))?;
                    let added = block.cast::<u8>().add(old.size());
                    added.write_bytes(0, new.size() - old.size());
                    Ok(block)
                }
            }

            #[inline(always)]
            unsafe fn shrink(
                &self,
                block: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, $error> {
                // SAFETY: By contract.
                $result(unsafe {
                    if <$policy>::RECLAIM {
                        self.arena().shrink_block::<true>(block, old, new)
                    } else {
                        self.arena().shrink_block::<false>(block, old, new)
                    }
                })
            }
        }
    )*};
}

#[cfg(feature = "allocator-api2-02")]
mod version_02 {
    use super::*;
    use allocator_api2_02::alloc;

    allocator! { alloc::Allocator, alloc::AllocError, converted }

    #[inline(always)]
    fn converted<T>(result: Result<T, AllocError>) -> Result<T, alloc::AllocError> {
        result.map_err(|AllocError| alloc::AllocError)
    }
}

#[cfg(feature = "allocator-api2-03")]
mod version_03 {
    use super::*;
    use allocator_api2_03::alloc;

    allocator! { alloc::Allocator, alloc::AllocError, converted }

    #[inline(always)]
    fn converted<T>(result: Result<T, AllocError>) -> Result<T, alloc::AllocError> {
        result.map_err(|AllocError| alloc::AllocError)
    }
}

#[cfg(feature = "allocator-api2-04")]
mod version_04 {
    use super::*;
    use allocator_api2_04::alloc;

    allocator! { alloc::Allocator, alloc::AllocError, converted }

    #[inline(always)]
    fn converted<T>(result: Result<T, AllocError>) -> Result<T, alloc::AllocError> {
        result.map_err(|AllocError| alloc::AllocError)
    }
}
