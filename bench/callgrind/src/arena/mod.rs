//! Bump allocators: the cases, each with its setup, and the body whose instructions are counted.
//! All libraries share the source of each case, because their counts are compared.

use std::alloc::Layout;
use std::hint::black_box;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};

use crate::Cell;

pub mod libraries;

/// 56 bytes.
pub struct BigStruct(#[expect(dead_code)] [u64; 7]);

const BIG: BigStruct = BigStruct([0; 7]);

const BYTES: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17];
const WORDS: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17];

const SIZE: usize = 1024;

type Block = Result<NonNull<[u8]>, AllocError>;

/// The block with which a case starts.
fn block<T>(allocator: impl Allocator) -> NonNull<u8> {
    match allocator.allocate(Layout::new::<T>()) {
        Ok(block) => block.cast(),
        Err(AllocError) => panic!("a fresh arena has room for a small block"),
    }
}

/// One case for one library: the entry function and its caller.
macro_rules! case {
    (
        $library:ident $case:ident
        fn<$lifetime:lifetime>($($parameter:ident: $type:ty),*) $(-> $result:ty)? $body:block
        $run:ident => $set_up:block
    ) => {
        /// The case.
        pub mod $case {
            use super::*;

            /// The body, whose instructions are counted.
            #[inline(never)]
            #[allow(clippy::extra_unused_lifetimes)]
            #[unsafe(export_name = concat!("entry_", stringify!($case), "_", stringify!($library)))]
            pub fn entry<$lifetime>($($parameter: $type),*) $(-> $result)? $body

            /// Sets up, and calls the body.
            #[inline(never)]
            pub fn measure(entry: for<$lifetime> fn($($type),*) $(-> $result)?) {
                let $run = |$($parameter),*| {
                    let _ = black_box(entry($(black_box($parameter)),*));
                };
                $set_up
            }
        }
    };
}

/// Allocates a value.
macro_rules! value {
    (
        $library:ident $case:ident $min:literal
        $method:ident<$lifetime:lifetime>($type:ty = $value:expr) $result:ty
    ) => {
        case! { $library $case
            fn<$lifetime>(bump: &$lifetime Bump<$min>, value: $type) -> $result { bump.$method(value) }
            run => { run(&Bump::with_size(SIZE), $value) }
        }
    };
}

/// Resizes a block. In the second case, the compiler does not know the layouts.
macro_rules! resize {
    ($library:ident $case:ident $black_box:ident $method:ident($old:ty => $new:ty)) => {
        case! { $library $case
            fn<'a>(bump: &'a Bump, block: NonNull<u8>) -> Block {
                // SAFETY: The block matches the old layout, and the sizes are in order.
                unsafe {
                    bump.as_allocator().$method(block, Layout::new::<$old>(), Layout::new::<$new>())
                }
            }
            run => {
                let bump = Bump::with_size(SIZE);
                run(&bump, block::<$old>(bump.as_allocator()))
            }
        }
        case! { $library $black_box
            fn<'a>(bump: &'a Bump, block: NonNull<u8>, old: Layout, new: Layout) -> Block {
                // SAFETY: The block matches the old layout, and the sizes are in order.
                unsafe { bump.as_allocator().$method(block, old, new) }
            }
            run => {
                let bump = Bump::with_size(SIZE);
                let old = block::<$old>(bump.as_allocator());
                run(&bump, old, Layout::new::<$old>(), Layout::new::<$new>())
            }
        }
    };
}

/// Frees a block, either the last one or an earlier one.
macro_rules! deallocate {
    ($library:ident $case:ident $black_box:ident $last:literal) => {
        case! { $library $case
            fn<'a>(bump: &'a Bump, block: NonNull<u8>) {
                // SAFETY: The block matches the layout, and no other code uses the block.
                unsafe { bump.as_allocator().deallocate(block, Layout::new::<u32>()) }
            }
            run => {
                let bump = Bump::with_size(SIZE);
                let freed = block::<u32>(bump.as_allocator());
                if !$last {
                    block::<u32>(bump.as_allocator());
                }
                run(&bump, freed)
            }
        }
        case! { $library $black_box
            fn<'a>(bump: &'a Bump, block: NonNull<u8>, layout: Layout) {
                // SAFETY: The block matches the layout, and no other code uses the block.
                unsafe { bump.as_allocator().deallocate(block, layout) }
            }
            run => {
                let bump = Bump::with_size(SIZE);
                let freed = block::<u32>(bump.as_allocator());
                if !$last {
                    block::<u32>(bump.as_allocator());
                }
                run(&bump, freed, Layout::new::<u32>())
            }
        }
    };
}

/// All cases for one library.
macro_rules! library {
    ($($library:ident)*) => {$(
        /// The cases for one library.
        pub mod $library {
            use super::*;
            use super::libraries::$library::Bump;

            value!($library alloc_u8 1 alloc<'a>(u8 = 42) &'a mut u8);
            value!($library alloc_u8_overaligned 8 alloc<'a>(u8 = 42) &'a mut u8);
            value!($library alloc_u32 1 alloc<'a>(u32 = 42) &'a mut u32);
            value!($library alloc_u32_aligned 4 alloc<'a>(u32 = 42) &'a mut u32);
            value!($library alloc_u32_overaligned 8 alloc<'a>(u32 = 42) &'a mut u32);
            value!($library alloc_big_struct 1 alloc<'a>(BigStruct = BIG) &'a mut BigStruct);
            value!($library alloc_big_struct_aligned 8 alloc<'a>(BigStruct = BIG) &'a mut BigStruct);
            value!($library alloc_big_struct_overaligned 16 alloc<'a>(BigStruct = BIG)
                &'a mut BigStruct);
            value!($library alloc_u8_slice 1 alloc_slice_copy<'a>(&[u8] = BYTES) &'a mut [u8]);
            value!($library alloc_u8_slice_overaligned 8 alloc_slice_copy<'a>(&[u8] = BYTES)
                &'a mut [u8]);
            value!($library alloc_u32_slice 1 alloc_slice_copy<'a>(&[u32] = WORDS) &'a mut [u32]);
            value!($library alloc_u32_slice_aligned 4 alloc_slice_copy<'a>(&[u32] = WORDS)
                &'a mut [u32]);
            value!($library alloc_u32_slice_overaligned 8 alloc_slice_copy<'a>(&[u32] = WORDS)
                &'a mut [u32]);

            value!($library try_alloc_u8 1 try_alloc<'a>(u8 = 42) Option<&'a mut u8>);
            value!($library try_alloc_u8_overaligned 8 try_alloc<'a>(u8 = 42) Option<&'a mut u8>);
            value!($library try_alloc_u32 1 try_alloc<'a>(u32 = 42) Option<&'a mut u32>);
            value!($library try_alloc_u32_aligned 4 try_alloc<'a>(u32 = 42) Option<&'a mut u32>);
            value!($library try_alloc_u32_overaligned 8 try_alloc<'a>(u32 = 42) Option<&'a mut u32>);
            value!($library try_alloc_big_struct 1 try_alloc<'a>(BigStruct = BIG)
                Option<&'a mut BigStruct>);
            value!($library try_alloc_big_struct_aligned 8 try_alloc<'a>(BigStruct = BIG)
                Option<&'a mut BigStruct>);
            value!($library try_alloc_big_struct_overaligned 16 try_alloc<'a>(BigStruct = BIG)
                Option<&'a mut BigStruct>);
            value!($library try_alloc_u8_slice 1 try_alloc_slice_copy<'a>(&[u8] = BYTES)
                Option<&'a mut [u8]>);
            value!($library try_alloc_u8_slice_overaligned 8 try_alloc_slice_copy<'a>(&[u8] = BYTES)
                Option<&'a mut [u8]>);
            value!($library try_alloc_u32_slice 1 try_alloc_slice_copy<'a>(&[u32] = WORDS)
                Option<&'a mut [u32]>);
            value!($library try_alloc_u32_slice_aligned 4 try_alloc_slice_copy<'a>(&[u32] = WORDS)
                Option<&'a mut [u32]>);
            value!($library try_alloc_u32_slice_overaligned 8 try_alloc_slice_copy<'a>(&[u32] = WORDS)
                Option<&'a mut [u32]>);

            case! { $library allocate
                fn<'a>(bump: &'a Bump) -> Block { bump.as_allocator().allocate(Layout::new::<u32>()) }
                run => { run(&Bump::with_size(SIZE)) }
            }
            case! { $library black_box_allocate
                fn<'a>(bump: &'a Bump, layout: Layout) -> Block { bump.as_allocator().allocate(layout) }
                run => { run(&Bump::with_size(SIZE), Layout::new::<u32>()) }
            }
            resize!($library grow_same_align black_box_grow_same_align grow(u32 => [u32; 2]));
            resize!($library grow_smaller_align black_box_grow_smaller_align
                grow(u32 => [u16; 4]));
            resize!($library grow_larger_align black_box_grow_larger_align grow(u32 => u64));
            resize!($library shrink_same_align black_box_shrink_same_align
                shrink([u32; 2] => u32));
            resize!($library shrink_smaller_align black_box_shrink_smaller_align
                shrink(u32 => u16));
            resize!($library shrink_larger_align black_box_shrink_larger_align
                shrink([u16; 4] => u32));
            deallocate!($library deallocate black_box_deallocate true);
            deallocate!($library deallocate_non_last black_box_deallocate_non_last false);

            case! { $library warm_up
                fn<'a>() -> Bump {
                    let bump = Bump::new();
                    bump.alloc(0_u32);
                    bump
                }
                run => { run() }
            }
            case! { $library reset
                fn<'a>(bump: &'a mut Bump) { bump.reset() }
                run => {
                    let mut bump = Bump::with_size(SIZE);
                    block::<u32>(bump.as_allocator());
                    run(&mut bump)
                }
            }
        }
    )*};
}

library! {
    quipu_up quipu_down quipu_up_reclaim quipu_down_reclaim quipu_up_keep quipu_down_keep
    bump_scope_up bump_scope_down bumpalo blink_alloc
    bump_scope_up_no_shrink bump_scope_down_no_shrink
    bump_scope_up_no_free bump_scope_down_no_free
}

macro_rules! cells {
    ($($case:ident)*) => {
        /// Every case of every library.
        pub fn cells() -> Vec<Cell> {
            let cases = [$(cells! {
                $case:
                quipu_up quipu_down quipu_up_reclaim quipu_down_reclaim
                quipu_up_keep quipu_down_keep
                bump_scope_up bump_scope_down bumpalo blink_alloc
                bump_scope_up_no_shrink bump_scope_down_no_shrink
                bump_scope_up_no_free bump_scope_down_no_free
            }),*];
            cases.into_iter().flatten().collect()
        }
    };
    ($case:ident: $($library:ident)*) => {
        [$(Cell {
            name: concat!(stringify!($case), "-", stringify!($library)).to_owned(),
            operations: 1,
            run: || $library::$case::measure($library::$case::entry),
        }),*]
    };
}

cells! {
    alloc_u8 alloc_u8_overaligned alloc_u32 alloc_u32_aligned alloc_u32_overaligned
    alloc_big_struct alloc_big_struct_aligned alloc_big_struct_overaligned
    alloc_u8_slice alloc_u8_slice_overaligned
    alloc_u32_slice alloc_u32_slice_aligned alloc_u32_slice_overaligned
    try_alloc_u8 try_alloc_u8_overaligned
    try_alloc_u32 try_alloc_u32_aligned try_alloc_u32_overaligned
    try_alloc_big_struct try_alloc_big_struct_aligned try_alloc_big_struct_overaligned
    try_alloc_u8_slice try_alloc_u8_slice_overaligned
    try_alloc_u32_slice try_alloc_u32_slice_aligned try_alloc_u32_slice_overaligned
    allocate grow_same_align grow_smaller_align grow_larger_align
    shrink_same_align shrink_smaller_align shrink_larger_align deallocate deallocate_non_last
    black_box_allocate black_box_grow_same_align black_box_grow_smaller_align
    black_box_grow_larger_align black_box_shrink_same_align black_box_shrink_smaller_align
    black_box_shrink_larger_align black_box_deallocate black_box_deallocate_non_last
    warm_up reset
}
