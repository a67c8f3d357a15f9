//! Counters by an enum and a string that is known in advance: 18 series, in random order.

use super::{Plan, each, time};
use crate::counting::contender::{ByRoute, Contender};
use crate::counting::data;
use crate::record::Record;

/// One contender's turn.
pub fn run<C: Contender>(plan: &Plan) -> Vec<Record> {
    let Some(family) = C::by_route() else { return Vec::new() };
    let inputs = [1, 2].map(data::pairs);
    let add = |thread: usize, n| {
        each(&inputs[thread], n, |(kind, route)| family.inc(kind, route));
    };
    [1, 2].map(|threads| time::<C>(plan, "enum and known text/add", threads, add)).into()
}
