//! Chunks: what an arena takes from its base allocator, and the header in each.
//!
//! ```text
//!  upwards     far                    limit        far + size
//!               | blocks ... pos, free | header      |
//!
//!  downwards   start       limit                    far
//!               | header    | free, pos ... blocks   |
//! ```
//!
//! The header lies at the limit, so the limit also says where it is, and an arena is two words.
//! Chunks are a list from the newest to the oldest. The newest may have a spare one behind it,
//! which a scope left when it ended; older ones never have.

use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use allocator_api2::alloc::{AllocError, Allocator};

use crate::arithmetic::{LOW, round_up};
use crate::policy::{MAX_MIN_ALIGN, Policy};

/// What a chunk says of itself.
#[repr(C, align(16))]
pub(crate) struct Header {
    /// The chunk before this one, or null. Of the newest chunk and of a spare one it is right; an
    /// empty arena's points to itself.
    pub(crate) prev: *mut Header,
    /// The spare chunk, or null. Only the newest chunk's is right.
    pub(crate) spare: *mut Header,
    /// The end that blocks start from.
    pub(crate) far: NonNull<u8>,
    /// Where the position was when a newer chunk was taken; of the newest it is not there yet.
    pub(crate) left: MaybeUninit<NonNull<u8>>,
}

impl Header {
    /// Takes the spare chunk out of the arena: a list of it alone, or null.
    pub(crate) fn spare_alone(&mut self) -> *mut Header {
        let spare = core::mem::replace(&mut self.spare, ptr::null_mut());
        if !spare.is_null() {
            // SAFETY: A spare chunk's header is nobody else's.
            unsafe { (*spare).prev = ptr::null_mut() };
        }
        spare
    }
}

/// The size of the first chunk in all: with the two words that many heaps keep beside a block, half
/// a kilobyte.
pub(crate) const FIRST: usize = 512 - OVERHEAD;

/// What a heap is supposed to keep beside a block.
const OVERHEAD: usize = 16;

/// How chunks of a policy are laid out.
pub(crate) trait Chunks: Policy {
    /// The alignment and the unit of the size of a chunk.
    const ALIGN: usize = if Self::MIN_ALIGN > 16 { Self::MIN_ALIGN } else { 16 };
    /// The room that the header takes, so that the limit is a multiple of the minimum alignment.
    const HEADER: usize = round_up(size_of::<Header>(), Self::ALIGN);
    /// The size of a first chunk that nobody chose.
    const FIRST_SIZE: usize = round_up(Self::FIRST, Self::ALIGN);
}

impl<P: Policy> Chunks for P {}

/// The header of an arena that has no chunk: no room before it and none behind it, so that every
/// allocation goes the slow way, with nothing to ask on the fast one.
#[repr(C, align(128))]
struct Empty(Header, [u8; MAX_MIN_ALIGN - size_of::<Header>()]);

// SAFETY: Nothing ever writes to it.
unsafe impl Sync for Empty {}

static EMPTY: Empty = Empty(
    Header {
        prev: (&raw const EMPTY).cast_mut().cast(),
        spare: ptr::null_mut(),
        far: NonNull::<u8>::dangling(),
        left: MaybeUninit::uninit(),
    },
    [0; MAX_MIN_ALIGN - size_of::<Header>()],
);

/// The limit of an arena without a chunk, which is also its position.
#[inline(always)]
pub(crate) const fn empty_limit<P: Policy>() -> NonNull<u8> {
    let header = (&raw const EMPTY).cast_mut().cast::<u8>();
    let limit = if P::UP {
        header
    } else {
        // SAFETY: `Empty` is as large as the largest header.
        unsafe { header.add(<P as Chunks>::HEADER) }
    };
    // SAFETY: It points into a static.
    unsafe { NonNull::new_unchecked(limit) }
}

/// Whether it is the header of no chunk.
#[inline(always)]
pub(crate) fn is_empty(header: *mut Header) -> bool {
    ptr::eq(header, (&raw const EMPTY).cast())
}

/// The header at a limit.
#[inline(always)]
pub(crate) fn header_at<P: Policy>(limit: NonNull<u8>) -> *mut Header {
    let limit = limit.as_ptr();
    // SAFETY: Downwards, the header lies before the limit in the same chunk.
    (if P::UP { limit } else { unsafe { limit.sub(P::HEADER) } }).cast()
}

/// The limit at a header.
#[inline(always)]
pub(crate) fn limit_at<P: Policy>(header: *mut Header) -> NonNull<u8> {
    let header = header.cast::<u8>();
    // SAFETY: Downwards, the limit is behind the header in the same chunk; neither is null.
    unsafe { NonNull::new_unchecked(if P::UP { header } else { header.add(P::HEADER) }) }
}

/// The size of a chunk in all.
///
/// # Safety
///
/// It is the header of a chunk.
pub(crate) unsafe fn size<P: Policy>(header: *mut Header) -> usize {
    // SAFETY: By contract.
    let far = unsafe { (*header).far }.addr().get();
    if P::UP { header.addr() + P::HEADER - far } else { far - header.addr() }
}

/// The room for blocks in a chunk.
///
/// # Safety
///
/// It is the header of a chunk.
pub(crate) unsafe fn room<P: Policy>(header: *mut Header) -> usize {
    // SAFETY: By contract.
    unsafe { size::<P>(header) - P::HEADER }
}

/// The smallest chunk that has room for a block, wherever the base allocator puts it. None if that
/// is more than there can be.
pub(crate) fn size_for<P: Policy>(layout: Layout) -> Option<usize> {
    // A layout's size + (align - 1) does not overflow; up to two alignments more may be too much.
    let slack = if layout.align() > P::ALIGN { layout.align() } else { P::ALIGN };
    let size = layout.size().checked_add(slack)?.checked_add(P::HEADER + P::ALIGN)?;
    // One multiple less than the most, since rounding up follows.
    (size <= isize::MAX as usize - P::ALIGN).then(|| round_up(size, P::ALIGN))
}

/// The size of the chunk after one of `size`, if nothing asks for more.
pub(crate) fn next_size<P: Policy>(size: usize) -> usize {
    // The overhead is part of what is doubled.
    ((size + OVERHEAD).saturating_mul(2) - OVERHEAD).min(P::MOST)
}

/// Whether the fast paths may use the addresses of a fresh chunk.
///
/// On x86-64 no object straddles the middle of the address space, so its start says it all.
#[inline(always)]
pub(crate) fn is_usable(chunk: NonNull<u8>) -> bool {
    !LOW || chunk.addr().get() as isize > 0
}

/// The chunk that a base allocator gave for a layout, if it did and it is usable: both in one
/// comparison, since an error is a null pointer.
#[inline(always)]
pub(crate) fn usable<A: Allocator>(
    base: &A,
    layout: Layout,
    given: Result<NonNull<[u8]>, AllocError>,
) -> Option<NonNull<[u8]>> {
    let address = match given {
        Ok(chunk) => chunk.cast::<u8>().addr().get(),
        Err(AllocError) => 0,
    };
    let is_usable = if LOW { address as isize > 0 } else { address != 0 };
    if is_usable {
        given.ok()
    } else {
        refuse(base, layout, given);
        None
    }
}

#[cold]
#[inline(never)]
fn refuse<A: Allocator>(base: &A, layout: Layout, given: Result<NonNull<[u8]>, AllocError>) {
    if let Ok(chunk) = given {
        // SAFETY: It was just taken.
        unsafe { base.deallocate(chunk.cast(), layout) };
    }
}

/// Writes the header into fresh memory, and returns the position and the limit.
///
/// # Safety
///
/// `chunk` has `size` bytes that are nobody else's, both are multiples of `P::ALIGN`, and
/// `is_usable` holds. `prev` is the header of a chunk or null.
#[inline(always)]
pub(crate) unsafe fn write<P: Policy>(
    chunk: NonNull<u8>,
    size: usize,
    prev: *mut Header,
) -> (NonNull<u8>, NonNull<u8>) {
    // SAFETY: `size` is at least that of a header, so all of it is in the chunk.
    unsafe {
        let (header, far, limit) = if P::UP {
            let header = chunk.add(size - P::HEADER);
            (header, chunk, header)
        } else {
            (chunk, chunk.add(size), chunk.add(P::HEADER))
        };
        header.cast::<Header>().write(Header {
            prev,
            spare: ptr::null_mut(),
            far,
            left: MaybeUninit::uninit(),
        });
        (far, limit)
    }
}

/// Takes memory for a chunk of at least `size` bytes; its length is a multiple of `P::ALIGN`.
///
/// None if the base allocator has no memory, or memory that the fast paths cannot use. `size` is
/// from [`size_for`] or larger, and a multiple of `P::ALIGN`.
pub(crate) fn take<P: Policy, A: Allocator>(base: &A, size: usize) -> Option<NonNull<[u8]>> {
    let layout = Layout::from_size_align(size, P::ALIGN).ok()?;
    let chunk = usable(base, layout, base.allocate(layout))?;
    // A base allocator may give more than it was asked for.
    let size = chunk.len() & P::ALIGN.wrapping_neg();
    Some(NonNull::slice_from_raw_parts(chunk.cast(), size))
}

/// Gives a chunk back.
///
/// # Safety
///
/// It came from `base`, and nothing uses it any more.
pub(crate) unsafe fn give_back<P: Policy, A: Allocator>(base: &A, header: *mut Header) {
    // SAFETY: By contract; the layout is within what the base allocator gave.
    unsafe {
        let size = size::<P>(header);
        let start = if P::UP { (*header).far } else { NonNull::new_unchecked(header.cast()) };
        base.deallocate(start, Layout::from_size_align_unchecked(size, P::ALIGN));
    }
}

/// Gives back each of a list: the rest too, when the base allocator panics.
///
/// `give` moves its argument to the next of the list, and then gives the one before back.
pub(crate) fn give_back_each<H>(first: *mut H, give: impl FnMut(&mut *mut H)) {
    struct Rest<H, F: FnMut(&mut *mut H)> {
        next: *mut H,
        give: F,
    }

    impl<H, F: FnMut(&mut *mut H)> Drop for Rest<H, F> {
        fn drop(&mut self) {
            while !self.next.is_null() {
                (self.give)(&mut self.next);
            }
        }
    }

    let mut rest = Rest { next: first, give };
    while !rest.next.is_null() {
        (rest.give)(&mut rest.next);
    }
}
