//! Small functions of bump allocators, whose instructions callgrind counts.
//!
//! Each case is one source for all libraries. Its body is a function that is never inlined, under a
//! symbol of its own: `entry_CASE_LIBRARY`. A second function sets up, and calls it through a
//! pointer with arguments that the compiler does not know; only what happens between entering and
//! leaving the entry function is counted.
//!
//! The cases are those of the table that bump-scope publishes, so that the columns can be compared.

pub mod libraries;

mod cases;

pub use cases::*;
