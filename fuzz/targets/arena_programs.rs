//! Runs arbitrary bytes as a sequence of operations on an arena, and compares this arena with a
//! shadow model.
//!
//! The first byte selects the policy: direction, minimum alignment, and the effect of shrinking.

#![no_main]

#[path = "../fixed_seed.rs"]
mod fixed_seed;

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/arena/tests/model/mod.rs"]
mod model;

fuzz_target!(|program: &[u8]| model::run(program));
