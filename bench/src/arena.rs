//! Measures the bump allocator, compared to other ones and the heap.
//!
//! Each workload is a file of this module. It is written once for all libraries, using the
//! interface in `library`, and once for the heap. Unless a workload documents a difference, a
//! library's arena lives as long as its case, holds enough room for a round from the start, and is
//! reset where the version for the heap frees. Rounds before the first measured run touch its
//! pages.

mod data;
mod decode;
mod intern;
mod library;
mod push;
mod shared;
mod tree;
mod value;

use crate::counting::version;
use crate::measure::{Case, Options};
use crate::record::Record;
use library::{BlinkAlloc, BumpScopeDown, BumpScopeUp, Bumpalo, Library, QuipuDown, QuipuUp};

pub use intern::resident;

/// A workload's name and the function that measures it.
pub type Workload = (&'static str, fn(&Options) -> Vec<Record>);

/// All workloads.
pub const WORKLOADS: &[Workload] = &[
    ("value", value::run),
    ("push", push::run),
    ("tree", tree::run),
    ("decode", decode::run),
    ("intern", intern::run),
    ("shared", shared::run),
];

/// The name of the heap in records. It is the system allocator, because the benchmark installs no
/// other.
const MALLOC: &str = "malloc";

/// The number of rounds before a subject is measured.
const WARMUP_ROUNDS: usize = 3;

/// The work of one round, for any library. It ends with a reset.
trait Round {
    /// An upper bound on the bytes of all allocations in a round.
    const ROOM: usize;

    /// Does the work.
    fn round<L: Library>(&self, arena: &mut L);
}

/// Adds a subject for each library, whose operation is a round.
fn with_libraries<'a, R: Round>(case: Case<'a>, work: &'a R) -> Case<'a> {
    fn add<'a, L: Library + 'a, R: Round>(case: Case<'a>, work: &'a R) -> Case<'a> {
        let mut arena = L::with_room(R::ROOM);
        for _ in 0..WARMUP_ROUNDS {
            work.round(&mut arena);
        }
        case.exclusive(&L::name(), move |n| {
            for _ in 0..n {
                work.round(&mut arena);
            }
        })
    }
    let case = add::<QuipuUp, R>(case, work);
    let case = add::<QuipuDown, R>(case, work);
    let case = add::<BumpScopeUp, R>(case, work);
    let case = add::<BumpScopeDown, R>(case, work);
    let case = add::<Bumpalo, R>(case, work);
    add::<BlinkAlloc, R>(case, work)
}

/// Converts the times of rounds to the times of their operations.
fn per_operation(operations: usize, mut records: Vec<Record>) -> Vec<Record> {
    for record in &mut records {
        for value in [&mut record.median, &mut record.min, &mut record.max] {
            *value /= operations as f64;
        }
    }
    records
}
