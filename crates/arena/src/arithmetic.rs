//! The address arithmetic of every allocation: integers in, integers out, and no unsafe code.
//!
//! An arena consists of a position and a limit, both multiples of the minimum alignment `min`.
//! Upwards, free memory is `pos..limit`; downwards, this is `limit..pos`. Each function returns
//! where a block goes and the new position, or `None` if the block does not fit.
//!
//! Each function exists in two forms. If all addresses of a process are below `isize::MAX` (`LOW`,
//! checked when a chunk is created), sums cannot wrap and we can compare differences as signed
//! numbers. This saves two or three instructions. The other form compares distances instead, for
//! example for 32-bit machines, kernels, and pointers with a tag in their uppermost bit.
//!
//! A size and an alignment are always from a `Layout`: `size + (align - 1) <= isize::MAX`.

#![forbid(unsafe_code)]

/// Whether the addresses of this target's processes are all below `isize::MAX`.
///
/// 64-bit Arm is excluded, because its allocators can tag the uppermost byte of a pointer.
pub const LOW: bool =
    cfg!(all(target_arch = "x86_64", target_pointer_width = "64", not(target_os = "none")));

/// The place of a block, and the position after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address of the block's first byte.
    pub start: usize,
    /// The new position.
    pub pos: usize,
}

/// The compiler's knowledge about a request, which the code need not check.
///
/// A check at run time would cost more than it saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaticFacts {
    /// No knowledge.
    Nothing,
    /// The alignment, and that the size is a multiple of the alignment: a type or a slice.
    Alignment,
}

/// Rounds `n` up to a multiple of `align`, a power of two.
#[inline(always)]
pub const fn round_up(n: usize, align: usize) -> usize {
    n.wrapping_add(align - 1) & align.wrapping_neg()
}

/// Places a block in `pos..limit`, at its lower end.
#[inline(always)]
pub const fn upwards<const LOW: bool>(
    pos: usize,
    limit: usize,
    size: usize,
    align: usize,
    min: usize,
    known: StaticFacts,
) -> Option<Place> {
    let start = match known {
        StaticFacts::Alignment if align <= min => pos,
        _ => round_up(pos, align),
    };
    // A size that is a multiple of an alignment of at least `min` needs no rounding.
    let size = match known {
        StaticFacts::Alignment if align >= min => size,
        _ => round_up(size, min),
    };
    let end = start.wrapping_add(size);
    // LOW: pos + (align - 1) + size + (min - 1) cannot wrap, because `limit` is at least `min`
    // below the end of its chunk. Otherwise the distance cannot wrap: it is at most the same sum
    // without `pos`.
    let fits = if LOW { end <= limit } else { end.wrapping_sub(pos) <= limit - pos };
    if fits { Some(Place { start, pos: end }) } else { None }
}

/// Places a block in `limit..pos`, at its upper end.
#[inline(always)]
pub const fn downwards<const LOW: bool>(
    pos: usize,
    limit: usize,
    size: usize,
    align: usize,
    min: usize,
    known: StaticFacts,
) -> Option<Place> {
    let start = match known {
        StaticFacts::Alignment if align == min => pos.wrapping_sub(size),
        StaticFacts::Alignment if align < min => pos.wrapping_sub(round_up(size, min)),
        StaticFacts::Alignment => pos.wrapping_sub(size) & align.wrapping_neg(),
        StaticFacts::Nothing => pos.wrapping_sub(size) & align.wrapping_neg() & min.wrapping_neg(),
    };
    // LOW: `pos - size` is a signed number, and rounding it down stops at `isize::MIN`. Otherwise
    // the distance, which is below `isize::MAX + min`, is compared.
    let fits =
        if LOW { start as isize >= limit as isize } else { pos.wrapping_sub(start) <= pos - limit };
    if fits { Some(Place { start, pos: start }) } else { None }
}

/// Upwards: returns the position after the last block, which starts at `start`, is resized to
/// `size`.
#[inline(always)]
pub const fn grown_upwards<const LOW: bool>(
    start: usize,
    limit: usize,
    size: usize,
    min: usize,
) -> Option<usize> {
    let end = start.wrapping_add(round_up(size, min));
    let fits = if LOW { end <= limit } else { round_up(size, min) <= limit - start };
    if fits { Some(end) } else { None }
}

/// Downwards: returns the start of the last block, which was at `start`, after it grows by `more`
/// bytes.
#[inline(always)]
pub const fn grown_downwards<const LOW: bool>(
    start: usize,
    limit: usize,
    more: usize,
    align: usize,
    min: usize,
) -> Option<usize> {
    match downwards::<LOW>(start, limit, more, align, min, StaticFacts::Nothing) {
        Some(place) => Some(place.start),
        None => None,
    }
}
