//! The guarantees of an arena, one test each.

#![allow(clippy::unwrap_used)]

use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::hash::BuildHasher;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::rc::{Rc, Weak};

use quipu_arena::{
    AllocError, Arena, ArenaBox, ArenaString, ArenaVec, BaseAllocator, Down, Global, InBuffer,
    Keep, LimitedAllocator, Policy, Pool, Reclaim, SharedArena, Up, arena_format, arena_vec,
};

/// Runs a generic test under each kind of policy.
macro_rules! each_policy {
    ($($test:ident),* $(,)?) => {$(
        mod $test {
            use super::*;

            #[test]
            fn up() { super::$test::<Up>() }
            #[test]
            fn up_8() { super::$test::<Up<8>>() }
            #[test]
            fn down() { super::$test::<Down>() }
            #[test]
            fn down_16() { super::$test::<Down<16>>() }
            #[test]
            fn up_128_reclaim() { super::$test::<Reclaim<Up<128>>>() }
            #[test]
            fn down_reclaim() { super::$test::<Reclaim<Down>>() }
            #[test]
            fn up_8_keep() { super::$test::<Keep<Up<8>>>() }
            #[test]
            fn down_keep() { super::$test::<Keep<Down>>() }
        }
    )*};
}

each_policy! {
    every_method_allocates_what_it_says,
    values_of_no_size_take_no_room,
    alignments_up_to_a_page_hold,
    requests_near_the_end_of_memory_are_errors,
    a_base_allocator_that_fails_at_any_call_loses_nothing,
    a_panic_in_a_closure_leaves_the_arena_in_order,
    boxes_drop_their_values_once,
    reset_keeps_the_largest_chunk,
    a_scope_takes_no_memory_twice,
    the_last_allocation_is_freed_unless_kept,
    a_buffer_never_grows,
    vectors_behave_as_vectors,
    vectors_give_their_values,
    vectors_are_cloned_to_another_arena,
    macros_create_vectors_and_strings,
    vectors_are_cut_and_joined,
    a_panic_in_a_drain_loses_no_other_value,
    strings_behave_as_strings,
    strings_are_cut_at_characters,
    statistics_add_up,
    hash_tables_and_vectors_of_others_work,
}

fn every_method_allocates_what_it_says<P: Policy>() {
    let mut arena = Arena::<P>::default();
    for _ in 0..3 {
        assert_eq!(*arena.alloc(7u32), 7);
        assert_eq!(*arena.alloc_with(|| [1u64; 50]), [1; 50]);
        assert_eq!(**arena.alloc_box(String::from("boxed")), *"boxed");
        assert_eq!(arena.alloc_slice_copy(&[1u16, 2, 3]), [1, 2, 3]);
        assert_eq!(arena.alloc_slice_fill(4, 'x'), ['x'; 4]);
        assert_eq!(arena.alloc_slice_with(4, |n| n * n), [0, 1, 4, 9]);
        assert_eq!(arena.alloc_iter((0..700).filter(|n| n % 100 == 0)).len(), 7);
        assert_eq!(arena.alloc_str("text"), "text");
        assert_eq!(arena.alloc_fmt(format_args!("{}-{:04}", "a", 7)), "a-0007");
        assert_eq!(*arena.alloc_uninit::<u128>().write(5), 5);
        assert_eq!(arena.alloc_uninit_slice::<u8>(9).len(), 9);
        let layout = Layout::new::<[u64; 3]>();
        assert_eq!(arena.alloc_layout(layout).addr().get() % layout.align(), 0);

        assert_eq!(arena.try_alloc(7u32), Ok(&mut 7));
        assert_eq!(arena.try_alloc_with(|| 8), Ok(&mut 8));
        assert_eq!(arena.try_alloc_box(9).map(ArenaBox::into_inner), Ok(9));
        assert_eq!(arena.try_alloc_slice_copy(&[1]).unwrap(), [1]);
        assert_eq!(arena.try_alloc_slice_fill(2, 1).unwrap(), [1, 1]);
        assert_eq!(arena.try_alloc_slice_with(2, |n| n).unwrap(), [0, 1]);
        assert_eq!(arena.try_alloc_iter("a b".split(' ')).unwrap(), ["a", "b"]);
        assert_eq!(arena.try_alloc_str("").unwrap(), "");
        assert_eq!(arena.try_alloc_fmt(format_args!("{}", 1)).unwrap(), "1");
        assert!(arena.try_alloc_uninit::<u8>().is_ok());
        assert!(arena.try_alloc_uninit_slice::<u8>(0).is_ok());
        assert!(arena.try_alloc_layout(layout).is_ok());
        arena.reset();
    }
}

fn values_of_no_size_take_no_room<P: Policy>() {
    #[derive(Clone, Copy)]
    #[repr(align(4096))]
    struct Nothing;

    let arena = Arena::<P>::default();
    let nothing: *const Nothing = arena.alloc(Nothing);
    assert_eq!(nothing.addr() % 4096, 0);
    assert_eq!(arena.alloc_slice_fill(1_000, Nothing).len(), 1_000);
    assert_eq!(arena.alloc_slice_copy(&[(); 3]), [(); 3]);
    assert_eq!(arena.alloc_iter((0..1000).map(|_| ())).len(), 1000);
    arena.alloc_uninit_slice::<Nothing>(usize::MAX);
    assert_eq!(arena.stats().allocated, 0);
    let empty = arena.alloc_layout(Layout::from_size_align(0, 256).unwrap());
    assert_eq!(empty.addr().get() % 256, 0);
}

fn alignments_up_to_a_page_hold<P: Policy>() {
    let arena = Arena::<P>::default();
    for shift in (0..=12).chain((0..=12).rev()) {
        for size in [0, 1, 3, 64, 5000] {
            let layout = Layout::from_size_align(size, 1 << shift).unwrap();
            let block = arena.alloc_layout(layout);
            assert_eq!(block.addr().get() % layout.align(), 0);
            assert_eq!(block.addr().get() % P::MIN_ALIGN, 0);
            // SAFETY: The block is of this size.
            unsafe { block.write_bytes(7, size) };
        }
    }
}

fn requests_near_the_end_of_memory_are_errors<P: Policy>() {
    // Miri runs out of memory where a real heap would return an error.
    let base = LimitedAllocator::new(if cfg!(miri) { 1 << 24 } else { usize::MAX }, Global);
    let arena = Arena::<P, _>::empty_in(&base);
    let kept = arena.alloc(7u64);
    for less in [0, 1, 15, 16, 31, 32, 33, 127, 128, 4096, 1 << 20] {
        for align in [1, 8, 128, 4096, 1 << 30, isize::MAX as usize / 2 + 1] {
            let size = (isize::MAX as usize - (align - 1)).saturating_sub(less);
            let Ok(layout) = Layout::from_size_align(size, align) else { continue };
            if size as u64 > 1 << 40 || usize::BITS == 32 {
                assert_eq!(arena.try_alloc_layout(layout), Err(AllocError), "{layout:?}");
            }
        }
    }
    let most = isize::MAX as usize;
    assert!(arena.try_alloc_uninit_slice::<u8>(most).is_err());
    assert!(arena.try_alloc_uninit_slice::<u64>(usize::MAX).is_err());
    assert!(arena.try_alloc_slice_fill(most, 1u8).is_err());
    assert!(Arena::<P, _>::try_with_capacity_in(usize::MAX, &base).is_err());
    assert!(Arena::<P, _>::try_with_size_in(most, &base).is_err());
    let mut vec = ArenaVec::new_in(&arena);
    vec.push(1u64);
    assert!(vec.try_reserve(usize::MAX).is_err());
    assert!(vec.try_reserve(most / 8).is_err());
    assert_eq!((vec.as_slice(), *kept), (&[1][..], 7));

    let message =
        catch_unwind(AssertUnwindSafe(|| arena.alloc_uninit_slice::<u8>(most).len())).unwrap_err();
    let message = message.downcast_ref::<String>().unwrap();
    assert!(message.contains("no memory") && message.contains("try_"), "{message}");
    let message =
        catch_unwind(AssertUnwindSafe(|| arena.alloc_uninit_slice::<u64>(most).len())).unwrap_err();
    assert!(message.downcast_ref::<String>().unwrap().contains("too large"));
}

/// Fails at one of its calls, and counts the blocks that it gave out.
#[derive(Default)]
struct Fails {
    calls: Cell<usize>,
    at: usize,
    given: Cell<isize>,
}

// SAFETY: Every block is the heap's.
unsafe impl BaseAllocator for Fails {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.calls.set(self.calls.get() + 1);
        if self.calls.get() - 1 == self.at {
            return Err(AllocError);
        }
        self.given.set(self.given.get() + layout.size() as isize);
        Global.allocate(layout)
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        self.given.set(self.given.get() - layout.size() as isize);
        // SAFETY: By contract.
        unsafe { Global.deallocate(block, layout) };
    }
}

fn a_base_allocator_that_fails_at_any_call_loses_nothing<P: Policy>() {
    for at in (0..12).step_by(if cfg!(miri) { 3 } else { 1 }) {
        let base = Fails { at, ..Fails::default() };
        {
            let mut arena: Arena<P, &Fails> = Arena::empty_in(&base);
            for _ in 0..2 {
                let mut kept: Vec<&mut [u64]> = Vec::new();
                for n in (0..40).step_by(if cfg!(miri) { 8 } else { 1 }) {
                    if let Ok(slice) = arena.try_alloc_slice_fill(1 + n, n as u64) {
                        kept.push(slice);
                    }
                }
                // One call failed, after which the arena tried a chunk of just the needed size.
                assert!(kept.len() >= if cfg!(miri) { 4 } else { 39 });
                assert!(
                    kept.iter().all(|slice| slice.iter().all(|n| *n + 1 == slice.len() as u64))
                );
                arena.reset();
            }
            arena.scoped(|scope| scope.try_alloc_uninit_slice::<u8>(5000).is_ok());
        }
        assert_eq!(base.given.get(), 0, "failed at call {at}");
    }
}

fn a_panic_in_a_closure_leaves_the_arena_in_order<P: Policy>() {
    let mut arena = Arena::<P>::default();
    let before = arena.stats().allocated;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        arena.scoped(|mut scope| {
            scope.alloc_uninit_slice::<u8>(10_000);
            scope.scoped(|inner| {
                inner.alloc_uninit_slice::<u8>(100_000);
                panic!("in a scope within a scope");
            })
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(arena.stats().allocated, before);

    let drops = Rc::new(Cell::new(0));
    for at in 0..4 {
        let made = Cell::new(0);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut vec = ArenaVec::new_in(&arena);
            vec.extend((0..4).map(|n| {
                assert_ne!(n, at, "in an iterator");
                made.set(made.get() + 1);
                Counted(drops.clone())
            }));
        }));
        assert!(panicked.is_err());
        assert_eq!(drops.replace(0), made.get(), "all values that were made are dropped");
    }
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        arena.alloc_with::<u8>(|| panic!("in a value"));
    }));
    assert!(panicked.is_err());
    assert!(
        catch_unwind(AssertUnwindSafe(|| arena.alloc_slice_with(9, |n| 1 / (5 - n.min(5))).len()))
            .is_err()
    );
    assert_eq!(*arena.alloc(7), 7);
}

/// Counts the drops of its values.
#[derive(Clone)]
struct Counted(Rc<Cell<u32>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

fn boxes_drop_their_values_once<P: Policy>() {
    let drops = Rc::new(Cell::new(0));
    let arena = Arena::<P>::default();
    drop(arena.alloc_box(Counted(drops.clone())));
    assert_eq!(drops.get(), 1);
    drop(ArenaBox::into_inner(arena.alloc_box(Counted(drops.clone()))));
    assert_eq!(drops.get(), 2);
    let leaked = NonNull::from(ArenaBox::leak(arena.alloc_box(Counted(drops.clone()))));
    assert_eq!(drops.get(), 2, "a leaked value is not dropped");
    // SAFETY: The value is in the arena, and a box owns it again.
    drop(unsafe { ArenaBox::from_raw(leaked) });
    assert_eq!(drops.replace(2), 3);

    let mut vec = ArenaVec::new_in(&arena);
    vec.extend((0..10).map(|_| Counted(drops.clone())));
    vec.truncate(7);
    assert_eq!(drops.get(), 5);
    drop(vec.pop());
    drop(vec.remove(1));
    drop(vec.swap_remove(1));
    assert_eq!(drops.get(), 8);
    let boxed = vec.into_boxed_slice();
    assert_eq!((boxed.len(), drops.get()), (4, 8));
    drop(boxed);
    assert_eq!(drops.get(), 12);

    // A refused value is dropped as well.
    let limited: Arena<P, _> = Arena::empty_in(LimitedAllocator::new(0, Global));
    assert!(limited.try_alloc_box(Counted(drops.clone())).is_err());
    assert!(ArenaVec::new_in(&limited).try_push(Counted(drops.clone())).is_err());
    assert_eq!(drops.get(), 14);
    assert_eq!(Rc::strong_count(&drops), 1, "all are gone");
}

fn reset_keeps_the_largest_chunk<P: Policy>() {
    let memory = LimitedAllocator::new(usize::MAX, Global);
    let mut arena: Arena<P, _> = Arena::new_in(&memory);
    for round in 0..3 {
        arena.alloc_uninit_slice::<u8>(100_000);
        arena.alloc_uninit_slice::<u8>(300_000);
        arena.alloc(1u8);
        let peak = memory.peak();
        arena.reset();
        let stats = arena.stats();
        assert_eq!((stats.chunks, stats.allocated, stats.spare), (1, 0, 0));
        assert_eq!(stats.reserved, memory.used());
        assert!(stats.capacity >= 300_000);
        if round > 0 {
            assert_eq!(memory.peak(), peak);
        }
    }
    arena.release();
    assert_eq!(memory.used(), 0);
    assert_eq!(*arena.alloc(3), 3);
}

fn a_scope_takes_no_memory_twice<P: Policy>() {
    let memory = LimitedAllocator::new(usize::MAX, Global);
    let mut arena: Arena<P, _> = Arena::new_in(&memory);
    let mut outer = arena.as_scope();
    let kept = outer.alloc(1u64);
    let mut used = 0;
    for round in 0..5 {
        outer.scoped(|mut scope| {
            scope.alloc_uninit_slice::<u64>(1000);
            scope.scoped(|inner| inner.alloc_uninit_slice::<u64>(5000).len());
            scope.alloc_uninit_slice::<u64>(3000);
        });
        // In the first round each slice takes a chunk; in the second, one chunk takes them all.
        if round > 1 {
            assert_eq!(memory.used(), used, "the spare chunk is reused");
        }
        used = memory.used();
    }
    assert_eq!(*kept, 1);
    assert_eq!(outer.stats().allocated % 8, 0);
}

fn the_last_allocation_is_freed_unless_kept<P: Policy>() {
    let arena = Arena::<P>::with_capacity_in(4096, Global);
    let arena = &arena;
    let layout = Layout::new::<[u64; 4]>();
    let first = arena.allocate(layout).unwrap();
    let before = arena.stats().allocated;
    let second = arena.allocate(layout).unwrap().cast::<u8>();
    // SAFETY: The blocks are of this layout, and are no longer used.
    unsafe {
        arena.deallocate(second, layout);
        assert_eq!(arena.stats().allocated == before, P::FREE);
        let third = arena.allocate(layout).unwrap().cast::<u8>();
        assert_eq!(third == second, P::FREE, "it is reused");
        arena.deallocate(first.cast(), layout);
        assert!(arena.stats().allocated > before, "this one was not the last");
    }

    let before = arena.stats().allocated;
    let mut vec = ArenaVec::new_in(arena);
    vec.extend_from_slice_copy(&[1u8; 100]);
    let start = vec.as_ptr();
    vec.extend_from_slice_copy(&[2u8; 100]);
    assert_eq!(start == vec.as_ptr(), P::UP, "upwards it grows in place");
    vec.truncate(64);
    assert_eq!(vec.into_slice(), [1; 64]);
    let used = arena.stats().allocated - before;
    // Downwards, each growth can leave a gap above the block.
    let gaps = if P::UP { 0 } else { 2 * (P::MIN_ALIGN - 1) };
    let most = (64 + gaps).next_multiple_of(P::MIN_ALIGN);
    assert!(used <= most, "the rest is given back: {used}");

    let old = Layout::from_size_align(160, 1).unwrap();
    let new = Layout::from_size_align(16, 1).unwrap();
    let block = arena.allocate(old).unwrap();
    let before = arena.stats().allocated;
    // SAFETY: The block is of the old layout.
    unsafe { allocator_api2_02::alloc::Allocator::shrink(&arena, block.cast(), old, new).unwrap() };
    assert_eq!(arena.stats().allocated < before, P::RECLAIM);
}

fn a_buffer_never_grows<P: Policy>() {
    for len in (0..600).step_by(if cfg!(miri) { 197 } else { 1 }) {
        let mut buffer = vec![MaybeUninit::uninit(); len];
        let range = buffer.as_ptr_range();
        let mut arena = Arena::<P, InBuffer<'_>>::in_buffer(&mut buffer);
        for _ in 0..2 {
            let mut got = 0;
            while let Ok(byte) = arena.try_alloc(7u8) {
                let at = std::ptr::from_ref(byte).cast::<MaybeUninit<u8>>();
                assert!(range.contains(&at));
                got += 1;
            }
            let header = 32_usize.next_multiple_of(P::MIN_ALIGN);
            let lost = header + 2 * P::MIN_ALIGN.max(16);
            assert!(got * P::MIN_ALIGN + lost >= len, "{got} of {len}");
            arena.scoped(|scope| assert!(scope.try_alloc_slice_fill(600, 1u8).is_err()));
            arena.reset();
        }
        arena.release();
        assert!(arena.try_alloc(1u8).is_err(), "a buffer that was released is gone");
    }
}

fn vectors_behave_as_vectors<P: Policy>() {
    let arena = Arena::<P>::default();
    let mut vec = ArenaVec::new_in(&arena);
    let mut twin = Vec::new();
    for n in 0..if cfg!(miri) { 120 } else { 500_u32 } {
        match n % 7 {
            0 => (vec.insert(twin.len() / 2, n), twin.insert(twin.len() / 2, n)).0,
            1 if !twin.is_empty() => {
                assert_eq!(vec.remove(twin.len() / 3), twin.remove(twin.len() / 3));
            }
            2 if !twin.is_empty() => {
                assert_eq!(vec.swap_remove(twin.len() / 3), twin.swap_remove(twin.len() / 3));
            }
            3 => assert_eq!(vec.pop(), twin.pop()),
            4 => {
                vec.extend_from_slice_copy(&[n, n + 1]);
                twin.extend_from_slice(&[n, n + 1]);
            }
            _ => (vec.push(n), twin.push(n)).0,
        }
        assert_eq!(vec.as_slice(), twin);
        if n == 100 {
            vec.retain(|n| n % 3 != 0);
            twin.retain(|n| n % 3 != 0);
        }
        // Allocate something else, because the vector must not always be last.
        if n % 50 == 0 {
            arena.alloc(n);
        }
    }
    vec.shrink_to_fit();
    assert_eq!(vec.into_slice(), twin);
    assert!(
        catch_unwind(AssertUnwindSafe(|| {
            let mut vec = ArenaVec::new_in(&arena);
            vec.push(1);
            vec.remove(1)
        }))
        .is_err()
    );
}

fn vectors_give_their_values<P: Policy>() {
    let arena = Arena::<P>::default();
    let mut words = ArenaVec::from_iter_in("one two three four".split(' '), &arena);
    words.resize(6, "more");
    words.resize(5, "no more");
    words.extend(&["last"]);
    assert_eq!(words, ["one", "two", "three", "four", "more", "last"]);
    let mut by_value = words.into_iter();
    assert_eq!((by_value.next(), by_value.next_back()), (Some("one"), Some("last")));
    assert_eq!(by_value.map(str::len).sum::<usize>(), 16);
    let drops = Rc::new(Cell::new(0));
    let counted = ArenaVec::from_iter_in((0..5).map(|_| Counted(drops.clone())), &arena);
    assert_eq!(counted.into_iter().take(2).count(), 2);
    assert_eq!(drops.get(), 5, "values that were not taken are dropped as well");
    assert_eq!(arena.alloc_slice_clone(&[Some('a'), None]), [Some('a'), None]);

    // All values that fit are appended, whatever the iterator's size hint.
    let limited: Arena<P, _> = Arena::new_in(LimitedAllocator::new(600, Global));
    let mut some = ArenaVec::new_in(&limited);
    assert!(some.try_extend(0..1000_u32).is_err());
    assert!(some.len() > 50 && some.iter().copied().eq(0..some.len() as u32));
    assert!(some.try_extend(std::iter::repeat(1)).is_err(), "at once");
}

fn vectors_are_cloned_to_another_arena<P: Policy>() {
    fn shared<T: Sync>(value: &T) -> &T {
        value
    }

    let (mut arena, other) = (Arena::<P>::default(), Arena::new());
    let drops = Rc::new(Cell::new(0));
    let (clone, text) = arena.scoped(|scope| {
        let vec = ArenaVec::from_iter_in([drops.clone(), drops.clone()], &scope);
        let text = ArenaString::from_str_in("quipu", &scope);
        shared(&text);
        (vec.clone_in(&other), text.clone_in(&other))
    });
    assert_eq!(Rc::strong_count(&drops), 3);
    assert_eq!((clone.len(), clone.capacity(), text.capacity()), (2, 2, 5));
    assert_eq!(text, "quipu");
    drop(clone);
    assert_eq!(Rc::strong_count(&drops), 1);

    let numbers = ArenaVec::from_iter_in(0..500, &arena);
    let limited: Arena<P, _> = Arena::new_in(LimitedAllocator::new(600, Global));
    assert_eq!(shared(&numbers).try_clone_in(&limited).err(), Some(AllocError));
    let long = ArenaString::from_str_in(&"x".repeat(1000), &arena);
    assert_eq!(long.try_clone_in(&limited), Err(AllocError));
}

fn macros_create_vectors_and_strings<P: Policy>() {
    // Names of the caller that the macros must not use.
    #[allow(unused)]
    mod core {}
    #[allow(unused)]
    struct ArenaVec;

    let mut arena = Arena::<P>::default();
    let evaluations = Cell::new(0);
    let next = || evaluations.replace(evaluations.get() + 1);
    let vec = arena_vec![in &arena; next(), next(), next(),];
    assert_eq!((vec.as_slice(), vec.capacity(), evaluations.get()), (&[0, 1, 2][..], 3, 3));
    assert_eq!(arena_vec![in &arena; String::from("a"); 2], ["a", "a"]);
    assert!(arena_vec![in &arena; Some(1); 0].is_empty());
    let mut grid = arena_vec![in &arena];
    grid.push(arena_vec![in &arena; 1]);
    assert_eq!(grid[0], [1]);
    assert_eq!(arena_vec![try in &arena; 'x'].unwrap(), ['x']);
    assert_eq!(arena_vec![try in &arena; 7; 3].unwrap(), [7; 3]);
    drop((vec, grid));

    arena.scoped(|scope| {
        let width = 5;
        assert_eq!(arena_format!(in &scope, "{:>width$}-{}", 17, "a"), "   17-a");
        assert_eq!(arena_format!(in &scope, "{width}", width = 3), "3");
        assert!(arena_format!(try in &scope, "{:>600}", 1).is_ok());
    });

    struct Fails;

    impl std::fmt::Display for Fails {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            Err(std::fmt::Error)
        }
    }

    assert!(arena_format!(try in &arena, "{Fails}").is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| arena_format!(in &arena, "{Fails}").len())).is_err());
    let limited: Arena<P, _> = Arena::new_in(LimitedAllocator::new(600, Global));
    assert!(arena_format!(try in &limited, "{:>1000}", 1).is_err());
    assert!(arena_vec![try in &limited; 1_u64; 1000].is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| arena_vec![in &limited; 0; 1000].len())).is_err());
}

fn vectors_are_cut_and_joined<P: Policy>() {
    let arena = Arena::<P>::default();
    for (start, end) in [(0, 0), (0, 3), (2, 5), (4, 9), (9, 9), (0, 9)] {
        let drops = Rc::new(Cell::new(0));
        let counted = |n: u16| (n, Counted(drops.clone()));
        let ids = |vec: &[(u16, Counted)]| vec.iter().map(|value| value.0).collect::<Vec<_>>();
        let mut twin: Vec<u16> = (0..9).collect();
        let mut vec = ArenaVec::from_iter_in((0..9).map(counted), &arena);

        let mut drain = vec.drain(start..end);
        let mut removed = twin.drain(start..end);
        assert_eq!(drain.len(), removed.len());
        assert_eq!(drain.next().map(|value| value.0), removed.next());
        assert_eq!(drain.next_back().map(|value| value.0), removed.next_back());
        drop((drain, removed));
        assert_eq!((ids(&vec), drops.get()), (twin.clone(), (end - start) as u32));

        let at = vec.len() / 2;
        let (mut tail, mut twin_tail) = (vec.split_off(at), twin.split_off(at));
        assert_eq!((ids(&vec), ids(&tail)), (twin.clone(), twin_tail.clone()));
        tail.append(&mut vec);
        twin_tail.append(&mut twin);
        assert_eq!((ids(&tail), vec.len()), (twin_tail, 0));
        tail.dedup_by_key(|value| value.0 / 3);
        let (left, dropped) = (tail.len(), drops.get() as usize);
        assert_eq!(left + dropped, 9);
        drop((vec, tail));
        assert_eq!(drops.get(), 9);
    }

    let mut numbers = ArenaVec::from_iter_in(0..9, &arena);
    std::mem::forget(numbers.drain(2..4));
    assert_eq!(numbers, [0, 1], "a drain that is leaked leaves the values before it");

    let mut none = ArenaVec::from_iter_in([(); 5], &arena);
    none.append(&mut ArenaVec::from_iter_in([(); 2], &arena));
    assert_eq!((none.drain(1..=3).count(), none.split_off(1).len(), none.len()), (3, 3, 1));
    none.dedup();
    none.clear();
    none.dedup();
    assert_eq!(none.drain(..).next(), None);

    let limited: Arena<P, _> = Arena::new_in(LimitedAllocator::new(600, Global));
    let mut few = ArenaVec::from_iter_in([1_u32], &limited);
    let mut many = ArenaVec::from_iter_in(0..500, &arena);
    assert_eq!(few.try_append(&mut many), Err(AllocError));
    assert_eq!((few.as_slice(), many.len()), (&[1][..], 500));
    assert!(refuses(&arena, |vec| drop(vec.drain(3..5))));
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = 3..2;
    assert!(refuses(&arena, |vec| drop(vec.drain(reversed))));
    assert!(refuses(&arena, |vec| drop(vec.drain(..=usize::MAX))));
    assert!(refuses(&arena, |vec| drop(vec.split_off(5))));
    assert!(refuses(&arena, |vec| vec.dedup_by(|_, _| panic!("while comparing"))));
}

/// Returns whether an action on a vector panics without a change to the vector.
fn refuses<'a, P: Policy>(
    arena: &'a Arena<P>,
    action: impl FnOnce(&mut ArenaVec<'a, u8, &'a Arena<P>>),
) -> bool {
    let mut vec = ArenaVec::from_iter_in(0..4, arena);
    catch_unwind(AssertUnwindSafe(|| action(&mut vec))).is_err() && vec == [0, 1, 2, 3]
}

fn a_panic_in_a_drain_loses_no_other_value<P: Policy>() {
    struct Fails(u8, Rc<Cell<usize>>);

    impl Drop for Fails {
        fn drop(&mut self) {
            self.1.set(self.1.get() + 1);
            assert!(self.0 != 2, "while dropping");
        }
    }

    let arena = Arena::<P>::default();
    let drops = Rc::new(Cell::new(0));
    let mut vec = ArenaVec::from_iter_in((0..6).map(|n| Fails(n, drops.clone())), &arena);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(vec.drain(1..4)))).is_err());
    assert_eq!(drops.get(), 3);
    assert_eq!(vec.iter().map(|value| value.0).collect::<Vec<_>>(), [0, 4, 5]);
    drop(vec);
    assert_eq!(drops.get(), 6);
}

fn strings_are_cut_at_characters<P: Policy>() {
    let arena = Arena::<P>::default();
    let mut text = ArenaString::from_str_in("a\u{fa}b\u{20ac}c\u{1f600}", &arena);
    let mut drain = text.drain(1..7);
    assert_eq!((drain.next(), drain.next_back()), (Some('\u{fa}'), Some('\u{20ac}')));
    assert_eq!(drain.as_str(), "b");
    drop(drain);
    assert_eq!(text, "ac\u{1f600}");
    std::mem::forget(text.drain(..));
    let tail = text.split_off(2);
    assert_eq!((text.as_str(), tail.as_str()), ("ac", "\u{1f600}"));
    text.extend(['\u{20ac}', 'd', '\u{fa}', 'e', '\u{20ac}']);
    text.retain(|character| !character.is_ascii() || character > 'c');
    assert_eq!(text, "\u{20ac}d\u{fa}e\u{20ac}");
    for range in [0..1, 1..3, 3..5] {
        assert!(catch_unwind(AssertUnwindSafe(|| drop(text.drain(range)))).is_err());
    }
    assert!(catch_unwind(AssertUnwindSafe(|| drop(text.split_off(2)))).is_err());
    assert_eq!(text, "\u{20ac}d\u{fa}e\u{20ac}");
    assert!(catch_unwind(AssertUnwindSafe(|| text.retain(|n| n != 'd' || panic!("d")))).is_err());
    assert_eq!(text, "");
}

fn strings_behave_as_strings<P: Policy>() {
    let arena = Arena::<P>::default();
    let mut text = ArenaString::from_str_in("quipu", &arena);
    assert_eq!((text.pop(), text.pop()), (Some('u'), Some('p')));
    text += "ck";
    text.extend(["er", "!"]);
    text.extend(['!', '!']);
    text.truncate(7);
    text.reserve(100);
    assert_eq!(text.try_push('?'), Ok(()));
    assert_eq!(text, "quicker?");
    assert!(text > ArenaString::new_in(&arena));

    let mut text = ArenaString::with_capacity_in(3, &arena);
    text.push('q');
    text.push_str("uip");
    text.push('\u{fa}');
    assert_eq!((text.as_str(), text.len()), ("quip\u{fa}", 6));
    text.clear();
    assert_eq!(text.into_str(), "");
}

fn statistics_add_up<P: Policy>() {
    let memory = LimitedAllocator::new(1 << 20, Global);
    let arena: Arena<P, _> = Arena::empty_in(&memory);
    assert_eq!(arena.stats(), quipu_arena::Stats::default());
    let mut bytes = 0;
    for size in [1, 400, 700, 3, 2000, 50] {
        arena.alloc_uninit_slice::<u8>(size);
        bytes += size.next_multiple_of(P::MIN_ALIGN);
        let stats = arena.stats();
        assert_eq!(stats.allocated, bytes);
        assert_eq!(stats.reserved, memory.used());
        assert_eq!(stats.allocated + stats.wasted + arena.remaining(), stats.capacity);
    }
    assert!(arena.stats().chunks > 1);
    assert!(arena.try_alloc_uninit_slice::<u8>(1 << 20).is_err());
    memory.set_limit(1 << 22);
    assert!(arena.try_alloc_uninit_slice::<u8>(1 << 20).is_ok());
    assert!(format!("{arena:?} {memory:?}").contains("allocated"));
    drop(arena);
    assert_eq!(memory.used(), 0);
}

fn hash_tables_and_vectors_of_others_work<P: Policy>() {
    let mut arena = Arena::<P>::default();
    for _ in 0..2 {
        {
            let mut counts = hashbrown::HashMap::new_in(&arena);
            let mut order = allocator_api2_02::vec::Vec::new_in(&arena);
            for word in "a b a c b a".split(' ') {
                let word = &*arena.alloc_str(word);
                *counts.entry(word).or_insert(0) += 1;
                order.push(word);
            }
            assert_eq!((counts["a"], counts["b"], counts["c"]), (3, 2, 1));
            assert_eq!(order.concat(), "abacba");
            order.shrink_to_fit();
            let boxed = order.into_boxed_slice();
            assert_eq!(boxed.len(), 6);
        }
        arena.scoped(|scope| {
            let mut map = hashbrown::HashMap::new_in(&scope);
            map.extend((0..100).map(|n| (n, n * n)));
            assert_eq!(map[&9], 81);
        });
        arena.reset();
    }
}

#[test]
fn a_base_allocator_that_panics_leaves_no_block_twice() {
    /// Panics whenever a block is returned to it, after freeing the block.
    #[derive(Default)]
    struct Panics(Cell<bool>);

    // SAFETY: Every block is the heap's.
    unsafe impl BaseAllocator for Panics {
        fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            Global.allocate(layout)
        }

        unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
            // SAFETY: By contract.
            unsafe { Global.deallocate(block, layout) };
            assert!(!self.0.replace(false), "a hook");
        }
    }

    type Call = fn(&mut Arena<Up, &Panics>);
    let calls: [Call; 4] = [
        |arena| arena.reset(),
        |arena| arena.release(),
        |arena| _ = arena.scoped(|scope| scope.alloc_uninit_slice::<u8>(100_000).len()),
        |arena| _ = arena.alloc_uninit_slice::<u8>(200_000),
    ];
    for call in calls {
        let base = Panics::default();
        let mut arena = Arena::new_in(&base);
        arena.alloc_uninit_slice::<u8>(1000);
        arena.scoped(|mut scope| {
            scope.alloc_uninit_slice::<u8>(3000);
            scope.scoped(|inner| inner.alloc_uninit_slice::<u8>(9000).len());
        });
        base.0.set(true);
        let _ = catch_unwind(AssertUnwindSafe(|| call(&mut arena)));
        base.0.set(false);
        assert_eq!(arena.alloc_slice_fill(500, 7u8), [7; 500]);
        arena.reset();
        assert_eq!(arena.stats().allocated, 0);
    }

    let base = Panics::default();
    let mut shared = SharedArena::with_size_in(512, &base);
    (0..100).for_each(|n| _ = shared.alloc([n; 20]));
    shared.alloc_slice_copy(&[1u8; 100_000]);
    base.0.set(true);
    assert!(catch_unwind(AssertUnwindSafe(|| shared.reset())).is_err());
    shared.reset();
    assert_eq!(*shared.alloc(7), 7);
}

#[test]
fn a_base_allocator_may_allocate_in_its_own_arena() {
    /// Allocates in the arena whenever the arena calls it, but not recursively.
    #[derive(Clone, Default)]
    struct Hook(Rc<Inner>);

    #[derive(Default)]
    struct Inner {
        arena: RefCell<Weak<Arena<Up, Hook>>>,
        is_in: Cell<bool>,
        given: Cell<isize>,
    }

    impl Hook {
        fn called(&self, bytes: isize) {
            self.0.given.set(self.0.given.get() + bytes);
            let arena = self.0.arena.borrow().upgrade();
            if let (Some(arena), false) = (arena, self.0.is_in.replace(true)) {
                assert_eq!(arena.alloc_slice_fill(700, 9u8), [9; 700]);
                self.0.is_in.set(false);
            }
        }
    }

    // SAFETY: Every block is the heap's.
    unsafe impl BaseAllocator for Hook {
        fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            self.called(layout.size() as isize);
            Global.allocate(layout)
        }

        unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
            self.called(-(layout.size() as isize));
            // SAFETY: By contract.
            unsafe { Global.deallocate(block, layout) };
        }
    }

    let hook = Hook::default();
    let arena = Rc::new(Arena::<Up, Hook>::empty_in(hook.clone()));
    *hook.0.arena.borrow_mut() = Rc::downgrade(&arena);
    let mut kept = Vec::new();
    for n in (0..40_u8).step_by(if cfg!(miri) { 6 } else { 1 }) {
        kept.push((n, arena.alloc_slice_fill(usize::from(n) * 50, n)));
        let stats = arena.stats();
        assert_eq!(stats.allocated + stats.wasted + arena.remaining(), stats.capacity);
    }
    assert!(kept.iter().all(|(n, slice)| slice.iter().all(|byte| byte == n)));
    assert_eq!(arena.stats().reserved as isize, hook.0.given.get());
    drop(arena);
    assert_eq!(hook.0.given.get(), 0);
}

#[test]
#[allow(clippy::mutable_key_type, reason = "the hash does not depend on the arena's cells")]
fn vectors_compare_and_hash_like_slices() {
    let (arena, other) = (Arena::new(), Arena::<Down>::default());
    let few = ArenaVec::from_iter_in([1, 2], &arena);
    let many = ArenaVec::from_iter_in([1, 2, 3], &other);
    assert!(few < many && few == [1, 2]);
    assert_eq!(few.partial_cmp(&many), [1, 2][..].partial_cmp(&[1, 2, 3][..]));
    assert_eq!(few.cmp(&ArenaVec::from_iter_in([0, 9], &arena)), Ordering::Greater);
    let hasher = std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default();
    assert_eq!(hasher.hash_one(&few), hasher.hash_one(&[1, 2][..]));
    let mut map = std::collections::BTreeMap::from([(few, "few")]);
    assert_eq!(map.get(&[1, 2][..]), Some(&"few"));
    let (mut few, _) = map.pop_first().unwrap();
    AsMut::<[i32]>::as_mut(&mut few)[0] = 7;
    assert_eq!(AsRef::<[i32]>::as_ref(&few), [7, 2]);
}

#[test]
fn an_arena_is_two_words() {
    assert_eq!(size_of::<Arena>(), 2 * size_of::<usize>());
    assert_eq!(align_of::<quipu_arena::PoolGuard<'_>>(), 128);
}

#[test]
fn the_block_of_an_empty_arena_is_of_no_size() {
    let arena = Arena::empty();
    assert_eq!(arena.remaining(), 0);
    assert_eq!(arena.stats().reserved, 0);
    assert_eq!(*arena.alloc_box(5), 5);
}

#[test]
fn a_pool_uses_arenas_again() {
    let pool = Pool::new().keep_at_most(100_000);
    {
        let arena = pool.get();
        let other = pool.get();
        arena.alloc_slice_fill(1000, 1u8);
        other.alloc_uninit_slice::<u8>(200_000);
        assert_eq!(pool.idle(), 0);
    }
    assert_eq!(pool.idle(), 1, "the arena that grew too large is freed");
    assert!(pool.reserved() >= 1000);
    {
        let mut arena = pool.get();
        assert_eq!(arena.stats().allocated, 0);
        arena.scoped(|scope| scope.alloc_slice_fill(5, 1u8).len());
    }
    pool.clear();
    assert_eq!((pool.idle(), pool.reserved()), (0, 0));

    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for n in 0..if cfg!(miri) { 5 } else { 500 } {
                    let arena = pool.get();
                    assert_eq!(*arena.alloc_fmt(format_args!("{n}")), *n.to_string());
                }
            });
        }
    });
    assert!((1..=4).contains(&pool.idle()));
    assert!(format!("{pool:?} {:?}", pool.get()).contains("idle"));
}

#[test]
fn an_arena_is_sent_with_its_boxes() {
    let arena = Arena::new();
    arena.alloc(1);
    let arena = std::thread::spawn(move || {
        arena.alloc(2);
        arena
    })
    .join()
    .unwrap();
    let boxed = arena.alloc_box(String::from("dropped elsewhere"));
    std::thread::scope(|threads| {
        threads.spawn(move || drop(boxed));
    });
}

#[test]
fn threads_share_an_arena() {
    let rounds = if cfg!(miri) { 9 } else { 20_000 };
    let memory = LimitedAllocator::new(usize::MAX, Global);
    {
        let arena = SharedArena::with_size_in(4096, &memory);
        let blocks: Vec<(u32, &mut [u32])> = std::thread::scope(|threads| {
            let workers: Vec<_> = (0..4u32)
                .map(|worker| {
                    let arena = &arena;
                    threads.spawn(move || {
                        let batch = arena.batch();
                        let mut blocks = Vec::new();
                        for n in 0..rounds {
                            let stamp = worker << 24 | n;
                            let len = (n % 60) as usize;
                            let block = match n % 3 {
                                0 => batch.alloc_slice_fill(len, stamp),
                                1 => arena.alloc_slice_copy(&vec![stamp; len]),
                                _ if n % 1000 == 2 => arena.alloc_slice_copy(&vec![stamp; 9000]),
                                _ => std::slice::from_mut(arena.alloc(stamp)),
                            };
                            blocks.push((stamp, block));
                        }
                        blocks
                    })
                })
                .collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        for (stamp, block) in blocks {
            assert!(block.iter().all(|n| *n == stamp), "no two blocks overlap");
        }
        let stats = arena.stats();
        assert!(stats.allocated <= stats.capacity && stats.capacity < stats.reserved);
        assert_eq!(stats.reserved, memory.used());
    }
    assert_eq!(memory.used(), 0);
}

#[test]
fn a_shared_arena_aligns_limits_and_resets() {
    let memory = LimitedAllocator::new(1 << 20, Global);
    let mut arena = SharedArena::new_in(&memory);
    for _ in 0..2 {
        for shift in 0..=12 {
            let layout = Layout::from_size_align(24, 1 << shift).unwrap();
            let block = arena.allocate(layout).unwrap().cast::<u8>();
            assert_eq!(block.addr().get() % layout.align(), 0);
        }
        assert!(arena.try_alloc_slice_copy(&vec![1u8; 2 << 20]).is_err());
        while arena.try_alloc([0u64; 100]).is_ok() {}
        let full = memory.used();
        for _ in 0..100 {
            assert!(arena.try_alloc([0u64; 100]).is_err());
        }
        assert_eq!(memory.used(), full);
        let huge = Layout::from_size_align(isize::MAX as usize - 4095, 4096).unwrap();
        assert!(arena.allocate(huge).is_err());
        arena.reset();
        assert_eq!((arena.stats().chunks, arena.stats().allocated), (1, 0));
    }
    // Batches fill shared chunks, which grow, whatever the size of the first one.
    for size in [512, 16 * 1024, 64 * 1024, 66 * 1024] {
        let shared = SharedArena::with_size(size);
        let batch = shared.batch();
        (0..if cfg!(miri) { 100 } else { 5000 }).for_each(|n| _ = batch.alloc([n; 100]));
        assert!(shared.stats().chunks < 16, "{size}: {:?}", shared.stats());
    }
    // The rest of a limit can still be used for small blocks.
    let small = SharedArena::with_size_in(16 * 1024, LimitedAllocator::new(100_000, Global));
    small.alloc_slice_copy(&[0u8; if cfg!(miri) { 70_000 } else { 8 }]);
    let mut words = 0;
    while small.try_alloc(words).is_ok() {
        words += 1;
    }
    assert!(words * 8 > if cfg!(miri) { 2_000 } else { 70_000 }, "{words}");
    assert!(SharedArena::new_in(LimitedAllocator::new(32_000, Global)).try_alloc(1u8).is_ok());

    let batch = arena.batch();
    let mut counts = hashbrown::HashMap::new_in(&batch);
    counts.insert("in a batch", 1);
    assert!(batch.stats().reserved >= 4096 && counts.len() == 1);
    drop(counts);
    static NAMES: SharedArena = SharedArena::new();
    let name: &'static str = NAMES.alloc_str("for as long as the program");
    assert_eq!(NAMES.alloc_box(name.len()).to_string(), "26");
    assert!(format!("{:?} {:?}", NAMES, NAMES.batch()).contains("reserved"));
}
