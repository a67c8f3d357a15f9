//! The memory of a million series: the bytes requested from the allocator, and the resident pages
//! of the process. The resident pages are decisive, because they include the allocator's overhead,
//! and mappings made without the allocator.

use super::{Plan, count, fill, label};
use crate::counting::contender::Contender;
use crate::counting::data::Keys;
use crate::memory::{OnDemand, resident_bytes};
use crate::record::Record;

/// One contender's turn.
pub fn run<C: Contender>(plan: &Plan) -> Vec<Record> {
    let series = plan.series(1_000_000);
    let keys = Keys::new(0..series);
    OnDemand::count(true);
    let (heap, resident) = (OnDemand::live_bytes(), resident_bytes());
    let Some(family) = C::by_user() else { return Vec::new() };
    fill(&family, &keys);
    let heap = OnDemand::live_bytes() - heap;
    let resident = resident_bytes() - resident;
    OnDemand::count(false);
    std::mem::forget(family);
    let case = format!("memory/{} series", count(series));
    let of_a_series = |bytes: i64| bytes as f64 / series as f64;
    vec![
        label::<C>(&case, "resident", "B").of(&[of_a_series(resident)]),
        label::<C>(&case, "heap", "B").of(&[of_a_series(heap)]),
    ]
}
