//! Converts cumulative totals to deltas: the growth of each series since the last snapshot.
//!
//! If a series began after the last snapshot, or if its total decreased, its whole total is the
//! delta. There is one exception, directly after a start of the daemon. A power loss can remove the
//! counts since the last checkpoint from the state, although they were already sent. The total of a
//! series is then less than before although the series did not restart, so no growth is sent.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};

use quipu_segment::hash::SeededState;
use quipu_wire::remote::otlp::{
    ExponentialBuckets, ExponentialPoint, HistogramPoint, MetricDescription, NewExemplar, NewPoint,
    Number, PointValue, Temporality,
};

use super::requests::{Points, each_point};
use super::resources::BaseResource;
use crate::coding::Coding;
use crate::queue::Form;
use crate::snapshot::{Body, Requests};

/// The totals of all series at the time of a snapshot.
#[derive(Debug)]
pub(super) struct Totals {
    /// The time of the totals, in nanoseconds since 1970; 0 if there are none.
    pub(super) time_ns: u64,
    /// The totals in requests, which also contain the names and labels of the series.
    pub(super) bodies: Vec<Body>,
    by_series: HashMap<u64, Total, SeededState>,
    /// Whether the totals are from an earlier run of the daemon.
    is_restored: bool,
}

/// Converts totals to deltas since the last totals, and collects the new totals.
#[derive(Debug)]
pub(super) struct DeltaConverter<'l> {
    last: &'l Totals,
    /// The start time of series that specify none.
    begun_ns: u64,
    totals: Requests<Points>,
    now: Totals,
}

#[derive(Debug)]
struct Total {
    start_ns: Option<u64>,
    /// The time of the last point.
    time_ns: u64,
    value: Value,
}

#[derive(Debug, PartialEq)]
enum Value {
    Sum(Number),
    Classic { bounds: u64, counts: Box<[u64]>, sum: f64 },
    Exponential(Box<Exponential>),
}

#[derive(Debug, PartialEq)]
struct Exponential {
    scale: i32,
    zero_threshold: f64,
    zero_count: u64,
    positive: Buckets,
    negative: Buckets,
    sum: f64,
}

#[derive(Debug, Default, PartialEq)]
struct Buckets {
    offset: i64,
    counts: Vec<u64>,
}

/// The growth of a series since the last snapshot.
enum Growth {
    /// The whole total, because the series began again from zero.
    Whole,
    By(Value),
    /// No growth.
    Nothing,
}

/// The maximum number of ended series whose totals are kept. An ended series can return with the
/// same total, and must not be counted again.
const MOST_GONE: usize = 100_000;

impl Totals {
    /// Creates empty totals: the whole total of each series is its growth.
    pub(super) fn none(hash: &SeededState) -> Self {
        let by_series = HashMap::with_hasher(hash.clone());
        Self { time_ns: 0, bodies: Vec::new(), by_series, is_restored: false }
    }

    /// Restores the totals from requests on the disk.
    ///
    /// # Errors
    /// Fails if the requests are damaged.
    pub(super) fn restore(
        time_ns: u64,
        bodies: Vec<Body>,
        hash: &SeededState,
    ) -> Result<Self, String> {
        let mut totals = Self { time_ns, is_restored: true, ..Self::none(hash) };
        let by_series = &mut totals.by_series;
        for body in &bodies {
            let request = body.expand().map_err(|error| error.to_string())?;
            let is_whole = each_point(&request, &BaseResource::default(), hash, |_, id, point| {
                if let Some(value) = Value::from_point(&point.value, hash) {
                    let (start_ns, time_ns) = (point.start_ns, point.time_ns);
                    by_series.insert(id, Total { start_ns, time_ns, value });
                }
            });
            if !is_whole {
                return Err("totals cannot be read".into());
            }
        }
        totals.bodies = bodies;
        Ok(totals)
    }

    pub(super) fn hash(&self) -> &SeededState {
        self.by_series.hasher()
    }
}

impl<'l> DeltaConverter<'l> {
    /// Creates a converter for the growth since `last`. `begun_ns` is the start time of new series
    /// that specify none.
    pub(super) fn new(last: &'l Totals, time_ns: u64, begun_ns: u64) -> Self {
        let (hash, writer) = (last.hash(), Points::new(Form::Totals, time_ns));
        Self {
            last,
            begun_ns,
            totals: Requests::new(writer, 0, Coding::Gzip, hash),
            now: Totals { time_ns, ..Totals::none(hash) },
        }
    }

    /// Returns the totals at this time. They include the last totals of ended series.
    pub(super) fn finish(mut self) -> Totals {
        self.remember();
        self.now.bodies = self.totals.finish().bodies;
        self.now
    }

    /// Copies the totals of ended series. If there are too many, only the most recent are kept.
    fn remember(&mut self) {
        let Self { last, now, totals, .. } = self;
        let gone = last.by_series.iter().filter(|(id, _)| !now.by_series.contains_key(id));
        let mut times: Vec<u64> = gone.map(|(_, total)| total.time_ns).collect();
        if times.is_empty() {
            return;
        }
        let oldest = match times.len().checked_sub(MOST_GONE) {
            Some(at) if at > 0 => *times.select_nth_unstable(at).1,
            _ => 0,
        };
        let hash = last.hash();
        let mut left = MOST_GONE;
        let mut remember = |metric: &MetricDescription<'_>, id, point: &NewPoint<'_>| {
            let is_old = point.time_ns < oldest || left == 0;
            if is_old || now.by_series.contains_key(&id) {
                return;
            }
            let Some(value) = Value::from_point(&point.value, hash) else { return };
            left -= 1;
            if totals.writer.name() != metric.name {
                totals.begin_metric(metric.name, metric.description, metric.unit);
            }
            totals.push_point(id, point);
            let (start_ns, time_ns) = (point.start_ns, point.time_ns);
            now.by_series.insert(id, Total { start_ns, time_ns, value });
        };
        for body in &last.bodies {
            if let Ok(request) = body.expand() {
                each_point(&request, &BaseResource::default(), hash, &mut remember);
            }
        }
    }

    fn growth(&self, last: &Total, point: &NewPoint<'_>, value: &Value) -> Growth {
        let starts = last.start_ns.zip(point.start_ns);
        if starts.is_some_and(|(last, now)| now > last) {
            return Growth::Whole;
        }
        match value.minus(&last.value) {
            Some(grown) => Growth::By(grown),
            None if starts.is_some() && self.last.is_restored => Growth::Nothing,
            None => Growth::Whole,
        }
    }

    /// Begins a metric. Add its points with [`Self::push`].
    pub(super) fn begin(&mut self, name: &str, help: &str, unit: &str) {
        self.totals.begin_metric(name, help, unit);
    }

    /// Adds the growth of a series, given its total, to the requests.
    pub(super) fn push(&mut self, requests: &mut Requests<Points>, id: u64, point: &NewPoint<'_>) {
        let hash = self.last.hash();
        let Some(value) = Value::from_point(&point.value, hash) else {
            // This value does not add up, so we send all of it, but each exemplar only once.
            let exemplars = exemplars_since(self.last.time_ns, point.exemplars);
            requests.push_point(id, &point.exemplars(&exemplars));
            return;
        };
        if value.is_nan() {
            // We treat the series as ended: its growth is unknown, and a receiver's sum would stay
            // NaN.
            return;
        }
        self.totals.push_point(id, &point.exemplars(&[]));
        let began = point.start_ns;
        let (growth, since) = match self.last.by_series.get(&id) {
            Some(last) => (self.growth(last, point, &value), last.time_ns),
            // No point of this series has been sent yet.
            None if self.last.time_ns != 0 => (Growth::Whole, began.unwrap_or(self.last.time_ns)),
            None => (Growth::Whole, began.unwrap_or(self.begun_ns)),
        };
        let since = match (&growth, began) {
            (Growth::Whole, Some(began)) => since.max(began),
            _ => since,
        };
        let start_ns = since.min(point.time_ns);
        let exemplars = exemplars_since(start_ns, point.exemplars);
        let point = point.start_ns(Some(start_ns)).exemplars(&exemplars);
        match growth {
            Growth::Whole => {
                requests.push_point(id, &point.value(delta(point.value)));
            }
            Growth::By(grown) if !grown.is_zero() => grown.put(id, &point, requests),
            Growth::By(_) | Growth::Nothing => {}
        }
        let total = Total { start_ns: began, time_ns: point.time_ns, value };
        self.now.by_series.insert(id, total);
    }
}

impl Value {
    /// Returns the total of a point; `None` for a value that does not add up, such as a gauge.
    fn from_point(value: &PointValue<'_>, hash: &SeededState) -> Option<Self> {
        match value {
            PointValue::Sum { value, monotonic: true, .. } => value.map(Self::Sum),
            PointValue::Histogram { point, .. } => {
                let mut bounds = hash.build_hasher();
                point.bounds.iter().for_each(|bound| bound.to_bits().hash(&mut bounds));
                Some(Self::Classic {
                    bounds: bounds.finish(),
                    counts: point.buckets.into(),
                    sum: point.sum.unwrap_or(0.0),
                })
            }
            PointValue::Exponential { point, .. } => {
                Some(Self::Exponential(Box::new(Exponential::from_point(point))))
            }
            _ => None,
        }
    }

    /// Returns the growth since `last`; `None` if the total decreased, or changed its kind.
    fn minus(&self, last: &Self) -> Option<Self> {
        match (self, last) {
            (Self::Sum(now), Self::Sum(last)) => added(*now, *last).map(Self::Sum),
            (
                Self::Classic { bounds, counts, sum },
                Self::Classic { bounds: before, counts: fewer, sum: less },
            ) if bounds == before && counts.len() == fewer.len() => {
                let pairs = counts.iter().zip(fewer);
                let counts = pairs.map(|(now, last)| now.checked_sub(*last)).collect::<Option<_>>();
                Some(Self::Classic { bounds: *bounds, counts: counts?, sum: sum - less })
            }
            (Self::Exponential(now), Self::Exponential(last)) => {
                now.minus(last).map(|grown| Self::Exponential(Box::new(grown)))
            }
            _ => None,
        }
    }

    fn is_nan(&self) -> bool {
        matches!(self, Self::Sum(number) if number.as_f64().is_nan())
    }

    fn is_zero(&self) -> bool {
        match self {
            Self::Sum(number) => number.as_f64() == 0.0,
            Self::Classic { counts, .. } => counts.iter().all(|count| *count == 0),
            Self::Exponential(grown) => {
                let mut counts = grown.positive.counts.iter().chain(&grown.negative.counts);
                grown.zero_count == 0 && counts.all(|count| *count == 0)
            }
        }
    }

    /// Adds a point with this delta.
    fn put(&self, id: u64, point: &NewPoint<'_>, requests: &mut Requests<Points>) {
        let temporality = Temporality::Delta;
        let known = |sum: f64| (!sum.is_nan()).then_some(sum);
        let sum_of = |counts: &[u64]| counts.iter().fold(0_u64, |sum, one| sum.wrapping_add(*one));
        let value = match (self, point.value) {
            (Self::Sum(number), _) => {
                PointValue::Sum { value: Some(*number), monotonic: true, temporality }
            }
            (Self::Classic { counts, sum, .. }, PointValue::Histogram { point, .. }) => {
                let mut grown = HistogramPoint::default();
                (grown.count, grown.sum) = (sum_of(counts), known(*sum));
                (grown.buckets, grown.bounds) = (counts, point.bounds);
                PointValue::Histogram { point: grown, temporality }
            }
            (Self::Exponential(of), _) => {
                let mut grown = ExponentialPoint::default();
                let (positive, negative) = (&of.positive.counts, &of.negative.counts);
                grown.count = of.zero_count.wrapping_add(sum_of(positive));
                grown.count = grown.count.wrapping_add(sum_of(negative));
                (grown.sum, grown.scale) = (known(of.sum), of.scale);
                (grown.zero_count, grown.zero_threshold) = (of.zero_count, of.zero_threshold);
                (grown.positive, grown.negative) = (of.positive.shown(), of.negative.shown());
                PointValue::Exponential { point: grown, temporality }
            }
            // Unreachable, because a delta has the kind of its point.
            (Self::Classic { .. }, _) => return,
        };
        requests.push_point(id, &point.value(value));
    }
}

impl Exponential {
    fn from_point(point: &ExponentialPoint<'_>) -> Self {
        Self {
            scale: point.scale,
            zero_threshold: point.zero_threshold,
            zero_count: point.zero_count,
            positive: Buckets::from_point(&point.positive),
            negative: Buckets::from_point(&point.negative),
            sum: point.sum.unwrap_or(0.0),
        }
    }

    /// Returns the growth since `last`, in the coarser of both scales, because pairs of buckets can
    /// be merged into buckets of the next coarser scale.
    fn minus(&self, last: &Self) -> Option<Self> {
        if self.zero_threshold.to_bits() != last.zero_threshold.to_bits() {
            return None;
        }
        let scale = self.scale.min(last.scale);
        let side = |now: &Buckets, before: &Buckets| {
            now.merged(self.scale - scale).minus(&before.merged(last.scale - scale))
        };
        Some(Self {
            scale,
            zero_threshold: self.zero_threshold,
            zero_count: self.zero_count.checked_sub(last.zero_count)?,
            positive: side(&self.positive, &last.positive)?,
            negative: side(&self.negative, &last.negative)?,
            sum: self.sum - last.sum,
        })
    }
}

impl Buckets {
    fn from_point(buckets: &ExponentialBuckets<'_>) -> Self {
        Self { offset: buckets.offset.into(), counts: buckets.counts.into() }
    }

    /// Merges each `2^times` neighbouring buckets into one.
    fn merged(&self, times: i32) -> Self {
        let index = |at: usize| (self.offset + at as i64) >> times.clamp(0, 62);
        let mut merged = Self { offset: index(0), counts: Vec::new() };
        for (at, count) in self.counts.iter().enumerate() {
            let at = (index(at) - merged.offset) as usize;
            merged.counts.resize(at + 1, 0);
            merged.counts[at] += count;
        }
        merged
    }

    fn minus(mut self, last: &Self) -> Option<Self> {
        for (at, count) in last.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let at = usize::try_from(last.offset + at as i64 - self.offset).ok()?;
            let now = self.counts.get_mut(at)?;
            *now = now.checked_sub(*count)?;
        }
        let first = self.counts.iter().position(|count| *count > 0).unwrap_or(self.counts.len());
        self.counts.drain(..first);
        self.offset += first as i64;
        let last = self.counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        self.counts.truncate(last);
        Some(self)
    }

    fn shown(&self) -> ExponentialBuckets<'_> {
        let mut shown = ExponentialBuckets::default();
        if !self.counts.is_empty() {
            shown.offset = self.offset as i32; // As the sender's, or between it and 0.
            shown.counts = &self.counts;
        }
        shown
    }
}

/// Returns the growth of a number; `None` if it decreased.
fn added(now: Number, last: Number) -> Option<Number> {
    if let (Number::Int(now), Number::Int(last)) = (now, last) {
        return (now >= last).then(|| Number::Int(now.wrapping_sub(last)));
    }
    let (now, last) = (now.as_f64(), last.as_f64());
    // The difference to NaN is unknown, so there is no growth.
    if now.is_nan() || last.is_nan() || now == last {
        return Some(Number::Int(0));
    }
    (now > last).then_some(Number::Double(now - last))
}

/// Returns the exemplars that are not older than this time.
fn exemplars_since<'p>(start_ns: u64, exemplars: &[NewExemplar<'p>]) -> Vec<NewExemplar<'p>> {
    exemplars.iter().filter(|one| one.time_ns.unwrap_or(0) >= start_ns).copied().collect()
}

fn delta(value: PointValue<'_>) -> PointValue<'_> {
    let temporality = Temporality::Delta;
    match value {
        PointValue::Sum { value, monotonic, .. } => {
            PointValue::Sum { value, monotonic, temporality }
        }
        PointValue::Histogram { point, .. } => PointValue::Histogram { point, temporality },
        PointValue::Exponential { point, .. } => PointValue::Exponential { point, temporality },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::requests::identity;

    /// Returns the start and the value of each sent point after these points were read.
    fn step(
        last: &Totals,
        time_ns: u64,
        points: &[(&str, u64, PointValue<'_>)],
    ) -> (Vec<String>, Totals) {
        let hash = last.hash();
        let writer = Points::new(Form::Points, time_ns);
        let mut requests = Requests::new(writer, 0, Coding::Plain, hash);
        let mut converter = DeltaConverter::new(last, time_ns, 50);
        for (name, start_ns, value) in points {
            requests.begin_metric(name, "", "");
            converter.begin(name, "", "");
            let start_ns = Some(*start_ns).filter(|start| *start != 0);
            let point = NewPoint::new(time_ns, *value).start_ns(start_ns);
            converter.push(&mut requests, identity(hash, name, &[]), &point);
        }
        let totals = converter.finish();
        let mut sent = Vec::new();
        let mut see = |metric: &MetricDescription<'_>, _, point: &NewPoint<'_>| {
            let value = match point.value {
                PointValue::Sum { value, temporality: Temporality::Delta, .. } => {
                    format!("{}", value.unwrap().as_f64())
                }
                PointValue::Gauge(value) => format!("gauge {}", value.unwrap().as_f64()),
                PointValue::Histogram { point, temporality: Temporality::Delta } => {
                    format!("{} {:?} {:?}", point.count, point.sum, point.buckets)
                }
                PointValue::Exponential { point, temporality: Temporality::Delta } => {
                    let (positive, zero) = (point.positive, point.zero_count);
                    let buckets = format!("{}{:?}", positive.offset, positive.counts);
                    format!("{} scale {} zero {zero} {buckets}", point.count, point.scale)
                }
                other => panic!("{other:?}"),
            };
            let start = point.start_ns.unwrap_or(0);
            sent.push(format!("{} {start}-{} {value}", metric.name, point.time_ns));
        };
        for body in requests.finish().bodies {
            assert!(each_point(&body.expand().unwrap(), &BaseResource::default(), hash, &mut see));
        }
        (sent, totals)
    }

    fn sum(total: i64) -> PointValue<'static> {
        let value = Some(Number::Int(total));
        PointValue::Sum { value, monotonic: true, temporality: Temporality::Cumulative }
    }

    fn restored(totals: Totals) -> Totals {
        let hash = SeededState::default();
        Totals::restore(totals.time_ns, totals.bodies, &hash).unwrap()
    }

    #[test]
    fn growth_is_sent_once() {
        let none = Totals::none(&SeededState::default());
        let level = ("level", 0, PointValue::Gauge(Some(Number::Double(0.5))));
        let first = [("a", 7, sum(5)), ("b", 0, sum(0)), level];
        let (sent, totals) = step(&none, 100, &first);
        assert_eq!(sent, ["a 7-100 5", "b 50-100 0", "level 0-100 gauge 0.5"]);
        // Series without growth are omitted. A new series counts from its start.
        let (sent, totals) =
            step(&totals, 200, &[("a", 7, sum(8)), ("b", 0, sum(0)), ("c", 150, sum(2))]);
        assert_eq!(sent, ["a 100-200 3", "c 150-200 2"]);
        // An ended series continues from its total, even after a restart.
        let (sent, totals) = step(&restored(totals), 300, &[("b", 0, sum(1))]);
        assert_eq!(sent, ["b 200-300 1"]);
        let (sent, totals) = step(&totals, 400, &[("a", 7, sum(9)), ("c", 350, sum(1))]);
        // A restarted series counts from zero.
        assert_eq!(sent, ["a 200-400 1", "c 350-400 1"]);
        let (sent, totals) = step(&totals, 500, &[("a", 7, sum(4)), ("b", 0, sum(3))]);
        assert_eq!(sent, ["a 400-500 4", "b 300-500 2"]);
        // After a power loss, the total of a series can be less without a restart.
        let totals = restored(totals);
        let (sent, totals) = step(&totals, 600, &[("a", 7, sum(2)), ("b", 0, sum(2))]);
        assert_eq!(sent, ["b 500-600 2"]);
        let (sent, _) = step(&totals, 700, &[("a", 7, sum(5))]);
        assert_eq!(sent, ["a 600-700 3"]);
    }

    #[test]
    fn numbers_of_both_types_are_subtracted() {
        let (int, double) = (Number::Int, Number::Double);
        assert_eq!(added(int(i64::MAX), int(1)), Some(int(i64::MAX - 1)));
        assert_eq!(added(int(1), int(2)), None);
        assert_eq!(added(double(2.5), int(1)), Some(double(1.5)));
        assert_eq!(added(double(f64::INFINITY), double(f64::INFINITY)), Some(int(0)));
        assert_eq!(added(double(f64::NAN), double(1.0)), Some(int(0)));
        assert_eq!(added(double(1.0), double(f64::NAN)), Some(int(0)));
        assert_eq!(added(double(1.0), double(2.0)), None);
    }

    #[test]
    fn a_total_that_is_not_a_number_for_a_while_is_omitted() {
        let nan = PointValue::Sum {
            value: Some(Number::Double(f64::NAN)),
            monotonic: true,
            temporality: Temporality::Cumulative,
        };
        let (sent, totals) = step(&Totals::none(&SeededState::default()), 100, &[("a", 7, sum(5))]);
        assert_eq!(sent, ["a 7-100 5"]);
        let (sent, totals) = step(&totals, 200, &[("a", 7, nan), ("b", 7, nan)]);
        assert!(sent.is_empty(), "{sent:?}");
        let (sent, totals) = step(&restored(totals), 300, &[("a", 7, nan), ("b", 7, sum(2))]);
        assert_eq!(sent, ["b 7-300 2"]);
        let (sent, _) = step(&totals, 400, &[("a", 7, sum(7)), ("b", 7, sum(2))]);
        assert_eq!(sent, ["a 100-400 2"]);
    }

    #[test]
    fn buckets_are_subtracted_one_by_one() {
        let temporality = Temporality::Cumulative;
        let classic = |bounds: &'static [f64], buckets: &'static [u64], sum| {
            let mut point = HistogramPoint::default();
            (point.buckets, point.bounds, point.sum) = (buckets, bounds, Some(sum));
            point.count = buckets.iter().sum();
            ("h", 1, PointValue::Histogram { point, temporality })
        };
        let none = Totals::none(&SeededState::default());
        let (sent, totals) = step(&none, 100, &[classic(&[1.0], &[2, 1], 3.5)]);
        assert_eq!(sent, ["h 1-100 3 Some(3.5) [2, 1]"]);
        let (sent, totals) = step(&totals, 200, &[classic(&[1.0], &[2, 4], 9.0)]);
        assert_eq!(sent, ["h 100-200 3 Some(5.5) [0, 3]"]);
        let (sent, _) = step(&totals, 300, &[classic(&[2.0], &[3, 4], 9.0)]);
        assert_eq!(sent, ["h 200-300 7 Some(9.0) [3, 4]"]);

        let native = |scale, offset, counts: &'static [u64], zero_count| {
            let mut point = ExponentialPoint::default();
            (point.scale, point.zero_count) = (scale, zero_count);
            (point.positive.offset, point.positive.counts) = (offset, counts);
            point.count = zero_count + counts.iter().sum::<u64>();
            ("n", 1, PointValue::Exponential { point, temporality })
        };
        let (_, totals) = step(&none, 100, &[native(2, -3, &[1, 0, 2, 4], 1)]);
        let (sent, totals) = step(&totals, 200, &[native(2, -3, &[1, 0, 3, 4, 0, 5], 1)]);
        assert_eq!(sent, ["n 100-200 6 scale 2 zero 0 -1[1, 0, 0, 5]"]);
        // Coarser: the buckets -3 to 2 become -2 to 1.
        let (sent, totals) = step(&restored(totals), 300, &[native(1, -2, &[1, 3, 5, 5], 2)]);
        assert_eq!(sent, ["n 200-300 2 scale 1 zero 1 0[1]"]);
        // Finer again, for example after the process with the coarser buckets ended.
        let (sent, _) = step(&totals, 400, &[native(2, -3, &[1, 0, 3, 5, 0, 5, 7], 2)]);
        assert_eq!(sent, ["n 300-400 7 scale 1 zero 0 1[7]"]);
    }
}
