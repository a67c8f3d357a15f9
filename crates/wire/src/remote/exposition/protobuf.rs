//! Prometheus' protobuf format: messages `io.prometheus.client.MetricFamily` (`metrics.proto` of
//! `prometheus/client_model`), each prefixed with its length.

use super::family::Family;
use super::store::{ExemplarSlot, Form, Full, MetricSlot, NativeSlot, PointSlot, Span, Store};
use super::{FamilyType, Limits};
use crate::error::{Error, Fault};
use crate::protobuf::{bytes, double};
use crate::reader::Reader;
use crate::remote::buckets::{Side, signed};
use crate::remote::fields::{each_field, nested, skip_unknown, text};

/// Reads families and calls the function with each. You get this format with the content type
/// `application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited`.
///
/// A family is an error if its encoded length exceeds `limits.bytes`, or if it contains too many
/// samples. Counts are doubles, so a count beyond 2^53 is rounded.
///
/// ```
/// use quipu_wire::remote::exposition::{FamilyType, Limits, MetricValue, read_families};
///
/// let input = b"\x12\x0a\x04hits\x18\x00\x22\x08\x1a\x06\x09\0\0\0\0\0";
/// assert!(read_families(input, Limits::default(), |_| ()).is_err());
///
/// let input = b"\x15\x0a\x04hits\x18\x00\x22\x0b\x1a\x09\x09\0\0\0\0\0\0\x1c\x40";
/// read_families(input, Limits::default(), |family| {
///     assert_eq!((family.name(), family.kind()), ("hits", FamilyType::Counter));
///     let metric = family.metrics().next().unwrap();
///     assert!(matches!(metric.value(), MetricValue::Counter { total: 7.0, exemplar: None }));
/// })?;
/// # Ok::<(), quipu_wire::Error>(())
/// ```
///
/// # Errors
///
/// When the input is not a sequence of such messages. By then, the function was called with the
/// families before the fault.
pub fn read_families(
    input: &[u8],
    limits: Limits,
    mut each: impl FnMut(Family<'_>),
) -> Result<(), Error> {
    let mut input = Reader::new(input);
    let mut room = Room { store: Store::new(limits), ..Room::default() };
    let mut read = |input: &mut Reader<'_>| {
        while !input.is_empty() {
            let before = *input;
            if input.varint("the length of a family")? > limits.bytes as u64 {
                *input = before;
                return Err(Fault::too_large("a family that is no longer than the limit"));
            }
            *input = before;
            room.store.clear();
            nested(input, |input| room.family(input))?;
            room.store.complete();
            each(Family { store: &room.store });
        }
        Ok(())
    };
    read(&mut input)
        .map_err(|fault| Error::reading("prometheus-protobuf", input.position() as u64, fault))
}

/// Memory that is reused for the next family.
#[derive(Debug, Default)]
struct Room {
    store: Store,
    negative: Side,
    positive: Side,
}

/// The numeric fields of a histogram.
#[derive(Default)]
struct Numbers {
    count: u64,
    count_float: f64,
    schema: i32,
    zero_threshold: f64,
    zero_count: u64,
    zero_count_float: f64,
}

type Read<T = ()> = Result<T, Fault>;

impl Room {
    fn family(&mut self, input: &mut Reader<'_>) -> Read {
        let start = *input;
        // In protobuf, a family without a type consists of counters.
        let mut kind = FamilyType::Counter;
        each_field(input, |tag, input| match tag {
            0x0a => text(input).and_then(|text| self.text(text)).map(|span| self.store.name = span),
            0x12 => text(input).and_then(|text| self.text(text)).map(|span| self.store.help = span),
            0x18 => family_type(input).map(|read| kind = read),
            0x22 => nested(input, |input| self.metric(input)),
            0x2a => text(input).and_then(|text| self.text(text)).map(|span| self.store.unit = span),
            tag => skip_unknown(input, tag, 0b11_1110),
        })?;
        self.store.kind = kind;
        let fits = self.store.slots.iter().all(|slot| slot.form == kind.form());
        let fault = match (self.store.name.len, fits) {
            (0, _) => "the name of a family",
            (_, false) => "metrics with values of the family's type",
            _ => return Ok(()),
        };
        *input = start;
        Err(Fault::malformed(fault))
    }

    fn text(&mut self, text: &str) -> Read<Span> {
        self.store.add_str(text).map_err(too_large)
    }

    fn metric(&mut self, input: &mut Reader<'_>) -> Read {
        let start = *input;
        self.store.take(1).map_err(too_large)?;
        let index = self.store.slots.len() as u32;
        let mark = self.store.mark();
        let mut form = None;
        let mut slot = MetricSlot::new(Span::default(), Form::Unknown);
        // Reads all labels before the exemplars. The labels of a metric must be adjacent in the
        // store, and an exemplar adds labels too.
        let mut labels = *input;
        each_field(&mut labels, |tag, input| match tag {
            0x0a => nested(input, |input| self.label(input)),
            tag => skip_body(input, tag),
        })
        .inspect_err(|_| *input = labels)?;
        slot.labels = self.store.sort_labels(mark).map_err(|_| DUPLICATE)?;
        each_field(input, |tag, input| {
            let read = match tag {
                0x0a | 0x30 => None,
                0x12 => Some(Form::Gauge),
                0x1a => Some(Form::Counter),
                0x22 => Some(Form::Summary),
                0x2a => Some(Form::Unknown),
                0x3a => Some(Form::Histogram),
                tag => return skip_unknown(input, tag, 0b1111_1110),
            };
            if read.is_some() && form.replace(read).is_some() {
                return Err(Fault::malformed("one value of a metric"));
            }
            match read {
                Some(Form::Counter) => nested(input, |input| self.counter(input, &mut slot)),
                Some(Form::Summary) => nested(input, |input| self.summary(input, &mut slot, index)),
                Some(Form::Histogram) => {
                    nested(input, |input| self.histogram(input, &mut slot, index))
                }
                Some(_) => nested(input, |input| number(input, &mut slot)),
                None if tag == 0x30 => {
                    slot.timestamp_ms = Some(input.varint("a time")?.cast_signed());
                    Ok(())
                }
                None => bytes(input).map(drop),
            }
        })?;
        let Some(form) = form.flatten() else {
            *input = start;
            return Err(Fault::malformed("the value of a metric"));
        };
        slot.form = form;
        slot.has_value = true;
        self.store.slots.push(slot);
        Ok(())
    }

    fn label(&mut self, input: &mut Reader<'_>) -> Read {
        let start = *input;
        let (mut name, mut value) = ("", "");
        each_field(input, |tag, input| match tag {
            0x0a => text(input).map(|text| name = text),
            0x12 => text(input).map(|text| value = text),
            tag => skip_unknown(input, tag, 0b110),
        })?;
        if name.is_empty() {
            *input = start;
            return Err(Fault::malformed("the name of a label"));
        }
        if !value.is_empty() {
            let pair = (self.text(name)?, self.text(value)?);
            self.store.pairs.push(pair);
        }
        Ok(())
    }

    fn counter(&mut self, input: &mut Reader<'_>, slot: &mut MetricSlot) -> Read {
        each_field(input, |tag, input| match tag {
            0x09 => double(input).map(|value| slot.value = value),
            0x12 => {
                slot.exemplar = Some(nested(input, |input| self.exemplar(input))?);
                Ok(())
            }
            0x1a => nested(input, time).map(|time| slot.created_ms = Some(time)),
            tag => skip_unknown(input, tag, 0b1110),
        })
    }

    fn summary(&mut self, input: &mut Reader<'_>, slot: &mut MetricSlot, index: u32) -> Read {
        (slot.count, slot.sum) = (Some(0.0), Some(0.0));
        each_field(input, |tag, input| match tag {
            0x08 => input.varint("a count").map(|count| slot.count = Some(count as f64)),
            0x11 => double(input).map(|sum| slot.sum = Some(sum)),
            0x1a => {
                self.store.take(1).map_err(too_large)?;
                let (mut bound, mut value) = (0.0, 0.0);
                nested(input, |input| {
                    each_field(input, |tag, input| match tag {
                        0x09 => bound_of(input).map(|read| bound = read),
                        0x11 => double(input).map(|read| value = read),
                        tag => skip_unknown(input, tag, 0b110),
                    })
                })?;
                self.store.points.push(PointSlot { slot: index, bound, value, exemplar: None });
                Ok(())
            }
            0x22 => nested(input, time).map(|time| slot.created_ms = Some(time)),
            tag => skip_unknown(input, tag, 0b11110),
        })
    }

    fn histogram(&mut self, input: &mut Reader<'_>, slot: &mut MetricSlot, index: u32) -> Read {
        let start = *input;
        self.negative.clear();
        self.positive.clear();
        let mut numbers = Numbers::default();
        let mut bucket_input = *input;
        // Reads the exemplars of buckets first, because the histogram's own exemplars must be
        // adjacent.
        each_field(&mut bucket_input, |tag, input| match tag {
            0x1a => nested(input, |input| self.bucket(input, index)),
            tag => skip_body(input, tag),
        })
        .inspect_err(|_| *input = bucket_input)?;
        let own = self.store.exemplars.len();
        slot.sum = Some(0.0);
        each_field(input, |tag, input| match tag {
            0x08 => input.varint("a count").map(|count| numbers.count = count),
            0x11 => double(input).map(|sum| slot.sum = Some(sum)),
            0x1a => bytes(input).map(drop),
            0x21 => double(input).map(|count| numbers.count_float = count),
            0x28 => signed(input).map(|schema| numbers.schema = schema),
            0x31 => double(input).map(|threshold| numbers.zero_threshold = threshold),
            0x38 => input.varint("a count").map(|count| numbers.zero_count = count),
            0x41 => double(input).map(|count| numbers.zero_count_float = count),
            0x4a | 0x50 | 0x52 | 0x59 | 0x5a => {
                self.negative.field(tag - 0x48, input, self.store.samples_left())
            }
            0x62 | 0x68 | 0x6a | 0x71 | 0x72 => {
                self.positive.field(tag - 0x60, input, self.store.samples_left())
            }
            0x7a => nested(input, time).map(|time| slot.created_ms = Some(time)),
            0x82 => nested(input, |input| self.exemplar(input)).map(drop),
            tag => skip_unknown(input, tag, 0b1_1111_1111_1111_1110),
        })?;
        slot.count = Some(either(numbers.count, numbers.count_float));
        let spans = !self.negative.has_no_spans() || !self.positive.has_no_spans();
        let zero_count = either(numbers.zero_count, numbers.zero_count_float);
        if !spans && zero_count == 0.0 && numbers.zero_threshold == 0.0 {
            return Ok(());
        }
        let negative = expand(&self.negative, &mut self.store);
        let positive = expand(&self.positive, &mut self.store);
        let (negative, positive) = match (negative, positive) {
            (Ok(negative), Ok(positive)) => (negative, positive),
            (Err(fault), _) | (_, Err(fault)) => {
                *input = start;
                return Err(fault);
            }
        };
        slot.native = Some(self.store.natives.len() as u32);
        self.store.natives.push(NativeSlot {
            schema: numbers.schema,
            zero_threshold: numbers.zero_threshold,
            zero_count,
            negative,
            positive,
            exemplars: Span::since(own, &self.store.exemplars),
        });
        Ok(())
    }

    fn bucket(&mut self, input: &mut Reader<'_>, index: u32) -> Read {
        self.store.take(1).map_err(too_large)?;
        let (mut count, mut count_float, mut bound, mut exemplar) = (0, 0.0, 0.0, None);
        each_field(input, |tag, input| match tag {
            0x08 => input.varint("a count").map(|read| count = read),
            0x11 => bound_of(input).map(|read| bound = read),
            0x1a => {
                exemplar = Some(nested(input, |input| self.exemplar(input))?);
                Ok(())
            }
            0x21 => double(input).map(|read| count_float = read),
            tag => skip_unknown(input, tag, 0b11110),
        })?;
        let value = either(count, count_float);
        self.store.points.push(PointSlot { slot: index, bound, value, exemplar });
        Ok(())
    }

    /// Reads an exemplar and returns its number.
    fn exemplar(&mut self, input: &mut Reader<'_>) -> Read<u32> {
        let mark = self.store.mark();
        let (mut value, mut timestamp_ms) = (0.0, None);
        each_field(input, |tag, input| match tag {
            0x0a => nested(input, |input| self.label(input)),
            0x11 => double(input).map(|read| value = read),
            0x1a => nested(input, time).map(|time| timestamp_ms = Some(time)),
            tag => skip_unknown(input, tag, 0b1110),
        })?;
        let labels = self.store.sort_labels(mark).map_err(|_| DUPLICATE)?;
        self.store.take(1).map_err(too_large)?;
        self.store.exemplars.push(ExemplarSlot { labels, value, timestamp_ms });
        Ok(self.store.exemplars.len() as u32 - 1)
    }
}

/// Appends the buckets of one side to the family.
fn expand(side: &Side, store: &mut Store) -> Read<Span> {
    store.take(side.len()).map_err(too_large)?;
    let start = store.native_buckets.len();
    side.expand(&mut store.native_buckets)?;
    Ok(Span::since(start, &store.native_buckets))
}

const DUPLICATE: Fault = Fault::malformed("each label once");

fn too_large(_: Full) -> Fault {
    Fault::too_large("a family with fewer samples and texts")
}

/// Returns a count, which senders can also write as a float.
fn either(count: u64, float: f64) -> f64 {
    if float > 0.0 { float } else { count as f64 }
}

fn family_type(input: &mut Reader<'_>) -> Read<FamilyType> {
    let before = *input;
    Ok(match input.varint("the type of a family")? {
        0 => FamilyType::Counter,
        1 => FamilyType::Gauge,
        2 => FamilyType::Summary,
        3 => FamilyType::Unknown,
        4 => FamilyType::Histogram,
        5 => FamilyType::GaugeHistogram,
        _ => {
            *input = before;
            return Err(Fault::malformed("the type of a family, 0 to 5"));
        }
    })
}

/// Reads a message that consists of one value: a gauge, or a metric of unknown type.
fn number(input: &mut Reader<'_>, slot: &mut MetricSlot) -> Read {
    each_field(input, |tag, input| match tag {
        0x09 => double(input).map(|value| slot.value = value),
        tag => skip_unknown(input, tag, 0b10),
    })
}

fn bound_of(input: &mut Reader<'_>) -> Read<f64> {
    let before = *input;
    let bound = double(input)?;
    if bound.is_nan() {
        *input = before;
        return Err(Fault::malformed("a bound or quantile that is a number"));
    }
    // Turns -0 into +0.
    Ok(bound + 0.0)
}

/// Reads a `google.protobuf.Timestamp` in milliseconds.
fn time(input: &mut Reader<'_>) -> Read<i64> {
    let (mut seconds, mut nanos) = (0_i64, 0_i64);
    let start = *input;
    each_field(input, |tag, input| match tag {
        0x08 => input.varint("seconds").map(|read| seconds = read.cast_signed()),
        0x10 => input.varint("nanoseconds").map(|read| nanos = read.cast_signed()),
        tag => skip_unknown(input, tag, 0b110),
    })?;
    let ms = seconds.checked_mul(1000).and_then(|ms| ms.checked_add(nanos / 1_000_000));
    ms.ok_or_else(|| {
        *input = start;
        Fault::malformed("a time whose milliseconds fit in 64 bits")
    })
}

/// Skips any field, because another pass reads it.
fn skip_body(input: &mut Reader<'_>, tag: u64) -> Read {
    crate::protobuf::skip(input, tag, 0)
}

#[cfg(test)]
mod tests;
