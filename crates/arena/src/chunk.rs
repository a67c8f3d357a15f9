//! Chunks: the memory that an arena takes from its base allocator, with a header in each.
//!
//! ```text
//!  upwards     far                    limit        far + size
//!               | blocks ... pos, free | header      |
//!
//!  downwards   start       limit                    far
//!               | header    | free, pos ... blocks   |
//! ```
//!
//! The header lies at the limit. This way the limit also locates the header, and an arena is two
//! words. Chunks form a list from the newest to the oldest. The newest can also own a spare chunk,
//! for example the chunk that a scope left when it ended; older chunks never own one.

use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use crate::arithmetic::{LOW, round_up};
use crate::base::{AllocError, BaseAllocator};
use crate::policy::{MAX_MIN_ALIGN, Policy};

/// The header of a chunk.
#[repr(C, align(16))]
pub(crate) struct Header {
    /// The chunk before this one, or null. Valid in the newest chunk and in a spare one; in an
    /// empty arena's header this points to the header itself.
    pub(crate) prev: *mut Header,
    /// The spare chunk, or null. Valid only in the newest chunk.
    pub(crate) spare: *mut Header,
    /// The end of the chunk where blocks start.
    pub(crate) far: NonNull<u8>,
    /// The position when a newer chunk was taken. Not initialised in the newest chunk.
    pub(crate) left: MaybeUninit<NonNull<u8>>,
}

impl Header {
    /// Unlinks the spare chunk. Returns it as a list of one, or null.
    pub(crate) fn spare_alone(&mut self) -> *mut Header {
        let spare = core::mem::replace(&mut self.spare, ptr::null_mut());
        if !spare.is_null() {
            // SAFETY: Only this header refers to the spare chunk.
            unsafe { (*spare).prev = ptr::null_mut() };
        }
        spare
    }
}

/// The total size of the first chunk. Together with the two words that many heaps keep next to a
/// block, this is half a kilobyte.
pub(crate) const FIRST: usize = 512 - OVERHEAD;

/// The assumed overhead of a heap per block.
const OVERHEAD: usize = 16;

/// The layout of chunks under a policy.
pub(crate) trait Chunks: Policy {
    /// The alignment of chunks; their sizes are multiples of this.
    const ALIGN: usize = if Self::MIN_ALIGN > 16 { Self::MIN_ALIGN } else { 16 };
    /// The space for the header, rounded up so that the limit is a multiple of the minimum
    /// alignment.
    const HEADER: usize = round_up(size_of::<Header>(), Self::ALIGN);
    /// The default size of the first chunk.
    const FIRST_SIZE: usize = round_up(Self::FIRST, Self::ALIGN);
}

impl<P: Policy> Chunks for P {}

/// The header of an arena without chunks. There is no room on either side of this header, so every
/// allocation takes the slow path, and the fast path needs no check.
#[repr(C, align(128))]
struct Empty(Header, [u8; MAX_MIN_ALIGN - size_of::<Header>()]);

// SAFETY: This static is never written to.
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

/// Returns the limit of an arena without a chunk, which is also its position.
#[inline(always)]
pub(crate) const fn empty_limit<P: Policy>() -> NonNull<u8> {
    let header = (&raw const EMPTY).cast_mut().cast::<u8>();
    let limit = if P::UP {
        header
    } else {
        // SAFETY: `Empty` is as large as the largest header.
        unsafe { header.add(<P as Chunks>::HEADER) }
    };
    // SAFETY: The pointer points into a static.
    unsafe { NonNull::new_unchecked(limit) }
}

/// Returns whether this is the header of an arena without chunks.
#[inline(always)]
pub(crate) fn is_empty(header: *mut Header) -> bool {
    ptr::eq(header, (&raw const EMPTY).cast())
}

/// Returns the header at a limit.
#[inline(always)]
pub(crate) fn header_at<P: Policy>(limit: NonNull<u8>) -> *mut Header {
    let limit = limit.as_ptr();
    // SAFETY: Downwards, the header lies before the limit in the same chunk.
    (if P::UP { limit } else { unsafe { limit.sub(P::HEADER) } }).cast()
}

/// Returns the limit at a header.
#[inline(always)]
pub(crate) fn limit_at<P: Policy>(header: *mut Header) -> NonNull<u8> {
    let header = header.cast::<u8>();
    // SAFETY: Downwards, the limit is after the header in the same chunk; neither is null.
    unsafe { NonNull::new_unchecked(if P::UP { header } else { header.add(P::HEADER) }) }
}

/// Returns the total size of a chunk.
///
/// # Safety
///
/// This is the header of a chunk.
pub(crate) unsafe fn size<P: Policy>(header: *mut Header) -> usize {
    // SAFETY: By contract.
    let far = unsafe { (*header).far }.addr().get();
    if P::UP { header.addr() + P::HEADER - far } else { far - header.addr() }
}

/// Returns the space for blocks in a chunk.
///
/// # Safety
///
/// This is the header of a chunk.
pub(crate) unsafe fn room<P: Policy>(header: *mut Header) -> usize {
    // SAFETY: By contract.
    unsafe { size::<P>(header) - P::HEADER }
}

/// Returns the size of the smallest chunk with room for a block, wherever the base allocator puts
/// this chunk. `None` if no chunk can be this large.
pub(crate) fn size_for<P: Policy>(layout: Layout) -> Option<usize> {
    // A layout's size + (align - 1) does not overflow; adding up to two more alignments can.
    let slack = if layout.align() > P::ALIGN { layout.align() } else { P::ALIGN };
    let size = layout.size().checked_add(slack)?.checked_add(P::HEADER + P::ALIGN)?;
    // One multiple below the maximum, because this is rounded up next.
    (size <= isize::MAX as usize - P::ALIGN).then(|| round_up(size, P::ALIGN))
}

/// Returns the size of the chunk after one of `size`, unless a block needs more.
pub(crate) fn next_size<P: Policy>(size: usize) -> usize {
    // The overhead is included before doubling.
    ((size + OVERHEAD).saturating_mul(2) - OVERHEAD).min(P::MAX_CHUNK)
}

/// Returns whether the fast paths can use the addresses of a fresh chunk.
///
/// On x86-64, no object straddles the middle of the address space, so checking the start suffices.
#[inline(always)]
pub(crate) fn is_usable(chunk: NonNull<u8>) -> bool {
    !LOW || chunk.addr().get() as isize > 0
}

/// Returns the chunk that a base allocator returned for a layout, if there is one and it is usable.
/// We can check both with one comparison, because an error is a null pointer.
#[inline(always)]
pub(crate) fn usable<A: BaseAllocator>(
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
fn refuse<A: BaseAllocator>(base: &A, layout: Layout, given: Result<NonNull<[u8]>, AllocError>) {
    if let Ok(chunk) = given {
        // SAFETY: The chunk was just allocated.
        unsafe { base.deallocate(chunk.cast(), layout) };
    }
}

/// Writes the header into fresh memory, and returns the position and the limit.
///
/// # Safety
///
/// `chunk` consists of `size` bytes that the caller owns, both are multiples of `P::ALIGN`, and
/// `is_usable` holds. `prev` is the header of a chunk, or null.
#[inline(always)]
pub(crate) unsafe fn write<P: Policy>(
    chunk: NonNull<u8>,
    size: usize,
    prev: *mut Header,
) -> (NonNull<u8>, NonNull<u8>) {
    // SAFETY: `size` is at least the size of a header, so all of it is in the chunk.
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

/// Allocates memory for a chunk of at least `size` bytes; its length is a multiple of `P::ALIGN`.
///
/// Returns `None` if the base allocator is out of memory, or only returns memory that the fast
/// paths cannot use. `size` is at least the result of [`size_for`], and a multiple of `P::ALIGN`.
pub(crate) fn take<P: Policy, A: BaseAllocator>(base: &A, size: usize) -> Option<NonNull<[u8]>> {
    let layout = Layout::from_size_align(size, P::ALIGN).ok()?;
    let chunk = usable(base, layout, base.allocate(layout))?;
    // A base allocator can return more than was requested.
    let size = chunk.len() & P::ALIGN.wrapping_neg();
    Some(NonNull::slice_from_raw_parts(chunk.cast(), size))
}

/// Returns a chunk to the base allocator.
///
/// # Safety
///
/// The chunk was allocated by `base`, and is no longer used.
pub(crate) unsafe fn give_back<P: Policy, A: BaseAllocator>(base: &A, header: *mut Header) {
    // SAFETY: By contract; the layout is within the memory that the base allocator returned.
    unsafe {
        let size = size::<P>(header);
        let start = if P::UP { (*header).far } else { NonNull::new_unchecked(header.cast()) };
        base.deallocate(start, Layout::from_size_align_unchecked(size, P::ALIGN));
    }
}

/// Frees each element of a list, continuing with the rest if the base allocator panics.
///
/// `give` advances its argument to the next element, and then frees the previous one.
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
