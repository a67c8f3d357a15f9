//! Gauges with a value for each process, which a scrape puts together.
//!
//! The series of a process has one more label, which names the process: by its id, and by a number
//! that no other process of the segment has had, so that an id that is used again does no harm.
//! `processes.rs` reads them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use quipu_segment::clock::{Clock, Precise};
use quipu_segment::generation;
use quipu_segment::series::{self, Bound, Follower, KeyWriter, Label, Place, Schema, Values};

use super::aggregation::Aggregation;
use super::family::{Family, Instrument, single};
use super::kind::MetricKind;
use crate::description::Description;
use crate::error::Error;
use crate::label::LabelGroup;
use crate::registry::{Register, Scope};

/// A gauge that has a value for each process, in a segment that several share. A scrape shows what
/// [`Description::aggregation`] says, whichever process is asked.
///
/// A process that has set nothing has no value. With [`Aggregation::MostRecent`] there is one value,
/// which all processes set, as that of a [`Gauge`](crate::Gauge) is. What ended processes left is
/// put together, or removed, at a scrape; it is not known from their ids that they ended, but from
/// a lock that the system releases. With [`Aggregation::All`] the values of the 64 processes that
/// began last are kept, of those that ended.
///
/// A handle that was made before a fork sets the child's own value in the child.
///
/// ```
/// use quipu::{Aggregation, Description, ProcessGauge, Registry};
///
/// let registry = Registry::new();
/// let description = Description::new("busy_threads", "Threads that work.");
/// let busy: ProcessGauge = registry.register(description.aggregation(Aggregation::LiveSum))?;
/// busy.set(3.0);
/// assert!(registry.text().contains("busy_threads 3"));
/// # Ok::<(), quipu::Error>(())
/// ```
pub struct ProcessGauge(Handle);

/// Gauges with a value for each process, by label.
///
/// [`Family::len`] counts the series of each process, and [`Family::retain`] asks about each.
pub type ProcessGaugeFamily<L> = Family<ProcessGauge, L>;

enum Handle {
    Shared(Bound),
    Own { series: series::Family, layout: Arc<Layout>, values: Values, follower: Follower },
}

/// What all series of a family share.
#[derive(Debug)]
pub struct Layout {
    pub(crate) aggregation: Aggregation,
    /// The generation of the process whose name is known, plus one; 0 for none.
    known: AtomicU64,
    /// Its name's bytes.
    name: [AtomicU64; NAME.div_ceil(8)],
}

/// The cell of the value, as [`encode`] makes it.
pub(crate) const VALUE: usize = 0;
/// With [`Aggregation::LiveMostRecent`]: when it was set.
pub(crate) const TIME: usize = 1;
/// With [`Aggregation::Sum`]: what the value is to become, and the process whose value is in that.
pub(crate) const SUM_TO_BE: usize = 1;
pub(crate) const SUMMAND: usize = 2;

/// The bytes of a process' name: its number and its id, in hexadecimal digits.
pub(crate) const NAME: usize = NUMBER + 8;
const NUMBER: usize = 10;
/// What no process sets: a NaN that no arithmetic makes.
const NOTHING: u64 = 0x7ff8_7175_6970_7567;

/// The cell of a value: zero where nothing was set, as in a new series.
#[inline]
fn encode(value: f64) -> u64 {
    value.to_bits() ^ NOTHING
}

/// The value of a cell; `None` where nothing was set.
#[inline]
pub(crate) fn decode(cell: u64) -> Option<f64> {
    (cell != 0).then(|| f64::from_bits(cell ^ NOTHING))
}

/// The cell of the value of two.
pub(crate) fn encode_value(value: Option<f64>) -> u64 {
    value.map_or(0, encode)
}

/// The number and the id of a process.
pub(crate) fn read_name(name: &[u8]) -> Option<(u64, u32)> {
    let (number, id) = std::str::from_utf8(name).ok()?.split_at_checked(NUMBER)?;
    Some((u64::from_str_radix(number, 16).ok()?, u32::from_str_radix(id, 16).ok()?))
}

impl Layout {
    /// Whether there is one value for all processes.
    pub(crate) fn is_shared(&self) -> bool {
        self.aggregation == Aggregation::MostRecent
    }

    /// The label that names the process, where it is not shown.
    pub(crate) fn hidden_label(&self) -> Option<&'static str> {
        let is_shown = matches!(self.aggregation, Aggregation::All | Aggregation::LiveAll);
        (!is_shown && !self.is_shared()).then(|| label(self.aggregation))
    }

    /// Writes this process' name behind the labels. Who can have none writes nothing, and counts in
    /// the overflow series.
    #[inline]
    fn write(&self, series: &series::Family, key: &mut KeyWriter<'_>) {
        // Acquire: who sees the process sees its name.
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
        // What earlier processes left goes now: should nobody ever scrape, there is no more of it
        // than of those that live.
        crate::processes::tidy(series, self);
        let name = format!("{number:0NUMBER$x}{:08x}", std::process::id());
        // All threads store the same.
        for (word, chunk) in self.name.iter().zip(name.as_bytes().chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        self.known.store(u64::from(generation()) + 1, Ordering::Release);
        true
    }

    #[inline]
    fn set(&self, series: &series::Family, place: &Place<'_>, value: f64) {
        if self.is_shared() {
            place.plain(VALUE).store(value.to_bits(), Ordering::Relaxed);
            return;
        }
        place.plain(VALUE).store(encode(value), Ordering::Relaxed);
        self.date(series, place);
    }

    #[inline]
    fn add(&self, series: &series::Family, place: &Place<'_>, n: f64) {
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

    /// Notes when the value was set, behind it: a reader that sees the time sees this value, or one
    /// that was set since. A process that is killed in between has no say any more.
    #[inline]
    fn date(&self, series: &series::Family, place: &Place<'_>) {
        if self.aggregation == Aggregation::LiveMostRecent {
            let now = Precise::anchored(series.segment().anchor()).now();
            place.plain(TIME).fetch_max(now, Ordering::Release);
        }
    }

    fn get(&self, place: &Place<'_>) -> f64 {
        let cell = place.plain(VALUE).load(Ordering::Relaxed);
        if self.is_shared() { f64::from_bits(cell) } else { decode(cell).unwrap_or(0.0) }
    }

    /// Reads what `describe` wrote, from bytes that may be anything.
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

/// The label that names the process.
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
    /// Makes this process' value `value`.
    #[inline]
    pub fn set(&self, value: f64) {
        match &self.0 {
            Handle::Shared(bound) => {
                bound.place().plain(VALUE).store(value.to_bits(), Ordering::Relaxed);
            }
            Handle::Own { series, layout, values, follower } => series.follow(
                follower,
                |key| write(series, layout, values, key),
                |place| layout.set(series, &place, value),
            ),
        }
    }

    /// Adds `n`, which may be negative, to this process' value, which begins at zero.
    #[inline]
    pub fn add(&self, n: f64) {
        match &self.0 {
            Handle::Shared(bound) => bound.place().add_float(VALUE, n),
            Handle::Own { series, layout, values, follower } => series.follow(
                follower,
                |key| write(series, layout, values, key),
                |place| layout.add(series, &place, n),
            ),
        }
    }

    /// Takes away `n` from this process' value.
    #[inline]
    pub fn sub(&self, n: f64) {
        self.add(-n);
    }

    /// Makes this process' value the wall clock's time, in seconds since 1970.
    pub fn set_to_current_time(&self) {
        self.set(now());
    }

    /// Whether what is set through the handle is shown no more, since its series was removed; never
    /// where each process has its own, which comes again when it is set.
    #[inline]
    pub fn is_removed(&self) -> bool {
        match &self.0 {
            Handle::Shared(bound) => bound.is_removed(),
            Handle::Own { .. } => false,
        }
    }

    /// This process' value; 0 where it has set none.
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
    /// Makes this process' value of these labels `value`.
    #[inline]
    pub fn set<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, value: f64) {
        let (series, layout) = (&self.series, &*self.shared);
        series
            .update_shown(|key| self.write(labels, key), |place| layout.set(series, &place, value));
    }

    /// Adds `n` to this process' value of these labels, which begins at zero.
    #[inline]
    pub fn add<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: f64) {
        let (series, layout) = (&self.series, &*self.shared);
        series.update_shown(|key| self.write(labels, key), |place| layout.add(series, &place, n));
    }

    /// Takes `n` from this process' value of these labels.
    #[inline]
    pub fn sub<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: f64) {
        self.add(labels, -n);
    }

    /// Makes this process' value of these labels the wall clock's time, in seconds since 1970.
    pub fn set_to_current_time<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) {
        self.set(labels, now());
    }

    /// This process' value of these labels; 0 where it has set none.
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
                follower: Follower::default(),
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
        // There are ten.
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

    fn bound(bound: Bound, _: &Arc<Layout>) -> Self {
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
        let (values, follower) = (series.values(labels), Follower::default());
        Self(Handle::Own { series: series.clone(), layout: Arc::clone(layout), values, follower })
    }

    fn remove(
        series: &series::Family,
        layout: &Arc<Layout>,
        labels: impl Fn(&mut KeyWriter<'_>),
    ) -> Result<bool, quipu_segment::Error> {
        if layout.is_shared() {
            return series.remove(labels);
        }
        // The series of all processes.
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
