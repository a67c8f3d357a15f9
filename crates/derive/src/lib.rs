//! Derive macros of quipu.
