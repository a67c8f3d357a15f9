//! Label values: converts Ruby objects to strings.
//!
//! Numbers, symbols, `true`, `false`, `nil` and strings in UTF-8 are read in place. All other
//! values are converted by `Quipu::LabelText`, in Ruby, which may raise and run any code.

use std::ffi::c_int;

use rb_sys::{
    ENCODING_GET, FIX2LONG, FIXNUM_P, STATIC_SYM_P, VALUE, rb_ascii8bit_encindex, rb_funcallv,
    rb_sym2str, rb_usascii_encindex, rb_utf8_encindex, ruby_value_type,
};

use crate::ruby::{self, FALSE, NIL, TRUE};

/// A label value that is written into a key.
#[derive(Clone, Copy)]
pub(crate) enum Text<'a> {
    Str(&'a str),
    Number(i64),
}

/// Reads a value in place, or returns `None` if this is not possible. It never runs code of the
/// application.
///
/// # Safety
/// You must not call Ruby while you use the result.
#[inline(always)]
pub(crate) unsafe fn read<'a>(value: VALUE) -> Option<Text<'a>> {
    if FIXNUM_P(value) {
        // SAFETY: it is a small number.
        return Some(Text::Number(unsafe { FIX2LONG(value) }));
    }
    if ruby::is(value, ruby_value_type::RUBY_T_STRING) {
        // SAFETY: it is a string; the rest is the caller's promise.
        return unsafe { utf8(value) };
    }
    // SAFETY: it is a symbol, which owns its name.
    unsafe {
        if STATIC_SYM_P(value) || ruby::is(value, ruby_value_type::RUBY_T_SYMBOL) {
            return utf8(rb_sym2str(value));
        }
    }
    match value {
        NIL => Some(Text::Str("")),
        TRUE => Some(Text::Str("true")),
        FALSE => Some(Text::Str("false")),
        _ => None,
    }
}

/// Converts any object to a new string in UTF-8. Only the caller refers to this string. It may
/// raise.
///
/// # Safety
/// Your frame must hold only plain data.
#[cold]
pub(crate) unsafe fn convert(value: VALUE) -> VALUE {
    let arguments = [value];
    // SAFETY: the receiver is a module.
    let text = unsafe {
        let module = rb_sys::rb_const_get(ruby::module(), ruby::id(c"LabelText"));
        rb_funcallv(module, ruby::id(c"of"), 1, arguments.as_ptr())
    };
    if ruby::is_string(text) { text } else { NIL }
}

/// Returns the contents of a string whose encoding is UTF-8, ASCII or binary, and whose bytes are
/// valid UTF-8.
///
/// # Safety
/// As for [`read`]; and `string` must be a string.
#[inline(always)]
unsafe fn utf8<'a>(string: VALUE) -> Option<Text<'a>> {
    // SAFETY: it is a string.
    let (encoding, bytes) = unsafe { (ENCODING_GET(string), ruby::bytes(string)) };
    if !is_known(encoding) {
        return None;
    }
    std::str::from_utf8(bytes).ok().map(Text::Str)
}

/// Returns whether the encoding is binary, UTF-8 or ASCII. Their indexes are the same in every
/// version of Ruby; [`check`] verifies this.
#[inline(always)]
fn is_known(encoding: c_int) -> bool {
    (BINARY..=ASCII).contains(&encoding)
}

const BINARY: c_int = 0;
const UTF_8: c_int = 1;
const ASCII: c_int = 2;

/// Returns whether the encodings use the expected indexes.
pub(crate) fn check() -> bool {
    // SAFETY: these return numbers.
    let found = unsafe { (rb_ascii8bit_encindex(), rb_utf8_encindex(), rb_usascii_encindex()) };
    found == (BINARY, UTF_8, ASCII)
}
