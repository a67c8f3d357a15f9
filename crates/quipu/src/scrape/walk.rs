//! The walk of a scrape over a registry: first the families of the segment, then the collectors,
//! and last the counts of overflowed updates. The walk runs in steps and holds no lock between
//! them, so a scrape can pause for as long as its reader likes.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use quipu_segment::series::Cursor;

use super::reader::{Reader, ReaderList};
use crate::collector::Collector;
use crate::error::Error;
use crate::exposition::ShownNames;
use crate::kind::{Processes, Scratch};
use crate::registry::Registry;
use crate::snapshot::{FamilyHeader, Kind, Label, Series, Sink, Texts, Timestamp, Value};

/// A walk over the families that a registry shows, in steps. Use this in a program that shows more
/// than its registry. The walk visits the families that were there when it began.
#[derive(Default)]
pub struct Walk {
    /// The readers of all families; none before the walk starts.
    readers: Option<Arc<ReaderList>>,
    collectors: Arc<[Arc<dyn Collector>]>,
    /// The names of families that are not shown, sorted.
    hidden: Arc<[Arc<str>]>,
    /// The names of the families that are shown; `None` for all.
    wanted: Option<Arc<[String]>>,
    /// The index of the next family or, counting on after the families, of the next collector.
    next: usize,
    /// The position in the current family; `None` before its first series.
    cursor: Option<Cursor>,
    /// The index of the next series, in a family that combines the series of several processes.
    series: usize,
    /// The index after the last family of a walk that is restricted to one name.
    end: Option<usize>,
    scratch: Scratch,
    processes: Processes,
    texts: Vec<u8>,
}

impl Walk {
    /// Restarts the walk, with the current families and collectors of the registry.
    pub(crate) fn begin(&mut self, registry: &Registry) -> Result<(), Error> {
        self.begin_segment(registry)?;
        self.collectors = registry.collectors();
        self.hidden = registry.hidden();
        Ok(())
    }

    /// Like [`Walk::begin`], but without collectors, and including the families that this process
    /// hides.
    pub(crate) fn begin_segment(&mut self, registry: &Registry) -> Result<(), Error> {
        self.readers = Some(registry.readers().list(registry.segment())?);
        self.collectors = Arc::default();
        self.hidden = Arc::default();
        self.wanted = None;
        self.next = 0;
        self.cursor = None;
        self.processes.forget();
        self.end = None;
        Ok(())
    }

    /// Creates a walk over these families.
    pub(crate) fn over(readers: impl IntoIterator<Item = Arc<Reader>>) -> Self {
        Self { readers: Some(Arc::new(ReaderList::from_readers(readers))), ..Self::default() }
    }

    /// Restricts the walk to the families of this name, including hidden families. Returns false if
    /// there are none.
    pub(crate) fn narrow(&mut self, name: &str) -> bool {
        self.hidden = Arc::default();
        let found = self.readers.as_ref().map_or(0..0, |readers| readers.named(name));
        (self.next, self.end) = (found.start, Some(found.end));
        !found.is_empty()
    }

    /// Restricts the walk to the families with these names, or with samples of these names. You can
    /// pass `None` for all families.
    pub fn only(&mut self, wanted: Option<Arc<[String]>>) {
        self.wanted = wanted;
    }

    /// Releases the families and collectors of the registry, and keeps the memory.
    pub(crate) fn end(&mut self) {
        self.readers = None;
        self.collectors = Arc::default();
        self.hidden = Arc::default();
        self.wanted = None;
    }

    /// Passes on the non-empty families of the segment and of the collectors. Families of the
    /// segment are passed without their series.
    pub fn heads(mut self, sink: &mut impl Sink) {
        let Some(readers) = self.readers.clone() else { return };
        for reader in readers.iter().filter(|reader| reader.has_shown()) {
            let family = reader.family();
            if !is_hidden(&self.hidden, family.name) && is_wanted(&self.wanted, &family) {
                sink.family(&family);
            }
        }
        self.next = readers.len();
        self.step(sink, |_| false);
    }

    /// Continues the walk until `is_full` returns true, which is checked after each series and each
    /// collector, or until the end. Returns whether there is more.
    pub fn step<S: Sink>(&mut self, sink: &mut S, is_full: impl Fn(&S) -> bool) -> bool {
        if self.families(sink, &is_full, |_, _| false) {
            return true;
        }
        let Some(readers) = self.readers.clone() else { return false };
        if self.end.is_some() {
            return false;
        }
        while let Some(collector) = self.collectors.get(self.next - readers.len()) {
            self.next += 1;
            match &self.wanted {
                None => collector.collect(sink),
                Some(_) => {
                    let wanted = &self.wanted;
                    let sink = &mut *sink;
                    collector.collect(&mut Only { sink, wanted, is_shown: false });
                }
            }
            if is_full(sink) {
                return true;
            }
        }
        if readers.all().any(|reader| reader.in_segment().overflowed() > 0) {
            self.by_name(&readers, &OVERFLOWED, overflowed, sink);
        }
        if readers.has_contradictions() {
            let has_series = |reader: &&Arc<Reader>| reader.has_shown();
            let count = |_: &[Arc<Reader>], hidden: &[Arc<Reader>]| {
                hidden.iter().filter(has_series).count() as u64
            };
            self.by_name(&readers, &NOT_SHOWN, count, sink);
        }
        self.unreadable(&readers, sink);
        false
    }

    /// Like [`Walk::step`], but only for the families of the segment. This also ends if `is_pause`
    /// returns true after a family. Its argument is whether this was the last family of its name;
    /// you can then insert other families of that name.
    pub fn families<S: Sink>(
        &mut self,
        sink: &mut S,
        is_full: impl Fn(&S) -> bool,
        mut is_pause: impl FnMut(&mut S, &dyn Fn() -> bool) -> bool,
    ) -> bool {
        let Some(readers) = self.readers.clone() else { return false };
        let end = self.end.unwrap_or(readers.len());
        while let Some(reader) = readers.get(self.next).filter(|_| self.next < end) {
            let family = reader.family();
            if is_hidden(&self.hidden, family.name) || !is_wanted(&self.wanted, &family) {
                self.next += 1;
                continue;
            }
            if self.cursor.is_none() {
                self.tidy(reader);
                self.cursor = Some(Cursor::default());
                sink.known_family(reader.key(), &family);
            }
            let flow = match reader.aggregation() {
                Some(_) => self.combined(reader, &family, sink, &is_full),
                None => {
                    let Self { texts, scratch, .. } = self;
                    let cursor = self.cursor.get_or_insert_default();
                    reader.walk(cursor, texts, scratch, (&family, &mut *sink), &is_full)
                }
            };
            if flow.is_break() {
                return true;
            }
            self.next += 1;
            self.cursor = None;
            let is_same = |next: &Arc<Reader>| {
                next.name() == reader.name() && next.is_bare() == reader.is_bare()
            };
            let is_last = || !readers.get(self.next).is_some_and(is_same);
            if is_pause(sink, &is_last) {
                return true;
            }
        }
        false
    }

    /// Hides expired series, and combines the series of several processes. If another thread holds
    /// a lock of the family, this hides and folds no series, but still combines them.
    fn tidy(&mut self, reader: &Reader) {
        reader.sweep();
        if let Some(aggregation) = reader.aggregation() {
            self.processes.combine(reader.in_segment(), aggregation);
            self.series = 0;
        }
    }

    /// Passes on the series that [`Walk::tidy`] combined.
    fn combined<S: Sink>(
        &mut self,
        reader: &Reader,
        family: &FamilyHeader<'_>,
        sink: &mut S,
        is_full: impl Fn(&S) -> bool,
    ) -> ControlFlow<()> {
        while let Some(mut series) = self.processes.series(self.series) {
            self.series += 1;
            if series.overflow {
                series.texts = reader.overflow_texts();
            }
            sink.series(family, &series);
            if is_full(sink) {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// Shows how many families cannot be read, unless there are none.
    fn unreadable(&self, readers: &ReaderList, sink: &mut impl Sink) {
        let count = readers.unreadable();
        if count == 0 || !is_wanted(&self.wanted, &UNREADABLE) {
            return;
        }
        sink.family(&UNREADABLE);
        let series = Series::new(Texts::default(), Value::gauge(count));
        sink.series(&UNREADABLE, &series);
    }

    /// Shows a number for each name with a nonzero number, if there are any.
    fn by_name(
        &mut self,
        readers: &ReaderList,
        shown: &FamilyHeader<'_>,
        number: impl Fn(&[Arc<Reader>], &[Arc<Reader>]) -> u64,
        sink: &mut impl Sink,
    ) {
        if !is_wanted(&self.wanted, shown) {
            return;
        }
        let mut is_begun = false;
        for variants in readers.chunk_by(|one, other| one.name() == other.name()) {
            let (reader, name) = (&variants[0], variants[0].name());
            let number = number(variants, readers.contradicting(name));
            if number == 0 || is_hidden(&self.hidden, name) {
                continue;
            }
            if !std::mem::replace(&mut is_begun, true) {
                sink.family(shown);
            }
            let value = match shown.kind {
                Kind::Counter => Value::counter(number),
                _ => Value::gauge(number),
            };
            let texts = Texts::encode([name], &mut self.texts);
            let series = Series::new(texts, value)
                .start(Timestamp::from_nanos(reader.in_segment().created()));
            sink.series(shown, &series);
        }
    }
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk").field("next", &self.next).finish_non_exhaustive()
    }
}

/// Returns whether a family is wanted: its name is in the list, or the name of one of its samples.
#[inline]
fn is_wanted(wanted: &Option<Arc<[String]>>, family: &FamilyHeader<'_>) -> bool {
    wanted.as_ref().is_none_or(|wanted| is_among(wanted, family))
}

#[inline(never)]
fn is_among(wanted: &[String], family: &FamilyHeader<'_>) -> bool {
    let has = |name: &str| wanted.iter().any(|other| other == name);
    has(family.name) || ShownNames::for_family(family.name, family.kind).any(|name| has(&name))
}

/// Passes on the wanted families of a collector.
struct Only<'a, S: Sink> {
    sink: &'a mut S,
    wanted: &'a Option<Arc<[String]>>,
    is_shown: bool,
}

impl<S: Sink> Sink for Only<'_, S> {
    fn family(&mut self, family: &FamilyHeader<'_>) {
        self.is_shown = is_wanted(self.wanted, family);
        if self.is_shown {
            self.sink.family(family);
        }
    }

    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        if self.is_shown {
            self.sink.series(family, series);
        }
    }
}

/// Returns the number of updates of these families that were counted in overflow series.
fn overflowed(shown: &[Arc<Reader>], contradicting: &[Arc<Reader>]) -> u64 {
    let all = shown.iter().chain(contradicting);
    all.fold(0, |sum, reader| sum.wrapping_add(reader.in_segment().overflowed()))
}

fn is_hidden(hidden: &[Arc<str>], name: &str) -> bool {
    hidden.binary_search_by(|other| (**other).cmp(name)).is_ok()
}

const OVERFLOWED: FamilyHeader<'static> = FamilyHeader::new(
    Kind::Counter,
    "quipu_series_overflowed",
    "Updates that were counted in an overflow series, by family.",
)
.with_labels(&[Label::new("family")]);

const UNREADABLE: FamilyHeader<'static> = FamilyHeader::new(
    Kind::Gauge,
    "quipu_families_unreadable",
    "Families that are not shown, because their settings are damaged or their kind is unknown.",
);

const NOT_SHOWN: FamilyHeader<'static> = FamilyHeader::new(
    Kind::Gauge,
    "quipu_variants_not_shown",
    "Variants of a name that are not shown, because their type or labels contradict others.",
)
.with_labels(&[Label::new("family")]);
