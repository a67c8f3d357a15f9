//! Amounts: converts Ruby's numbers to floats and checks their range.

use rb_sys::{FIX2LONG, FIXNUM_P, FLONUM_P, VALUE, rb_float_value, rb_num2dbl};

use crate::ruby::{Raise, guarded};

/// Converts a number of any class, or raises TypeError; so the caller's frame must hold only plain
/// data. A number beyond the range of floats becomes infinite.
#[inline(always)]
pub(crate) unsafe fn float(n: VALUE) -> f64 {
    // SAFETY: each function is called for its class; the last raises for anything but a number.
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

/// Converts the increment of a counter, or raises; so the caller's frame must hold only plain data.
#[inline(always)]
pub(crate) unsafe fn amount(n: VALUE) -> f64 {
    // SAFETY: guaranteed by the caller.
    let n = unsafe { float(n) };
    if !(0.0..f64::INFINITY).contains(&n) {
        refuse(n);
    }
    n
}

/// Converts the observation of a histogram or summary, or raises; so the caller's frame must hold
/// only plain data.
#[inline(always)]
pub(crate) unsafe fn observed(n: VALUE) -> f64 {
    // SAFETY: guaranteed by the caller.
    let n = unsafe { float(n) };
    if n.is_nan() {
        guarded(|| Err(Raise::argument("NaN cannot be observed: use a number")));
    }
    n
}

#[cold]
fn refuse(n: f64) {
    guarded(|| {
        let what = format!("increment {n} is out of range: use a non-negative, finite number");
        Err(Raise::argument(what))
    });
}
