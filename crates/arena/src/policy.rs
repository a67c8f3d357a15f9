//! How an arena allocates, as types: its direction, its minimum alignment, and what a shrink does.
//!
//! [`Up`] is the default, and the one to take without a reason. [`Down`] saves one instruction or
//! two where an alignment is not known to hold already, and pays with a copy each time that the
//! last allocation grows. A minimum alignment makes values of at most that alignment cheaper, and
//! smaller ones take more room. [`Reclaim`] makes a shrink give memory back.

use core::marker::PhantomData;

use crate::chunk::FIRST;

/// Allocates upwards: the last allocation grows in place.
///
/// ```compile_fail
/// use quipu_arena::{Arena, Global, Up};
///
/// Arena::<Up<3>>::new_in(Global); // A minimum alignment is a power of two.
/// ```
pub struct Up<const MIN_ALIGN: usize = 1>;

/// Allocates downwards.
pub struct Down<const MIN_ALIGN: usize = 1>;

/// As the policy `P`, but shrinking the last allocation gives back what it does not need.
///
/// Without it, [`Allocator::shrink`](crate::Allocator::shrink) leaves the block as large as it is,
/// which costs nothing. [`ArenaVec`](crate::ArenaVec) and [`ArenaString`](crate::ArenaString) give
/// back what they do not need in either case.
pub struct Reclaim<P: Policy>(PhantomData<P>);

/// How an arena allocates: [`Up`], [`Down`], or [`Reclaim`] of them.
pub trait Policy: sealed::Sealed + 'static {
    /// Every allocation starts at a multiple of so many bytes, a power of two up to 128; but a value
    /// of no size, which has no place.
    const MIN_ALIGN: usize;
    /// Whether it allocates upwards.
    const UP: bool;
    /// Whether a shrink of the last allocation gives memory back.
    const RECLAIM: bool;
    /// The size of the first chunk, in all.
    #[doc(hidden)]
    const FIRST: usize = FIRST;
    /// Each chunk is twice as large as the one before, up to this size.
    #[doc(hidden)]
    const MOST: usize = usize::MAX;
}

impl<const MIN_ALIGN: usize> Policy for Up<MIN_ALIGN> {
    const MIN_ALIGN: usize = checked(MIN_ALIGN);
    const UP: bool = true;
    const RECLAIM: bool = false;
}

impl<const MIN_ALIGN: usize> Policy for Down<MIN_ALIGN> {
    const MIN_ALIGN: usize = checked(MIN_ALIGN);
    const UP: bool = false;
    const RECLAIM: bool = false;
}

impl<P: Policy> Policy for Reclaim<P> {
    const MIN_ALIGN: usize = P::MIN_ALIGN;
    const UP: bool = P::UP;
    const RECLAIM: bool = true;
    const FIRST: usize = P::FIRST;
    const MOST: usize = P::MOST;
}

/// Upwards in small chunks: the pieces that a [`Batch`](crate::Batch) takes.
pub struct Pieces;

impl Policy for Pieces {
    const MIN_ALIGN: usize = 1;
    const UP: bool = true;
    const RECLAIM: bool = false;
    const FIRST: usize = 4096;
    // Enough for what taking one costs to be a hundredth of filling it, at 8 bytes a time.
    const MOST: usize = 16 * 1024;
}

/// The greatest minimum alignment.
pub(crate) const MAX_MIN_ALIGN: usize = 128;

const fn checked(min_align: usize) -> usize {
    assert!(
        min_align.is_power_of_two() && min_align <= MAX_MIN_ALIGN,
        "a minimum alignment is a power of two up to 128"
    );
    min_align
}

mod sealed {
    use super::{Down, Pieces, Policy, Reclaim, Up};

    pub trait Sealed {}
    impl<const MIN_ALIGN: usize> Sealed for Up<MIN_ALIGN> {}
    impl<const MIN_ALIGN: usize> Sealed for Down<MIN_ALIGN> {}
    impl<P: Policy> Sealed for Reclaim<P> {}
    impl Sealed for Pieces {}
}
