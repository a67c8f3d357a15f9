//! The protobuf format: messages `io.prometheus.client.MetricFamily` (`prometheus/client_model`,
//! `metrics.proto`), each prefixed with its length. Unlike the older line-based formats, this
//! format can represent native histograms and start times.

use super::escape::{self, Escaping};
use super::page::{FamilyCheck, Relation, is_exemplar};
use crate::snapshot::{
    CounterValue, Exemplar, FamilyHeader, HistogramValue, Kind, Native, Series, SummaryValue,
    Timestamp, Value,
};

/// Writes one message per family. The message of the current family is buffered, because its length
/// precedes it.
#[derive(Debug, Default)]
pub(super) struct Protobuf {
    escaping: Escaping,
    is_begun: bool,
    family: Vec<u8>,
}

/// Field numbers.
mod field {
    pub(super) mod family {
        pub(in super::super) const NAME: u32 = 1;
        pub(in super::super) const HELP: u32 = 2;
        pub(in super::super) const TYPE: u32 = 3;
        pub(in super::super) const METRIC: u32 = 4;
        pub(in super::super) const UNIT: u32 = 5;
    }
    pub(super) mod metric {
        pub(in super::super) const LABEL: u32 = 1;
        pub(in super::super) const GAUGE: u32 = 2;
        pub(in super::super) const COUNTER: u32 = 3;
        pub(in super::super) const SUMMARY: u32 = 4;
        pub(in super::super) const UNTYPED: u32 = 5;
        pub(in super::super) const HISTOGRAM: u32 = 7;
    }
    pub(super) mod histogram {
        pub(in super::super) const COUNT: u32 = 1;
        pub(in super::super) const SUM: u32 = 2;
        pub(in super::super) const BUCKET: u32 = 3;
        pub(in super::super) const SCHEMA: u32 = 5;
        pub(in super::super) const ZERO_THRESHOLD: u32 = 6;
        pub(in super::super) const ZERO_COUNT: u32 = 7;
        pub(in super::super) const NEGATIVE_SPAN: u32 = 9;
        pub(in super::super) const NEGATIVE_DELTA: u32 = 10;
        pub(in super::super) const POSITIVE_SPAN: u32 = 12;
        pub(in super::super) const POSITIVE_DELTA: u32 = 13;
        pub(in super::super) const CREATED: u32 = 15;
        pub(in super::super) const EXEMPLARS: u32 = 16;
    }
}

/// Values of `MetricType`.
const COUNTER: u64 = 0;
const GAUGE: u64 = 1;
const SUMMARY: u64 = 2;
const UNTYPED: u64 = 3;
const HISTOGRAM: u64 = 4;

impl Protobuf {
    pub(super) fn reset(&mut self, escaping: Escaping) {
        self.escaping = escaping;
        self.is_begun = false;
        self.family.clear();
    }

    pub(super) fn family(
        &mut self,
        family: &FamilyHeader<'_>,
        relation: Relation,
        checked: &FamilyCheck,
        out: &mut Vec<u8>,
    ) {
        if self.is_begun && relation == Relation::Same {
            // Another variant of the same metric.
            return;
        }
        self.finish(out);
        let suffix = match family.kind {
            Kind::Counter if family.bare => "",
            Kind::Counter => "_total",
            Kind::Info => "_info",
            _ => "",
        };
        let (message, escaping) = (&mut self.family, self.escaping);
        put_message(field::family::NAME, message, |name| {
            escape::put_metric_name(family.name, suffix, escaping, name);
        });
        if !family.help.is_empty() {
            put_bytes(field::family::HELP, family.help.as_bytes(), message);
        }
        let kind = match family.kind {
            Kind::Counter => COUNTER,
            Kind::Gauge | Kind::Info | Kind::StateSet => GAUGE,
            Kind::Summary => SUMMARY,
            Kind::Histogram => HISTOGRAM,
            Kind::Unknown => UNTYPED,
        };
        put_varint_field(field::family::TYPE, kind, message);
        if checked.has_unit {
            put_bytes(field::family::UNIT, family.unit.as_bytes(), message);
        }
    }

    pub(super) fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        self.is_begun = true;
        let escaping = self.escaping;
        let message = &mut self.family;
        if let Value::StateSet(states) = &series.value {
            for (state, is_on) in *states {
                put_message(field::family::METRIC, message, |metric| {
                    put_labels(family, series, escaping, metric);
                    put_label(family.name, state, escaping, metric);
                    put_message(field::metric::GAUGE, metric, |gauge| {
                        put_double(1, f64::from(u8::from(*is_on)), gauge);
                    });
                });
            }
            return;
        }
        put_message(field::family::METRIC, message, |metric| {
            put_labels(family, series, escaping, metric);
            match &series.value {
                Value::Counter(CounterValue { total, exemplar }) => {
                    put_message(field::metric::COUNTER, metric, |counter| {
                        put_double(1, total.as_f64(), counter);
                        if let Some(exemplar) = exemplar {
                            put_exemplar(2, exemplar, escaping, counter);
                        }
                        put_time(3, series.start, counter);
                    });
                }
                Value::Gauge(value) => {
                    let put = |gauge: &mut Vec<u8>| put_double(1, value.as_f64(), gauge);
                    put_message(field::metric::GAUGE, metric, put);
                }
                Value::Unknown(value) => {
                    let put = |untyped: &mut Vec<u8>| put_double(1, value.as_f64(), untyped);
                    put_message(field::metric::UNTYPED, metric, put);
                }
                Value::Info => {
                    put_message(field::metric::GAUGE, metric, |gauge| put_double(1, 1.0, gauge));
                }
                Value::Summary(SummaryValue { quantiles, count, sum }) => {
                    put_message(field::metric::SUMMARY, metric, |summary| {
                        put_varint_field(1, *count, summary);
                        put_double(2, *sum, summary);
                        for (quantile, value) in *quantiles {
                            put_message(3, summary, |pair| {
                                put_double(1, *quantile, pair);
                                put_double(2, *value, pair);
                            });
                        }
                        put_time(4, series.start, summary);
                    });
                }
                Value::Histogram(histogram) => {
                    put_message(field::metric::HISTOGRAM, metric, |message| {
                        put_histogram(histogram, series, escaping, message);
                    });
                }
                Value::StateSet(_) => {}
            }
        });
    }

    /// Returns the number of bytes of the current family.
    pub(super) fn pending(&self) -> usize {
        self.family.len()
    }

    /// Writes the current family, if it contains any series.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.is_begun) {
            put_varint(self.family.len() as u64, out);
            out.extend_from_slice(&self.family);
        }
        self.family.clear();
    }
}

/// Returns the spans of the format: runs of buckets without gaps. Each span consists of the
/// distance from the end of the previous span (for the first one, from index 0), and the number of
/// buckets.
pub(super) fn spans(buckets: &[(i32, u64)]) -> impl Iterator<Item = (i32, u32)> + '_ {
    let mut rest = buckets;
    let mut end = 0;
    std::iter::from_fn(move || {
        let (first, _) = *rest.first()?;
        let length = rest.windows(2).take_while(|pair| pair[1].0 == pair[0].0 + 1).count() + 1;
        rest = &rest[length..];
        // There are fewer buckets than indices.
        let length = length as u32;
        let offset = first - end;
        end = first + length.cast_signed();
        Some((offset, length))
    })
}

fn put_histogram(
    histogram: &HistogramValue<'_>,
    series: &Series<'_>,
    escaping: Escaping,
    out: &mut Vec<u8>,
) {
    put_varint_field(field::histogram::COUNT, histogram.count, out);
    put_double(field::histogram::SUM, histogram.sum, out);
    let mut count = 0_u64;
    for bucket in histogram.buckets {
        count = count.saturating_add(bucket.count);
        put_message(field::histogram::BUCKET, out, |message| {
            put_varint_field(1, count, message);
            put_double(2, bucket.bound, message);
            if let Some(exemplar) = &bucket.exemplar {
                put_exemplar(3, exemplar, escaping, message);
            }
        });
    }
    if let Some(native) = &histogram.native {
        put_native(native, escaping, out);
    }
    put_time(field::histogram::CREATED, series.start, out);
}

fn put_native(native: &Native<'_>, escaping: Escaping, out: &mut Vec<u8>) {
    put_varint_field(field::histogram::SCHEMA, zigzag(native.schema.into()), out);
    put_double(field::histogram::ZERO_THRESHOLD, native.zero_threshold, out);
    put_varint_field(field::histogram::ZERO_COUNT, native.zero_count, out);
    let sides = [
        (field::histogram::NEGATIVE_SPAN, field::histogram::NEGATIVE_DELTA, native.negative),
        (field::histogram::POSITIVE_SPAN, field::histogram::POSITIVE_DELTA, native.positive),
    ];
    for (span, delta, buckets) in sides {
        for (offset, length) in spans(buckets) {
            put_message(span, out, |message| {
                put_varint_field(1, zigzag(offset.into()), message);
                put_varint_field(2, length.into(), message);
            });
        }
        if !buckets.is_empty() {
            put_message(delta, out, |message| {
                let mut before = 0_u64;
                for (_, count) in buckets {
                    put_varint(zigzag(count.wrapping_sub(before).cast_signed()), message);
                    before = *count;
                }
            });
        }
    }
    if native.positive.is_empty() && native.negative.is_empty() {
        // A span without buckets distinguishes a native histogram without observations from a
        // classic one.
        put_message(field::histogram::POSITIVE_SPAN, out, |message| {
            put_varint_field(1, 0, message);
            put_varint_field(2, 0, message);
        });
    }
    for exemplar in native.exemplars {
        put_exemplar(field::histogram::EXEMPLARS, exemplar, escaping, out);
    }
}

fn put_labels(
    family: &FamilyHeader<'_>,
    series: &Series<'_>,
    escaping: Escaping,
    out: &mut Vec<u8>,
) {
    if series.overflow {
        return put_label("quipu_overflow", series.overflow_value(), Escaping::AllowUtf8, out);
    }
    for (name, value) in family.fixed(series.group) {
        put_label(name, value, escaping, out);
    }
    for (name, value) in family.dynamic().zip(series.texts) {
        put_label(name, value, escaping, out);
    }
}

fn put_label(name: &str, value: &str, escaping: Escaping, out: &mut Vec<u8>) {
    put_message(field::metric::LABEL, out, |pair| {
        put_message(1, pair, |text| escape::put_label_name(name, escaping, text));
        put_bytes(2, value.as_bytes(), pair);
    });
}

fn put_exemplar(number: u32, exemplar: &Exemplar<'_>, escaping: Escaping, out: &mut Vec<u8>) {
    if !is_exemplar(exemplar, escaping) {
        return;
    }
    put_message(number, out, |message| {
        let mut texts = exemplar.labels;
        while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
            put_label(name, value, escaping, message);
        }
        put_double(2, exemplar.value, message);
        put_time(3, exemplar.time, message);
    });
}

fn put_time(number: u32, time: Option<Timestamp>, out: &mut Vec<u8>) {
    let Some(nanos) = time.map(Timestamp::as_nanos) else { return };
    put_message(number, out, |message| {
        put_varint_field(1, nanos / 1_000_000_000, message);
        put_varint_field(2, nanos % 1_000_000_000, message);
    });
}

fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)).cast_unsigned()
}

fn put_varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        // The lowest seven bits.
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn put_varint_field(number: u32, n: u64, out: &mut Vec<u8>) {
    put_varint(u64::from(number << 3), out);
    put_varint(n, out);
}

fn put_double(number: u32, n: f64, out: &mut Vec<u8>) {
    put_varint(u64::from(number << 3 | 1), out);
    out.extend_from_slice(&n.to_le_bytes());
}

fn put_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(u64::from(number << 3 | 2), out);
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Writes a message with its length in front. Because the length is only known afterwards, the
/// message is moved if the length takes more than one byte.
fn put_message(number: u32, out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    put_varint(u64::from(number << 3 | 2), out);
    let start = out.len();
    // Most messages are shorter than 128 bytes.
    out.push(0);
    put(out);
    let length = out.len() - start - 1;
    if length < 0x80 {
        out[start] = length as u8;
        return;
    }
    let mut prefix = [0; 10];
    let mut rest = length as u64;
    let mut count = 0;
    while rest >= 0x80 {
        prefix[count] = rest as u8 | 0x80;
        rest >>= 7;
        count += 1;
    }
    prefix[count] = rest as u8;
    out.extend_from_slice(&prefix[..count]);
    out.copy_within(start + 1..start + 1 + length, start + 1 + count);
    out[start..=start + count].copy_from_slice(&prefix[..=count]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_lengths_are_encoded() {
        let all: Vec<_> = spans(&[(-3, 1), (-2, 4), (1, 1), (2, 1), (3, 1), (10, 2)]).collect();
        assert_eq!(all, [(-3, 2), (2, 3), (6, 1)]);
        for length in [0_usize, 1, 127, 128, 129, 16_383, 16_384, 3_000_000] {
            let mut out = vec![9];
            put_message(1, &mut out, |message| message.resize(message.len() + length, 7));
            let mut expected = vec![9, 10];
            put_varint(length as u64, &mut expected);
            expected.resize(expected.len() + length, 7);
            assert_eq!(out, expected);
        }
    }
}
