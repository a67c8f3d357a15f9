//! Loom models of threads that share an arena, run under every interleaving.
//!
//! You can run them with `make loom`. The chunks are small, because threads must meet at a full
//! chunk.

#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use loom::sync::Arc;
use loom::thread;
use quipu_arena::{Global, LimitedAllocator, SharedArena};

/// Creates an arena whose first chunk can only hold a few small blocks.
fn arena() -> Arc<SharedArena<LimitedAllocator<Global>>> {
    Arc::new(SharedArena::with_size_in(512, LimitedAllocator::new(usize::MAX, Global)))
}

/// Checks that no two blocks overlap.
fn check(blocks: &[(usize, usize)]) {
    let mut blocks = blocks.to_vec();
    blocks.sort_unstable();
    for pair in blocks.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "no two blocks overlap: {blocks:?}");
    }
}

/// Allocates values of a number of words, and returns their addresses.
fn fill<const WORDS: usize>(
    arena: &SharedArena<LimitedAllocator<Global>>,
    count: usize,
) -> Vec<(usize, usize)> {
    (0..count)
        .map(|n| {
            let block = arena.alloc([n; WORDS]);
            assert_eq!(*block, [n; WORDS]);
            (std::ptr::from_ref(block).addr(), WORDS * 8)
        })
        .collect()
}

/// A block too large for a shared chunk. The value is made on the heap: loom's stacks are small.
fn large(arena: &SharedArena<LimitedAllocator<Global>>) -> (usize, usize) {
    let block = arena.alloc_slice_copy(&vec![7_u8; 70_000]);
    (block.as_ptr().addr(), block.len())
}

#[test]
fn two_threads_fill_a_chunk() {
    loom::model(|| {
        let arena = arena();
        let other = thread::spawn({
            let arena = arena.clone();
            move || fill::<6>(&arena, 3)
        });
        let mut blocks = fill::<6>(&arena, 3);
        blocks.extend(other.join().unwrap());
        check(&blocks);
        let stats = arena.stats();
        assert_eq!(stats.reserved, arena.base().used());
    });
}

#[test]
fn large_blocks_get_chunks_of_their_own() {
    loom::model(|| {
        let arena = arena();
        let other = thread::spawn({
            let arena = arena.clone();
            move || vec![large(&arena), large(&arena)]
        });
        let mut blocks = vec![large(&arena), large(&arena)];
        blocks.extend(fill::<2>(&arena, 1));
        blocks.extend(other.join().unwrap());
        check(&blocks);
        assert_eq!(arena.stats().reserved, arena.base().used());
    });
}

#[test]
fn a_larger_chunk_takes_the_place_of_a_small_one() {
    loom::model(|| {
        let arena = arena();
        let other = thread::spawn({
            let arena = arena.clone();
            move || fill::<100>(&arena, 1)
        });
        let mut blocks = fill::<100>(&arena, 1);
        blocks.extend(other.join().unwrap());
        check(&blocks);
        assert_eq!(arena.stats().reserved, arena.base().used());
    });
}

#[test]
fn the_first_chunk_is_taken_by_one_thread() {
    loom::model(|| {
        let arena = Arc::new(SharedArena::new_in(LimitedAllocator::new(usize::MAX, Global)));
        let other = thread::spawn({
            let arena = arena.clone();
            move || fill::<1>(&arena, 1)
        });
        let mut blocks = fill::<1>(&arena, 1);
        blocks.extend(other.join().unwrap());
        check(&blocks);
        assert_eq!(arena.stats().chunks, 1);
        assert_eq!(arena.stats().reserved, arena.base().used(), "the other's chunk is given back");
    });
}

#[test]
fn a_reader_of_statistics_sees_whole_chunks() {
    loom::model(|| {
        let arena = arena();
        let other = thread::spawn({
            let arena = arena.clone();
            move || fill::<8>(&arena, 4)
        });
        let stats = arena.stats();
        assert!(stats.chunks >= 1 && stats.allocated <= stats.capacity);
        other.join().unwrap();
    });
}

#[test]
fn batches_share_no_block() {
    loom::model(|| {
        let arena = Arc::new(SharedArena::new_in(LimitedAllocator::new(usize::MAX, Global)));
        let other = thread::spawn({
            let arena = arena.clone();
            move || std::ptr::from_ref(arena.batch().alloc([1_u64; 4])).addr()
        });
        let own = std::ptr::from_ref(arena.batch().alloc([2_u64; 4])).addr();
        check(&[(own, 32), (other.join().unwrap(), 32)]);
    });
}
