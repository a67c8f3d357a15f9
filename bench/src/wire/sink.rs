//! Consumers of the messages that were read.

use std::hash::{DefaultHasher, Hash, Hasher};

use quipu_wire::{Message, MetricType};

/// A consumer of messages in any form, because the libraries share no structure.
pub(super) trait Sink {
    /// Consumes a counter.
    fn counter(&mut self, id: &[u8], value: i64);

    /// Consumes a batch timer.
    fn batch_timer(&mut self, id: &[u8], values: impl ExactSizeIterator<Item = f64>);

    /// Consumes a gauge.
    fn gauge(&mut self, id: &[u8], value: f64);

    /// Consumes a union.
    fn union(
        &mut self,
        metric_type: i8,
        id: &[u8],
        counter: i64,
        timer: impl ExactSizeIterator<Item = f64>,
        gauge: f64,
    );

    /// Consumes a message of quipu.
    #[inline(always)]
    fn message(&mut self, message: Message<'_>) {
        match message {
            Message::Counter(message) => self.counter(message.id, message.value),
            Message::BatchTimer(message) => {
                self.batch_timer(message.id, message.values.iter().copied());
            }
            Message::Gauge(message) => self.gauge(message.id, message.value),
            Message::MetricUnion(message) => self.union(
                message.metric_type.0,
                message.id,
                message.counter,
                message.timer.iter().copied(),
                message.gauge,
            ),
        }
    }
}

/// A model of a server's work on a message: it reads the id and all values.
#[derive(Default)]
pub(super) struct Used(pub(super) u64);

impl Used {
    #[inline(always)]
    fn id(&mut self, id: &[u8]) {
        let ends = id.first().zip(id.last()).map_or(0, |(first, last)| first ^ last);
        self.0 ^= u64::from(ends);
    }

    #[inline(always)]
    fn values(&mut self, values: impl Iterator<Item = f64>) {
        self.0 = values.fold(self.0, |all, value| all ^ value.to_bits());
    }
}

impl Sink for Used {
    #[inline(always)]
    fn counter(&mut self, id: &[u8], value: i64) {
        self.id(id);
        self.0 ^= value as u64;
    }

    #[inline(always)]
    fn batch_timer(&mut self, id: &[u8], values: impl ExactSizeIterator<Item = f64>) {
        self.id(id);
        self.values(values);
    }

    #[inline(always)]
    fn gauge(&mut self, id: &[u8], value: f64) {
        self.id(id);
        self.0 ^= value.to_bits();
    }

    #[inline(always)]
    fn union(
        &mut self,
        metric_type: i8,
        id: &[u8],
        counter: i64,
        timer: impl ExactSizeIterator<Item = f64>,
        gauge: f64,
    ) {
        self.id(id);
        self.values(timer);
        self.0 ^= metric_type as u64 ^ counter as u64 ^ gauge.to_bits();
    }
}

/// Hashes of the contents of messages, to compare two ways of reading. There is one for each kind,
/// because a stream of quipu keeps the order of the messages of a kind, but not between kinds. A
/// union has the same hash as the metric that it holds.
#[derive(Default)]
pub(super) struct Seen {
    hashers: [DefaultHasher; 4],
    messages: u64,
}

impl Seen {
    /// The number of messages, and their hashes.
    pub(super) fn finish(self) -> (u64, [u64; 4]) {
        (self.messages, self.hashers.map(|hasher| hasher.finish()))
    }
}

impl Sink for Seen {
    fn counter(&mut self, id: &[u8], value: i64) {
        self.union(MetricType::COUNTER.0, id, value, [].into_iter(), 0.0);
    }

    fn batch_timer(&mut self, id: &[u8], values: impl ExactSizeIterator<Item = f64>) {
        self.union(MetricType::BATCH_TIMER.0, id, 0, values, 0.0);
    }

    fn gauge(&mut self, id: &[u8], value: f64) {
        self.union(MetricType::GAUGE.0, id, 0, [].into_iter(), value);
    }

    fn union(
        &mut self,
        metric_type: i8,
        id: &[u8],
        counter: i64,
        timer: impl ExactSizeIterator<Item = f64>,
        gauge: f64,
    ) {
        self.messages += 1;
        let hasher = &mut self.hashers[usize::from(metric_type.cast_unsigned()) % 4];
        (metric_type, id, counter, timer.len(), gauge.to_bits()).hash(hasher);
        timer.for_each(|value| value.to_bits().hash(hasher));
    }
}
