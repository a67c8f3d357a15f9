//! Reads series from cells that were copied out of a damaged file or a recording. Exemplars and
//! other parts outside the cells are omitted.
//!
//! The decoder copies the cells into a family of the same kind in private memory. The kind can then
//! read them like the cells of any series.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use quipu_segment::Segment;
use quipu_segment::inspect::{Damage, FamilySeen, Inspection, SeriesSeen};
use quipu_segment::series::{self, Schema, SeriesHandle, SideAllocations};
use quipu_segment::sync::Ordering;

use super::reader::shown_name;
use crate::error::Error;
use crate::intake::class::{ALONE, identity};
use crate::kind::{
    AnyKind, HistogramLayout, MetricKind, ProcessGaugeLayout, RelayCounter, RelayHistogram,
    RelaySummary, Scratch, process_of,
};
use crate::snapshot::{FamilyHeader, Kind, Label, Series, Sink, Texts, Timestamp, Value};

/// The meaning of a family's cells.
pub struct Decoder {
    schema: Schema,
    /// Created when the first value is read; `None` if the family's settings are damaged, or if a
    /// later version defines its kind.
    cells: Option<Option<Cells>>,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// A series in private memory.
struct Cells {
    kind: AnyKind,
    family: series::Family,
    handle: SeriesHandle,
    sides: Option<Arc<dyn SideAllocations>>,
    scratch: Scratch,
}

/// The bytes of private memory for a family with one series. The system only provides the pages
/// that are used.
const ROOM: u64 = 1 << 20;

impl Decoder {
    /// Creates a decoder for the families of this schema.
    pub fn new(schema: &Schema) -> Self {
        Self { schema: schema.clone(), cells: None }
    }

    /// Returns the kind that formats show.
    pub fn kind(&self) -> Kind {
        AnyKind::known(self.schema.kind).map_or(Kind::Unknown, |(kind, _)| kind)
    }

    /// Returns the name of the kind in the segment.
    pub fn kind_name(&self) -> &'static str {
        AnyKind::known(self.schema.kind).map_or("of a later version", |(_, name)| name)
    }

    /// Returns a word that distinguishes the family from others of the same name, such as
    /// "variant".
    pub fn identity(&self) -> &'static str {
        identity(&self.schema)
    }

    /// Returns whether scrapes show the family.
    pub fn is_shown(&self) -> bool {
        matches!(self.identity(), "name" | "variant")
    }

    /// Returns the family with these labels, as a snapshot shows it.
    pub fn family<'a>(&'a self, labels: &'a [Label<'a>]) -> FamilyHeader<'a> {
        head(&self.schema, labels)
    }

    /// Returns whether each process can own a separate series.
    pub fn has_processes(&self) -> bool {
        self.schema.kind == ProcessGaugeLayout::NUMBER
    }

    /// Returns the token and the ID of the process that owns a series, if each process owns one.
    pub fn process(&self, series: &SeriesSeen<'_>) -> Option<(u64, u32)> {
        process_of(&self.schema, &series.labels)
    }

    /// Returns the labels that formats show: the label of the overflow series is added, and the
    /// label of a process shows its process ID.
    pub fn labels<'s>(
        &self,
        series: &'s SeriesSeen<'_>,
    ) -> impl Iterator<Item = (&'s str, Cow<'s, str>)> + use<'s> {
        let overflow = series.is_overflow.then_some(("quipu_overflow", "true"));
        let process = self.process(series).map(|(_, pid)| pid.to_string());
        let (last, others) = match (process, &series.labels[..]) {
            (Some(process), [others @ .., (name, _)]) => (Some((*name, process.into())), others),
            (_, all) => (None, all),
        };
        let others = others.iter().copied().filter(|(name, _)| *name != ALONE);
        others.chain(overflow).map(|(name, value)| (name, value.into())).chain(last)
    }

    /// Calls `emit` with the value of a series, and returns the result. Returns `None` if the
    /// series contains no value, or if the meaning of its cells [is not known](Self::is_known).
    ///
    /// A histogram with only exponential buckets yields no value, because its buckets are outside
    /// the cells. The quantiles of a summary do not belong to a certain moment.
    pub fn read<R>(&mut self, cells: &[u64], emit: impl FnOnce(Value<'_>) -> R) -> Option<R> {
        let Self { schema, cells: own } = self;
        Cells::get_or_make(own, schema)?.read(schema, cells, emit)
    }

    /// Returns whether this is a histogram with only exponential buckets.
    fn has_no_classic_buckets(&mut self) -> bool {
        let cells = Cells::get_or_make(&mut self.cells, &self.schema);
        cells.is_some_and(|cells| match &cells.kind {
            AnyKind::Histogram(layout) => !layout.is_classic(),
            _ => false,
        })
    }

    /// Returns whether the meaning of the cells is known.
    pub fn is_known(&mut self) -> bool {
        Cells::get_or_make(&mut self.cells, &self.schema).is_some()
    }

    /// Passes a series to a sink as a scrape shows it; the sink already knows the family. A series
    /// without a value is skipped.
    pub fn pass(&mut self, series: &SeriesSeen<'_>, sink: &mut impl Sink) {
        let labels: Vec<_> = self.labels(series).filter(|_| !series.is_overflow).collect();
        let names: Vec<_> = labels.iter().map(|(name, _)| Label { name, values: None }).collect();
        let mut texts = Vec::new();
        labels.iter().for_each(|(_, value)| Texts::push(&mut texts, value));
        let (texts, start) = (Texts::new(&texts), Some(Timestamp::from_nanos(series.start)));
        let (group, escape_free, exemplar) = (0, false, None);
        let (overflow, start) = (series.is_overflow, start.filter(|start| start.as_nanos() > 0));
        let Self { schema, cells } = self;
        let Some(cells) = Cells::get_or_make(cells, schema) else { return };
        cells.read(schema, series.cells, |value| {
            let series = Series { group, texts, escape_free, overflow, start, value, exemplar };
            sink.series(&head(schema, &names), &series);
        });
    }
}

impl Cells {
    /// Returns the cells for families of this schema, and creates them on the first call.
    fn get_or_make<'c>(
        cells: &'c mut Option<Option<Self>>,
        schema: &Schema,
    ) -> Option<&'c mut Self> {
        cells.get_or_insert_with(|| Self::new(schema).ok()).as_mut()
    }

    fn new(schema: &Schema) -> Result<Self, Error> {
        let fail = |error| Error::segment(&schema.name, error);
        let mut own = Schema {
            name: schema.name.clone(),
            settings: schema.settings.clone(),
            labels: schema.labels.iter().filter(|it| it.values.is_none()).cloned().collect(),
            ..Schema {
                kind: schema.kind,
                cells: schema.cells,
                pairs: schema.pairs,
                ..Schema::default()
            }
        };
        if own.kind == HistogramLayout::NUMBER {
            HistogramLayout::reduce(&mut own);
        }
        let family = Segment::private(ROOM).and_then(|it| it.family(&own)).map_err(fail)?;
        let kind = AnyKind::decode(&family)?;
        let handle = family.bind(|key| own.labels.iter().for_each(|_| key.text("")));
        let sides = kind.side_allocations();
        Ok(Self { kind, family, handle, sides, scratch: Scratch::default() })
    }

    fn read<R>(
        &mut self,
        schema: &Schema,
        cells: &[u64],
        emit: impl FnOnce(Value<'_>) -> R,
    ) -> Option<R> {
        let Self { kind, family, handle, sides, scratch } = self;
        let pairs = usize::from(schema.pairs);
        // A recording stores one sum for all pairs, and therefore fewer cells.
        let is_paired = pairs > 0 && cells.len() == usize::from(schema.cells);
        let (pairs, rest) = cells.split_at(if is_paired { 2 * pairs } else { 0 });
        let sums = pairs.iter().step_by(2).map(|bits| f64::from_bits(*bits));
        let sum = sums.reduce(|sum, one| sum + one).map(f64::to_bits);
        let counts = pairs.iter().skip(1).step_by(2).chain(rest).copied();
        let mut words = sum.into_iter().chain(counts);
        for (cell, own) in handle.cells().shared().iter().enumerate() {
            let is_offset = sides.as_ref().is_some_and(|sides| sides.is_offset(cell));
            // In a damaged file, missing cells count as zero.
            let word = words.next().filter(|_| !is_offset).unwrap_or(0);
            own.store(word, Ordering::Relaxed);
        }
        let mut emitted = None;
        kind.read(family, handle.cells(), scratch, |value| emitted = Some(emit(value)));
        emitted
    }
}

fn head<'a>(schema: &'a Schema, labels: &'a [Label<'a>]) -> FamilyHeader<'a> {
    let (name, bare) = shown_name(schema);
    let kind = AnyKind::known(schema.kind).map_or(Kind::Unknown, |(kind, _)| kind);
    FamilyHeader { name, help: &schema.help, unit: &schema.unit, kind, labels, groups: 1, bare }
}

/// Passes on the families and series of a file that scrapes show, as far as they can be read.
/// Returns the contradictions to the layout.
pub fn visit_inspected(inspection: &Inspection, sink: &mut impl Sink) -> Vec<Damage> {
    let mut damage = inspection.report().damage.clone();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let families = inspection.report().families.iter().enumerate();
    let mut families: Vec<_> = families
        .map(|(place, seen)| (*places.entry(&seen.schema.name).or_insert(place), seen))
        .collect();
    // Formats show families of one name together.
    families.sort_by_key(|(place, _)| *place);
    for (_, seen) in families {
        let mut decoder = Decoder::new(&seen.schema);
        // Exponential buckets are outside the cells.
        if !decoder.is_shown() || decoder.has_no_classic_buckets() {
            continue;
        }
        let labels = seen.schema.labels.iter().filter(|label| label.name != ALONE);
        let labels: Vec<_> = labels.map(|it| Label { name: &it.name, values: None }).collect();
        sink.family(&decoder.family(&labels));
        damage.extend(each_series(inspection, seen, |series| {
            if !series.is_hidden {
                decoder.pass(series, sink);
            }
        }));
    }
    damage
}

/// Calls `visit` with the series of a family. The cells of each series are consistent with each
/// other as far as its kind requires. Returns the contradictions to the layout.
pub fn each_series(
    inspection: &Inspection,
    family: &FamilySeen,
    visit: impl FnMut(&SeriesSeen<'_>),
) -> Vec<Damage> {
    match family.schema.kind {
        RelayCounter::NUMBER | RelayHistogram::NUMBER | RelaySummary::NUMBER => {
            inspection.series_that_settle(family, visit)
        }
        _ => inspection.series(family, visit),
    }
}
