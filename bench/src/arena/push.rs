//! A vector that grows from empty by 10,000 pushes, and is freed. There are no other allocations
//! during this growth, so an arena can let it grow in place.

use super::library::{Library, Vector};
use super::{MALLOC, Round, per_operation, with_libraries};
use crate::measure::{Case, Options, black_box};
use crate::record::Record;

/// The number of pushes into a vector.
const PUSHES: usize = 10_000;

pub(super) fn run(options: &Options) -> Vec<Record> {
    let mut records = of::<u8>("arena/push u8", options);
    records.extend(of::<u64>("arena/push u64", options));
    records
}

fn of<T: Number>(name: &str, options: &Options) -> Vec<Record> {
    let values = Values((0..PUSHES).map(T::of).collect());
    let records = with_libraries(Case::new(name), &values)
        .each(MALLOC, || {
            let mut vector = Vec::new();
            for value in black_box(values.0.as_slice()) {
                vector.push(*value);
            }
            black_box(vector.as_slice());
        })
        .run(options);
    per_operation(PUSHES, records)
}

/// The values to push.
struct Values<T>(Vec<T>);

impl<T: Number> Round for Values<T> {
    // A vector that does not grow in place leaves its smaller blocks in the arena.
    const ROOM: usize = 8 * size_of::<T>() * PUSHES;

    fn round<L: Library>(&self, arena: &mut L) {
        let mut vector = arena.vector(0);
        for value in black_box(self.0.as_slice()) {
            vector.push(*value);
        }
        black_box(vector.finish());
        arena.reset();
    }
}

trait Number: Copy + Sync {
    fn of(index: usize) -> Self;
}

impl Number for u8 {
    fn of(index: usize) -> u8 {
        index as u8
    }
}

impl Number for u64 {
    fn of(index: usize) -> u64 {
        index as u64
    }
}
