//! Policies, as types: the direction of an arena, its minimum alignment, and the effect of
//! shrinking and freeing a block.
//!
//! [`Up`] is the default, and the right choice unless you need another. [`Down`] saves one or two
//! instructions if an alignment is not already known, but copies the last allocation each time that
//! it grows. A minimum alignment makes values of at most this alignment cheaper to allocate;
//! smaller ones take more space. With [`Reclaim`], shrinking frees memory. With [`Keep`], freeing a
//! block has no effect.

use core::marker::PhantomData;

use crate::chunk::FIRST;

/// Allocates upwards: the last allocation grows in place.
///
/// ```compile_fail
/// use quipu_arena::{Arena, Global, Up};
///
/// Arena::<Up<3>>::new_in(Global); // A minimum alignment is a power of two.
/// ```
#[derive(Debug)]
pub struct Up<const MIN_ALIGN: usize = 1>;

/// Allocates downwards.
///
/// ```
/// use quipu_arena::{Arena, Down, Global};
///
/// let arena = Arena::<Down>::new_in(Global);
/// let (first, second) = (arena.alloc(1_u64), arena.alloc(2_u64));
/// assert!(std::ptr::from_ref(second) < std::ptr::from_ref(first));
/// ```
#[derive(Debug)]
pub struct Down<const MIN_ALIGN: usize = 1>;

/// Like the policy `P`, but shrinking the last allocation frees the rest.
///
/// Without this policy, shrinking a block by `Allocator::shrink` of allocator-api2 keeps the size
/// of the block, which has no cost. [`ArenaVec`](crate::ArenaVec) and
/// [`ArenaString`](crate::ArenaString) free unused capacity under any policy.
///
/// ```
/// # use allocator_api2_02 as allocator_api2;
/// use allocator_api2::vec::Vec;
/// use quipu_arena::{Arena, Global, Reclaim, Up};
///
/// let arena = Arena::<Reclaim<Up>>::new_in(Global);
/// let mut values = Vec::with_capacity_in(100, &arena);
/// values.push(17_u8);
/// values.shrink_to_fit();
/// assert_eq!(arena.stats().allocated, 1);
/// ```
#[derive(Debug)]
pub struct Reclaim<P: Policy>(PhantomData<P>);

/// Like the policy `P`, but neither freeing nor shrinking a block frees memory, even for the last
/// allocation.
///
/// Without this policy, freeing a block by `Allocator::deallocate` of allocator-api2 compares the
/// block with the position, and frees the last allocation. With it, dropping a vector of another
/// library takes instructions only for its values. Choose it if your collections live as long as
/// the arena, or if you drop them in an order that would free little.
///
/// Scopes, checkpoints and resets free memory under any policy, and so do
/// [`ArenaVec`](crate::ArenaVec) and [`ArenaString`](crate::ArenaString).
///
/// ```
/// # use allocator_api2_02 as allocator_api2;
/// use allocator_api2::vec::Vec;
/// use quipu_arena::{Arena, Global, Keep, Up};
///
/// let arena = Arena::<Keep<Up>>::new_in(Global);
/// let mut values = Vec::new_in(&arena);
/// values.extend(0..100_u8);
/// drop(values);
/// assert!(arena.stats().allocated >= 100);
/// ```
#[derive(Debug)]
pub struct Keep<P: Policy>(PhantomData<P>);

/// How an arena allocates: [`Up`] or [`Down`], which you can wrap in [`Reclaim`] or [`Keep`]. If
/// you wrap more than once, the outermost policy determines the effect of shrinking and freeing.
///
/// ```
/// use quipu_arena::{Arena, Down, Global, Policy, Up};
///
/// fn address<P: Policy>() -> usize {
///     let arena = Arena::<P>::new_in(Global);
///     std::ptr::from_ref(arena.alloc(1_u8)).addr()
/// }
///
/// assert!(Up::<8>::UP && !Down::<8>::UP);
/// assert!(address::<Up<8>>().is_multiple_of(8) && address::<Down<8>>().is_multiple_of(8));
/// ```
pub trait Policy: sealed::SealedPolicy + 'static {
    /// Every allocation starts at a multiple of this number of bytes, a power of two up to 128.
    /// Zero-sized values are the exception: they occupy no memory.
    const MIN_ALIGN: usize;
    /// Whether this policy allocates upwards.
    const UP: bool;
    /// Whether `Allocator::shrink` frees the rest of the last
    /// allocation.
    const RECLAIM: bool;
    /// Whether `Allocator::deallocate` frees the last allocation.
    const FREE: bool;
    /// The total size of the first chunk.
    #[doc(hidden)]
    const FIRST: usize = FIRST;
    /// Each chunk is twice as large as the one before, up to this size.
    #[doc(hidden)]
    const MAX_CHUNK: usize = usize::MAX;
}

impl<const MIN_ALIGN: usize> Policy for Up<MIN_ALIGN> {
    const MIN_ALIGN: usize = checked(MIN_ALIGN);
    const UP: bool = true;
    const RECLAIM: bool = false;
    const FREE: bool = true;
}

impl<const MIN_ALIGN: usize> Policy for Down<MIN_ALIGN> {
    const MIN_ALIGN: usize = checked(MIN_ALIGN);
    const UP: bool = false;
    const RECLAIM: bool = false;
    const FREE: bool = true;
}

impl<P: Policy> Policy for Reclaim<P> {
    const MIN_ALIGN: usize = P::MIN_ALIGN;
    const UP: bool = P::UP;
    const RECLAIM: bool = true;
    const FREE: bool = true;
    const FIRST: usize = P::FIRST;
    const MAX_CHUNK: usize = P::MAX_CHUNK;
}

impl<P: Policy> Policy for Keep<P> {
    const MIN_ALIGN: usize = P::MIN_ALIGN;
    const UP: bool = P::UP;
    const RECLAIM: bool = false;
    const FREE: bool = false;
    const FIRST: usize = P::FIRST;
    const MAX_CHUNK: usize = P::MAX_CHUNK;
}

/// Upwards in small chunks: the policy of the pieces that a [`Batch`](crate::Batch) takes.
///
/// ```
/// use quipu_arena::{ArenaVec, Pieces, SharedArena, Within};
///
/// /// Its arena may be a batch, or any other handle with this policy.
/// fn squares<'a, H: Within<'a, Policy = Pieces>>(arena: H) -> ArenaVec<'a, u64, H> {
///     let mut squares = ArenaVec::new_in(arena);
///     squares.extend((1..4).map(|n| n * n));
///     squares
/// }
///
/// let arena = SharedArena::new();
/// assert_eq!(squares(&arena.batch()), [1, 4, 9]);
/// ```
#[derive(Debug)]
pub struct Pieces;

impl Policy for Pieces {
    const MIN_ALIGN: usize = 1;
    const UP: bool = true;
    const RECLAIM: bool = false;
    const FREE: bool = true;
    const FIRST: usize = 4096;
    // Large enough that taking a piece costs a hundredth of filling it with 8-byte blocks.
    const MAX_CHUNK: usize = 16 * 1024;
}

/// The largest minimum alignment.
pub(crate) const MAX_MIN_ALIGN: usize = 128;

const fn checked(min_align: usize) -> usize {
    assert!(
        min_align.is_power_of_two() && min_align <= MAX_MIN_ALIGN,
        "a minimum alignment is a power of two up to 128"
    );
    min_align
}

mod sealed {
    use super::{Down, Keep, Pieces, Policy, Reclaim, Up};

    pub trait SealedPolicy {}
    impl<const MIN_ALIGN: usize> SealedPolicy for Up<MIN_ALIGN> {}
    impl<const MIN_ALIGN: usize> SealedPolicy for Down<MIN_ALIGN> {}
    impl<P: Policy> SealedPolicy for Reclaim<P> {}
    impl<P: Policy> SealedPolicy for Keep<P> {}
    impl SealedPolicy for Pieces {}
}
