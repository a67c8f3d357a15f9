//! Reads into the arena: values, and ids that are not contiguous in the input.

use core::mem::MaybeUninit;

use quipu_arena::Scope;

use crate::error::Fault;

/// Reads doubles, least significant byte first.
#[inline(always)]
pub(crate) fn little_endian<'m>(bytes: &[u8], scope: &Scope<'m>) -> Result<&'m [f64], Fault> {
    doubles(bytes, scope, f64::from_le_bytes)
}

/// Reads doubles, most significant byte first.
#[inline(always)]
pub(crate) fn big_endian<'m>(bytes: &[u8], scope: &Scope<'m>) -> Result<&'m [f64], Fault> {
    doubles(bytes, scope, f64::from_be_bytes)
}

#[inline(always)]
fn doubles<'m>(
    bytes: &[u8],
    scope: &Scope<'m>,
    read: impl Fn([u8; 8]) -> f64,
) -> Result<&'m [f64], Fault> {
    let (words, _) = bytes.as_chunks::<8>();
    let room = room(words.len(), scope)?;
    for (place, word) in room.iter_mut().zip(words) {
        place.write(read(*word));
    }
    // SAFETY: The room contains one place for each word, and all were written.
    Ok(unsafe { assume_init(room) })
}

/// Reads `len` values with the function. The caller checks `len` against the input. This stops at
/// the first fault.
#[inline(always)]
pub(crate) fn fill<'m, T: Copy>(
    len: usize,
    scope: &Scope<'m>,
    mut next: impl FnMut() -> Result<T, Fault>,
) -> Result<&'m [T], Fault> {
    let room = room(len, scope)?;
    for place in room.iter_mut() {
        place.write(next()?);
    }
    // SAFETY: All places were written, because any fault above returned.
    Ok(unsafe { assume_init(room) })
}

/// Allocates room for values. The caller checks the length against the input.
#[inline(always)]
pub(crate) fn room<'m, T>(
    len: usize,
    scope: &Scope<'m>,
) -> Result<&'m mut [MaybeUninit<T>], Fault> {
    scope.try_alloc_uninit_slice(len).map_err(|_| Fault::memory())
}

/// # Safety
///
/// All places were written.
#[inline(always)]
pub(crate) unsafe fn assume_init<T>(room: &mut [MaybeUninit<T>]) -> &[T] {
    // SAFETY: `MaybeUninit<T>` and `T` share their layout, and all places are initialized.
    unsafe { core::slice::from_raw_parts(room.as_ptr().cast(), room.len()) }
}
