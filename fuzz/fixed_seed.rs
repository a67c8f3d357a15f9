//! Replaces the C library's `getrandom`, from which the standard library takes the seeds of its
//! hash maps. The paths through a map are the same in each run then, and so are the inputs that the
//! fuzzing engine derives from them.

use std::ffi::{c_uint, c_void};

/// Fills the buffer with a constant.
///
/// # Safety
///
/// `buffer` is valid for writes of `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, _flags: c_uint) -> isize {
    // SAFETY: by the function's contract.
    unsafe { buffer.cast::<u8>().write_bytes(0x5a, length) };
    length.cast_signed()
}
