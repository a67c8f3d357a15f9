//! A counter on a handle: all threads add to the same series.

use super::{Plan, time};
use crate::counting::contender::{Contender, Handle};
use crate::record::Record;

/// One contender's turn.
pub fn run<C: Contender>(plan: &Plan) -> Vec<Record> {
    let Some(counter) = C::handle() else { return Vec::new() };
    let add = |_, n| {
        for _ in 0..n {
            counter.inc();
        }
    };
    [1, 2, 4, 8].map(|threads| time::<C>(plan, "handle/add", threads, add)).into()
}
