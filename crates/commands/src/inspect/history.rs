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

use quipu::snapshot::{Decoder, Kind, Value};
use quipu_segment::history::{RecordingInfo, SeriesId, Tick};
use quipu_segment::inspect::Inspection;

use super::FormatName;
use super::names::{number, series_text};
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
        let families = inspection.report().families.iter();
        let mut families: HashMap<u64, Family> = families
            .map(|seen| {
                let decoder = Decoder::new(&seen.schema);
                let names = [decoder.family(&[]).text_name(), seen.schema.name.clone()];
                (seen.at, Family { decoder, names })
            })
            .collect();
        let is_there = |name: &&String| families.values().any(|it| it.names.contains(name));
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
            families: &mut families,
            metrics,
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
        name_samples(inspection, &families, &mut tracks);
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

/// A family, and the names that it is found by: the first as Prometheus' text format shows it.
struct Family {
    decoder: Decoder,
    names: [String; 2],
}

/// Gathers the values of one tick after the other.
struct Collector<'i> {
    families: &'i mut HashMap<u64, Family>,
    /// The names of the metrics to show; all if there are none.
    metrics: &'i [String],
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
            let Self { families, metrics, tracks, index, .. } = self;
            let family = families.get_mut(&id.family);
            let track = *index.entry(id).or_insert_with(|| {
                let is_named = |it: &Family| metrics.iter().any(|name| it.names.contains(name));
                let is_wanted = metrics.is_empty() || family.as_deref().is_some_and(is_named);
                is_wanted.then(|| {
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
    family: Option<&mut Family>,
    id: SeriesId,
    cells: &[u64],
    with_buckets: bool,
) -> Vec<(Sample, f64)> {
    use SampleKind::{Bucket, Count, Level, Sum, Total};

    let Some(Family { names: [name, _], decoder }) =
        family.and_then(|it| it.decoder.is_known().then_some(it))
    else {
        let name = format!("family_at_{}", id.family);
        let cells = cells.iter().enumerate().map(|(at, cell)| {
            let label = Some(("cell".to_owned(), at.to_string()));
            (Sample::new(name.clone(), label, Level), *cell as f64)
        });
        return cells.collect();
    };
    let kind = if decoder.kind() == Kind::Counter { Total } else { Level };
    let sample = |suffix: &str, label, kind| Sample::new(format!("{name}{suffix}"), label, kind);
    let samples = decoder.read(cells, |value| match value {
        Value::Counter { total: n, .. } | Value::Gauge(n) | Value::Unknown(n) => {
            vec![(sample("", None, kind), n.as_f64())]
        }
        Value::Histogram(histogram) => {
            let mut samples = Vec::new();
            let mut count = 0;
            for bucket in histogram.buckets {
                count += bucket.count;
                if with_buckets {
                    let bound = ("le".to_owned(), number(bucket.bound));
                    samples.push((sample("_bucket", Some(bound), Bucket), count as f64));
                }
            }
            if !histogram.buckets.is_empty() {
                samples.push((sample("_count", None, Count), count as f64));
            }
            samples.push((sample("_sum", None, Sum), histogram.sum));
            samples
        }
        Value::Summary { sum, count, .. } => {
            vec![(sample("_count", None, Count), count as f64), (sample("_sum", None, Sum), sum)]
        }
        Value::StateSet(states) => {
            let states = states.iter().map(|(state, is_on)| {
                let label = Some((name.clone(), (*state).to_owned()));
                (sample("", label, Level), f64::from(u8::from(*is_on)))
            });
            states.collect()
        }
        _ => Vec::new(),
    });
    // Of a process that has set no value.
    samples.unwrap_or_else(|| vec![(sample("", None, kind), f64::NAN)])
}

/// Gives each sample its name with all labels. A series that was removed since has none: its label
/// is a number.
fn name_samples(inspection: &Inspection, families: &HashMap<u64, Family>, tracks: &mut [Track]) {
    let index: HashMap<SeriesId, usize> =
        tracks.iter().enumerate().map(|(at, track)| (track.id, at)).collect();
    for family in &inspection.report().families {
        inspection.series(family, |series| {
            let id = SeriesId { family: family.at, id: series.id };
            if let (Some(&at), Some(known)) = (index.get(&id), families.get(&family.at)) {
                tracks[at].name(&known.decoder.labels(series).collect::<Vec<_>>());
            }
        });
    }
    for track in tracks.iter_mut().filter(|track| track.samples.iter().any(|it| it.name.is_empty()))
    {
        let number = format!("{:x}", track.id.id);
        track.name(&[("quipu_removed", number)]);
    }
}

impl Track {
    fn name<V: AsRef<str>>(&mut self, labels: &[(&str, V)]) {
        for Sample { metric, label, name, .. } in &mut self.samples {
            let label = label.as_ref().map(|(name, value)| (name.as_str(), value.as_str()));
            let labels = labels.iter().map(|(name, value)| (*name, value));
            *name = series_text(metric, labels, label);
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
