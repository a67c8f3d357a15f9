//! Runs any bytes as a program of operations on an arena, beside a shadow model.
//!
//! The first byte says the policy: direction, minimum alignment, what a shrink does.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/arena/tests/model/mod.rs"]
mod model;

fuzz_target!(|program: &[u8]| model::run(program));
