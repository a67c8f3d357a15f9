//! Generates a stream like in a monitored system, the same in each run.
//!
//! 10,000 ids are used in proportion to 1/rank (Zipf, exponent 1). Each id is of a fixed kind: a
//! third are counters that grow by 0 to 499 from message to message; a third are gauges, half of
//! them random walks with two decimals and half ratios with three or four; and a third are batch
//! timers of three to seven latencies in milliseconds with three decimals, from a log-normal
//! distribution. An id is a string of 38 to 60 bytes.

use std::collections::HashSet;

use quipu_wire::{BatchTimer, Counter, Gauge, Message};

use super::contender::Block;

/// The kinds of messages in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    /// All three kinds, as unions.
    All,
    /// Only counters.
    Counters,
    /// Only gauges.
    Gauges,
    /// Only batch timers.
    BatchTimers,
}

impl Mix {
    /// Returns the name of the mix in the labels.
    pub(super) fn name(self) -> &'static str {
        match self {
            Mix::All => "stream/mixed",
            Mix::Counters => "stream/counters",
            Mix::Gauges => "stream/gauges",
            Mix::BatchTimers => "stream/timers",
        }
    }
}

/// The number of ids.
const IDS: usize = 10_000;

/// The number of messages in a block.
const BLOCK: usize = 1_000;

/// All messages of a stream.
pub(super) struct Stream {
    mix: Mix,
    ids: Vec<String>,
    entries: Vec<Entry>,
    /// The values of all batch timers, concatenated.
    values: Vec<f64>,
}

struct Entry {
    id: u32,
    value: Value,
}

enum Value {
    Counter(i64),
    Gauge(f64),
    /// The start and end in the values of all batch timers.
    BatchTimer(u32, u32),
}

impl Stream {
    /// Makes a stream of this number of messages.
    pub(super) fn new(mix: Mix, messages: usize) -> Stream {
        let mut random = Random(88_172_645_463_325_252);
        let kinds: Vec<Mix> = (0..IDS)
            .map(|rank| match mix {
                Mix::All => [Mix::Counters, Mix::Gauges, Mix::BatchTimers][rank % 3],
                alone => alone,
            })
            .collect();
        let ids = ids(&kinds, &mut random);
        let mut series: Vec<Series> =
            kinds.iter().map(|kind| Series::new(*kind, &mut random)).collect();
        let ranks = ranks();
        let mut values = Vec::new();
        let entries = (0..messages)
            .map(|_| {
                let draw = random.unit();
                let id = ranks.partition_point(|below| *below <= draw).min(IDS - 1);
                Entry { id: id as u32, value: series[id].next(&mut random, &mut values) }
            })
            .collect();
        Stream { mix, ids, entries, values }
    }

    /// The number of messages.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Calls `with` for each block of messages.
    pub(super) fn each_block<'m>(&'m self, mut with: impl FnMut(&Block<'m>)) {
        let mut block = Block { messages: Vec::new(), numbers: Vec::new() };
        for entries in self.entries.chunks(BLOCK) {
            block.messages.clear();
            block.messages.extend(entries.iter().map(|entry| self.message(entry)));
            block.numbers.clear();
            block.numbers.extend(entries.iter().map(|entry| entry.id));
            with(&block);
        }
    }

    fn message(&self, entry: &Entry) -> Message<'_> {
        let id = self.ids[entry.id as usize].as_bytes();
        let message: Message<'_> = match entry.value {
            Value::Counter(value) => Counter { id, value }.into(),
            Value::Gauge(value) => Gauge { id, value }.into(),
            Value::BatchTimer(from, to) => {
                BatchTimer { id, values: &self.values[from as usize..to as usize] }.into()
            }
        };
        match self.mix {
            Mix::All => message.to_union().into(),
            _ => message,
        }
    }
}

/// The state that generates an id's next value.
enum Series {
    Counter(i64),
    /// A walk in hundredths.
    Walk(i64),
    /// A ratio in steps, and the number of steps that make 1.
    Ratio(i64, i64),
    /// The logarithm of the median latency, in ms.
    Latency(f64),
}

impl Series {
    fn new(kind: Mix, random: &mut Random) -> Series {
        match kind {
            Mix::Counters | Mix::All => Series::Counter(random.below(1_000_000) as i64),
            Mix::Gauges => match random.below(4) {
                0 => Series::Ratio(random.below(1_001) as i64, 1_000),
                1 => Series::Ratio(random.below(10_001) as i64, 10_000),
                _ => Series::Walk(random.below(100_000) as i64),
            },
            Mix::BatchTimers => Series::Latency((1.0 + 99.0 * random.unit()).ln()),
        }
    }

    fn next(&mut self, random: &mut Random, values: &mut Vec<f64>) -> Value {
        match self {
            Series::Counter(value) => {
                *value += random.below(500) as i64;
                Value::Counter(*value)
            }
            Series::Walk(hundredths) => {
                *hundredths += random.below(1_001) as i64 - 500;
                Value::Gauge(*hundredths as f64 / 100.0)
            }
            Series::Ratio(steps, one) => {
                let step = random.below((*one / 10 + 1) as u64) as i64 - *one / 20;
                *steps = (*steps + step).clamp(0, *one);
                Value::Gauge(*steps as f64 / *one as f64)
            }
            Series::Latency(usual) => {
                let from = values.len() as u32;
                for _ in 0..3 + random.below(5) {
                    let millis = (*usual + 0.5 * random.normal()).exp();
                    values.push((millis * 1_000.0).round() / 1_000.0);
                }
                Value::BatchTimer(from, values.len() as u32)
            }
        }
    }
}

/// The cumulative probabilities of the ranks, from 0 to 1.
fn ranks() -> Vec<f64> {
    let total: f64 = (1..=IDS).map(|rank| 1.0 / rank as f64).sum();
    let mut below = 0.0;
    let share = |rank: usize| {
        below += 1.0 / rank as f64 / total;
        below
    };
    (1..=IDS).map(share).collect()
}

/// A unique id for each kind.
fn ids(kinds: &[Mix], random: &mut Random) -> Vec<String> {
    let mut known = HashSet::new();
    let mut next = |kind: &Mix| loop {
        let names = match kind {
            Mix::Counters | Mix::All => COUNTERS,
            Mix::Gauges => GAUGES,
            Mix::BatchTimers => TIMERS,
        };
        let (name, service) = (random.of(names), random.of(SERVICES));
        let (number, method) = (random.below(60), random.of(METHODS));
        let id = format!("name={name},service={service}-{number},method={method}");
        let id = if random.below(2) == 0 { id } else { format!("{id},zone={}", random.below(10)) };
        if (38..=60).contains(&id.len()) && known.insert(id.clone()) {
            return id;
        }
    };
    kinds.iter().map(&mut next).collect()
}

const COUNTERS: &[&str] = &[
    "http_requests_total",
    "errors_total",
    "cache_hits_total",
    "bytes_sent_total",
    "rows_read_total",
    "retries_total",
];
const GAUGES: &[&str] =
    &["queue_length", "cache_hit_ratio", "load_average", "heap_in_use_mb", "pool_usage"];
const TIMERS: &[&str] =
    &["request_ms", "query_duration_ms", "commit_ms", "dns_lookup_ms", "render_ms", "gc_pause_ms"];
const SERVICES: &[&str] =
    &["api", "auth", "billing", "search", "frontend", "mailer", "orders", "media"];
const METHODS: &[&str] = &["get", "put", "post", "head", "delete"];

/// A xorshift generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The low bits of a xorshift are weak.
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// An approximately normal number around 0: the sum of twelve uniform ones.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    fn of<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[self.below(texts.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_stream_is_as_described() {
        let stream = Stream::new(Mix::All, 100_000);
        assert_eq!(stream.ids.iter().collect::<HashSet<_>>().len(), IDS);
        assert!(stream.ids.iter().all(|id| (38..=60).contains(&id.len())));
        let mut uses = HashMap::new();
        let mut kinds = [0; 3];
        let mut last = HashMap::new();
        for entry in &stream.entries {
            *uses.entry(entry.id).or_insert(0) += 1;
            match entry.value {
                Value::Counter(value) => {
                    kinds[0] += 1;
                    let before = last.insert(entry.id, value).unwrap_or(value);
                    assert!((before..before + 500).contains(&value));
                }
                Value::Gauge(value) => {
                    kinds[1] += 1;
                    assert!(((value * 1e4).round() / 1e4).to_bits() == value.to_bits());
                }
                Value::BatchTimer(from, to) => {
                    kinds[2] += 1;
                    let values = &stream.values[from as usize..to as usize];
                    assert!((3..=7).contains(&values.len()));
                    assert!(values.iter().all(|ms| *ms > 0.0 && *ms < 3_000.0));
                }
            }
        }
        // The first of 10,000 ids gets a tenth of the uses, and the tenth id a hundredth.
        assert!((9_800..10_700).contains(&uses[&0]), "{}", uses[&0]);
        assert!((900..1_200).contains(&uses[&9]), "{}", uses[&9]);
        assert!(kinds.iter().all(|count| *count > 25_000), "{kinds:?}");
    }

    #[test]
    fn blocks_have_all_messages_in_order() {
        let stream = Stream::new(Mix::BatchTimers, 2_500);
        let mut sizes = Vec::new();
        stream.each_block(|block| {
            let ids = block.numbers.iter().map(|number| stream.ids[*number as usize].as_bytes());
            assert!(block.messages.iter().map(Message::id).eq(ids));
            sizes.push(block.messages.len());
        });
        assert_eq!((sizes, stream.len()), (vec![1_000, 1_000, 500], 2_500));
    }
}
