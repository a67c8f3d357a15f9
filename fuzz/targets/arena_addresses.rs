//! Passes arbitrary numbers to the arena's address arithmetic, and compares the results with a slow
//! model.

#![no_main]

#[path = "../fixed_seed.rs"]
mod fixed_seed;

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/arena/tests/addresses/mod.rs"]
mod addresses;

use addresses::Request;

fuzz_target!(|input: (u64, u64, u64, u8, bool)| {
    let (a, b, size, bits, near) = input;
    let (a, b, size) = (a as usize, b as usize, size as usize);
    let b = if near { a.wrapping_add(b % 8192) } else { b };
    Request::of(a, b, size, bits, true).check::<true>();
    Request::of(a, b, size, bits, true).check::<false>();
    Request::of(a, b, size, bits, false).check::<false>();
});
