//! Amounts: what Ruby has, as a float.

use rb_sys::{FIX2LONG, FIXNUM_P, FLONUM_P, VALUE, rb_float_value, rb_num2dbl};

use crate::ruby::{Raise, guarded};

/// A number of any class, or it raises TypeError: the caller's frame has plain data only. What is
/// beyond all floats becomes infinite.
#[inline(always)]
pub(crate) unsafe fn float(n: VALUE) -> f64 {
    // SAFETY: each is called for what it is made for; the last raises for what is no number.
    unsafe {
        if FIXNUM_P(n) {
            FIX2LONG(n) as f64
        } else if FLONUM_P(n) {
            rb_float_value(n)
        } else {
            rb_num2dbl(n)
        }
    }
}

/// What a counter is incremented by, or it raises: the caller's frame has plain data only.
#[inline(always)]
pub(crate) unsafe fn amount(n: VALUE) -> f64 {
    // SAFETY: the caller's promise.
    let n = unsafe { float(n) };
    if !(0.0..f64::INFINITY).contains(&n) {
        refuse(n);
    }
    n
}

/// What a histogram or a summary observes, or it raises: the caller's frame has plain data only.
#[inline(always)]
pub(crate) unsafe fn observed(n: VALUE) -> f64 {
    // SAFETY: the caller's promise.
    let n = unsafe { float(n) };
    if n.is_nan() {
        guarded(|| Err(Raise::argument("what is not a number cannot be observed")));
    }
    n
}

#[cold]
fn refuse(n: f64) {
    guarded(|| {
        let what = format!("increment must be a non-negative, finite number, and is {n}");
        Err(Raise::argument(what))
    });
}
