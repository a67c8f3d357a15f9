//! Gauges with a value for each process, which a scrape combines.
//!
//! The series of a process has an additional label with the name of the process: its ID, and a
//! number that no other process of the segment has had, so that reuse of the ID does no harm.
//! `processes.rs` reads these series.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use quipu_segment::clock::{Clock, Precise};
use quipu_segment::generation;
use quipu_segment::series::{
    self, CachedSeries, KeyWriter, Label, Schema, SeriesCells, SeriesHandle, Values,
};

use super::aggregation::Aggregation;
use super::family::{Family, Instrument, single};
use super::kind::MetricKind;
use crate::description::Description;
use crate::error::Error;
use crate::label::LabelGroup;
use crate::registry::{Register, Scope};

/// A gauge that has a value for each process of a shared segment. A scrape of any of the processes
/// combines the values as [`Description::aggregation`] says.
///
/// A process has no value until it sets one. With [`Aggregation::MostRecent`], there is a single
/// value that all processes set, like that of a [`Gauge`](crate::Gauge).
///
/// A scrape merges or removes the values of processes that have ended. It recognizes them by a lock
/// that the system releases, not by their IDs. With [`Aggregation::All`], it keeps the values of
/// the 64 ended processes that started last.
///
/// In a child of a fork, a handle from before the fork sets the child's own value.
///
/// ```
/// use quipu::{Aggregation, Description, ProcessGauge, Registry};
///
/// let registry = Registry::new();
/// let description = Description::new("busy_threads", "Busy threads.");
/// let busy: ProcessGauge = registry.register(description.aggregation(Aggregation::LiveSum))?;
/// busy.set(3.0);
/// assert!(registry.text().contains("busy_threads 3"));
/// # Ok::<(), quipu::Error>(())
/// ```
pub struct ProcessGauge(Handle);

/// Gauges with a value for each process, by label.
///
/// [`Family::len`] counts the series of every process, and [`Family::retain`] visits each of them.
pub type ProcessGaugeFamily<L> = Family<ProcessGauge, L>;

enum Handle {
    Shared(SeriesHandle),
    Own { series: series::Family, layout: Arc<Layout>, values: Values, cached: CachedSeries },
}

/// What all series of a family share.
#[derive(Debug)]
pub struct Layout {
    pub(crate) aggregation: Aggregation,
    /// The fork generation of the process that `name` is for, plus one; 0 if there is no name yet.
    known: AtomicU64,
    /// The bytes of its name.
    name: [AtomicU64; NAME.div_ceil(8)],
}

/// The cell of the value, encoded by [`encode`].
pub(crate) const VALUE: usize = 0;
/// With [`Aggregation::LiveMostRecent`]: the cell of the time at which the value was set.
pub(crate) const TIME: usize = 1;
/// With [`Aggregation::Sum`]: the cells of the pending sum, and of the number of the process whose
/// value the pending sum takes in.
pub(crate) const SUM_TO_BE: usize = 1;
pub(crate) const SUMMAND: usize = 2;

/// The length of a process' name in bytes: its number and its ID, in hexadecimal digits.
pub(crate) const NAME: usize = NUMBER + 8;
const NUMBER: usize = 10;
/// The value that stands for no value: a NaN that no arithmetic produces.
const NOTHING: u64 = 0x7ff8_7175_6970_7567;

/// Encodes a value for its cell. A cell of zero has no value, as in a new series.
#[inline]
fn encode(value: f64) -> u64 {
    value.to_bits() ^ NOTHING
}

/// Decodes a cell; `None` if no value was set.
#[inline]
pub(crate) fn decode(cell: u64) -> Option<f64> {
    (cell != 0).then(|| f64::from_bits(cell ^ NOTHING))
}

/// Like [`encode`], for an optional value.
pub(crate) fn encode_value(value: Option<f64>) -> u64 {
    value.map_or(0, encode)
}

/// Parses the name of a process into its number and its ID.
pub(crate) fn read_name(name: &[u8]) -> Option<(u64, u32)> {
    let (number, id) = std::str::from_utf8(name).ok()?.split_at_checked(NUMBER)?;
    Some((u64::from_str_radix(number, 16).ok()?, u32::from_str_radix(id, 16).ok()?))
}

impl Layout {
    /// Whether all processes share one value.
    pub(crate) fn is_shared(&self) -> bool {
        self.aggregation == Aggregation::MostRecent
    }

    /// The label with the name of the process, if scrapes do not show it.
    pub(crate) fn hidden_label(&self) -> Option<&'static str> {
        let is_shown = matches!(self.aggregation, Aggregation::All | Aggregation::LiveAll);
        (!is_shown && !self.is_shared()).then(|| label(self.aggregation))
    }

    /// Writes this process' name after the labels. A process that cannot get a name writes nothing,
    /// and sets the overflow series.
    #[inline]
    fn write(&self, series: &series::Family, key: &mut KeyWriter<'_>) {
        // Acquire: pairs with the release in `learn`; a thread that sees the generation sees its
        // name.
        if self.known.load(Ordering::Acquire) != u64::from(generation()) + 1 && !self.learn(series)
        {
            return;
        }
        let mut bytes = [0; 8 * NAME.div_ceil(8)];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(&self.name) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        key.text(std::str::from_utf8(&bytes[..NAME]).unwrap_or_default());
    }

    #[cold]
    fn learn(&self, series: &series::Family) -> bool {
        let Ok(number) = series.segment().process() else { return false };
        // Tidy up after ended processes now: even if no scrape ever runs, they leave no more series
        // than the living ones have.
        crate::processes::tidy(series, self);
        let name = format!("{number:0NUMBER$x}{:08x}", std::process::id());
        // All threads store the same name.
        for (word, chunk) in self.name.iter().zip(name.as_bytes().chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        self.known.store(u64::from(generation()) + 1, Ordering::Release);
        true
    }

    #[inline]
    fn set(&self, series: &series::Family, place: &SeriesCells<'_>, value: f64) {
        if self.is_shared() {
            place.plain(VALUE).store(value.to_bits(), Ordering::Relaxed);
            return;
        }
        place.plain(VALUE).store(encode(value), Ordering::Relaxed);
        self.date(series, place);
    }

    #[inline]
    fn add(&self, series: &series::Family, place: &SeriesCells<'_>, n: f64) {
        if self.is_shared() {
            return place.add_float(VALUE, n);
        }
        let cell = place.plain(VALUE);
        let mut old = cell.load(Ordering::Relaxed);
        loop {
            let new = encode(decode(old).unwrap_or(0.0) + n);
            match cell.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(found) => old = found,
            }
        }
        self.date(series, place);
    }

    /// Stores the time after the value: a reader that sees the time sees this value, or a later
    /// one. A process that is killed between the two no longer counts.
    #[inline]
    fn date(&self, series: &series::Family, place: &SeriesCells<'_>) {
        if self.aggregation == Aggregation::LiveMostRecent {
            let now = Precise::anchored(series.segment().anchor()).now();
            place.plain(TIME).fetch_max(now, Ordering::Release);
        }
    }

    fn get(&self, place: &SeriesCells<'_>) -> f64 {
        let cell = place.plain(VALUE).load(Ordering::Relaxed);
        if self.is_shared() { f64::from_bits(cell) } else { decode(cell).unwrap_or(0.0) }
    }

    /// Reads what `describe` wrote, from untrusted bytes.
    pub(crate) fn decode(schema: &Schema) -> Result<Self, Error> {
        let fail = || Error::invalid(&schema.name, "its settings in the segment are damaged");
        let [number] = schema.settings[..] else { return Err(fail()) };
        let aggregation = *Aggregation::EVERY.get(usize::from(number)).ok_or_else(fail)?;
        let has_label = schema.labels.iter().any(|l| l.name == label(aggregation));
        if schema.cells != cells(aggregation)
            || (aggregation != Aggregation::MostRecent && !has_label)
        {
            return Err(fail());
        }
        Ok(Self { aggregation, known: AtomicU64::new(0), name: Default::default() })
    }
}

fn cells(aggregation: Aggregation) -> u16 {
    match aggregation {
        Aggregation::Sum => 3,
        Aggregation::LiveMostRecent => 2,
        _ => 1,
    }
}

/// The label with the name of the process.
pub(crate) fn label(aggregation: Aggregation) -> &'static str {
    match aggregation {
        Aggregation::All | Aggregation::LiveAll => "pid",
        _ => "quipu_process",
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl ProcessGauge {
    /// Sets this process' value.
    #[inline]
    pub fn set(&self, value: f64) {
        match &self.0 {
            Handle::Shared(bound) => {
                bound.place().plain(VALUE).store(value.to_bits(), Ordering::Relaxed);
            }
            Handle::Own { series, layout, values, cached } => series.follow(
                cached,
                |key| write(series, layout, values, key),
                |place| layout.set(series, &place, value),
            ),
        }
    }

    /// Adds `n`, which may be negative, to this process' value, which starts at zero.
    #[inline]
    pub fn add(&self, n: f64) {
        match &self.0 {
            Handle::Shared(bound) => bound.place().add_float(VALUE, n),
            Handle::Own { series, layout, values, cached } => series.follow(
                cached,
                |key| write(series, layout, values, key),
                |place| layout.add(series, &place, n),
            ),
        }
    }

    /// Subtracts `n` from this process' value.
    #[inline]
    pub fn sub(&self, n: f64) {
        self.add(-n);
    }

    /// Sets this process' value to the wall-clock time, in seconds since 1970-01-01 00:00 UTC.
    pub fn set_to_current_time(&self) {
        self.set(now());
    }

    /// Whether the handle's series was removed, so that values set through it are no longer shown.
    /// Always false if each process has its own series, which setting a value creates again.
    #[inline]
    pub fn is_removed(&self) -> bool {
        match &self.0 {
            Handle::Shared(bound) => bound.is_removed(),
            Handle::Own { .. } => false,
        }
    }

    /// Returns this process' value; 0 if it has set none.
    pub fn get(&self) -> f64 {
        match &self.0 {
            Handle::Shared(bound) => {
                f64::from_bits(bound.place().plain(VALUE).load(Ordering::Relaxed))
            }
            Handle::Own { series, layout, values, .. } => {
                let place = series.find(|key| write(series, layout, values, key));
                place.ok().flatten().map_or(0.0, |place| layout.get(&place))
            }
        }
    }
}

fn write(series: &series::Family, layout: &Layout, values: &Values, key: &mut KeyWriter<'_>) {
    key.kept(values);
    layout.write(series, key);
}

impl<L: LabelGroup> Family<ProcessGauge, L> {
    /// Sets this process' value for these labels.
    #[inline]
    pub fn set<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, value: f64) {
        let (series, layout) = (&self.series, &*self.shared);
        series
            .update_shown(|key| self.write(labels, key), |place| layout.set(series, &place, value));
    }

    /// Adds `n` to this process' value for these labels, which starts at zero.
    #[inline]
    pub fn add<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: f64) {
        let (series, layout) = (&self.series, &*self.shared);
        series.update_shown(|key| self.write(labels, key), |place| layout.add(series, &place, n));
    }

    /// Subtracts `n` from this process' value for these labels.
    #[inline]
    pub fn sub<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: f64) {
        self.add(labels, -n);
    }

    /// Sets this process' value for these labels to the wall-clock time, in seconds since
    /// 1970-01-01 00:00 UTC.
    pub fn set_to_current_time<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) {
        self.set(labels, now());
    }

    /// Returns this process' value for these labels; 0 if it has set none.
    pub fn get<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) -> f64 {
        let place = self.series.find(|key| self.write(labels, key));
        place.ok().flatten().map_or(0.0, |place| self.shared.get(&place))
    }

    #[inline]
    fn write<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, key: &mut KeyWriter<'_>) {
        labels.encode(key);
        if !self.shared.is_shared() {
            self.shared.write(&self.series, key);
        }
    }
}

impl Clone for ProcessGauge {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Handle::Shared(bound) => Handle::Shared(bound.clone()),
            Handle::Own { series, layout, values, .. } => Handle::Own {
                series: series.clone(),
                layout: Arc::clone(layout),
                values: values.clone(),
                cached: CachedSeries::default(),
            },
        })
    }
}

impl fmt::Debug for ProcessGauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Handle::Shared(bound) => bound.fmt(f),
            Handle::Own { series, .. } => series.fmt(f),
        }
    }
}

impl Instrument for ProcessGauge {
    type Shared = Arc<Layout>;

    fn describe(description: &Description, schema: &mut Schema) -> Result<(), Error> {
        let aggregation = description.aggregation;
        schema.kind = MetricKind::ProcessGauge as u8;
        schema.cells = cells(aggregation);
        let number = Aggregation::EVERY.iter().position(|every| *every == aggregation);
        // There are ten aggregations.
        schema.settings = vec![number.unwrap_or_default() as u8];
        if aggregation == Aggregation::MostRecent {
            schema.floats = 1 << VALUE;
        } else {
            schema.labels = vec![Label { name: label(aggregation).into(), values: None }];
        }
        Ok(())
    }

    fn shared(series: &series::Family) -> Result<Arc<Layout>, Error> {
        Layout::decode(series.schema()).map(Arc::new)
    }

    fn bound(bound: SeriesHandle, _: &Arc<Layout>) -> Self {
        Self(Handle::Shared(bound))
    }

    fn bind(
        series: &series::Family,
        layout: &Arc<Layout>,
        labels: impl Fn(&mut KeyWriter<'_>),
    ) -> Self {
        if layout.is_shared() {
            return Self::bound(series.bind(labels), layout);
        }
        let (values, cached) = (series.values(labels), CachedSeries::default());
        Self(Handle::Own { series: series.clone(), layout: Arc::clone(layout), values, cached })
    }

    fn remove(
        series: &series::Family,
        layout: &Arc<Layout>,
        labels: impl Fn(&mut KeyWriter<'_>),
    ) -> Result<bool, quipu_segment::Error> {
        if layout.is_shared() {
            return series.remove(labels);
        }
        // Remove the series of all processes.
        let values = series.values(labels);
        let is_one = |rest: &[u8]| usize::from(rest[0]) == NAME && rest.len() == NAME + 1;
        let removed = series.retain(|view| {
            let rest = values.rest_of(view.group, view.texts);
            view.overflow || !rest.is_some_and(|rest| !rest.is_empty() && is_one(rest))
        })?;
        Ok(removed > 0)
    }

    fn own_label(layout: &Arc<Layout>) -> Option<&'static str> {
        (!layout.is_shared()).then(|| label(layout.aggregation))
    }
}

impl Register for ProcessGauge {
    fn register(scope: &Scope<'_>, description: Description) -> Result<Self, Error> {
        single(scope, &description)
    }
}
