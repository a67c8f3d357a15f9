//! Small functions of bump allocators, whose instructions callgrind counts.
//!
//! All libraries share the source of each case. Its body is a function that is never inlined, with
//! its own symbol: `entry_CASE_LIBRARY`. A second function does the setup, and calls it through a
//! pointer with arguments that the compiler does not know. Only the instructions between entering
//! and leaving the entry function are counted.
//!
//! The cases are those of the table that bump-scope publishes, so the columns are comparable.

pub mod libraries;

mod cases;

pub use cases::*;
