//! Tests with a compiler: see `tests/programs.rs`. They are a package of their own, since trybuild
//! builds all dependencies of its package once more.
