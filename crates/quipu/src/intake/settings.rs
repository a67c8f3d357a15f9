//! The needs of a value's family: its kind, its cells, and the settings in its record.

use super::class::Class;
use super::input::{InputValue, Metric, Mode, Shape};
use super::rejection::Rejection;
use super::table::FamilyNeeds;
use crate::description::DEFAULT_ZERO_THRESHOLD;
use crate::kind::{
    AnyKind, FINEST, GAUGE_TIME, GAUGE_VALUE, GaugeKind, HistogramLayout, KEEPS_EXEMPLARS,
    KEEPS_TIMES, MAX_BOUNDS, MetricKind, MixedCounter, Relay, RelayCounter, RelayHistogram,
    RelaySummary, SCHEMAS, SUMMARY_SUM, SummaryLayout, Total, UnknownKind, last_index,
};
use crate::snapshot::{Kind, Native};

/// The maximum number of buckets of a native histogram that other programs send; the same as in the
/// library.
const NATIVE_BUCKETS: u16 = 384;
/// The maximum number of exponential buckets in one value.
const INPUT_BUCKETS: usize = 4096;
/// The maximum number of cells of a series.
const MAX_CELLS: usize = quipu_segment::series::MAX_CELLS as usize;
const GAUGE_CELLS: u16 = GAUGE_TIME as u16 + 1;
const GAUGE_FLOATS: u64 = 1 << GAUGE_VALUE;
/// A relayed series stores no sums that lanes could hold, so none of its cells counts as a float.
const RELAY_FLOATS: u64 = 0;

/// Returns the needs of the family of a complete value. Writes the settings into `settings`.
pub(super) fn family_needs<'a>(
    metric: &Metric<'a>,
    input: &InputValue<'_>,
    mode: Mode,
    settings: &'a mut Vec<u8>,
) -> Result<FamilyNeeds<'a>, Rejection> {
    settings.clear();
    // In groups, one series is added to and another of the same family is replaced.
    let adds = mode == Mode::Add && !metric.grouped;
    let (kind, cells, floats) = match input {
        InputValue::Observation { .. } => return of_shape(metric, settings),
        InputValue::Counter(_) if adds => {
            (MixedCounter::NUMBER, MixedCounter::EXEMPLAR, MixedCounter::FLOATS)
        }
        InputValue::Counter(_) => (RelayCounter::NUMBER, RelayCounter::EXEMPLAR, RELAY_FLOATS),
        InputValue::Gauge(_) => (GaugeKind::NUMBER, GAUGE_CELLS.into(), GAUGE_FLOATS),
        InputValue::Unknown(_) => (UnknownKind::NUMBER, GAUGE_CELLS.into(), GAUGE_FLOATS),
        InputValue::Histogram { buckets, .. } => {
            let bounds = buckets.split_last().map_or(&[][..], |(_, bounds)| bounds);
            let bounds = bounds.iter().map(|(bound, _)| *bound);
            let count = buckets.len().saturating_sub(1);
            if adds {
                put_histogram(None, bounds, settings);
                (HistogramLayout::NUMBER, CLASSIC_CELLS + count, HistogramLayout::FLOATS)
            } else {
                put_numbers(bounds, settings);
                (RelayHistogram::NUMBER, RelayHistogram::exemplars(count), RELAY_FLOATS)
            }
        }
        InputValue::Native { buckets, .. } => {
            // Sources change their schemas: the tables of one series can use several.
            let shape = (FINEST, NATIVE_BUCKETS, buckets.zero_threshold);
            put_histogram(Some(shape), [].into_iter(), settings);
            (HistogramLayout::NUMBER, NATIVE_CELLS, HistogramLayout::FLOATS)
        }
        InputValue::Summary { quantiles, .. } => {
            put_numbers(quantiles.iter().map(|(quantile, _)| *quantile), settings);
            let cells = Relay::cells(RelaySummary::VALUES) + quantiles.len();
            (RelaySummary::NUMBER, cells, RELAY_FLOATS)
        }
    };
    wanted(metric, kind, cells, floats, (adds, settings))
}

/// Like [`family_needs`], for single observations.
fn of_shape<'a>(
    metric: &Metric<'a>,
    settings: &'a mut Vec<u8>,
) -> Result<FamilyNeeds<'a>, Rejection> {
    let (kind, cells, floats) = match metric.shape.ok_or(Rejection::Buckets)? {
        Shape::Classic(bounds) => {
            check_ascending(bounds.iter().copied(), MAX_BOUNDS)?;
            // The library adds the last bound.
            let bounds = bounds.iter().copied().filter(|bound| *bound != f64::INFINITY);
            put_histogram(None, bounds.clone(), settings);
            let cells = CLASSIC_CELLS + bounds.count();
            (HistogramLayout::NUMBER, cells, HistogramLayout::FLOATS)
        }
        Shape::Native(schema, most) => {
            if !SCHEMAS.contains(schema) || !(8..=NATIVE_BUCKETS).contains(most) {
                return Err(Rejection::Buckets);
            }
            let shape = (*schema, *most, DEFAULT_ZERO_THRESHOLD);
            put_histogram(Some(shape), [].into_iter(), settings);
            (HistogramLayout::NUMBER, NATIVE_CELLS, HistogramLayout::FLOATS)
        }
        Shape::Summary(quantiles, window) => {
            check_quantiles(quantiles.iter().copied())?;
            let window = (*window).max(SummaryLayout::MIN_WINDOW);
            let nanos = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
            settings.extend_from_slice(&nanos.to_le_bytes());
            put_numbers(quantiles.iter().copied(), settings);
            (SummaryLayout::NUMBER, SummaryLayout::CELLS.into(), 1 << SUMMARY_SUM)
        }
    };
    wanted(metric, kind, cells, floats, (false, settings))
}

fn wanted<'a>(
    metric: &Metric<'a>,
    kind: u8,
    cells: usize,
    floats: u64,
    (adds, settings): (bool, &'a mut Vec<u8>),
) -> Result<FamilyNeeds<'a>, Rejection> {
    let has_no_exemplars = [SummaryLayout::NUMBER, RelaySummary::NUMBER].contains(&kind);
    let keeps_exemplars = metric.exemplars && !has_no_exemplars;
    // A native histogram can be followed; the others store the time of the last increment.
    let is_native = kind == HistogramLayout::NUMBER && settings.get(1) == Some(&1);
    let may_keep = [HistogramLayout::NUMBER, MixedCounter::NUMBER].contains(&kind);
    let keeps_time = is_native || metric.streams && adds && keeps_exemplars && may_keep;
    if kind == HistogramLayout::NUMBER
        && let Some(first) = settings.first_mut()
    {
        let bit = |keeps, bit| if keeps { bit } else { 0 };
        *first = bit(keeps_exemplars, KEEPS_EXEMPLARS) | bit(keeps_time, KEEPS_TIMES);
    }
    let cells = cells + usize::from(keeps_exemplars) + usize::from(keeps_time);
    if cells > MAX_CELLS {
        return Err(Rejection::Buckets);
    }
    let is_counter = kind == MixedCounter::NUMBER || kind == RelayCounter::NUMBER;
    let class = Class { bare: is_counter, grouped: metric.grouped, ..Class::default() };
    // At most MAX_CELLS.
    let (shown, cells) = (shown(kind), cells as u16);
    Ok(FamilyNeeds { name: metric.name, kind, shown, cells, floats, class, settings })
}

/// Returns the cell of the time of the last sample or increment, in a family with this number of
/// cells, if the family stores this time and is not relayed.
pub(super) fn time_cell(kind: &AnyKind, cells: u16) -> Option<usize> {
    let if_there = |time: usize| (usize::from(cells) > time).then_some(time);
    match kind {
        AnyKind::MixedCounter(_) => if_there(MixedCounter::EXEMPLAR + 1),
        AnyKind::Gauge(_) | AnyKind::Unknown(_) => if_there(GAUGE_TIME),
        AnyKind::Histogram(layout) => layout.time(),
        _ => None,
    }
}

/// Returns the other kind that takes values of the same type, with its settings: a family is added
/// to, or it follows totals.
pub(super) fn other_kind(wanted: &FamilyNeeds<'_>) -> Option<(u8, Vec<u8>)> {
    match wanted.kind {
        MixedCounter::NUMBER => Some((RelayCounter::NUMBER, Vec::new())),
        RelayCounter::NUMBER => Some((MixedCounter::NUMBER, Vec::new())),
        RelayHistogram::NUMBER => {
            let mut settings = classic_head();
            settings.extend_from_slice(wanted.settings);
            Some((HistogramLayout::NUMBER, settings))
        }
        HistogramLayout::NUMBER => {
            // The settings of a native histogram begin differently.
            let head = classic_head();
            let settings = identity(wanted.kind, wanted.settings);
            let bounds = settings.strip_prefix(identity(wanted.kind, &head))?;
            Some((RelayHistogram::NUMBER, bounds.to_vec()))
        }
        _ => None,
    }
}

/// Returns the settings of a classic histogram before its bounds.
fn classic_head() -> Vec<u8> {
    let mut settings = Vec::new();
    put_histogram(None, [].into_iter(), &mut settings);
    settings
}

/// Returns the type that formats show for a kind.
fn shown(kind: u8) -> Kind {
    match kind {
        MixedCounter::NUMBER | RelayCounter::NUMBER => Kind::Counter,
        GaugeKind::NUMBER => Kind::Gauge,
        HistogramLayout::NUMBER | RelayHistogram::NUMBER => Kind::Histogram,
        SummaryLayout::NUMBER | RelaySummary::NUMBER => Kind::Summary,
        _ => Kind::Unknown,
    }
}

/// Returns the settings that distinguish families of the same name: all except whether a histogram
/// keeps exemplars and times.
pub(super) fn identity(kind: u8, settings: &[u8]) -> &[u8] {
    match kind {
        HistogramLayout::NUMBER => settings.get(1..).unwrap_or_default(),
        _ => settings,
    }
}

/// The cells of a classic histogram without bounds: the sum, and the bucket of all.
const CLASSIC_CELLS: usize = 2;
/// The cells of a native histogram without classic buckets: the sum, NaN, zero, and the table.
const NATIVE_CELLS: usize = 4;

/// Writes the settings of a histogram, in the layout of `docs/formats.md`.
fn put_histogram(
    native: Option<(i8, u16, f64)>,
    bounds: impl Iterator<Item = f64>,
    settings: &mut Vec<u8>,
) {
    let (schema, most, threshold) = native.unwrap_or((0, 0, DEFAULT_ZERO_THRESHOLD));
    settings.extend_from_slice(&[0, u8::from(native.is_some()), schema.cast_unsigned(), 0]);
    settings.extend_from_slice(&most.to_le_bytes());
    settings.extend_from_slice(&[0; 2]);
    settings.extend_from_slice(&threshold.to_le_bytes());
    put_numbers(bounds, settings);
}

fn put_numbers(numbers: impl Iterator<Item = f64>, settings: &mut Vec<u8>) {
    numbers.for_each(|number| settings.extend_from_slice(&number.to_le_bytes()));
}

/// Checks a value before it changes any cell.
pub(super) fn check(input: &InputValue<'_>, mode: Mode) -> Result<(), Rejection> {
    let is_count = |count: f64| count >= 0.0 && count.is_finite();
    let adds_nan = |sum: f64| mode == Mode::Add && sum.is_nan();
    match input {
        InputValue::Counter(total) if !is_count(*total) => Err(Rejection::Value),
        InputValue::Gauge(change) | InputValue::Unknown(change)
            if mode == Mode::Add && change.is_nan() =>
        {
            Err(Rejection::Value)
        }
        InputValue::Counter(_) | InputValue::Gauge(_) | InputValue::Unknown(_) => Ok(()),
        InputValue::Histogram { buckets, sum } => {
            if !buckets.iter().all(|(_, count)| is_count(*count)) || adds_nan(*sum) {
                return Err(Rejection::Value);
            }
            if buckets.last().is_none_or(|(bound, _)| *bound != f64::INFINITY) {
                return Err(Rejection::Buckets);
            }
            check_ascending(buckets.iter().map(|(bound, _)| *bound), MAX_BOUNDS + 1)
        }
        InputValue::Observation { value, weight } => {
            let is_good = !value.is_nan() && (0.0..=MAX_WEIGHT).contains(weight);
            if is_good { Ok(()) } else { Err(Rejection::Value) }
        }
        InputValue::Native { sum, .. } if adds_nan(*sum) => Err(Rejection::Value),
        InputValue::Native { buckets, .. } => check_native(buckets),
        InputValue::Summary { quantiles, count, sum } => {
            if !is_count(*count) || adds_nan(*sum) {
                return Err(Rejection::Value);
            }
            check_quantiles(quantiles.iter().map(|(quantile, _)| *quantile))
        }
    }
}

fn check_native(buckets: &Native<'_>) -> Result<(), Rejection> {
    let sides = [buckets.positive, buckets.negative];
    let is_threshold = buckets.zero_threshold >= 0.0 && buckets.zero_threshold.is_finite();
    let is_ascending = |side: &[(i32, u64)]| side.windows(2).all(|two| two[0].0 < two[1].0);
    let is_index = |(i, _): &(i32, u64)| i.unsigned_abs() <= last_index(buckets.schema);
    let is_good = is_threshold
        && SCHEMAS.contains(&buckets.schema)
        && sides.iter().all(|side| is_ascending(side) && side.iter().all(is_index))
        && sides.iter().map(|side| side.len()).sum::<usize>() <= INPUT_BUCKETS;
    if is_good { Ok(()) } else { Err(Rejection::Buckets) }
}

fn check_ascending(numbers: impl Iterator<Item = f64>, most: usize) -> Result<(), Rejection> {
    let (mut last, mut count) = (f64::NEG_INFINITY, 0);
    for number in numbers {
        // NaN is not greater than any number. The first can be -Inf.
        if !(number > last || (count == 0 && number == last)) || count == most {
            return Err(Rejection::Buckets);
        }
        (last, count) = (number, count + 1);
    }
    Ok(())
}

fn check_quantiles(mut quantiles: impl Iterator<Item = f64> + Clone) -> Result<(), Rejection> {
    check_ascending(quantiles.clone(), MAX_QUANTILES)?;
    let is_good = quantiles.all(|quantile| (0.0..=1.0).contains(&quantile));
    if is_good { Ok(()) } else { Err(Rejection::Buckets) }
}

/// The greatest weight of an observation.
const MAX_WEIGHT: f64 = 1e15;
/// The maximum number of quantiles of a summary.
const MAX_QUANTILES: usize = 100;
