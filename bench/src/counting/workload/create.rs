//! Families of ten series with three labels, in one registry: the time of a series, with its share
//! of the family.

use std::time::Instant;

use super::{Plan, count, label};
use crate::counting::contender::Contender;
use crate::counting::data::Keys;
use crate::measure::{black_box, on_core};
use crate::record::Record;

/// The series of a family.
const SERIES: usize = 10;

/// One contender's turn.
pub fn run<C: Contender>(plan: &Plan) -> Vec<Record> {
    let families = plan.series(10_000);
    let names: Vec<&str> =
        (0..families).map(|number| &*format!("service_errors_{number:05}").leak()).collect();
    let keys = Keys::new(0..SERIES);
    let time = on_core(0, || {
        // The first family pays for everything that the library needs only once.
        std::mem::forget(C::families(&names[..1], &keys)?);
        let start = Instant::now();
        let made = black_box(C::families(&names, &keys));
        let elapsed = start.elapsed();
        std::mem::forget(made);
        Some(elapsed.as_nanos() as f64 / (families * SERIES) as f64)
    });
    let case = format!("create/{} families of {SERIES}", count(families));
    time.map(|time| label::<C>(&case, "time", "ns").of(&[time])).into_iter().collect()
}
