//! Small functions whose instructions callgrind counts.
//!
//! A cell is a function that is never inlined, with its own symbol, `entry_NAME`, and its setup.
//! The setup calls this function with arguments that the compiler cannot know. Only the
//! instructions between entering and leaving the entry function are counted. To add one, you write
//! a `cell!` and list its name.
//!
//! - `arena`: the cases of the table that bump-scope publishes, for quipu's arenas and their peers.
//! - `counting`: the hottest operations of quipu, each repeated over some inputs.
//! - `rseq`: makes the library take the path of restartable sequences, because valgrind lacks them.

pub mod arena;
pub mod counting;
pub mod rseq;

/// A cell: its name, the number of operations of its entry function, and its setup, which calls the
/// entry function once.
pub struct Cell {
    /// The name, `CASE` or `CASE-LIBRARY`.
    pub name: String,
    /// The operations of one run.
    pub operations: u64,
    /// Sets up, and calls the entry function once.
    pub run: fn(),
}
