//! From the segment to a snapshot: reads the cells of every family by its kind, whichever process
//! created the family.

use std::fmt;
use std::ops::{ControlFlow, Deref};
use std::sync::Arc;

use quipu_arena::Arena;
use quipu_segment::series::{self, Cursor, SeriesCells, View};
use quipu_segment::sync::Ordering;
use quipu_segment::{ForkSafeCell, Segment};

use crate::error::Error;
use crate::instrument::process_gauge as process;
use crate::instrument::{
    EXEMPLAR, HistogramLayout, MIXED_EXEMPLAR, MetricKind, Slot, SummaryLayout, clear_exemplars,
    gather, mixed_total, slots_of,
};
use crate::processes::Processes;
use crate::snapshot::{
    Bucket, Exemplar, Family, Histogram, Kind, Label, Native, Number, Series, Sink, Texts,
    Timestamp, Value,
};
use crate::visit::Walk;

/// The readers of a segment's families, cached until the segment gets a new family.
#[derive(Default)]
pub(crate) struct Readers {
    known: ForkSafeCell<Known>,
}

#[derive(Default)]
struct Known {
    newest: u64,
    readers: Arc<All>,
}

/// Readers of families, in the order in which they were read from the segment.
#[derive(Default)]
pub(crate) struct All {
    readers: Vec<Arc<Reader>>,
    /// The indices of the readers, sorted by name.
    by_name: Vec<usize>,
}

impl All {
    /// The index of the family of that name.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.search(name).ok().map(|at| self.by_name[at])
    }

    fn search(&self, name: &str) -> Result<usize, usize> {
        self.by_name.binary_search_by(|&at| self.readers[at].name().cmp(name))
    }

    /// Readers in this order, which are not found by name.
    pub(crate) fn of(readers: impl IntoIterator<Item = Arc<Reader>>) -> Self {
        Self { readers: readers.into_iter().collect(), by_name: Vec::new() }
    }

    fn with(&self, families: Vec<series::Family>) -> Self {
        let (mut readers, mut by_name) = (self.readers.clone(), self.by_name.clone());
        // Families of unknown kinds, from later versions, are not shown, and neither are those that
        // stand apart.
        let families = families.into_iter().filter(|family| !family.schema().apart);
        // Known families are skipped: a damaged list of records may contain one twice.
        let is_known = |family: &series::Family| {
            let known = self.position(&family.schema().name).map(|at| self.readers[at].series.id());
            known == Some(family.id())
        };
        let families = families.filter(|family| !is_known(family));
        readers.extend(families.filter_map(|family| Reader::new(family).ok().map(Arc::new)));
        by_name.extend(self.readers.len()..readers.len());
        by_name.sort_by(|&one, &other| readers[one].name().cmp(readers[other].name()));
        Self { readers, by_name }
    }
}

impl Deref for All {
    type Target = [Arc<Reader>];

    fn deref(&self) -> &Self::Target {
        &self.readers
    }
}

impl Readers {
    /// The readers of all families.
    pub(crate) fn of(&self, segment: &Segment) -> Result<Arc<All>, Error> {
        let (last, readers) = self.known.read(|known| (known.newest, Arc::clone(&known.readers)));
        if segment.newest() == last {
            return Ok(readers);
        }
        // Other threads may do the same at the same time: the longer list is kept.
        let (families, newest) = segment.families_since(last)?;
        let readers = Arc::new(readers.with(families));
        self.known.replace(|known| {
            let next = Known { newest, readers: Arc::clone(&readers) };
            // Offsets of records do not tell which list is newer: a family is reserved before its
            // slab, and published after it.
            ((readers.len() >= known.readers.len()).then_some(next), ())
        });
        Ok(readers)
    }
}

/// One family, for a scrape that reads it without its registry. Clones share it.
#[derive(Clone)]
pub struct Source {
    reader: Arc<Reader>,
}

impl Source {
    pub(crate) fn new(family: &series::Family) -> Result<Self, Error> {
        Ok(Self { reader: Arc::new(Reader::new(family.clone())?) })
    }

    pub(crate) fn into_reader(self) -> Arc<Reader> {
        self.reader
    }

    /// Passes families to a sink, one after the other.
    pub fn visit(sources: impl IntoIterator<Item = Self>, sink: &mut impl Sink) {
        Walk::over(sources.into_iter().map(Self::into_reader)).step(sink, |_| false);
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("name", &self.reader.name()).finish_non_exhaustive()
    }
}

/// Reads the series of one family.
pub(crate) struct Reader {
    labels: Labels,
    pub(crate) series: series::Family,
    kind: MetricKind,
    histogram: Option<HistogramLayout>,
    summary: Option<SummaryLayout>,
    /// For a gauge that has a series for each process.
    process: Option<process::Layout>,
}

/// Memory for reading, reused from series to series.
#[derive(Default)]
pub(crate) struct Memory {
    slots: Vec<Option<Slot>>,
    texts: Vec<u8>,
    /// What the value of one series borrows; emptied after each series.
    arena: Arena,
    quantiles: Vec<(f64, f64)>,
    positive: Vec<(i32, u64)>,
    negative: Vec<(i32, u64)>,
    all: Vec<(i32, u64)>,
    pub(crate) processes: Processes,
}

impl Reader {
    pub(crate) fn new(series: series::Family) -> Result<Self, Error> {
        let schema = series.schema();
        let kind = MetricKind::from_number(schema.kind)
            .ok_or_else(|| Error::invalid(&schema.name, "its kind is unknown"))?;
        let histogram = match kind {
            MetricKind::Histogram => Some(HistogramLayout::decode(schema)?),
            _ => None,
        };
        let summary = match kind {
            MetricKind::Summary => Some(SummaryLayout::decode(&series)?),
            _ => None,
        };
        let process = match kind {
            MetricKind::ProcessGauge => Some(process::Layout::decode(schema)?),
            _ => None,
        };
        let hidden = process.as_ref().and_then(process::Layout::hidden_label);
        let labels = Labels::new(&series, hidden);
        let process = process.filter(|layout| !layout.is_shared());
        Ok(Self { labels, series, kind, histogram, summary, process })
    }

    /// Gathers the series of all processes into `memory`, if each process has its own. The caller
    /// then takes them from there, and does not walk the family.
    pub(crate) fn gather(&self, memory: &mut Memory) -> bool {
        let Some(layout) = &self.process else { return false };
        memory.processes.gather(&self.series, layout.aggregation);
        true
    }

    /// Resets all series, including what they have beside their cells.
    pub(crate) fn reset(&self) -> Result<(), Error> {
        let fail = |error| Error::segment(&self.series.schema().name, error);
        let _ = self.series.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
            self.clear_side(&view.place);
            ControlFlow::Continue(())
        });
        let is_side = |cell| match self.kind {
            MetricKind::Counter | MetricKind::FloatCounter => cell == EXEMPLAR,
            MetricKind::MixedCounter => cell == MIXED_EXEMPLAR,
            MetricKind::Summary => SummaryLayout::is_side(cell),
            _ => self.histogram.as_ref().is_some_and(|layout| layout.is_side(cell)),
        };
        self.series.reset(is_side).map_err(fail)
    }

    /// Clears what a series has beside its cells.
    fn clear_side(&self, place: &SeriesCells<'_>) {
        match self.kind {
            MetricKind::Counter | MetricKind::FloatCounter => {
                clear_exemplars(&self.series, place, EXEMPLAR);
            }
            MetricKind::MixedCounter => clear_exemplars(&self.series, place, MIXED_EXEMPLAR),
            _ => {}
        }
        if let Some(layout) = &self.histogram {
            layout.clear_side(&self.series, place);
        }
        if let Some(layout) = &self.summary {
            layout.clear_side(&self.series, place);
        }
    }

    /// The name of the family.
    pub(crate) fn name(&self) -> &str {
        &self.series.schema().name
    }

    /// Whether [`Reader::gather`] gathers the series.
    pub(crate) fn is_gathered(&self) -> bool {
        self.process.is_some()
    }

    /// The family as a snapshot shows it.
    pub(crate) fn family(&self) -> Family<'_> {
        let schema = self.series.schema();
        let kind = match self.kind {
            MetricKind::Counter | MetricKind::FloatCounter | MetricKind::MixedCounter => {
                Kind::Counter
            }
            MetricKind::Gauge | MetricKind::IntGauge | MetricKind::ProcessGauge => Kind::Gauge,
            MetricKind::Histogram => Kind::Histogram,
            MetricKind::Summary => Kind::Summary,
            MetricKind::Info => Kind::Info,
            MetricKind::StateSet => Kind::StateSet,
        };
        Family {
            name: &schema.name,
            help: &schema.help,
            unit: &schema.unit,
            kind,
            labels: self.labels.all(),
            groups: self.series.groups(),
        }
    }

    /// Passes a series to the sink.
    #[inline]
    pub(crate) fn give(
        &self,
        family: &Family<'_>,
        view: &View<'_>,
        memory: &mut Memory,
        sink: &mut (impl Sink + ?Sized),
    ) {
        let place = &view.place;
        let mut give = |value: Value<'_>| {
            sink.series(
                family,
                &Series {
                    group: view.group,
                    texts: Texts::new(view.texts),
                    plain: view.plain,
                    overflow: view.overflow,
                    start: Some(Timestamp(view.start)),
                    value,
                },
            );
        };
        match self.kind {
            MetricKind::Counter | MetricKind::FloatCounter | MetricKind::MixedCounter => {
                let total = match self.kind {
                    MetricKind::Counter => Number::Unsigned(place.sum(0)),
                    MetricKind::MixedCounter => mixed_total(place),
                    _ => Number::Float(place.sum_float(0)),
                };
                let is_mixed = self.kind == MetricKind::MixedCounter;
                let cell = if is_mixed { MIXED_EXEMPLAR } else { 1 };
                if place.len() == cell {
                    return give(Value::Counter { total, exemplar: None });
                }
                slots_of(&self.series, place, cell, &mut memory.slots, &mut memory.texts);
                let slot = memory.slots.first().copied().flatten();
                let exemplar = slot.map(|slot| exemplar(&slot, &memory.texts));
                give(Value::Counter { total, exemplar });
            }
            MetricKind::Gauge | MetricKind::ProcessGauge => {
                let bits = place.plain(0).load(Ordering::Relaxed);
                give(Value::Gauge(Number::Float(f64::from_bits(bits))));
            }
            MetricKind::IntGauge => {
                let value = place.plain(0).load(Ordering::Relaxed).cast_signed();
                give(Value::Gauge(Number::Signed(value)));
            }
            MetricKind::Histogram => {
                if let Some(layout) = &self.histogram {
                    self.histogram(layout, view, memory, give);
                }
            }
            MetricKind::Summary => {
                let Some(layout) = &self.summary else { return };
                let memory_of_buckets =
                    [&mut memory.positive, &mut memory.negative, &mut memory.all];
                layout.read(&self.series, place, memory_of_buckets, &mut memory.quantiles);
                let (count, sum) = (place.sum(1), place.sum_float(0));
                give(Value::Summary { quantiles: &memory.quantiles, count, sum });
            }
            MetricKind::Info => give(Value::Info),
            MetricKind::StateSet => {
                let settings = &self.series.schema().settings;
                let names = settings.split(|&byte| byte == 0);
                let states = names.take(place.len()).enumerate().map(|(i, name)| {
                    let is_on = place.plain(i).load(Ordering::Relaxed) != 0;
                    (std::str::from_utf8(name).unwrap_or(""), is_on)
                });
                memory.arena.scoped(|scope| give(Value::StateSet(scope.alloc_iter(states))));
            }
        }
    }

    fn histogram(
        &self,
        layout: &HistogramLayout,
        view: &View<'_>,
        memory: &mut Memory,
        give: impl FnOnce(Value<'_>),
    ) {
        let place = &view.place;
        let cell = layout.exemplar();
        let Memory { slots, texts, arena, positive, negative, .. } = memory;
        slots_of(&self.series, place, cell, slots, texts);
        let slots = &slots[..];
        let exemplar = |slot: &Slot| exemplar(slot, texts);
        arena.scoped(|scope| {
            let bounds = layout.bounds.iter().copied().chain([f64::INFINITY]);
            let buckets: &[Bucket<'_>] = scope.alloc_iter(bounds.enumerate().map(|(i, bound)| {
                let slot = slots.get(i).and_then(Option::as_ref);
                // The first cell is the sum.
                Bucket { bound, le: None, count: place.sum(1 + i), exemplar: slot.map(exemplar) }
            }));
            let mut count = buckets.iter().fold(0_u64, |sum, b| sum.wrapping_add(b.count));
            let native = layout.native.map(|native| {
                let (finest, most) = (native.schema, native.buckets);
                let table = layout.table();
                let schema = gather(&self.series, place, table, finest, most, positive, negative);
                Native {
                    schema,
                    zero_threshold: native.zero_threshold,
                    zero_count: place.sum(layout.zero()),
                    positive,
                    negative,
                    exemplars: scope.alloc_iter(slots.iter().flatten().map(exemplar)),
                }
            });
            let is_classic = layout.is_classic();
            if let (Some(native), false) = (&native, is_classic) {
                let sides = native.positive.iter().chain(native.negative);
                count = sides.fold(count.wrapping_add(native.zero_count), |sum, (_, count)| {
                    sum.wrapping_add(*count)
                });
            }
            let buckets = if is_classic { buckets } else { &[] };
            give(Value::Histogram(Histogram { count, sum: place.sum_float(0), buckets, native }));
        });
    }
}

fn exemplar<'a>(slot: &Slot, texts: &'a [u8]) -> Exemplar<'a> {
    let labels = Texts::new(texts.get(slot.texts.0..slot.texts.1).unwrap_or(&[]));
    Exemplar { labels, value: slot.value, time: Some(Timestamp(slot.time)) }
}

/// The labels of a family, as a snapshot shows them. They are built once, so that a scrape does not
/// allocate.
struct Labels {
    /// Points into `values`, and to the texts of the family's schema.
    labels: Box<[Label<'static>]>,
    /// Points to the texts of the family's schema.
    values: Box<[Option<Box<[&'static str]>>]>,
    _family: series::Family,
}

impl Labels {
    fn new(family: &series::Family, hidden: Option<&str>) -> Self {
        let schema = family.schema();
        let shown = || schema.labels.iter().filter(|label| Some(&*label.name) != hidden);
        // SAFETY: the text belongs to the schema, which lives unchanged for as long as any handle
        // to the family. This struct owns a handle, and lends the text for its own lifetime only.
        let forever = |text: &str| unsafe { std::mem::transmute::<&str, &'static str>(text) };
        let values: Box<[Option<Box<[&'static str]>>]> = shown()
            .map(|label| Some(label.values.as_ref()?.iter().map(|text| forever(text)).collect()))
            .collect();
        let labels = shown().zip(&values).map(|(label, values)| {
            let values = values.as_deref();
            // SAFETY: the slice is on the heap, where it stays unchanged for as long as `values`
            // lives: as long as this struct, which lends it for its own lifetime only.
            let values = unsafe {
                std::mem::transmute::<Option<&[&'static str]>, Option<&'static [&'static str]>>(
                    values,
                )
            };
            Label { name: forever(&label.name), values }
        });
        Self { labels: labels.collect(), values, _family: family.clone() }
    }

    fn all(&self) -> &[Label<'_>] {
        debug_assert_eq!(self.labels.len(), self.values.len());
        &self.labels
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use quipu_segment::Kind;

    use super::*;
    use crate::Registry;

    /// A family is reserved before its slab, and published after it: a scrape between the two has
    /// seen a record whose offset is higher.
    #[test]
    fn a_record_before_the_newest_is_noticed_and_kept() {
        let registry = Registry::new();
        let (segment, readers) = (registry.segment(), Readers::default());
        let kind = Kind::new(*b"TEST", 1);
        registry.counter("one", "").unwrap();
        let family = segment.reserve(kind, "reserved first", 8).unwrap();
        segment.reserve(kind, "published first", 8).unwrap().publish().unwrap();
        let between = readers.of(segment).unwrap();
        family.publish().unwrap();
        let after = readers.of(segment).unwrap();
        assert!(!Arc::ptr_eq(&between, &after));
        assert!(Arc::ptr_eq(&after, &readers.of(segment).unwrap()));
        registry.counter("two", "").unwrap();
        assert_eq!(readers.of(segment).unwrap().len(), 2);
    }
}
