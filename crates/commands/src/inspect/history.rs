//! `quipu inspect --history`: what the flight recorder of a segment recorded, as the samples that
//! an exposition would have shown at each tick.
//!
//! The file may be in use, and is not trusted: `quipu_segment` reads it with bounds. Here, the
//! number of values has one.

mod json;
mod report;

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use quipu_segment::history::{RecordingInfo, SeriesId, Tick};
use quipu_segment::inspect::{FamilySeen, Inspection, SeriesSeen};

use super::FormatName;
use super::openmetrics::{number, series_text};
use super::value::{Type, Value, shown_name, value};
use crate::look::NO_RECORDER;

/// What was recorded, up to the last tick.
pub(super) struct History {
    /// When the ticks were, as the segment's time and as the wall clock's, in nanoseconds.
    ticks: Vec<(u64, u64)>,
    /// The segment's time at the tick before the first one: the first rates are since then.
    before: Option<u64>,
    tracks: Vec<Track>,
    /// The nanoseconds from the first tick that the recorder holds to the last one.
    held: u64,
    replayed: RecordingInfo,
    /// Whether the process that records lives; `None` if that is not known.
    is_alive: Option<bool>,
    damage: Vec<(u64, String)>,
}

/// A series.
struct Track {
    id: SeriesId,
    samples: Vec<Sample>,
}

/// A value of a series: a series may have several, such as the count and the sum of a histogram.
struct Sample {
    /// The name of the metric, with the suffix of the value.
    metric: String,
    /// The label that distinguishes it from others of its series.
    label: Option<(String, String)>,
    /// With all labels, as an exposition writes it.
    name: String,
    kind: SampleKind,
    /// NaN where there is none.
    values: Vec<f64>,
    /// The value at the tick before the first one; NaN if there is none.
    before: f64,
}

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SampleKind {
    /// It goes up and down.
    Level,
    /// The total of a counter.
    Total,
    /// The number of observations.
    Count,
    /// The sum of observations, after their number if that is known.
    Sum,
    /// The number of observations up to a bound.
    Bucket,
}

impl Sample {
    /// The values at the tick before each tick and at the tick.
    fn steps(&self) -> impl Iterator<Item = (f64, f64)> {
        let before = std::iter::once(self.before).chain(self.values.iter().copied());
        before.zip(self.values.iter().copied())
    }

    /// A sample without values, whose labels are not yet known.
    fn new(metric: String, label: Option<(String, String)>, kind: SampleKind) -> Self {
        let (name, values, before) = (String::new(), Vec::new(), f64::NAN);
        Self { metric, label, name, kind, values, before }
    }
}

/// How a value went: the values of a gauge, or the growth of a total.
struct Curve {
    /// What of the metric is shown: `/s` for growth, `(mean)`, or nothing.
    unit: &'static str,
    name: String,
    /// NaN where there is none.
    points: Vec<f64>,
}

/// The most values of all ticks together: 256 MiB.
const MAX_VALUES: usize = 1 << 25;

impl History {
    /// Reads the last part of what was recorded, of these metrics, or of all if there are none.
    pub(super) fn read(
        inspection: &Inspection,
        last: Duration,
        metrics: &[String],
        format: FormatName,
    ) -> Result<Self, String> {
        let families: HashMap<u64, &FamilySeen> =
            inspection.report().families.iter().map(|family| (family.at, family)).collect();
        let is_named = |name: &String, family: &FamilySeen| {
            *name == family.schema.name || *name == shown_name(&family.schema)
        };
        let is_there = |name: &&String| families.values().any(|family| is_named(name, family));
        if let Some(name) = metrics.iter().find(|name| !is_there(name)) {
            return Err(format!("no metric is named {name:?}; `quipu inspect` lists all of them"));
        }
        let mut times = Vec::new();
        let replayed = inspection.history(0..=u64::MAX, |tick| times.push(tick.time));
        let replayed = replayed.ok_or(NO_RECORDER)?;
        let end = times.last().copied().unwrap_or(0);
        let held = end.saturating_sub(times.first().copied().unwrap_or(end));
        let since = end.saturating_sub(u64::try_from(last.as_nanos()).unwrap_or(u64::MAX));
        let before = times.iter().rposition(|&time| time < since).map(|at| times[at]);
        let first = before.unwrap_or(since);
        let mut collector = Collector {
            families: &families,
            is_wanted: &|family: Option<&FamilySeen>| {
                metrics.is_empty()
                    || family
                        .is_some_and(|family| metrics.iter().any(|name| is_named(name, family)))
            },
            with_buckets: format == FormatName::Json,
            index: HashMap::new(),
            ticks: Vec::new(),
            tracks: Vec::new(),
            left: MAX_VALUES,
        };
        inspection.history(first..=u64::MAX, |tick| {
            if tick.time >= first {
                collector.add(tick);
            }
        });
        let Collector { mut ticks, mut tracks, left, .. } = collector;
        let samples: usize = tracks.iter().map(|track| track.samples.len()).sum();
        // Below, each of them gets a value for each tick.
        if left == 0 || samples.saturating_mul(ticks.len()) > MAX_VALUES {
            return Err(format!(
                "its history has more than {MAX_VALUES} values; use --last or --metric for a part"
            ));
        }
        let mut damage: Vec<(u64, String)> =
            inspection.report().damage.iter().map(|one| (one.at, one.what.clone())).collect();
        damage.extend(replayed.damage.iter().cloned());
        // The tick before may have been overwritten in the meantime.
        let before = before.filter(|_| ticks.first().is_some_and(|(time, _)| *time < since));
        if before.is_some() {
            tracks.retain(|track| track.samples.iter().any(|sample| sample.values.len() > 1));
        }
        for sample in tracks.iter_mut().flat_map(|track| &mut track.samples) {
            sample.values.resize(ticks.len(), f64::NAN);
            if before.is_some() {
                sample.before = sample.values.remove(0);
            }
        }
        if before.is_some() {
            ticks.remove(0);
        }
        name_samples(inspection, &mut tracks);
        let is_alive = match replayed.owner {
            0 => Some(false),
            owner => inspection.is_alive(owner),
        };
        Ok(Self { ticks, before, tracks, held, replayed, is_alive, damage })
    }

    /// Writes it in a format. Returns whether the file is sound.
    pub(super) fn write(
        &self,
        format: FormatName,
        file: &Path,
        out: &mut impl Write,
    ) -> io::Result<bool> {
        match format {
            FormatName::Json => json::write(self, file, out)?,
            // `run` has refused the other one.
            FormatName::Text | FormatName::Openmetrics => report::write(self, file, out)?,
        }
        Ok(self.damage.is_empty())
    }

    fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.tracks.iter().flat_map(|track| &track.samples)
    }

    /// The gaps between ticks: where each begins and ends, in nanoseconds of the wall clock, and
    /// its nanoseconds.
    fn gaps(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let least = self.replayed.interval.saturating_add(self.replayed.interval / 2);
        self.ticks.windows(2).filter_map(move |pair| {
            let gap = pair[1].0.saturating_sub(pair[0].0);
            (gap > least).then_some((pair[0].1, pair[1].1, gap))
        })
    }

    /// All values as they went.
    fn curves(&self) -> Vec<Curve> {
        let mut curves = Vec::new();
        for track in &self.tracks {
            for (at, sample) in track.samples.iter().enumerate() {
                let count = at.checked_sub(1).and_then(|at| track.samples.get(at));
                let count = count.filter(|before| before.kind == SampleKind::Count);
                let Sample { name, kind, values, .. } = sample;
                let (unit, points) = match (kind, count) {
                    (SampleKind::Bucket, _) => continue,
                    (SampleKind::Level, _) => ("", values.clone()),
                    (SampleKind::Sum, Some(count)) => ("(mean)", means(sample, count)),
                    _ => ("/s", self.rates(sample)),
                };
                curves.push(Curve { unit, name: name.clone(), points });
            }
        }
        curves
    }

    /// By how much a total grew in a second; NaN if it is not known. A total that is less than it
    /// was has started again from zero.
    fn rates(&self, totals: &Sample) -> Vec<f64> {
        let times = self.ticks.iter().map(|(time, _)| *time);
        // Without a tick before the first one, the value before is NaN, and so is the first rate.
        let mut then = self.before.unwrap_or(0);
        let rates = times.zip(totals.steps()).map(|(time, (before, now))| {
            let by = if now < before { now } else { now - before };
            let passed = time.saturating_sub(std::mem::replace(&mut then, time));
            by / (passed as f64 / 1e9)
        });
        rates.collect()
    }
}

/// The mean of what was observed since the tick before; NaN if nothing was.
fn means(sums: &Sample, counts: &Sample) -> Vec<f64> {
    let means = sums.steps().zip(counts.steps()).map(|(sums, counts)| {
        let count = counts.1 - counts.0;
        if count > 0.0 { (sums.1 - sums.0) / count } else { f64::NAN }
    });
    means.collect()
}

/// Gathers the values of one tick after the other.
struct Collector<'i> {
    families: &'i HashMap<u64, &'i FamilySeen>,
    is_wanted: &'i dyn Fn(Option<&FamilySeen>) -> bool,
    with_buckets: bool,
    /// The track of each series; `None` for those that are not shown.
    index: HashMap<SeriesId, Option<usize>>,
    ticks: Vec<(u64, u64)>,
    tracks: Vec<Track>,
    /// The values for which there is room.
    left: usize,
}

impl Collector<'_> {
    fn add(&mut self, tick: &Tick<'_>) {
        let at = self.ticks.len();
        self.ticks.push((tick.time, tick.unix));
        for (id, cells) in tick.series() {
            let family = self.families.get(&id.family).copied();
            let Self { is_wanted, tracks, index, .. } = self;
            let track = *index.entry(id).or_insert_with(|| {
                is_wanted(family).then(|| {
                    tracks.push(Track { id, samples: Vec::new() });
                    tracks.len() - 1
                })
            });
            let Some(track) = track else { continue };
            let samples = samples(family, id, cells, self.with_buckets);
            for (i, (sample, number)) in samples.into_iter().enumerate() {
                let own = &mut self.tracks[track].samples;
                if own.len() <= i {
                    own.push(sample);
                }
                let values = &mut own[i].values;
                let grown = at + 1 - values.len().min(at + 1);
                if self.left <= grown {
                    self.left = 0;
                    return;
                }
                self.left -= grown;
                values.resize(at, f64::NAN);
                values.push(number);
            }
        }
    }
}

/// The values of a series at a tick.
fn samples(
    family: Option<&FamilySeen>,
    id: SeriesId,
    cells: &[u64],
    with_buckets: bool,
) -> Vec<(Sample, f64)> {
    use SampleKind::{Bucket, Count, Level, Sum, Total};

    let name =
        family.map_or_else(|| format!("family_at_{}", id.family), |it| shown_name(&it.schema));
    let value = match family {
        Some(family) => value(family, &seen(id, &[], false, cells)),
        None => Value::Cells(cells.to_vec()),
    };
    let is_counter = family.is_some_and(|family| Type::of(&family.schema) == Type::Counter);
    let kind = if is_counter { Total } else { Level };
    let sample = |suffix: &str, label, kind| Sample::new(format!("{name}{suffix}"), label, kind);
    match value {
        Value::Whole(n) => vec![(sample("", None, kind), n as f64)],
        Value::Signed(n) => vec![(sample("", None, kind), n as f64)],
        Value::Float(n) => vec![(sample("", None, kind), n)],
        Value::Unset => vec![(sample("", None, kind), f64::NAN)],
        Value::Histogram { sum, buckets, is_whole } => {
            let mut samples = Vec::new();
            let mut count = 0.0;
            for (bound, n) in buckets.iter().filter(|_| is_whole) {
                count += n;
                if with_buckets {
                    let bound = ("le".to_owned(), number(*bound));
                    samples.push((sample("_bucket", Some(bound), Bucket), count));
                }
            }
            if is_whole {
                samples.push((sample("_count", None, Count), count));
            }
            samples.push((sample("_sum", None, Sum), sum));
            samples
        }
        Value::Summary { sum, count } => {
            vec![(sample("_count", None, Count), count), (sample("_sum", None, Sum), sum)]
        }
        Value::Info => Vec::new(),
        Value::States(states) => {
            let states = states.into_iter().map(|(state, is_on)| {
                let label = Some((name.clone(), state));
                (sample("", label, Level), f64::from(u8::from(is_on)))
            });
            states.collect()
        }
        Value::Cells(cells) => {
            let cells = cells.into_iter().enumerate().map(|(at, cell)| {
                let label = Some(("cell".to_owned(), at.to_string()));
                (sample("", label, Level), cell as f64)
            });
            cells.collect()
        }
    }
}

fn seen<'s>(
    id: SeriesId,
    labels: &[(&'s str, &'s str)],
    is_overflow: bool,
    cells: &'s [u64],
) -> SeriesSeen<'s> {
    let labels = labels.to_vec();
    let (sums, plain) = (cells, cells);
    let (kind, is_hidden, start, cells_at) = (0, false, 0, 0);
    SeriesSeen { kind, labels, is_overflow, is_hidden, start, id: id.id, sums, plain, cells_at }
}

/// Gives each sample its name with all labels. A series that was removed since has none: its label
/// is a number.
fn name_samples(inspection: &Inspection, tracks: &mut [Track]) {
    let index: HashMap<SeriesId, usize> =
        tracks.iter().enumerate().map(|(at, track)| (track.id, at)).collect();
    for family in &inspection.report().families {
        inspection.series(family, |series| {
            let id = SeriesId { family: family.at, id: series.id };
            if let Some(&at) = index.get(&id) {
                tracks[at].name(series);
            }
        });
    }
    for track in tracks.iter_mut().filter(|track| track.samples.iter().any(|it| it.name.is_empty()))
    {
        let number = format!("{:x}", track.id.id);
        track.name(&seen(track.id, &[("quipu_removed", &number)], false, &[]));
    }
}

impl Track {
    fn name(&mut self, series: &SeriesSeen<'_>) {
        for Sample { metric, label, name, .. } in &mut self.samples {
            let label = label.as_ref().map(|(name, value)| (name.as_str(), value.as_str()));
            *name = series_text(metric, series, label);
        }
    }
}

/// A number in at most a few digits.
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
