//! Each fallible method as a separate function, because you can then read its assembly.
//!
//! The test `cargo test --test no_panic` compiles this file and looks for panics in the assembly.
//! To read the assembly, run `cargo rustc --release --example fallible -- --emit asm`.

use std::fmt::Arguments;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use allocator_api2_02::alloc::{self, Allocator};
use quipu_arena::{
    AllocError, Arena, ArenaBox, ArenaString, ArenaVec, Down, Global, Keep, LimitedAllocator,
    Policy, Reclaim, SharedArena, Up,
};
use std::alloc::Layout;

macro_rules! fallible {
    ($module:ident, $policy:ty, $base:ty) => {
        mod $module {
            use super::*;

            type Of = Arena<$policy, $base>;
            fallible!(@functions $module
                fn try_new_in(base: $base) -> Result<Of, AllocError> { Of::try_new_in(base) }
                fn try_with_size_in(n: usize, base: $base) -> Result<Of, AllocError> {
                    Of::try_with_size_in(n, base)
                }
                fn try_with_capacity_in(n: usize, base: $base) -> Result<Of, AllocError> {
                    Of::try_with_capacity_in(n, base)
                }
                fn try_alloc(arena: &Of, value: u64) -> Result<&mut u64, AllocError> {
                    arena.try_alloc(value)
                }
                fn try_alloc_with(arena: &Of, value: u64) -> Result<&mut u64, AllocError> {
                    arena.try_alloc_with(|| value ^ 1)
                }
                fn try_alloc_box(arena: &Of, value: u64) -> Result<ArenaBox<'_, u64>, AllocError> {
                    arena.try_alloc_box(value)
                }
                fn try_alloc_slice_copy<'a>(
                    arena: &'a Of,
                    source: &[u16],
                ) -> Result<&'a mut [u16], AllocError> {
                    arena.try_alloc_slice_copy(source)
                }
                fn try_alloc_slice_clone<'a>(
                    arena: &'a Of,
                    source: &[u16],
                ) -> Result<&'a mut [u16], AllocError> {
                    arena.try_alloc_slice_clone(source)
                }
                fn try_alloc_slice_fill(arena: &Of, n: usize) -> Result<&mut [u16], AllocError> {
                    arena.try_alloc_slice_fill(n, 7)
                }
                fn try_alloc_slice_with(arena: &Of, n: usize) -> Result<&mut [usize], AllocError> {
                    arena.try_alloc_slice_with(n, |i| i ^ 1)
                }
                fn try_alloc_iter<'a>(
                    arena: &'a Of,
                    source: &[u16],
                ) -> Result<&'a mut [u16], AllocError> {
                    arena.try_alloc_iter(source.iter().copied().filter(|n| *n != 7))
                }
                fn try_alloc_str<'a>(
                    arena: &'a Of,
                    text: &str,
                ) -> Result<&'a mut str, AllocError> {
                    arena.try_alloc_str(text)
                }
                fn try_alloc_fmt<'a>(
                    arena: &'a Of,
                    arguments: Arguments<'_>,
                ) -> Result<&'a mut str, AllocError> {
                    arena.try_alloc_fmt(arguments)
                }
                fn try_alloc_uninit(arena: &Of) -> Result<&mut MaybeUninit<u64>, AllocError> {
                    arena.try_alloc_uninit()
                }
                fn try_alloc_uninit_slice(
                    arena: &Of,
                    n: usize,
                ) -> Result<&mut [MaybeUninit<u64>], AllocError> {
                    arena.try_alloc_uninit_slice(n)
                }
                fn try_alloc_layout(arena: &Of, layout: Layout) -> Result<NonNull<u8>, AllocError> {
                    arena.try_alloc_layout(layout)
                }
                fn allocate(
                    arena: &Of,
                    layout: Layout,
                ) -> Result<NonNull<[u8]>, alloc::AllocError> {
                    arena.allocate(layout)
                }
                fn deallocate(arena: &Of, block: NonNull<u8>, layout: Layout) {
                    // SAFETY: This is never called.
                    unsafe { arena.deallocate(block, layout) }
                }
                fn grow(
                    arena: &Of,
                    block: NonNull<u8>,
                    old: Layout,
                    new: Layout,
                ) -> Result<NonNull<[u8]>, alloc::AllocError> {
                    // SAFETY: This is never called.
                    unsafe { arena.grow(block, old, new) }
                }
                fn shrink(
                    arena: &Of,
                    block: NonNull<u8>,
                    old: Layout,
                    new: Layout,
                ) -> Result<NonNull<[u8]>, alloc::AllocError> {
                    // SAFETY: This is never called.
                    unsafe { arena.shrink(block, old, new) }
                }
                fn vec_try_push<'a>(vec: &mut ArenaVec<'a, u64, &'a Of>) -> Result<(), AllocError> {
                    vec.try_push(7)
                }
                fn vec_try_reserve<'a>(
                    vec: &mut ArenaVec<'a, u64, &'a Of>,
                    n: usize,
                ) -> Result<(), AllocError> {
                    vec.try_reserve(n)
                }
                fn vec_try_extend_from_slice_copy<'a>(
                    vec: &mut ArenaVec<'a, u64, &'a Of>,
                    source: &[u64],
                ) -> Result<(), AllocError> {
                    vec.try_extend_from_slice_copy(source)
                }
                fn vec_try_extend<'a>(
                    vec: &mut ArenaVec<'a, u64, &'a Of>,
                    source: &[u64],
                ) -> Result<(), AllocError> {
                    vec.try_extend(source.iter().copied())
                }
                fn string_try_push<'a>(
                    string: &mut ArenaString<'a, &'a Of>,
                    character: char,
                ) -> Result<(), AllocError> {
                    string.try_push(character)
                }
                fn string_try_push_str<'a>(
                    string: &mut ArenaString<'a, &'a Of>,
                    text: &str,
                ) -> Result<(), AllocError> {
                    string.try_push_str(text)
                }
                fn reset(arena: &mut Of) {
                    arena.reset()
                }
                fn scoped(arena: &mut Of) -> Result<u64, AllocError> {
                    arena.scoped(|scope| Ok(*scope.try_alloc(7)?))
                }
            );
        }
    };
    (@functions $module:ident $(
        fn $name:ident $(<$lifetime:lifetime>)? ($($argument:ident: $type:ty),* $(,)?)
        $(-> $result:ty)? $body:block
    )*) => {
        $(
            #[inline(never)]
            fn $name $(<$lifetime>)? ($($argument: $type),*) $(-> $result)? $body
        )*

        pub(super) fn addresses() -> Vec<usize> {
            vec![$($name as *const () as usize),*]
        }
    };
}

fallible!(up, Up, Global);
fallible!(up_8, Up<8>, Global);
fallible!(down, Down, Global);
fallible!(down_8_reclaim, Reclaim<Down<8>>, Global);
fallible!(up_keep, Keep<Up>, Global);
fallible!(up_limited, Up, LimitedAllocator<Global>);

#[inline(never)]
fn shared_try_alloc(arena: &SharedArena, value: u64) -> Result<&mut u64, AllocError> {
    arena.try_alloc(value)
}

#[inline(never)]
fn shared_try_alloc_str<'a>(arena: &'a SharedArena, text: &str) -> Result<&'a mut str, AllocError> {
    arena.try_alloc_str(text)
}

#[inline(never)]
fn batch_try_alloc<'a>(
    batch: &quipu_arena::Batch<'a>,
    value: u64,
) -> Result<&'a mut u64, AllocError> {
    batch.try_alloc(value)
}

/// Lets the addresses of the functions escape, because the compiler must keep all functions.
fn main() {
    let mut addresses = vec![
        shared_try_alloc as *const () as usize,
        shared_try_alloc_str as *const () as usize,
        batch_try_alloc as *const () as usize,
        <Up as Policy>::MIN_ALIGN,
    ];
    addresses.extend(up::addresses());
    addresses.extend(up_8::addresses());
    addresses.extend(down::addresses());
    addresses.extend(down_8_reclaim::addresses());
    addresses.extend(up_keep::addresses());
    addresses.extend(up_limited::addresses());
    std::hint::black_box(addresses);
}
