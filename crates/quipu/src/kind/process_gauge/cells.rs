//! The cells of a process gauge, and the name of the process in each series.

use std::sync::atomic::{AtomicU64, Ordering};

use quipu_segment::clock::{Clock, PreciseClock};
use quipu_segment::generation;
use quipu_segment::series::{Family, KeyWriter, Schema, SeriesCells};

use super::fold;
use crate::error::Error;
use crate::kind::aggregation::Aggregation;
use crate::kind::metric_kind::{MetricKind, Scratch, damaged};
use crate::snapshot::{self, Number, Value};

/// The settings that all series of a family share, and this process' name.
#[derive(Debug)]
pub struct ProcessGaugeLayout {
    pub(super) aggregation: Aggregation,
    /// The fork generation of the process that `name` is for, plus one; 0 if there is no name yet.
    known: AtomicU64,
    /// The bytes of its name.
    name: [AtomicU64; NAME_LENGTH.div_ceil(8)],
}

/// The cell of the value, encoded by [`encode`].
pub(super) const VALUE: usize = 0;
/// With [`Aggregation::LiveMostRecent`]: the cell of the time at which the value was set.
pub(super) const TIME: usize = 1;
/// With [`Aggregation::Sum`]: the cells of the pending sum, and of the token of the process whose
/// value the pending sum includes.
pub(super) const PENDING_SUM: usize = 1;
pub(super) const ABSORBED_PROCESS: usize = 2;

/// The length of a process' name in bytes: its token and its ID, in hexadecimal digits.
pub(super) const NAME_LENGTH: usize = TOKEN_DIGITS + 8;
const TOKEN_DIGITS: usize = 10;
/// The value that stands for no value: a NaN that no arithmetic produces.
const NO_VALUE: u64 = 0x7ff8_7175_6970_7567;

/// Encodes a value for its cell. A cell of zero, like in a new series, means that there is no
/// value.
#[inline]
fn encode(value: f64) -> u64 {
    value.to_bits() ^ NO_VALUE
}

/// Decodes a cell; `None` if no value was set.
#[inline]
pub(super) fn decode(cell: u64) -> Option<f64> {
    (cell != 0).then(|| f64::from_bits(cell ^ NO_VALUE))
}

/// Like [`encode`], for an optional value.
pub(super) fn encode_value(value: Option<f64>) -> u64 {
    value.map_or(0, encode)
}

/// Parses the name of a process into its token and its ID.
pub(super) fn read_name(name: &[u8]) -> Option<(u64, u32)> {
    let (token, id) = std::str::from_utf8(name).ok()?.split_at_checked(TOKEN_DIGITS)?;
    Some((u64::from_str_radix(token, 16).ok()?, u32::from_str_radix(id, 16).ok()?))
}

/// Returns the token and the ID of the process that owns a series with these labels, if each
/// process owns one.
pub(crate) fn process_of(schema: &Schema, labels: &[(&str, &str)]) -> Option<(u64, u32)> {
    let (name, value) = labels.last()?;
    let is_own = schema.kind == ProcessGaugeLayout::NUMBER && NAMES.contains(name);
    read_name(value.as_bytes()).filter(|_| is_own && value.len() == NAME_LENGTH)
}

impl ProcessGaugeLayout {
    /// Returns whether all processes share one value.
    pub(crate) fn is_shared(&self) -> bool {
        self.aggregation == Aggregation::MostRecent
    }

    /// Writes this process' name after the labels. A process that cannot get a name writes none,
    /// and its updates are counted in the overflow series.
    #[inline]
    pub(super) fn write(&self, family: &Family, key: &mut KeyWriter<'_>) {
        // Acquire: pairs with the release in `learn`; a thread that sees the generation sees its
        // name.
        if self.known.load(Ordering::Acquire) != u64::from(generation()) + 1 && !self.learn(family)
        {
            return;
        }
        let mut bytes = [0; 8 * NAME_LENGTH.div_ceil(8)];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(&self.name) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        key.text(std::str::from_utf8(&bytes[..NAME_LENGTH]).unwrap_or_default());
    }

    #[cold]
    fn learn(&self, family: &Family) -> bool {
        let Ok(token) = family.segment().process() else { return false };
        // Tidy up after ended processes now. This way their series never outnumber the series of
        // the living ones, even if a scrape never runs.
        fold::tidy(family, self);
        let name = format!("{token:0TOKEN_DIGITS$x}{:08x}", std::process::id());
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
    pub(super) fn set(&self, family: &Family, cells: &SeriesCells<'_>, value: f64) {
        if self.is_shared() {
            cells.plain(VALUE).store(value.to_bits(), Ordering::Relaxed);
            return;
        }
        cells.plain(VALUE).store(encode(value), Ordering::Relaxed);
        self.date(family, cells);
    }

    #[inline]
    pub(super) fn add(&self, family: &Family, cells: &SeriesCells<'_>, n: f64) {
        if self.is_shared() {
            return cells.add_float(VALUE, n);
        }
        let cell = cells.plain(VALUE);
        let mut old = cell.load(Ordering::Relaxed);
        loop {
            let new = encode(decode(old).unwrap_or(0.0) + n);
            match cell.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(found) => old = found,
            }
        }
        self.date(family, cells);
    }

    /// Stores the time after the value: a reader that sees the time sees this value, or a later
    /// one. A process that is killed between the two no longer counts.
    #[inline]
    fn date(&self, family: &Family, cells: &SeriesCells<'_>) {
        if self.aggregation == Aggregation::LiveMostRecent {
            let now = PreciseClock::anchored(family.segment().anchor()).now();
            cells.plain(TIME).fetch_max(now, Ordering::Release);
        }
    }

    pub(super) fn get(&self, cells: &SeriesCells<'_>) -> f64 {
        let cell = cells.plain(VALUE).load(Ordering::Relaxed);
        if self.is_shared() { f64::from_bits(cell) } else { decode(cell).unwrap_or(0.0) }
    }
}

impl MetricKind for ProcessGaugeLayout {
    const NUMBER: u8 = 9;
    const SNAPSHOT_KIND: snapshot::Kind = snapshot::Kind::Gauge;

    fn decode(family: &Family) -> Result<Self, Error> {
        let schema = family.schema();
        let fail = || damaged(schema);
        let [number] = schema.settings[..] else { return Err(fail()) };
        let aggregation = *Aggregation::ALL.get(usize::from(number)).ok_or_else(fail)?;
        let has_label = schema.labels.iter().any(|l| l.name == label(aggregation));
        if schema.cells != cells(aggregation)
            || (aggregation != Aggregation::MostRecent && !has_label)
        {
            return Err(fail());
        }
        Ok(Self { aggregation, known: AtomicU64::new(0), name: Default::default() })
    }

    /// Emits no value if the process did not set one. A scrape only calls this if all processes
    /// share one value.
    #[inline]
    fn read(
        &self,
        _: &Family,
        cells: &SeriesCells<'_>,
        _: &mut Scratch,
        emit: impl FnOnce(Value<'_>),
    ) {
        let cell = cells.plain(VALUE).load(Ordering::Relaxed);
        let value = if self.is_shared() { Some(f64::from_bits(cell)) } else { decode(cell) };
        if let Some(value) = value {
            emit(Value::Gauge(Number::Float(value)));
        }
    }

    fn own_label(&self) -> Option<&'static str> {
        (!self.is_shared()).then(|| label(self.aggregation))
    }

    fn hidden_label(&self) -> Option<&'static str> {
        let is_shown = matches!(self.aggregation, Aggregation::All | Aggregation::LiveAll);
        self.own_label().filter(|_| !is_shown)
    }

    fn aggregation(&self) -> Option<Aggregation> {
        (!self.is_shared()).then_some(self.aggregation)
    }
}

pub(super) fn cells(aggregation: Aggregation) -> u16 {
    match aggregation {
        Aggregation::Sum => 3,
        Aggregation::LiveMostRecent => 2,
        _ => 1,
    }
}

/// Returns the label with the name of the process.
pub(super) fn label(aggregation: Aggregation) -> &'static str {
    let is_shown = matches!(aggregation, Aggregation::All | Aggregation::LiveAll);
    NAMES[usize::from(!is_shown)]
}

/// The names of this label: the first is shown by formats, and the second is hidden.
const NAMES: [&str; 2] = ["pid", "quipu_process"];
