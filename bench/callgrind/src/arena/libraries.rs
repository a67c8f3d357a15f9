//! The libraries under one interface, each used like its documentation recommends.
//!
//! This interface is not a trait, because a minimum alignment is an argument of a type, and
//! libraries bound it in ways that a trait cannot express.

macro_rules! quipu {
    ($module:ident, $policy:ty) => {
        /// quipu-arena under a policy.
        pub mod $module {
            use allocator_api2::alloc::Allocator;
            use quipu_arena::{Arena, Global};
            #[allow(unused_imports)]
            use quipu_arena::{Down, Keep, Reclaim, Up};

            /// The allocator.
            pub struct Bump<const MIN_ALIGN: usize = 1>(Arena<$policy>);

            impl<const MIN_ALIGN: usize> Bump<MIN_ALIGN> {
                #[inline(always)]
                pub(crate) fn new() -> Self {
                    Self(Arena::new_in(Global))
                }

                #[inline(always)]
                pub(crate) fn with_size(size: usize) -> Self {
                    Self(Arena::with_size_in(size, Global))
                }

                #[inline(always)]
                pub(crate) fn alloc<T>(&self, value: T) -> &mut T {
                    self.0.alloc(value)
                }

                #[inline(always)]
                pub(crate) fn try_alloc<T>(&self, value: T) -> Option<&mut T> {
                    self.0.try_alloc(value).ok()
                }

                #[inline(always)]
                pub(crate) fn alloc_slice_copy<T: Copy>(&self, value: &[T]) -> &mut [T] {
                    self.0.alloc_slice_copy(value)
                }

                #[inline(always)]
                pub(crate) fn try_alloc_slice_copy<T: Copy>(
                    &self,
                    value: &[T],
                ) -> Option<&mut [T]> {
                    self.0.try_alloc_slice_copy(value).ok()
                }

                #[inline(always)]
                pub(crate) fn as_allocator(&self) -> impl Allocator {
                    &self.0
                }

                #[inline(always)]
                pub(crate) fn reset(&mut self) {
                    self.0.reset();
                }
            }
        }
    };
}

quipu!(quipu_up, Up<MIN_ALIGN>);
quipu!(quipu_down, Down<MIN_ALIGN>);
quipu!(quipu_up_reclaim, Reclaim<Up<MIN_ALIGN>>);
quipu!(quipu_down_reclaim, Reclaim<Down<MIN_ALIGN>>);
quipu!(quipu_up_keep, Keep<Up<MIN_ALIGN>>);
quipu!(quipu_down_keep, Keep<Down<MIN_ALIGN>>);

macro_rules! bump_scope {
    ($module:ident, $up:literal $(, $setting:literal)*) => {
        /// bump-scope in one direction, with some of its settings.
        pub mod $module {
            use allocator_api2::alloc::Allocator;
            use bump_scope::BumpBox;
            use bump_scope::alloc::Global;
            use bump_scope::settings::{BumpSettings, MinimumAlignment, SupportedMinimumAlignment};

            /// The allocator.
            pub struct Bump<const MIN_ALIGN: usize = 1>(
                bump_scope::Bump<Global, BumpSettings<MIN_ALIGN, $up $(, $setting)*>>,
            )
            where
                MinimumAlignment<MIN_ALIGN>: SupportedMinimumAlignment;

            impl<const MIN_ALIGN: usize> Bump<MIN_ALIGN>
            where
                MinimumAlignment<MIN_ALIGN>: SupportedMinimumAlignment,
            {
                #[inline(always)]
                pub(crate) fn new() -> Self {
                    Self(bump_scope::Bump::new())
                }

                #[inline(always)]
                pub(crate) fn with_size(size: usize) -> Self {
                    Self(bump_scope::Bump::with_size(size))
                }

                #[inline(always)]
                pub(crate) fn alloc<T>(&self, value: T) -> &mut T {
                    BumpBox::leak(self.0.alloc(value))
                }

                #[inline(always)]
                pub(crate) fn try_alloc<T>(&self, value: T) -> Option<&mut T> {
                    self.0.try_alloc(value).ok().map(BumpBox::leak)
                }

                #[inline(always)]
                pub(crate) fn alloc_slice_copy<T: Copy>(&self, value: &[T]) -> &mut [T] {
                    self.0.alloc_slice_copy(value).into_mut()
                }

                #[inline(always)]
                pub(crate) fn try_alloc_slice_copy<T: Copy>(
                    &self,
                    value: &[T],
                ) -> Option<&mut [T]> {
                    self.0.try_alloc_slice_copy(value).ok().map(BumpBox::into_mut)
                }

                #[inline(always)]
                pub(crate) fn as_allocator(&self) -> impl Allocator {
                    &self.0
                }

                #[inline(always)]
                pub(crate) fn reset(&mut self) {
                    self.0.reset();
                }
            }
        }
    };
}

bump_scope!(bump_scope_up, true);
bump_scope!(bump_scope_down, false);
// The settings: GUARANTEED_ALLOCATED, CLAIMABLE, DEALLOCATES, SHRINKS. All are true by default.
// CLAIMABLE affects only `reset`.
bump_scope!(bump_scope_up_no_shrink, true, true, false, true, false);
bump_scope!(bump_scope_down_no_shrink, false, true, false, true, false);
bump_scope!(bump_scope_up_no_free, true, true, false, false, false);
bump_scope!(bump_scope_down_no_free, false, true, false, false, false);

/// bumpalo.
pub mod bumpalo {
    use allocator_api2::alloc::Allocator;

    /// The allocator.
    pub struct Bump<const MIN_ALIGN: usize = 1>(bumpalo::Bump<MIN_ALIGN>);

    impl<const MIN_ALIGN: usize> Bump<MIN_ALIGN> {
        #[inline(always)]
        pub(crate) fn new() -> Self {
            // Faster than `new`.
            Self(bumpalo::Bump::with_min_align())
        }

        #[inline(always)]
        pub(crate) fn with_size(size: usize) -> Self {
            Self(bumpalo::Bump::with_min_align_and_capacity(size))
        }

        #[inline(always)]
        pub(crate) fn alloc<T>(&self, value: T) -> &mut T {
            self.0.alloc(value)
        }

        #[inline(always)]
        pub(crate) fn try_alloc<T>(&self, value: T) -> Option<&mut T> {
            self.0.try_alloc(value).ok()
        }

        #[inline(always)]
        pub(crate) fn alloc_slice_copy<T: Copy>(&self, value: &[T]) -> &mut [T] {
            self.0.alloc_slice_copy(value)
        }

        #[inline(always)]
        pub(crate) fn try_alloc_slice_copy<T: Copy>(&self, value: &[T]) -> Option<&mut [T]> {
            self.0.try_alloc_slice_copy(value).ok()
        }

        #[inline(always)]
        pub(crate) fn as_allocator(&self) -> impl Allocator {
            &self.0
        }

        #[inline(always)]
        pub(crate) fn reset(&mut self) {
            self.0.reset();
        }
    }
}

/// blink-alloc, which does not support a minimum alignment.
pub mod blink_alloc {
    use std::alloc::Layout;
    use std::ptr::NonNull;

    use allocator_api2::alloc::{AllocError, Allocator};
    use allocator_api2_04::alloc::Allocator as Later;
    use blink_alloc::{Blink, BlinkAlloc};

    /// The allocator with the version of the trait that the others implement.
    struct Same<'a>(&'a BlinkAlloc);

    // SAFETY: Every call is forwarded.
    unsafe impl Allocator for Same<'_> {
        #[inline(always)]
        fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            Later::allocate(&self.0, layout).map_err(|_| AllocError)
        }

        #[inline(always)]
        unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
            // SAFETY: By contract.
            unsafe { Later::deallocate(&self.0, block, layout) }
        }

        #[inline(always)]
        unsafe fn grow(
            &self,
            block: NonNull<u8>,
            old: Layout,
            new: Layout,
        ) -> Result<NonNull<[u8]>, AllocError> {
            // SAFETY: By contract.
            unsafe { Later::grow(&self.0, block, old, new).map_err(|_| AllocError) }
        }

        #[inline(always)]
        unsafe fn shrink(
            &self,
            block: NonNull<u8>,
            old: Layout,
            new: Layout,
        ) -> Result<NonNull<[u8]>, AllocError> {
            // SAFETY: By contract.
            unsafe { Later::shrink(&self.0, block, old, new).map_err(|_| AllocError) }
        }
    }

    /// The allocator.
    pub struct Bump<const MIN_ALIGN: usize = 1>(Blink);

    impl<const MIN_ALIGN: usize> Bump<MIN_ALIGN> {
        #[inline(always)]
        pub(crate) fn new() -> Self {
            Self(Blink::new())
        }

        #[inline(always)]
        pub(crate) fn with_size(size: usize) -> Self {
            let blink = Blink::with_chunk_size(size);
            // Unlike the others, blink-alloc holds no chunk before the first allocation.
            let _ = blink.allocator().allocate(Layout::new::<[u64; 2]>());
            Self(blink)
        }

        #[inline(always)]
        pub(crate) fn alloc<T>(&self, value: T) -> &mut T {
            self.0.put_no_drop(value)
        }

        #[inline(always)]
        pub(crate) fn try_alloc<T>(&self, value: T) -> Option<&mut T> {
            self.0.emplace_no_drop().try_value(value).ok()
        }

        #[inline(always)]
        pub(crate) fn alloc_slice_copy<T: Copy>(&self, value: &[T]) -> &mut [T] {
            self.0.copy_slice(value)
        }

        #[inline(always)]
        pub(crate) fn try_alloc_slice_copy<T: Copy>(&self, value: &[T]) -> Option<&mut [T]> {
            self.0.try_copy_slice(value)
        }

        #[inline(always)]
        pub(crate) fn as_allocator(&self) -> impl Allocator {
            Same(self.0.allocator())
        }

        #[inline(always)]
        pub(crate) fn reset(&mut self) {
            self.0.reset();
        }
    }
}
