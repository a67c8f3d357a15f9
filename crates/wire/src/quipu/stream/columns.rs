//! The columns of the block that a writer is gathering.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::bits::Column;
use super::header::{Header, seal};
use super::{BATCH_TIMER, COUNTER, GAUGE, MAX_MESSAGES, MAX_VALUES, UNION, lists};
use crate::message::MetricUnion;
use crate::pieces::{Byte, Piece, append};
use crate::quipu::message::union_body;

/// A block is closed once its definitions, lists and unions take this number of bytes.
const HEAVY: usize = 64 << 10;

/// The messages of the next block.
pub(super) struct Columns {
    /// How many more messages the block can hold.
    left: u8,
    counts: [u8; 4],
    definitions_count: u8,
    exceptions_count: u8,
    numbers: [Numbers; 4],
    counter_changes: Numbers,
    gauge_changes: Numbers,
    shapes: [u8; MAX_MESSAGES + 1],
    pub(super) definitions: Vec<u8>,
    exceptions: Vec<u8>,
    lists: Vec<u8>,
    unions: Vec<u8>,
    /// The number of values in lists in the general form.
    values: usize,
}

/// One more than the capacity, because a one-byte index is then always in bounds.
type Numbers = [u64; MAX_MESSAGES + 1];

impl Columns {
    pub(super) fn new() -> Box<Columns> {
        Box::new(Columns {
            left: MAX_MESSAGES as u8,
            counts: [0; 4],
            definitions_count: 0,
            exceptions_count: 0,
            numbers: [[0; MAX_MESSAGES + 1]; 4],
            counter_changes: [0; MAX_MESSAGES + 1],
            gauge_changes: [0; MAX_MESSAGES + 1],
            shapes: [0; MAX_MESSAGES + 1],
            definitions: Vec::new(),
            exceptions: Vec::new(),
            lists: Vec::new(),
            unions: Vec::new(),
            values: 0,
        })
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.counts == [0; 4]
    }

    /// Returns whether the block must be closed.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.left == 0
    }

    /// Returns whether a list of this number of values does not fit into the block.
    #[inline(always)]
    pub(super) fn is_too_short_for(&self, values: usize) -> bool {
        self.values + values > MAX_VALUES
    }

    /// Appends a counter. `change` is the difference from the last value.
    #[inline(always)]
    pub(super) fn counter(&mut self, series: u32, change: u64) {
        let index = self.message(COUNTER, series);
        self.counter_changes[index] = change;
    }

    /// Appends a gauge. `change` is the difference from the last whole number.
    #[inline(always)]
    pub(super) fn gauge(&mut self, series: u32, change: u64) {
        let index = self.message(GAUGE, series);
        self.gauge_changes[index] = change;
    }

    /// Appends a gauge that is written as a number instead of a change.
    pub(super) fn exceptional_gauge(&mut self, series: u32, number: impl Piece) {
        append(&mut self.exceptions, (Byte(self.counts[GAUGE]), number));
        self.exceptions_count += 1;
        self.gauge(series, 0);
    }

    /// Appends a batch timer. If the places of its series are not enough, this changes them.
    #[inline(always)]
    pub(super) fn batch_timer(&mut self, series: u32, values: &[f64], places: &mut u8) {
        let shape = match lists::write_short(values, *places, &mut self.lists) {
            Some(shape) => shape,
            None => self.any_list(values, places),
        };
        let index = self.message(BATCH_TIMER, series);
        self.shapes[index] = shape;
    }

    #[inline(never)]
    fn any_list(&mut self, values: &[f64], places: &mut u8) -> u8 {
        *places = lists::write_any(values, *places, &mut self.lists);
        self.values += values.len();
        self.close_if_heavy();
        *places
    }

    /// Appends a union that cannot be written as a metric.
    pub(super) fn union(&mut self, series: u32, union: &MetricUnion<'_>) {
        append(&mut self.unions, union_body(union));
        self.values += union.timer.len();
        self.close_if_heavy();
        self.message(UNION, series);
    }

    /// Counts an appended definition.
    pub(super) fn count_definition(&mut self) {
        self.definitions_count += 1;
        self.close_if_heavy();
    }

    /// Limits the size: a heavy block is full after the next message.
    fn close_if_heavy(&mut self) {
        if self.definitions.len() + self.lists.len() + self.unions.len() >= HEAVY {
            self.left = 1;
        }
    }

    /// Appends the series number of a message, and returns the index of the message within its
    /// kind.
    #[inline(always)]
    fn message(&mut self, kind: usize, series: u32) -> usize {
        let index = usize::from(self.counts[kind]);
        self.numbers[kind][index] = u64::from(series);
        self.counts[kind] += 1;
        self.left -= 1;
        index
    }

    /// Appends the block to a buffer and begins the next one. Returns the length of the block in
    /// bytes.
    pub(super) fn close(&mut self, sequence: u32, restarts: bool, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        let counts = self.counts;
        let (definitions, exceptions) = (self.definitions_count, self.exceptions_count);
        Header { sequence, restarts, counts, definitions, exceptions }.write(out);
        out.extend_from_slice(&self.definitions);
        let count = |kind: usize| usize::from(counts[kind]);
        for (kind, numbers) in self.numbers.iter().enumerate() {
            append(out, Column(&numbers[..count(kind)]));
        }
        append(out, Column(&self.counter_changes[..count(COUNTER)]));
        append(out, Column(&self.gauge_changes[..count(GAUGE)]));
        out.extend_from_slice(&self.shapes[..count(BATCH_TIMER)]);
        for bytes in [&self.exceptions, &self.lists, &self.unions] {
            out.extend_from_slice(bytes);
        }
        seal(&mut out[start..]);
        self.left = MAX_MESSAGES as u8;
        (self.counts, self.definitions_count, self.exceptions_count) = ([0; 4], 0, 0);
        for bytes in
            [&mut self.definitions, &mut self.exceptions, &mut self.lists, &mut self.unions]
        {
            bytes.clear();
        }
        self.values = 0;
        out.len() - start
    }
}
