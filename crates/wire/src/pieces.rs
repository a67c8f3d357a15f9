//! The building blocks of encoded messages. Each piece knows an upper bound of its length.
//!
//! [`append`] adds up the bounds of all pieces of a message and reserves this sum once. Because of
//! this, each piece can write unchecked, for example: `append(out, (Byte(0x0a), Varint(len),
//! Bytes(id)))`.

use alloc::vec::Vec;

use crate::copy::copy_short;

/// A value that can be written to memory, with a known bound of its length.
///
/// # Safety
///
/// `put` writes at most `bound()` bytes from `at` on and returns the end of the piece. This end is
/// at most `bound()` bytes after `at`, and all bytes up to it are initialized. `bound()` always
/// returns the same number.
pub(crate) unsafe trait Piece {
    /// Returns an upper bound of the length in bytes. This saturates, so a sum never wraps
    /// unnoticed.
    fn bound(&self) -> usize;

    /// Writes the piece.
    ///
    /// # Safety
    ///
    /// `at` is valid for writes of `bound()` bytes.
    unsafe fn put(&self, at: *mut u8) -> *mut u8;
}

/// A piece whose bound does not depend on its value.
///
/// # Safety
///
/// `bound()` is at most `BOUND`.
pub(crate) unsafe trait FixedPiece: Piece {
    const BOUND: usize;
}

/// Appends a piece to a buffer.
#[inline(always)]
pub(crate) fn append(out: &mut Vec<u8>, piece: impl Piece) {
    let bound = piece.bound();
    out.reserve(bound);
    let len = out.len();
    // SAFETY: `bound` bytes were reserved after the length. A piece initializes all bytes up to its
    // end, which is at most `bound` bytes after its start.
    unsafe {
        let start = out.as_mut_ptr().add(len);
        let end = piece.put(start);
        let written = end.offset_from(start) as usize;
        debug_assert!(written <= bound, "a piece wrote more than its bound");
        out.set_len(len + written);
    }
}

macro_rules! fixed {
    ($(#[$doc:meta])* $name:ident($type:ty), |$value:ident| $bytes:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name(pub(crate) $type);

        // SAFETY: This writes the bytes of the number.
        unsafe impl Piece for $name {
            #[inline(always)]
            fn bound(&self) -> usize {
                Self::BOUND
            }

            #[inline(always)]
            unsafe fn put(&self, at: *mut u8) -> *mut u8 {
                let $value = self.0;
                let bytes = $bytes;
                // SAFETY: `at` is valid for `BOUND` bytes.
                unsafe {
                    at.cast::<[u8; Self::BOUND]>().write_unaligned(bytes);
                    at.add(Self::BOUND)
                }
            }
        }

        // SAFETY: `bound` above is the same constant.
        unsafe impl FixedPiece for $name {
            const BOUND: usize = size_of::<$type>();
        }
    };
}

fixed! {
    /// One byte.
    Byte(u8), |value| [value]
}
fixed! {
    /// A number, most significant byte first.
    Be16(u16), |value| value.to_be_bytes()
}
fixed! {
    /// A number, most significant byte first.
    Be32(u32), |value| value.to_be_bytes()
}
fixed! {
    /// A number, most significant byte first.
    Be64(u64), |value| value.to_be_bytes()
}
fixed! {
    /// A number, least significant byte first.
    Le16(u16), |value| value.to_le_bytes()
}
fixed! {
    /// A number, least significant byte first.
    Le32(u32), |value| value.to_le_bytes()
}
fixed! {
    /// A number, least significant byte first.
    Le64(u64), |value| value.to_le_bytes()
}
fixed! {
    /// A double, most significant byte first.
    BeDouble(f64), |value| value.to_be_bytes()
}
fixed! {
    /// A double, least significant byte first.
    LeDouble(f64), |value| value.to_le_bytes()
}

/// Bytes that are known at compile time.
#[derive(Clone, Copy)]
pub(crate) struct Literal<const N: usize>(pub(crate) &'static [u8; N]);

// SAFETY: This writes N bytes.
unsafe impl<const N: usize> Piece for Literal<N> {
    #[inline(always)]
    fn bound(&self) -> usize {
        N
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        // SAFETY: `at` is valid for N bytes.
        unsafe {
            at.cast::<[u8; N]>().write_unaligned(*self.0);
            at.add(N)
        }
    }
}

// SAFETY: `bound` above is the same constant.
unsafe impl<const N: usize> FixedPiece for Literal<N> {
    const BOUND: usize = N;
}

/// A base-128 number, least significant group first: LEB128.
#[derive(Clone, Copy)]
pub(crate) struct Varint(pub(crate) u64);

// SAFETY: 64 bits are at most 10 groups of 7.
unsafe impl Piece for Varint {
    #[inline(always)]
    fn bound(&self) -> usize {
        Self::BOUND
    }

    #[inline(always)]
    unsafe fn put(&self, mut at: *mut u8) -> *mut u8 {
        let mut number = self.0;
        // SAFETY: `at` is valid for 10 bytes, and there are at most 10 groups.
        unsafe {
            while number >= 0x80 {
                at.write(number as u8 | 0x80);
                at = at.add(1);
                number >>= 7;
            }
            at.write(number as u8);
            at.add(1)
        }
    }
}

// SAFETY: `bound` above is the same constant.
unsafe impl FixedPiece for Varint {
    const BOUND: usize = 10;
}

/// Bytes, written unchanged.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

// SAFETY: This writes the bytes of the slice.
unsafe impl Piece for Bytes<'_> {
    #[inline(always)]
    fn bound(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        // SAFETY: `at` is valid for the length of the slice. They cannot overlap, because the
        // buffer is not initialized there yet.
        unsafe {
            copy_short(self.0.as_ptr(), at, self.0.len());
            at.add(self.0.len())
        }
    }
}

/// Up to 7 zeros.
#[derive(Clone, Copy)]
pub(crate) struct Zeros(pub(crate) usize);

// SAFETY: This writes 8 bytes, and its end is at most 7 bytes after its start.
unsafe impl Piece for Zeros {
    #[inline(always)]
    fn bound(&self) -> usize {
        Self::BOUND
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        debug_assert!(self.0 < 8, "zeros fill up to a word");
        // SAFETY: `at` is valid for 8 bytes.
        unsafe {
            at.cast::<[u8; 8]>().write_unaligned([0; 8]);
            at.add(self.0 & 7)
        }
    }
}

// SAFETY: `bound` above is the same constant.
unsafe impl FixedPiece for Zeros {
    const BOUND: usize = 8;
}

/// Doubles, least significant byte first.
#[derive(Clone, Copy)]
pub(crate) struct LeDoubles<'a>(pub(crate) &'a [f64]);

// SAFETY: This writes 8 bytes for each double.
unsafe impl Piece for LeDoubles<'_> {
    #[inline(always)]
    fn bound(&self) -> usize {
        size_of_val(self.0)
    }

    #[inline(always)]
    unsafe fn put(&self, mut at: *mut u8) -> *mut u8 {
        if cfg!(target_endian = "little") {
            // SAFETY: `at` is valid for the bytes of the slice, which are already in this order.
            unsafe {
                copy_short(self.0.as_ptr().cast(), at, size_of_val(self.0));
                return at.add(size_of_val(self.0));
            }
        }
        for value in self.0 {
            // SAFETY: `at` is valid for 8 bytes for each double.
            at = unsafe { LeDouble(*value).put(at) };
        }
        at
    }
}

/// A piece for each item of a slice.
#[derive(Clone, Copy)]
pub(crate) struct Each<'a, T, F>(pub(crate) &'a [T], pub(crate) F);

// SAFETY: All pieces share the same bound.
unsafe impl<T: Copy, P: FixedPiece, F: Fn(T) -> P> Piece for Each<'_, T, F> {
    #[inline(always)]
    fn bound(&self) -> usize {
        self.0.len().saturating_mul(P::BOUND)
    }

    #[inline(always)]
    unsafe fn put(&self, mut at: *mut u8) -> *mut u8 {
        for item in self.0 {
            // SAFETY: `at` is valid for the bound of one piece for each item.
            at = unsafe { self.1(*item).put(at) };
        }
        at
    }
}

// SAFETY: This writes the piece, or no bytes.
unsafe impl<P: Piece> Piece for Option<P> {
    #[inline(always)]
    fn bound(&self) -> usize {
        self.as_ref().map_or(0, Piece::bound)
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        match self {
            // SAFETY: `at` is valid for the bound of the piece.
            Some(piece) => unsafe { piece.put(at) },
            None => at,
        }
    }
}

macro_rules! tuple {
    ($($name:ident),*) => {
        // SAFETY: Each piece stays within its bound, and starts at the end of the previous piece.
        unsafe impl<$($name: Piece),*> Piece for ($($name,)*) {
            #[inline(always)]
            #[allow(non_snake_case)]
            fn bound(&self) -> usize {
                let ($($name,)*) = self;
                0usize$(.saturating_add($name.bound()))*
            }

            #[inline(always)]
            #[allow(non_snake_case)]
            unsafe fn put(&self, at: *mut u8) -> *mut u8 {
                let ($($name,)*) = self;
                // SAFETY: `at` is valid for the sum of the bounds.
                $(let at = unsafe { $name.put(at) };)*
                at
            }
        }

        // SAFETY: The bound is the sum of the pieces' bounds.
        unsafe impl<$($name: FixedPiece),*> FixedPiece for ($($name,)*) {
            const BOUND: usize = 0 $(+ $name::BOUND)*;
        }
    };
}

tuple!(A, B);
tuple!(A, B, C);
tuple!(A, B, C, D);
tuple!(A, B, C, D, E);
tuple!(A, B, C, D, E, F);
tuple!(A, B, C, D, E, F, G);
tuple!(A, B, C, D, E, F, G, H);
tuple!(A, B, C, D, E, F, G, H, I);
tuple!(A, B, C, D, E, F, G, H, I, J);
tuple!(A, B, C, D, E, F, G, H, I, J, K);
tuple!(A, B, C, D, E, F, G, H, I, J, K, L);

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn bytes(piece: impl Piece) -> Vec<u8> {
        let mut out = vec![7];
        append(&mut out, piece);
        assert_eq!(out.remove(0), 7);
        out
    }

    #[test]
    fn writes_one_behind_the_other() {
        let all =
            (Byte(1), Le16(2), Be16(2), Literal(b"ab"), Some(Byte(3)), None::<Byte>, Zeros(3));
        assert_eq!(bytes(all), [1, 2, 0, 0, 2, b'a', b'b', 3, 0, 0, 0]);
        assert_eq!(bytes(Each(&[1u8, 2, 3], |x| (Byte(x), Byte(0)))), [1, 0, 2, 0, 3, 0]);
        assert_eq!(bytes(LeDoubles(&[1.0])), 1f64.to_le_bytes());
    }

    #[test]
    fn varints_have_up_to_10_groups() {
        assert_eq!(bytes(Varint(0)), [0]);
        assert_eq!(bytes(Varint(300)), [0xac, 2]);
        assert_eq!(bytes(Varint(u64::MAX)).len(), 10);
    }

    #[test]
    fn copies_of_any_length() {
        let source: Vec<u8> = (0..200).collect();
        for len in 0..200 {
            assert_eq!(bytes(Bytes(&source[..len])), source[..len]);
        }
    }
}
