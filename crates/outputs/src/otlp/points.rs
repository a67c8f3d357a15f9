//! Converts families to OTLP data points, by OpenTelemetry's rules for Prometheus metrics:
//! <https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/>.
//!
//! Metric names are the same as on `/metrics`, so a receiver that adds no suffixes uses the same
//! names as a scraper. If a histogram contains both classic and exponential buckets, only the
//! exponential ones are sent.

use quipu::snapshot::{
    Bucket, CounterValue, Exemplar, FamilyHeader, HistogramValue, Kind, Native, Number as Shown,
    Series, Sink, SummaryValue, Value,
};
use quipu_wire::remote::otlp::{
    Attribute, AttributeValue as Text, ExponentialPoint, HistogramPoint, NewExemplar, NewPoint,
    Number, PointValue, SummaryPoint, Temporality,
};

use super::growth::DeltaConverter;
use super::requests::{Points, identity};
use super::resources::BaseResource;
use crate::labels::ExternalLabel;
use crate::snapshot::Requests;
use quipu_process::time::now_ns;
use quipu_translate::otlp::ucum;

/// A sink that converts families to points.
#[derive(Debug)]
pub(super) struct Translation<'t> {
    requests: Requests<Points>,
    /// The converter to deltas, if the receiver uses delta temporality.
    converter: Option<DeltaConverter<'t>>,
    external: &'t [ExternalLabel],
    resource: &'t BaseResource,
    time_ns: u64,
    name: String,
    /// Reused buffers for buckets.
    counts: Vec<u64>,
    bounds: Vec<f64>,
    positive: Vec<u64>,
    negative: Vec<u64>,
}

/// An exemplar with its trace and span ids in binary form.
struct PointExemplar<'a> {
    trace: Option<[u8; 16]>,
    span: Option<[u8; 8]>,
    attributes: Vec<Attribute<'a>>,
    value: f64,
    time_ns: Option<u64>,
}

/// The maximum number of exponential buckets per sign. If there are more, neighbouring buckets are
/// merged.
const MOST_BUCKETS: i64 = 4096;

impl<'t> Translation<'t> {
    /// Creates a sink that adds points to `requests`. Each point carries the `external` labels,
    /// except labels that the base resource already contains.
    pub(super) fn new(
        requests: Requests<Points>,
        converter: Option<DeltaConverter<'t>>,
        (external, resource): (&'t [ExternalLabel], &'t BaseResource),
    ) -> Self {
        Self {
            time_ns: requests.writer.time_ns,
            requests,
            converter,
            external,
            resource,
            name: String::new(),
            counts: Vec::new(),
            bounds: Vec::new(),
            positive: Vec::new(),
            negative: Vec::new(),
        }
    }

    pub(super) fn into_parts(self) -> (Requests<Points>, Option<DeltaConverter<'t>>) {
        (self.requests, self.converter)
    }

    fn put(
        &mut self,
        attributes: &[Attribute<'_>],
        start_ns: Option<u64>,
        value: PointValue<'_>,
        exemplars: &[Exemplar<'_>],
    ) {
        let is_repeated = attributes.windows(2).any(|pair| pair[0].0 == pair[1].0);
        let id = identity(&self.requests.hash, &self.name, attributes);
        if is_repeated {
            self.requests.snapshot.invalid += 1;
        }
        if is_repeated || !self.requests.begin(id) {
            return;
        }
        let point_exemplars: Vec<_> = exemplars.iter().map(PointExemplar::new).collect();
        let exemplars: Vec<_> = point_exemplars.iter().map(PointExemplar::shown).collect();
        let point = NewPoint::new(self.time_ns, value)
            .attributes(attributes)
            .start_ns(start_ns)
            .exemplars(&exemplars);
        match &mut self.converter {
            Some(converter) => converter.push(&mut self.requests, id, &point),
            None => self.requests.push_point(id, &point),
        }
    }

    fn states(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>, states: &[(&str, bool)]) {
        let attributes = self.attributes(family, series);
        for (state, is_on) in states {
            let mut attributes = attributes.clone();
            let at = attributes.partition_point(|(name, _)| *name < family.name);
            attributes.insert(at, (family.name, Text::Text(state)));
            self.put(&attributes, None, level(i64::from(*is_on)), &[]);
        }
    }

    fn classic(
        &mut self,
        attributes: &[Attribute<'_>],
        start_ns: Option<u64>,
        histogram: &HistogramValue<'_>,
    ) {
        let (mut counts, mut bounds) =
            (std::mem::take(&mut self.counts), std::mem::take(&mut self.bounds));
        counts.clear();
        bounds.clear();
        let mut exemplars = Vec::new();
        for Bucket { bound, count, exemplar, .. } in histogram.buckets {
            // We merge equal bounds, because another program may write the same bound twice.
            if bounds.last().is_some_and(|last| last >= bound) {
                if let Some(last) = counts.last_mut() {
                    *last = u64::wrapping_add(*last, *count);
                }
            } else {
                counts.push(*count);
                bounds.push(*bound);
            }
            exemplars.extend(*exemplar);
        }
        // In OTLP, the last bucket contains no bound.
        if bounds.last() == Some(&f64::INFINITY) {
            bounds.pop();
        } else {
            let rest = histogram.count.saturating_sub(sum_of(&counts));
            counts.push(rest);
        }
        let mut point = HistogramPoint::default();
        (point.count, point.sum) = (sum_of(&counts), Some(histogram.sum));
        (point.buckets, point.bounds) = (&counts, &bounds);
        let value = PointValue::Histogram { point, temporality: Temporality::Cumulative };
        self.put(attributes, start_ns, value, &exemplars);
        (self.counts, self.bounds) = (counts, bounds);
    }

    fn exponential(
        &mut self,
        attributes: &[Attribute<'_>],
        start_ns: Option<u64>,
        native: &Native<'_>,
        sum: f64,
    ) {
        let (mut positive, mut negative) =
            (std::mem::take(&mut self.positive), std::mem::take(&mut self.negative));
        let merge = merge_of(native.positive).max(merge_of(native.negative));
        let mut point = ExponentialPoint::default();
        point.scale = i32::from(native.schema) - merge as i32;
        (point.zero_count, point.zero_threshold) = (native.zero_count, native.zero_threshold);
        point.positive.offset = dense(&mut positive, native.positive, merge);
        point.negative.offset = dense(&mut negative, native.negative, merge);
        point.count =
            native.zero_count.wrapping_add(sum_of(&positive)).wrapping_add(sum_of(&negative));
        point.sum = Some(sum);
        (point.positive.counts, point.negative.counts) = (&positive, &negative);
        let value = PointValue::Exponential { point, temporality: Temporality::Cumulative };
        self.put(attributes, start_ns, value, native.exemplars);
        (self.positive, self.negative) = (positive, negative);
    }

    /// Returns the labels of a series, sorted by name, including the external labels that the
    /// series itself does not define.
    fn attributes<'a>(&self, family: &FamilyHeader<'a>, series: &Series<'a>) -> Vec<Attribute<'a>>
    where
        't: 'a,
    {
        let mut attributes = Vec::with_capacity(family.labels().len() + self.external.len() + 1);
        let all = series.labels(family).filter(|(_, value)| !value.is_empty());
        attributes.extend(all.map(|(name, value)| (name, Text::Text(value))));
        for label in self.external {
            if !attributes.iter().any(|(name, _)| *name == label.name) {
                attributes.push((&label.name, Text::Text(&label.value)));
            }
        }
        attributes.retain(|label| !self.resource.has(label));
        attributes.sort_by_key(|(name, _)| *name);
        attributes
    }
}

impl Sink for Translation<'_> {
    fn family(&mut self, family: &FamilyHeader<'_>) {
        let suffix = match family.kind {
            Kind::Counter if !family.bare => "_total",
            Kind::Info => "_info",
            _ => "",
        };
        self.name.clear();
        self.name.push_str(family.name);
        self.name.push_str(suffix);
        let unit = ucum(family.unit);
        self.requests.begin_metric(&self.name, family.help, &unit);
        if let Some(converter) = &mut self.converter {
            converter.begin(&self.name, family.help, &unit);
        }
    }

    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        let start = series.start.map(|start| start.as_nanos());
        if start.is_some_and(|start| self.time_ns < start && start <= now_ns()) {
            // The series began after the snapshot was due, so it belongs to the next snapshot.
            return;
        }
        // A later start is in the future, because the clock was set back.
        let start = start.filter(|start| (1..=self.time_ns).contains(start));
        let attributes = self.attributes(family, series);
        match &series.value {
            Value::Counter(CounterValue { total, exemplar, .. }) => {
                let value = Some(number(*total));
                let temporality = Temporality::Cumulative;
                let sum = PointValue::Sum { value, monotonic: true, temporality };
                self.put(&attributes, start, sum, exemplar.as_slice());
            }
            Value::Gauge(value) | Value::Unknown(value) => {
                let value = PointValue::Gauge(Some(number(*value)));
                self.put(&attributes, None, value, series.exemplar.as_slice());
            }
            Value::Info => self.put(&attributes, None, level(1), &[]),
            Value::StateSet(states) => self.states(family, series, states),
            Value::Histogram(histogram) => match &histogram.native {
                Some(native) => self.exponential(&attributes, start, native, histogram.sum),
                None => self.classic(&attributes, start, histogram),
            },
            Value::Summary(SummaryValue { quantiles, count, sum, .. }) => {
                let mut point = SummaryPoint::default();
                (point.count, point.sum, point.quantiles) = (*count, *sum, quantiles);
                self.put(&attributes, start, PointValue::Summary(point), &[]);
            }
            // A kind of value from a later version of the library.
            _ => {}
        }
    }
}

impl<'a> PointExemplar<'a> {
    fn new(exemplar: &Exemplar<'a>) -> Self {
        let mut point = Self {
            trace: None,
            span: None,
            attributes: Vec::new(),
            value: exemplar.value,
            time_ns: exemplar.time.map(|time| time.as_nanos()),
        };
        let mut texts = exemplar.labels;
        while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
            match name {
                "trace_id" if point.trace.is_none() => point.trace = bytes_of(value),
                "span_id" if point.span.is_none() => point.span = bytes_of(value),
                _ => {}
            }
            let is_id = (name == "trace_id" && point.trace.is_some())
                || (name == "span_id" && point.span.is_some());
            if !is_id {
                point.attributes.push((name, Text::Text(value)));
            }
        }
        point
    }

    fn shown(&self) -> NewExemplar<'_> {
        let trace_id = self.trace.as_ref().map_or(&[][..], |id| id);
        let span_id = self.span.as_ref().map_or(&[][..], |id| id);
        NewExemplar::new(Number::Double(self.value))
            .time_ns(self.time_ns)
            .ids(trace_id, span_id)
            .attributes(&self.attributes)
    }
}

/// Decodes hexadecimal digits; `None` if there are not exactly `N` bytes.
fn bytes_of<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Some(bytes)
}

/// Returns a value that can also decrease: a sum that is not monotonic.
fn level(value: i64) -> PointValue<'static> {
    let value = Some(Number::Int(value));
    PointValue::Sum { value, monotonic: false, temporality: Temporality::Cumulative }
}

fn number(number: Shown) -> Number {
    match number {
        Shown::Signed(number) => Number::Int(number),
        Shown::Unsigned(number) => {
            i64::try_from(number).map_or(Number::Double(number as f64), Number::Int)
        }
        Shown::Float(number) => Number::Double(number),
    }
}

fn sum_of(counts: &[u64]) -> u64 {
    counts.iter().fold(0, |sum, count| sum.wrapping_add(*count))
}

/// Returns the number of times that neighbouring buckets must be merged to stay within the limit.
fn merge_of(buckets: &[(i32, u64)]) -> u32 {
    let (Some((first, _)), Some((last, _))) = (buckets.first(), buckets.last()) else { return 0 };
    let indices = |merge: u32| merged(*last, merge) - merged(*first, merge);
    (0..32).find(|merge| indices(*merge) < MOST_BUCKETS).unwrap_or(32)
}

/// Returns the index of a Prometheus bucket after merging, in OTLP's numbering.
fn merged(index: i32, merge: u32) -> i64 {
    (i64::from(index) - 1) >> merge
}

/// Fills `out` with the counts of all buckets from the first to the last, including empty ones.
/// `merge` is the number of merges. Returns the OTLP index of the first bucket, which is one less
/// than Prometheus' index.
fn dense(out: &mut Vec<u64>, buckets: &[(i32, u64)], merge: u32) -> i32 {
    out.clear();
    let index = |index: i32| merged(index, merge);
    let Some(offset) = buckets.first().map(|(first, _)| index(*first)) else { return 0 };
    for (at, count) in buckets {
        // Within the limit, because the indices ascend.
        let at = usize::try_from(index(*at) - offset).unwrap_or(0).min(MOST_BUCKETS as usize);
        if out.len() <= at {
            out.resize(at + 1, 0);
        }
        out[at] = out[at].wrapping_add(*count);
    }
    offset as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_between_the_first_and_the_last_are_merged_if_they_are_many() {
        let dense = |buckets: &[(i32, u64)]| {
            let (mut out, merge) = (Vec::new(), merge_of(buckets));
            let offset = dense(&mut out, buckets, merge);
            (merge, offset, out)
        };
        assert_eq!(dense(&[]), (0, 0, vec![]));
        assert_eq!(dense(&[(-1, 2), (1, 3)]), (0, -2, vec![2, 0, 3]));
        let (merge, offset, counts) = dense(&[(1, 1), (4096, 2)]);
        assert_eq!((merge, offset, counts.len(), sum_of(&counts)), (0, 0, 4096, 3));
        let (merge, offset, counts) = dense(&[(0, 1), (1, 4), (4096, 2)]);
        // Index -1 is half of bucket -1, and 0 to 4095 are 0 to 2047.
        assert_eq!((merge, offset, counts.len(), &counts[..2]), (1, -1, 2049, &[1, 4][..]));
        let (merge, _, counts) = dense(&[(i32::MIN, 1), (i32::MAX, 2)]);
        assert!(merge <= 32 && counts.len() <= 4096 && sum_of(&counts) == 3);
    }

    #[test]
    fn ids_are_decoded_from_hexadecimal() {
        assert_eq!(bytes_of("01fF"), Some([1, 0xff]));
        assert_eq!([bytes_of::<2>("01f"), bytes_of("01fg"), bytes_of("+1+1")], [None; 3]);
        assert_eq!(bytes_of::<2>("\u{e9}\u{e9}"), None);
    }
}
