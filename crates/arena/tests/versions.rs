//! Arenas are allocators for the collections of each version of allocator-api2.

#![cfg(all(
    feature = "allocator-api2-02",
    feature = "allocator-api2-03",
    feature = "allocator-api2-04"
))]

use quipu_arena::{Arena, Down, Global, LimitedAllocator, Policy, Reclaim, SharedArena, Up};

macro_rules! versions {
    ($($version:ident),* $(,)?) => {$(
        mod $version {
            use super::*;
            use ::$version::alloc::Allocator;
            use ::$version::vec::Vec;

            fn vectors_grow_and_shrink(home: impl Allocator + Copy) {
                let mut numbers = Vec::new_in(home);
                let mut other = Vec::with_capacity_in(1, home);
                for n in 0..300_u32 {
                    numbers.push(n);
                    other.push(u64::from(n));
                    if n % 50 == 0 {
                        numbers.shrink_to_fit();
                    }
                }
                assert!(numbers.iter().copied().eq(0..300) && other.iter().sum::<u64>() == 44850);
                other.resize(1000, 0);
                assert_eq!((other[299], other[300], other.len()), (299, 0, 1000));
            }

            fn under_a_policy<P: Policy>() {
                let mut arena = Arena::<P>::default();
                vectors_grow_and_shrink(&arena);
                arena.scoped(|scope| vectors_grow_and_shrink(&scope));
            }

            #[test]
            fn collections_work() {
                under_a_policy::<Up>();
                under_a_policy::<Down<8>>();
                under_a_policy::<Reclaim<Up>>();
                under_a_policy::<Reclaim<Down>>();
                let shared = SharedArena::new();
                vectors_grow_and_shrink(&shared.batch());
                vectors_grow_and_shrink(&shared);
            }

            #[test]
            fn missing_memory_is_an_error() {
                let arena: Arena<Up, _> = Arena::new_in(LimitedAllocator::new(600, Global));
                assert!(Vec::<u64, _>::new_in(&arena).try_reserve(1000).is_err());
            }
        }
    )*};
}

versions!(allocator_api2_02, allocator_api2_03, allocator_api2_04);
