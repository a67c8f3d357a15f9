//! The bodies of messages as differences: what a writer appends after the number of a series.

use crate::pieces::{Byte, FixedPiece, Piece};
use crate::quipu::number::{MIDDLE, Whole, put_long, put_middle, put_top_bytes, whole_len};

/// A counter's change, or its value if that is shorter.
#[derive(Clone, Copy)]
pub(super) struct CounterBody {
    pub(super) by: i64,
    pub(super) to: i64,
}

/// Says that the value itself follows.
const ABSOLUTE: u8 = 0xe0;

// SAFETY: That is its bound.
unsafe impl FixedPiece for CounterBody {
    const BOUND: usize = 9;
}

// SAFETY: Both forms have 9 bytes at most.
unsafe impl Piece for CounterBody {
    #[inline(always)]
    fn bound(&self) -> usize {
        Self::BOUND
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        // SAFETY: `at` is valid for 9 bytes.
        unsafe {
            if (self.by as u64) < MIDDLE {
                return put_middle(self.by as u64, at);
            }
            let len = whole_len(self.by);
            if len > 2 && long_len(self.to) < len {
                put_long(self.to, ABSOLUTE, at)
            } else {
                Whole(self.by).put(at)
            }
        }
    }
}

/// The length of a value with its lead.
#[inline(always)]
fn long_len(number: i64) -> usize {
    let bits = if number < 0 { !number } else { number };
    9 - (((bits | 1) as u64).leading_zeros() / 8) as usize
}

/// A gauge's change, or its value.
#[derive(Clone, Copy)]
pub(super) enum GaugeBody {
    Change { change: i64, places: u8, whole: i64 },
    Decimal { places: u8, whole: i64 },
    Double(f64),
}

/// With the number of places added, says that the whole number follows.
const PLACES: u8 = 0xd0;

// SAFETY: A whole number after one byte is the longest form.
unsafe impl Piece for GaugeBody {
    #[inline(always)]
    fn bound(&self) -> usize {
        1 + Whole::BOUND
    }

    #[inline(always)]
    unsafe fn put(&self, at: *mut u8) -> *mut u8 {
        // SAFETY: `at` is valid for 10 bytes.
        unsafe {
            match *self {
                GaugeBody::Change { change, .. } if (change as u64) < MIDDLE => {
                    put_middle(change as u64, at)
                }
                GaugeBody::Change { change, places, whole } => {
                    let len = whole_len(change);
                    if len > 2 && 1 + whole_len(whole) < len {
                        (Byte(PLACES | places), Whole(whole)).put(at)
                    } else {
                        Whole(change).put(at)
                    }
                }
                GaugeBody::Decimal { places, whole } => {
                    (Byte(PLACES | places), Whole(whole)).put(at)
                }
                GaugeBody::Double(value) => put_top_bytes(value, at),
            }
        }
    }
}
