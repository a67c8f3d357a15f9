//! Single values: a `u32`, and a copy of a label of 23 bytes; 10,000 of them, then a reset.
//!
//! The heap frees each value immediately, which is its best case, because the next one gets the
//! same block. `kept` collects them in an existing vector, and frees them when the others are
//! reset.

use super::library::Library;
use super::{MALLOC, Round, per_operation, with_libraries};
use crate::measure::{Case, Options, black_box};
use crate::record::Record;

/// The number of values between two resets.
const VALUES: usize = 10_000;

const LABEL: &str = "name=pikachu,type=magic";

pub(super) fn run(options: &Options) -> Vec<Record> {
    assert_eq!(LABEL.len(), 23);
    let mut kept = Vec::with_capacity(VALUES);
    let mut records = with_libraries(Case::new("arena/u32"), &Words)
        .exclusive(MALLOC, |n| {
            for value in 0..n * VALUES as u64 {
                black_box(Box::new(black_box(value as u32)));
            }
        })
        .exclusive("malloc (kept)", |n| {
            for _ in 0..n {
                kept.extend((0..VALUES as u32).map(|value| Box::new(black_box(value))));
                black_box(&kept);
                kept.clear();
            }
        })
        .run(options);
    let mut kept: Vec<Box<str>> = Vec::with_capacity(VALUES);
    records.extend(
        with_libraries(Case::new("arena/label of 23 bytes"), &Labels)
            .exclusive(MALLOC, |n| {
                for _ in 0..n * VALUES as u64 {
                    black_box(Box::<str>::from(black_box(LABEL)));
                }
            })
            .exclusive("malloc (kept)", |n| {
                for _ in 0..n {
                    kept.extend((0..VALUES).map(|_| Box::from(black_box(LABEL))));
                    black_box(&kept);
                    kept.clear();
                }
            })
            .run(options),
    );
    per_operation(VALUES, records)
}

struct Words;

impl Round for Words {
    const ROOM: usize = 8 * VALUES;

    fn round<L: Library>(&self, arena: &mut L) {
        for value in 0..VALUES as u32 {
            black_box(arena.value(black_box(value)));
        }
        arena.reset();
    }
}

struct Labels;

impl Round for Labels {
    const ROOM: usize = 32 * VALUES;

    fn round<L: Library>(&self, arena: &mut L) {
        for _ in 0..VALUES {
            black_box(arena.text(black_box(LABEL)));
        }
        arena.reset();
    }
}
