//! The methods that allocate. Arenas, scopes and batches share this code.
//!
//! Each method consists of an inlined fast path and an outlined slow path. If a method is almost
//! done once it owns a block, its slow path takes all of its arguments and returns its result. The
//! call is then a jump at the end of the method, so the fast path needs no stack frame.

use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use crate::arena::{Arena, out_of_memory};
use crate::arithmetic::StaticFacts;
use crate::base::{AllocError, BaseAllocator};
use crate::policy::Policy;

/// Refuses, at build time, a type whose values would never be dropped.
///
/// This is a macro, because the compiler's error can then point to your call.
macro_rules! refuse_drop {
    ($type:ty) => {
        const {
            assert!(
                !core::mem::needs_drop::<$type>(),
                "values of this type need dropping, which an arena does not do: use alloc_box or \
                 ArenaVec::into_boxed_slice, or leak the box"
            );
        }
    };
}
pub(crate) use refuse_drop;

impl<P: Policy, A: BaseAllocator> Arena<P, A> {
    /// Returns room for a value, if the current chunk is large enough.
    #[inline(always)]
    fn room<T>(&self) -> Option<NonNull<T>> {
        if size_of::<T>() == 0 {
            return Some(NonNull::dangling());
        }
        self.place(size_of::<T>(), align_of::<T>(), StaticFacts::Alignment)
            // SAFETY: The place was just found.
            .map(|place| unsafe { self.commit(place) }.cast())
    }

    /// Returns room for the number of values in a slice, if the current chunk is large enough. This
    /// needs no check of the size, because the slice exists.
    #[inline(always)]
    fn room_like<T>(&self, source: &[T]) -> Option<NonNull<T>> {
        if size_of::<T>() == 0 {
            return Some(NonNull::dangling());
        }
        self.place(size_of_val(source), align_of::<T>(), StaticFacts::Alignment)
            // SAFETY: The place was just found.
            .map(|place| unsafe { self.commit(place) }.cast())
    }

    /// Allocates a value.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn value<T>(&self, value: T) -> NonNull<T> {
        match self.room() {
            // SAFETY: The block is large enough for the value.
            Some(block) => unsafe {
                block.write(value);
                block
            },
            None => self.value_slow(value),
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn value_slow<T>(&self, value: T) -> NonNull<T> {
        match self.try_value_slow(value) {
            Ok(block) => block,
            Err(AllocError) => out_of_memory(Layout::new::<T>()),
        }
    }

    /// Allocates a value. If this fails, the value is dropped.
    #[inline(always)]
    pub(crate) fn try_value<T>(&self, value: T) -> Result<NonNull<T>, AllocError> {
        match self.room() {
            // SAFETY: The block is large enough for the value.
            Some(block) => unsafe {
                block.write(value);
                Ok(block)
            },
            None => self.try_value_slow(value),
        }
    }

    #[cold]
    #[inline(never)]
    fn try_value_slow<T>(&self, value: T) -> Result<NonNull<T>, AllocError> {
        let block = self.block_slow(Layout::new::<T>())?.cast();
        // SAFETY: The block is large enough for the value.
        unsafe { block.write(value) };
        Ok(block)
    }

    /// Allocates a copy of a slice.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn copy<T: Copy>(&self, source: &[T]) -> NonNull<[T]> {
        match self.room_like(source) {
            // SAFETY: The block is large enough for the slice.
            Some(block) => unsafe { copy_into(source, block) },
            None => self.copy_slow(source),
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn copy_slow<T: Copy>(&self, source: &[T]) -> NonNull<[T]> {
        match self.try_copy_slow(source) {
            Ok(block) => block,
            Err(AllocError) => out_of_memory(Layout::for_value(source)),
        }
    }

    /// Allocates a copy of a slice.
    #[inline(always)]
    pub(crate) fn try_copy<T: Copy>(&self, source: &[T]) -> Result<NonNull<[T]>, AllocError> {
        match self.room_like(source) {
            // SAFETY: The block is large enough for the slice.
            Some(block) => Ok(unsafe { copy_into(source, block) }),
            None => self.try_copy_slow(source),
        }
    }

    #[cold]
    #[inline(never)]
    fn try_copy_slow<T: Copy>(&self, source: &[T]) -> Result<NonNull<[T]>, AllocError> {
        let block = self.block_slow(Layout::for_value(source))?.cast();
        // SAFETY: The block is large enough for the slice.
        Ok(unsafe { copy_into(source, block) })
    }

    /// Allocates a block. This is the fast path.
    #[inline(always)]
    pub(crate) fn block(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        match self.place(layout.size(), layout.align(), StaticFacts::Nothing) {
            // SAFETY: The place was just found.
            Some(place) => Ok(unsafe { self.commit(place) }),
            None => self.block_slow(layout),
        }
    }

    /// Allocates room for a value.
    #[inline(always)]
    pub(crate) fn try_room<T>(&self) -> Result<NonNull<T>, AllocError> {
        match self.room() {
            Some(block) => Ok(block),
            None => match self.block_slow(Layout::new::<T>()) {
                Ok(block) => Ok(block.cast()),
                Err(AllocError) => Err(AllocError),
            },
        }
    }

    /// Allocates room for `len` values.
    #[inline(always)]
    pub(crate) fn try_room_for<T>(&self, len: usize) -> Result<NonNull<T>, AllocError> {
        if size_of::<T>() == 0 {
            return Ok(NonNull::dangling());
        }
        let Ok(layout) = Layout::array::<T>(len) else { return Err(AllocError) };
        match self.place(layout.size(), align_of::<T>(), StaticFacts::Alignment) {
            // SAFETY: The place was just found.
            Some(place) => Ok(unsafe { self.commit(place) }.cast()),
            None => match self.block_slow(layout) {
                Ok(block) => Ok(block.cast()),
                Err(AllocError) => Err(AllocError),
            },
        }
    }

    /// Allocates `len` values that a function returns.
    #[inline]
    pub(crate) fn try_fill<T>(
        &self,
        len: usize,
        mut make: impl FnMut(usize) -> T,
    ) -> Result<NonNull<[T]>, AllocError> {
        let block = self.try_room_for::<T>(len)?;
        for index in 0..len {
            let value = make(index);
            // SAFETY: The block is large enough for `len`. If `make` panics, the block was not
            // shared.
            unsafe { block.add(index).write(value) };
        }
        Ok(NonNull::slice_from_raw_parts(block, len))
    }
}

/// Copies a slice into a block.
///
/// # Safety
///
/// The block is large enough for all values of the slice, and does not overlap with the slice.
#[inline(always)]
unsafe fn copy_into<T: Copy>(source: &[T], block: NonNull<T>) -> NonNull<[T]> {
    // SAFETY: By contract.
    unsafe { ptr::copy_nonoverlapping(source.as_ptr(), block.as_ptr(), source.len()) };
    NonNull::slice_from_raw_parts(block, source.len())
}

/// Turns an error into the panic of the infallible methods.
#[inline(always)]
#[track_caller]
pub(crate) fn expect_array<T, R>(result: Result<R, AllocError>, len: usize) -> R {
    match result {
        Ok(value) => value,
        Err(AllocError) => no_array::<T>(len),
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn no_array<T>(len: usize) -> ! {
    match Layout::array::<T>(len) {
        Ok(layout) => out_of_memory(layout),
        Err(_) => panic!("a slice of {len} values of {} bytes is too large", size_of::<T>()),
    }
}

/// Returns a block as a mutable reference to an uninitialised value.
#[inline(always)]
pub(crate) const fn uninit<T>(block: NonNull<T>) -> NonNull<MaybeUninit<T>> {
    block.cast()
}

/// Writes the methods that allocate into an `impl` for a type that contains an arena. The arguments
/// are a lifetime for the methods to declare, if any; the lifetime of the borrow of `self`, if it
/// is named; and the lifetime of the results.
macro_rules! allocating {
    ([$($bound:lifetime)?] [$($own:lifetime)?] $result:lifetime) => {
        /// Allocates a value of a type that does not need dropping. For other types, you can use
        /// [`alloc_box`](Self::alloc_box).
        ///
        /// # Panics
        ///
        /// If the base allocator is out of memory.
        #[inline(always)]
        #[allow(clippy::mut_from_ref)]
        #[track_caller]
        pub fn alloc<$($bound,)? T>(&$($own)? self, value: T) -> &$result mut T {
            refuse_drop!(T);
            // SAFETY: The block is fresh and holds the value.
            unsafe { self.arena().value(value).as_mut() }
        }

        /// Like [`alloc`](Self::alloc), but returns an error if there is no memory.
        ///
        /// # Errors
        ///
        /// If the base allocator is out of memory.
        #[inline(always)]
        #[allow(clippy::mut_from_ref)]
        pub fn try_alloc<$($bound,)? T>(
            &$($own)? self,
            value: T,
        ) -> Result<&$result mut T, AllocError> {
            refuse_drop!(T);
            match self.arena().try_value(value) {
                // SAFETY: The block is fresh and holds the value.
                Ok(mut value) => Ok(unsafe { value.as_mut() }),
                Err(AllocError) => Err(AllocError),
            }
        }

        /// Allocates a value that a function returns, and constructs this value in place.
        ///
        /// # Panics
        ///
        /// If the base allocator is out of memory; then the function is not called.
        #[inline(always)]
        #[allow(clippy::mut_from_ref)]
        #[track_caller]
        pub fn alloc_with<$($bound,)? T>(
            &$($own)? self,
            make: impl FnOnce() -> T,
        ) -> &$result mut T {
            match self.try_alloc_with(make) {
                Ok(value) => value,
                Err(AllocError) => out_of_memory(Layout::new::<T>()),
            }
        }

        /// Like [`alloc_with`](Self::alloc_with), but returns an error if there is no memory.
        ///
        /// # Errors
        ///
        /// If the base allocator is out of memory; then the function is not called.
        #[inline(always)]
        #[allow(clippy::mut_from_ref)]
        pub fn try_alloc_with<$($bound,)? T>(
            &$($own)? self,
            make: impl FnOnce() -> T,
        ) -> Result<&$result mut T, AllocError> {
            refuse_drop!(T);
            match self.arena().try_room::<T>() {
                // SAFETY: The block is fresh, and holds the value after the write.
                Ok(mut block) => unsafe {
                    block.write(make());
                    Ok(block.as_mut())
                },
                Err(AllocError) => Err(AllocError),
            }
        }

        /// Allocates a value, and returns a box that drops this value.
        ///
        /// # Panics
        ///
        /// If the base allocator is out of memory.
        #[inline(always)]
        #[track_caller]
        pub fn alloc_box<$($bound,)? T>(&$($own)? self, value: T) -> ArenaBox<$result, T> {
            // SAFETY: The block is fresh and holds the value.
            unsafe { ArenaBox::from_raw(self.arena().value(value)) }
        }

        /// Like [`alloc_box`](Self::alloc_box), but returns an error if there is no memory.
        ///
        /// # Errors
        ///
        /// If the base allocator is out of memory. Then the value is dropped.
        #[inline(always)]
        pub fn try_alloc_box<$($bound,)? T>(
            &$($own)? self,
            value: T,
        ) -> Result<ArenaBox<$result, T>, AllocError> {
            match self.arena().try_value(value) {
                // SAFETY: The block is fresh and holds the value.
                Ok(value) => Ok(unsafe { ArenaBox::from_raw(value) }),
                Err(AllocError) => Err(AllocError),
            }
        }

        /// Allocates a copy of a slice.
        ///
        /// # Panics
        ///
        /// If the base allocator is out of memory.
        #[inline(always)]
        #[allow(clippy::mut_from_ref)]
        #[track_caller]
        pub fn alloc_slice_copy<$($bound,)? T: Copy>(
            &$($own)? self,
            source: &[T],
        ) -> &$result mut [T] {
            // SAFETY: The block is fresh and holds the values.
            unsafe { self.arena().copy(source).as_mut() }
        }

        /// Like [`alloc_slice_copy`](Self::alloc_slice_copy), but returns an error if there is no
        /// memory.
        ///
        /// # Errors
        ///
        /// If the base allocator is out of memory.
        #[inline(always)]
        #[allow(clippy::mut_from_ref)]
        pub fn try_alloc_slice_copy<$($bound,)? T: Copy>(
            &$($own)? self,
            source: &[T],
        ) -> Result<&$result mut [T], AllocError> {
            match self.arena().try_copy(source) {
                // SAFETY: The block is fresh and holds the values.
                Ok(mut values) => Ok(unsafe { values.as_mut() }),
                Err(AllocError) => Err(AllocError),
            }
        }

        /// Allocates a slice of clones. If the values are `Copy`, you can use the cheaper
        /// [`alloc_slice_copy`](Self::alloc_slice_copy).
        ///
        /// # Panics
        ///
        /// If the base allocator is out of memory.
        #[inline]
        #[allow(clippy::mut_from_ref)]
        #[track_caller]
        pub fn alloc_slice_clone<$($bound,)? T: Clone>(
            &$($own)? self,
            source: &[T],
        ) -> &$result mut [T] {
            expect_array::<T, _>(self.try_alloc_slice_clone(source), source.len())
        }

        /// Like [`alloc_slice_clone`](Self::alloc_slice_clone), but returns an error if there is no
        /// memory.
        ///
        /// # Errors
        ///
        /// If the base allocator is out of memory.
        #[inline]
        #[allow(clippy::mut_from_ref)]
        pub fn try_alloc_slice_clone<$($bound,)? T: Clone>(
            &$($own)? self,
            source: &[T],
        ) -> Result<&$result mut [T], AllocError> {
            refuse_drop!(T);
            // SAFETY: The indices are valid, because they are from the slice itself.
            let clone = |index: usize| unsafe { source.get_unchecked(index) }.clone();
            match self.arena().try_fill(source.len(), clone) {
                // SAFETY: The block is fresh and holds the values.
                Ok(mut values) => Ok(unsafe { values.as_mut() }),
                Err(AllocError) => Err(AllocError),
            }
        }

        /// Allocates a slice of `len` copies of a value.
        ///
        /// # Panics
        ///
        /// If the base allocator is out of memory, or the slice would exceed `isize::MAX` bytes.
        #[inline]
        #[allow(clippy::mut_from_ref)]
        #[track_caller]
        pub fn alloc_slice_fill<$($bound,)? T: Copy>(
            &$($own)? self,
            len: usize,
            value: T,
        ) -> &$result mut [T] {
            expect_array::<T, _>(self.try_alloc_slice_fill(len, value), len)
        }

        /// Like [`alloc_slice_fill`](Self::alloc_slice_fill), but returns an error if there is no
        /// memory.
        ///
        /// # Errors
        ///
        /// If the base allocator is out of memory, or the slice would exceed `isize::MAX` bytes.
        #[inline]
        #[allow(clippy::mut_from_ref)]
        pub fn try_alloc_slice_fill<$($bound,)? T: Copy>(
            &$($own)? self,
            len: usize,
            value: T,
        ) -> Result<&$result mut [T], AllocError> {
            match self.arena().try_fill(len, |_| value) {
                // SAFETY: The block is fresh and holds the values.
                Ok(mut values) => Ok(unsafe { values.as_mut() }),
                Err(AllocError) => Err(AllocError),
            }
        }

        /// Allocates a slice of `len` values, each returned by a function of its index.
        ///
        /// # Panics
        ///
        /// If the base allocator is out of memory, or the slice would exceed `isize::MAX` bytes.
        /// The function is not called then.
        #[inline]
        #[allow(clippy::mut_from_ref)]
        #[track_caller]
        pub fn alloc_slice_with<$($bound,)? T>(
            &$($own)? self,
            len: usize,
            make: impl FnMut(usize) -> T,
        ) -> &$result mut [T] {
            expect_array::<T, _>(self.try_alloc_slice_with(len, make), len)
        }

        /// Like [`alloc_slice_with`](Self::alloc_slice_with), but returns an error if there is no
        /// memory.
        ///
        /// # Errors
        ///
        /// If the base allocator is out of memory, or the slice would exceed `isize::MAX` bytes.
        /// The function is not called then.
        #[inline]
        #[allow(clippy::mut_from_ref)]
        pub fn try_alloc_slice_with<$($bound,)? T>(
            &$($own)? self,
            len: usize,
            make: impl FnMut(usize) -> T,
        ) -> Result<&$result mut [T], AllocError> {
            refuse_drop!(T);
            match self.arena().try_fill(len, make) {
                // SAFETY: The block is fresh and holds the values.
                Ok(mut values) => Ok(unsafe { values.as_mut() }),
                Err(AllocError) => Err(AllocError),
            }
        }

        /// Allocates a slice of all values that an iterator yields.
        ///
        /// # Panics
        ///
        /// If the base allocator is out of memory.
        #[inline]
        #[allow(clippy::mut_from_ref)]
        #[track_caller]
        pub fn alloc_iter<$($bound,)? T>(
            &$($own)? self,
            items: impl IntoIterator<Item = T>,
        ) -> &$result mut [T] {
            match self.try_alloc_iter(items) {
                Ok(values) => values,
                Err(AllocError) => crate::allocate::no_growth(),
            }
        }

        /// Like [`alloc_iter`](Self::alloc_iter), but returns an error if there is no memory.
        ///
        /// # Errors
        ///
        /// If the base allocator is out of memory.
        #[inline]
        #[allow(clippy::mut_from_ref)]
        pub fn try_alloc_iter<$($bound,)? T>(
            &$($own)? self,
            items: impl IntoIterator<Item = T>,
        ) -> Result<&$result mut [T], AllocError> {
            let mut values = ArenaVec::new_in(self);
            values.try_extend(items)?;
            Ok(values.into_slice())
        }

        /// Allocates a copy of a string.
        ///
        /// # Panics
        ///
        /// If the base allocator is out of memory.
        #[inline(always)]
        #[allow(clippy::mut_from_ref)]
        #[track_caller]
        pub fn alloc_str<$($bound,)?>(&$($own)? self, text: &str) -> &$result mut str {
            let mut bytes = self.arena().copy(text.as_bytes());
            // SAFETY: The block is fresh, and holds a copy of a string.
            unsafe { core::str::from_utf8_unchecked_mut(bytes.as_mut()) }
        }

        /// Like [`alloc_str`](Self::alloc_str), but returns an error if there is no memory.
        ///
        /// # Errors
        ///
        /// If the base allocator is out of memory.
        #[inline(always)]
        #[allow(clippy::mut_from_ref)]
        pub fn try_alloc_str<$($bound,)?>(
            &$($own)? self,
            text: &str,
        ) -> Result<&$result mut str, AllocError> {
            match self.arena().try_copy(text.as_bytes()) {
                // SAFETY: The block is fresh, and holds a copy of a string.
                Ok(mut bytes) => Ok(unsafe { core::str::from_utf8_unchecked_mut(bytes.as_mut()) }),
                Err(AllocError) => Err(AllocError),
            }
        }

        /// Allocates a formatted string, for example with
        /// `alloc_fmt(format_args!("{name}_total"))`.
        ///
        /// # Panics
        ///
        /// If the base allocator is out of memory, or a `Display` implementation returns an error.
        #[allow(clippy::mut_from_ref)]
        #[track_caller]
        pub fn alloc_fmt<$($bound,)?>(
            &$($own)? self,
            arguments: fmt::Arguments<'_>,
        ) -> &$result mut str {
            match self.try_alloc_fmt(arguments) {
                Ok(text) => text,
                Err(AllocError) => crate::allocate::no_text(),
            }
        }

        /// Like [`alloc_fmt`](Self::alloc_fmt), but returns an error if there is no memory.
        ///
        /// # Errors
        ///
        /// If the base allocator is out of memory, or a `Display` implementation returns an error.
        #[allow(clippy::mut_from_ref)]
        pub fn try_alloc_fmt<$($bound,)?>(
            &$($own)? self,
            arguments: fmt::Arguments<'_>,
        ) -> Result<&$result mut str, AllocError> {
            let mut text = ArenaString::new_in(self);
            match fmt::Write::write_fmt(&mut text, arguments) {
                Ok(()) => Ok(text.into_str()),
                Err(fmt::Error) => Err(AllocError),
            }
        }

        /// Allocates room for a value, uninitialised. Use this if you cannot build the value yet.
        ///
        /// # Panics
        ///
        /// If the base allocator is out of memory.
        #[inline(always)]
        #[allow(clippy::mut_from_ref)]
        #[track_caller]
        pub fn alloc_uninit<$($bound,)? T>(&$($own)? self) -> &$result mut MaybeUninit<T> {
            match self.try_alloc_uninit() {
                Ok(block) => block,
                Err(AllocError) => out_of_memory(Layout::new::<T>()),
            }
        }

        /// Like [`alloc_uninit`](Self::alloc_uninit), but returns an error if there is no memory.
        ///
        /// # Errors
        ///
        /// If the base allocator is out of memory.
        #[inline(always)]
        #[allow(clippy::mut_from_ref)]
        pub fn try_alloc_uninit<$($bound,)? T>(
            &$($own)? self,
        ) -> Result<&$result mut MaybeUninit<T>, AllocError> {
            match self.arena().try_room::<T>() {
                // SAFETY: The block is fresh.
                Ok(block) => Ok(unsafe { uninit(block).as_mut() }),
                Err(AllocError) => Err(AllocError),
            }
        }

        /// Allocates room for `len` values, uninitialised. Use this to let other code write them,
        /// for example a C function.
        ///
        /// # Panics
        ///
        /// If the base allocator is out of memory, or the slice would exceed `isize::MAX` bytes.
        #[inline(always)]
        #[allow(clippy::mut_from_ref)]
        #[track_caller]
        pub fn alloc_uninit_slice<$($bound,)? T>(
            &$($own)? self,
            len: usize,
        ) -> &$result mut [MaybeUninit<T>] {
            expect_array::<T, _>(self.try_alloc_uninit_slice(len), len)
        }

        /// Like [`alloc_uninit_slice`](Self::alloc_uninit_slice), but returns an error if there is
        /// no memory.
        ///
        /// # Errors
        ///
        /// If the base allocator is out of memory, or the slice would exceed `isize::MAX` bytes.
        #[inline(always)]
        #[allow(clippy::mut_from_ref)]
        pub fn try_alloc_uninit_slice<$($bound,)? T>(
            &$($own)? self,
            len: usize,
        ) -> Result<&$result mut [MaybeUninit<T>], AllocError> {
            match self.arena().try_room_for::<T>(len) {
                // SAFETY: The block is fresh.
                Ok(block) => Ok(unsafe {
                    core::ptr::NonNull::slice_from_raw_parts(uninit(block), len).as_mut()
                }),
                Err(AllocError) => Err(AllocError),
            }
        }

        /// Allocates a block with the given layout, which can have zero bytes.
        ///
        /// # Panics
        ///
        /// If the base allocator is out of memory.
        #[inline(always)]
        #[track_caller]
        pub fn alloc_layout(&self, layout: Layout) -> NonNull<u8> {
            match self.arena().block(layout) {
                Ok(block) => block,
                Err(AllocError) => out_of_memory(layout),
            }
        }

        /// Like [`alloc_layout`](Self::alloc_layout), but returns an error if there is no memory.
        ///
        /// # Errors
        ///
        /// If the base allocator is out of memory.
        #[inline(always)]
        pub fn try_alloc_layout(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
            self.arena().block(layout)
        }
    };
}
pub(crate) use allocating;

/// Panics because an iterator yields more values than fit into the memory.
#[cold]
#[inline(never)]
#[track_caller]
pub(crate) fn no_growth() -> ! {
    panic!(
        "the base allocator of an arena has no memory for all that an iterator yields; the methods \
         that begin with try_ return an error instead"
    )
}

/// The panic of [`alloc_fmt`](Arena::alloc_fmt). This is out of line, because it is rare.
#[cold]
#[inline(never)]
#[track_caller]
pub(crate) fn no_text() -> ! {
    panic!(
        "a text cannot be formatted in an arena: its base allocator has no memory for it, or a \
         Display implementation reported an error"
    )
}
