//! `quipu inspect --history`: shows the recording of a segment's flight recorder, as the samples
//! that an exposition would have contained at each tick.
//!
//! The file can be in use and is not trusted. [`Recording`] limits the reading, and this module
//! limits the number of values.

mod json;
mod report;

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use quipu::snapshot::{Decoder, Kind};
use quipu_segment::inspect::Inspection;

use super::InspectFormat;
use super::names::{append_label, number, series_name};
use crate::look::{Look, Moment, Recording, Value, Writer};

/// The recorded values of all ticks to show.
pub(super) struct History {
    recording: Recording,
    ticks: Vec<Moment>,
    /// The number of hidden ticks at the beginning: 1 if the first tick only provides the start of
    /// the first rates, otherwise 0.
    skipped: usize,
    samples: Vec<Sample>,
}

/// The values of a sample over time. A histogram, for example, consists of several adjacent
/// samples, such as its count and its sum.
struct Sample {
    /// The metric name, with the suffix of the sample.
    metric: String,
    /// The name with all labels, in the syntax of an exposition.
    name: String,
    kind: SampleKind,
    /// A value for each tick; NaN if there is none.
    values: Vec<f64>,
}

/// The kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SampleKind {
    /// A value that rises and falls.
    Level,
    /// The total of a counter.
    Total,
    /// The number of observations.
    Count,
    /// The sum of observations. It follows their number, if this is known.
    Sum,
    /// The number of observations up to a bound.
    Bucket,
}

/// A line to show: the values of a gauge, or the growth of a total.
struct Curve<'h> {
    /// The unit after the name: `/s` for growth, `(mean)`, or empty.
    unit: &'static str,
    name: &'h str,
    /// A point for each tick; NaN if there is none.
    points: Vec<f64>,
}

/// The maximum number of values over all ticks. They take 256 MiB.
const MAX_VALUES: usize = 1 << 25;

impl History {
    /// Reads the last part of the recording, of these metrics, or of all metrics if the list is
    /// empty.
    pub(super) fn read(
        file: &Path,
        inspection: Inspection,
        last: Duration,
        metrics: &[String],
        format: InspectFormat,
    ) -> Result<Self, String> {
        let families = inspection.report().families.iter();
        let names = families.map(|family| {
            [Decoder::new(&family.schema).family(&[]).text_name(), family.schema.name.clone()]
        });
        let names: Vec<[String; 2]> = names.collect();
        let is_there = |name: &&String| names.iter().any(|own| own.contains(name));
        if let Some(name) = metrics.iter().find(|name| !is_there(name)) {
            return Err(format!("no metric is named {name:?}; `quipu inspect` lists all of them"));
        }
        let is_wanted =
            |own: &[String; 2]| metrics.is_empty() || metrics.iter().any(|name| own.contains(name));
        let wanted = names.into_iter().filter(is_wanted).map(|[shown, _]| shown).collect();
        let mut recording = Recording::new(file, inspection)?;
        let moments = recording.moments();
        let end = moments.last().map_or(0, |moment| moment.time);
        let since = end.saturating_sub(u64::try_from(last.as_nanos()).unwrap_or(u64::MAX));
        let first = moments.partition_point(|moment| moment.time < since);
        let range = first.saturating_sub(1)..moments.len();
        let (mut ticks, mut index, mut samples) = (Vec::new(), HashMap::new(), Vec::new());
        let (with_buckets, count) = (format == InspectFormat::Json, range.len());
        let has_too_many = Cell::new(false);
        recording.visit(range, &|| has_too_many.get(), |moment, look| {
            add(&look, ticks.len(), &wanted, with_buckets, &mut index, &mut samples);
            ticks.push(moment);
            has_too_many.set(samples.len().saturating_mul(count) > MAX_VALUES);
        });
        if has_too_many.get() {
            return Err(format!(
                "its history has more than {MAX_VALUES} values; use --last or --metric for a part"
            ));
        }
        // The previous tick may have been overwritten in the meantime.
        let skipped = usize::from(ticks.first().is_some_and(|tick: &Moment| tick.time < since));
        samples.retain(|sample| sample.values.len() > skipped);
        samples.iter_mut().for_each(|sample| sample.values.resize(ticks.len(), f64::NAN));
        Ok(Self { recording, ticks, skipped, samples })
    }

    /// Writes the history in a format. Returns whether the file is undamaged.
    pub(super) fn write(
        &self,
        format: InspectFormat,
        file: &Path,
        out: &mut impl Write,
    ) -> io::Result<bool> {
        match format {
            InspectFormat::Json => json::write(self, file, out)?,
            // `run` has already refused OpenMetrics.
            InspectFormat::Text | InspectFormat::Openmetrics => report::write(self, file, out)?,
        }
        Ok(self.recording.damage().next().is_none())
    }

    /// Returns the ticks that are shown.
    fn shown(&self) -> &[Moment] {
        &self.ticks[self.skipped..]
    }

    /// Returns the nanoseconds between the first and the last tick in the recorder.
    fn held(&self) -> u64 {
        let moments = self.recording.moments();
        let (first, last) = (moments.first(), moments.last());
        first.zip(last).map_or(0, |(first, last)| last.time.saturating_sub(first.time))
    }

    /// Returns whether the process that records is alive; `None` if this is unknown.
    fn is_alive(&self) -> Option<bool> {
        match self.recording.writer() {
            Writer::Lives => Some(true),
            Writer::Ended | Writer::Died => Some(false),
            Writer::Unknown => None,
        }
    }

    /// Returns the ticks before and after each gap.
    fn gaps(&self) -> impl Iterator<Item = (Moment, Moment)> {
        let longest = self.recording.longest_step();
        let pairs = self.shown().windows(2).map(|pair| (pair[0], pair[1]));
        pairs.filter(move |(from, to)| to.time.saturating_sub(from.time) > longest)
    }

    /// Returns the lines to show.
    fn curves(&self) -> Vec<Curve<'_>> {
        let mut curves = Vec::new();
        for (at, sample) in self.samples.iter().enumerate() {
            let count = at.checked_sub(1).and_then(|at| self.samples.get(at));
            let count = count.filter(|before| before.kind == SampleKind::Count);
            let (unit, points) = match (sample.kind, count) {
                (SampleKind::Bucket, _) => continue,
                (SampleKind::Level, _) => ("", sample.values[self.skipped..].to_vec()),
                (SampleKind::Sum, Some(count)) => ("(mean)", self.means(sample, count)),
                _ => ("/s", self.rates(sample)),
            };
            curves.push(Curve { unit, name: &sample.name, points });
        }
        curves
    }

    /// Returns the values at each tick, with the values at the previous tick.
    fn steps(&self, sample: &Sample) -> impl Iterator<Item = (f64, f64)> {
        let before = |at: usize| at.checked_sub(1).map_or(f64::NAN, |before| sample.values[before]);
        (self.skipped..self.ticks.len()).map(move |at| (before(at), sample.values[at]))
    }

    /// Returns the growth of a total per second; NaN if it is unknown. A total that decreased began
    /// again from zero.
    fn rates(&self, totals: &Sample) -> Vec<f64> {
        let ticks = self.skipped..self.ticks.len();
        // Without a previous tick, the previous value is NaN, and so is the first rate.
        let then = |at: usize| at.checked_sub(1).map_or(0, |before| self.ticks[before].time);
        let passed = ticks.map(|at| self.ticks[at].time.saturating_sub(then(at)));
        let rates = passed.zip(self.steps(totals)).map(|(passed, (before, now))| {
            let by = if now < before { now } else { now - before };
            by / (passed as f64 / 1e9)
        });
        rates.collect()
    }

    /// Returns the mean of the observations since the previous tick; NaN if there were none.
    fn means(&self, sums: &Sample, counts: &Sample) -> Vec<f64> {
        let means = self.steps(sums).zip(self.steps(counts)).map(|(sums, counts)| {
            let count = counts.1 - counts.0;
            if count > 0.0 { (sums.1 - sums.0) / count } else { f64::NAN }
        });
        means.collect()
    }
}

/// Adds the values of the selected families at the tick with this index.
fn add(
    look: &Look,
    tick: usize,
    wanted: &HashSet<String>,
    with_buckets: bool,
    index: &mut HashMap<(Kind, String), usize>,
    samples: &mut Vec<Sample>,
) {
    for series in look.series() {
        let family = &look.families()[series.family as usize];
        if family.kind == Kind::Info || !wanted.contains(&family.name) {
            continue;
        }
        let name = series_name(&family.name, series.labels);
        let mut at = *index.entry((family.kind, name)).or_insert(samples.len());
        let mut put = |suffix: &str, bound: Option<f64>, kind, value| {
            if at == samples.len() {
                let (metric, mut labels) =
                    (format!("{}{suffix}", family.name), series.labels.to_owned());
                if let Some(bound) = bound {
                    labels.push_str(if labels.is_empty() { "" } else { "," });
                    append_label(&mut labels, "le", &number(bound));
                }
                let name = series_name(&metric, &labels);
                samples.push(Sample { metric, name, kind, values: Vec::new() });
            }
            let values = &mut samples[at].values;
            values.resize(tick, f64::NAN);
            values.push(value);
            at += 1;
        };
        let kind = if family.kind == Kind::Counter { SampleKind::Total } else { SampleKind::Level };
        match series.value {
            Value::Number(n) => put("", None, kind, n.as_f64()),
            Value::Histogram { count, sum, buckets, .. } => {
                let mut up_to = 0.0;
                for (bound, n) in buckets.iter().filter(|_| with_buckets) {
                    up_to += n;
                    put("_bucket", Some(*bound), SampleKind::Bucket, up_to);
                }
                // The count is unknown for exponential buckets, because a recording does not
                // contain them.
                if !count.is_nan() {
                    put("_count", None, SampleKind::Count, count);
                }
                put("_sum", None, SampleKind::Sum, sum);
            }
            Value::Summary { count, sum, .. } => {
                put("_count", None, SampleKind::Count, count);
                put("_sum", None, SampleKind::Sum, sum);
            }
        }
    }
}

/// Formats a number with a few digits.
fn short(n: f64) -> String {
    if n.is_nan() {
        return "-".into();
    }
    if n != 0.0 && !(1e-3..1e15).contains(&n.abs()) {
        return format!("{n:.2e}");
    }
    let text = format!("{n:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}
