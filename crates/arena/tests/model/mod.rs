//! Runs sequences of operations on an arena, and compares with a shadow model that knows every
//! block.
//!
//! A program is a list of bytes, because a property test and a fuzz target can then share this
//! code. After each operation, the model checks every block: its alignment, that it lies in memory
//! of the base allocator, that no two blocks overlap, and their contents. The base allocator fails
//! on request, sometimes returns more memory than requested, and records its results.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

use allocator_api2_02::alloc::Allocator;
use quipu_arena::{
    AllocError, Arena, ArenaVec, BaseAllocator, Checkpoint, Down, Global, Keep, Policy, Reclaim,
    Scope, Up, Within,
};

/// The number of policies.
pub const POLICIES: u8 = 18;

/// Runs a program under the policy that its first byte selects.
pub fn run(program: &[u8]) {
    let Some((&policy, program)) = program.split_first() else { return };
    match policy % POLICIES {
        0 => run_with::<Up>(program),
        1 => run_with::<Up<2>>(program),
        2 => run_with::<Up<4>>(program),
        3 => run_with::<Up<8>>(program),
        4 => run_with::<Up<16>>(program),
        5 => run_with::<Up<64>>(program),
        6 => run_with::<Down>(program),
        7 => run_with::<Down<2>>(program),
        8 => run_with::<Down<4>>(program),
        9 => run_with::<Down<8>>(program),
        10 => run_with::<Down<16>>(program),
        11 => run_with::<Down<128>>(program),
        12 => run_with::<Reclaim<Up>>(program),
        13 => run_with::<Reclaim<Up<8>>>(program),
        14 => run_with::<Reclaim<Down>>(program),
        15 => run_with::<Reclaim<Down<8>>>(program),
        16 => run_with::<Keep<Up>>(program),
        _ => run_with::<Keep<Down<8>>>(program),
    }
}

/// Runs a program under a policy: with checkpoints, or with nested scopes.
pub fn run_with<P: Policy>(program: &[u8]) {
    let mut input = Input(program);
    let base = Base::default();
    let first = input.size();
    let kind = input.byte();
    {
        let mut arena: Arena<P, &Base> = match kind % 3 {
            0 => Arena::empty_in(&base),
            1 => Arena::new_in(&base),
            _ => Arena::with_capacity_in(first, &base),
        };
        let mut model = Model { base: &base, blocks: Vec::new(), seed: 0 };
        if kind < 128 {
            with_checkpoints(&mut arena, &mut model, &mut input);
        } else {
            within(arena.as_scope(), &mut model, &mut input, 0);
        }
    }
    assert_eq!(base.given.borrow().len(), 0, "all chunks are given back");
}

/// Checkpoints, resets and clears, on the arena itself.
fn with_checkpoints<P: Policy>(
    arena: &mut Arena<P, &Base>,
    model: &mut Model<'_>,
    input: &mut Input<'_>,
) {
    // Each checkpoint with the number of blocks at the time.
    let mut checkpoints: Vec<(Checkpoint, usize)> = Vec::new();
    while !input.0.is_empty() {
        let from = checkpoints.last().map_or(0, |&(_, blocks)| blocks);
        match input.byte() % 16 {
            0 => checkpoints.push((arena.checkpoint(), model.blocks.len())),
            1 => {
                if let Some(&(checkpoint, blocks)) = checkpoints.last() {
                    if input.byte().is_multiple_of(2) {
                        checkpoints.pop();
                    }
                    model.blocks.truncate(blocks);
                    // SAFETY: This is the newest checkpoint, older blocks were not changed, and the
                    // model forgot the newer ones.
                    unsafe { arena.reset_to(checkpoint) };
                }
            }
            2 if input.byte() < 64 => {
                checkpoints.clear();
                model.blocks.clear();
                let largest = model.base.largest();
                arena.reset();
                assert_eq!(model.base.largest(), largest, "the largest chunk stays");
                assert!(model.base.given.borrow().len() <= 1, "and no other");
                assert_eq!(arena.stats().allocated, 0);
            }
            3 if input.byte() < 16 => {
                checkpoints.clear();
                model.blocks.clear();
                arena.release();
                assert_eq!(model.base.given.borrow().len(), 0);
            }
            operation => model.step(operation, &*arena, input, from),
        }
        model.check();
        let stats = arena.stats();
        let live: usize = model.blocks.iter().map(|block| block.layout.size()).sum();
        assert!(stats.allocated >= live, "{stats:?}, {live} in use");
        assert!(stats.allocated + stats.wasted + arena.remaining() == stats.capacity, "{stats:?}");
        assert!(stats.reserved <= model.base.bytes(), "{stats:?}");
    }
}

/// Nested scopes.
fn within<P: Policy>(
    mut scope: Scope<'_, P, &Base>,
    model: &mut Model<'_>,
    input: &mut Input<'_>,
    depth: usize,
) {
    let from = model.blocks.len();
    while !input.0.is_empty() {
        match input.byte() % 16 {
            0 if depth < 8 => {
                let before = scope.stats().allocated;
                scope.scoped(|inner| within(inner, model, input, depth + 1));
                model.check();
                assert_eq!(scope.stats().allocated, before);
            }
            1 if depth < 8 => {
                let mut guard = scope.guard();
                for _ in 0..1 + input.byte() % 3 {
                    within(guard.scope(), model, input, depth + 1);
                    guard.reset();
                    model.check();
                }
                if input.byte().is_multiple_of(8) {
                    std::mem::forget(guard);
                }
            }
            2 if depth > 0 => break,
            operation => model.step(operation, &scope, input, from),
        }
        model.check();
    }
    model.blocks.truncate(from);
}

struct Block {
    start: NonNull<u8>,
    layout: Layout,
    seed: u8,
}

impl Block {
    fn fill(&self) {
        for index in 0..self.layout.size() {
            // SAFETY: The block belongs to the model.
            unsafe { self.start.add(index).write(self.seed.wrapping_add(index as u8)) };
        }
    }

    fn check(&self, bytes: usize) {
        for index in 0..bytes {
            // SAFETY: The block belongs to the model, and was filled.
            let byte = unsafe { self.start.add(index).read() };
            assert_eq!(byte, self.seed.wrapping_add(index as u8), "what was written stays");
        }
    }
}

struct Model<'b> {
    base: &'b Base,
    blocks: Vec<Block>,
    seed: u8,
}

impl Model<'_> {
    /// One operation that arenas and scopes share. Blocks before `from` belong to another scope.
    fn step<'a, H: Within<'a> + Allocator>(
        &mut self,
        operation: u8,
        home: H,
        input: &mut Input<'_>,
        from: usize,
    ) {
        let own = self.blocks.len() - from;
        let chosen = if own == 0 { None } else { Some(from + input.byte() as usize % own) };
        // Usually the last block, which can grow in place.
        let chosen = chosen.map(|index| if input.bit() { self.blocks.len() - 1 } else { index });
        match (operation, chosen) {
            (4, Some(index)) => {
                let block = &self.blocks[index];
                let size = block.layout.size().saturating_add(input.size());
                let Ok(new) = Layout::from_size_align(size, input.align()) else { return };
                // SAFETY: The block belongs to this scope, and the new size is not smaller.
                let grown = unsafe { home.grow(block.start, block.layout, new) };
                self.replace(index, grown, new);
            }
            (5, Some(index)) => {
                let block = &self.blocks[index];
                let size = input.size() % (block.layout.size() + 1);
                let Ok(new) = Layout::from_size_align(size, input.align()) else { return };
                // SAFETY: The block belongs to this scope, and the new size is not larger.
                let shrunk = unsafe { home.shrink(block.start, block.layout, new) };
                self.replace(index, shrunk, new);
            }
            (6 | 7, Some(index)) => {
                let block = self.blocks.remove(index);
                block.check(block.layout.size());
                // SAFETY: The block belongs to this scope, and the model forgot it.
                unsafe { home.deallocate(block.start, block.layout) };
            }
            (8, _) => self.base.fail_after.set(Some(u32::from(input.byte() % 4))),
            (9, _) => self.base.fail_after.set(None),
            (10, _) => {
                let mut vec = ArenaVec::new_in(home);
                let len = input.size() % if cfg!(miri) { 30 } else { 300 };
                for n in 0..len {
                    if vec.try_push(n as u32).is_err() {
                        break;
                    }
                }
                vec.truncate(input.size());
                assert!(vec.iter().enumerate().all(|(n, value)| n == *value as usize));
                // An empty vector owns no block.
                if input.bit() && !vec.is_empty() {
                    let len = vec.len();
                    let bytes = NonNull::from(vec.into_slice()).cast();
                    self.insert::<AllocError>(Ok(bytes), Layout::array::<u32>(len).unwrap());
                }
            }
            (11, _) => {
                let Ok(layout) = Layout::from_size_align(usize::MAX / 2 - input.size(), 1) else {
                    return;
                };
                assert!(home.allocate(layout).is_err(), "no allocator has so much memory");
            }
            _ => {
                let Ok(layout) = Layout::from_size_align(input.size(), input.align()) else {
                    return;
                };
                let block = home.allocate(layout);
                self.insert(block.map(NonNull::cast), layout);
            }
        }
    }

    fn insert<E>(&mut self, block: Result<NonNull<u8>, E>, layout: Layout) {
        if let Ok(start) = block {
            self.seed = self.seed.wrapping_add(37);
            let block = Block { start, layout, seed: self.seed };
            block.fill();
            self.blocks.push(block);
        }
    }

    fn replace<E>(&mut self, index: usize, new: Result<NonNull<[u8]>, E>, layout: Layout) {
        if let Ok(start) = new {
            let mut block = self.blocks.remove(index);
            let bytes = block.layout.size().min(layout.size());
            block.start = start.cast();
            block.layout = layout;
            block.check(bytes);
            block.fill();
            // The block may now be the last one of the arena, so it moves to the end of the list.
            self.blocks.push(block);
        }
    }

    fn check(&self) {
        for block in &self.blocks {
            block.check(block.layout.size());
            assert_eq!(block.start.addr().get() % block.layout.align(), 0, "it is aligned");
        }
        let range = |block: &Block| {
            let start = block.start.addr().get();
            (start, start + block.layout.size())
        };
        let mut ranges: Vec<_> =
            self.blocks.iter().filter(|block| block.layout.size() > 0).map(range).collect();
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "no two blocks overlap");
        }
        let given = self.base.given.borrow();
        for (start, end) in ranges {
            let inside = |chunk: &Given| {
                let at = chunk.start.addr().get();
                at <= start && end <= at + chunk.len
            };
            assert!(given.iter().any(inside), "every block is in a chunk");
        }
    }
}

struct Given {
    start: NonNull<u8>,
    /// The layout requested, and the length returned.
    layout: Layout,
    len: usize,
}

/// A base allocator that fails on request, and records the memory that it returned.
#[derive(Default)]
pub struct Base {
    given: RefCell<Vec<Given>>,
    /// The number of calls that still succeed.
    pub fail_after: Cell<Option<u32>>,
    calls: Cell<u32>,
}

impl Base {
    /// The number of bytes that were given out and not returned.
    pub fn bytes(&self) -> usize {
        self.given.borrow().iter().map(|given| given.len).sum()
    }

    fn largest(&self) -> usize {
        self.given.borrow().iter().map(|given| given.len).max().unwrap_or(0)
    }
}

// SAFETY: Every block is the heap's.
unsafe impl BaseAllocator for Base {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() > 1 << 24 {
            return Err(AllocError);
        }
        if let Some(left) = self.fail_after.get() {
            let Some(left) = left.checked_sub(1) else { return Err(AllocError) };
            self.fail_after.set(Some(left));
        }
        self.calls.set(self.calls.get() + 1);
        // Every third call returns more than was requested.
        let len = layout.size() + if self.calls.get().is_multiple_of(3) { 40 } else { 0 };
        let larger = Layout::from_size_align(len, layout.align()).unwrap();
        let start = Global.allocate(larger)?.cast();
        self.given.borrow_mut().push(Given { start, layout, len });
        Ok(NonNull::slice_from_raw_parts(start, len))
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        let mut given = self.given.borrow_mut();
        let index = given.iter().position(|given| given.start == start).expect("it was given");
        let given = given.swap_remove(index);
        assert_eq!(layout.align(), given.layout.align());
        assert!((given.layout.size()..=given.len).contains(&layout.size()), "the size fits");
        let larger = Layout::from_size_align(given.len, layout.align()).unwrap();
        // SAFETY: The block was allocated with that layout.
        unsafe { Global.deallocate(start, larger) };
    }
}

/// The rest of a program.
struct Input<'p>(&'p [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&byte, rest)) => {
                self.0 = rest;
                byte
            }
            None => 0,
        }
    }

    fn bit(&mut self) -> bool {
        self.byte().is_multiple_of(2)
    }

    /// A size, usually small, sometimes larger than a chunk.
    fn size(&mut self) -> usize {
        let size = usize::from(self.byte());
        match self.byte() % 8 {
            0 => size * 16,
            1 => 0,
            2..=4 => size % 16,
            _ => size,
        }
    }

    fn align(&mut self) -> usize {
        match self.byte() % 16 {
            15 => 4096,
            n => 1 << (n % 8),
        }
    }
}
