//! A walk over everything that a registry has, in steps, so that whoever takes it can stop in
//! between for as long as it likes: nothing is held meanwhile.

use std::ops::ControlFlow;
use std::sync::Arc;

use quipu_segment::series::Cursor;

use crate::collector::Collector;
use crate::error::Error;
use crate::read::{All, Memory, Reader};
use crate::registry::Registry;
use crate::snapshot::{Family, Kind, Label, Number, Series, Sink, Texts, Timestamp, Value};

/// Where a walk is, and the memory that it needs.
#[derive(Default)]
pub(crate) struct Walk {
    /// Those of all families; none before it begins.
    readers: Option<Arc<All>>,
    collectors: Arc<[Arc<dyn Collector>]>,
    /// The names of families that are not shown, in order.
    hidden: Arc<[Arc<str>]>,
    /// The family, or behind the families the collector, that comes next.
    next: usize,
    /// Where in the family it is, once it has begun.
    cursor: Option<Cursor>,
    /// The series that comes next, of those that are put together.
    series: usize,
    /// Whether it ends with the family that comes next.
    only: bool,
    memory: Memory,
    texts: Vec<u8>,
}

impl Walk {
    /// Goes back to the beginning, with what the registry has now.
    pub(crate) fn begin(&mut self, registry: &Registry) -> Result<(), Error> {
        self.begin_segment(registry)?;
        self.collectors = registry.collectors();
        self.hidden = registry.hidden();
        Ok(())
    }

    /// As [`Walk::begin`], without collectors, and with what this process does not show.
    pub(crate) fn begin_segment(&mut self, registry: &Registry) -> Result<(), Error> {
        self.readers = Some(registry.readers().of(registry.segment())?);
        self.collectors = Arc::default();
        self.hidden = Arc::default();
        self.next = 0;
        self.cursor = None;
        self.memory.processes.forget();
        self.only = false;
        Ok(())
    }

    /// A walk over these families.
    pub(crate) fn over(readers: impl IntoIterator<Item = Arc<Reader>>) -> Self {
        Self { readers: Some(Arc::new(All::of(readers))), ..Self::default() }
    }

    /// Makes it a walk over the family of that name alone, hidden or not; false where there is none.
    pub(crate) fn narrow(&mut self, name: &str) -> bool {
        self.hidden = Arc::default();
        let found = self.readers.as_ref().and_then(|readers| readers.position(name));
        self.next = found.unwrap_or(usize::MAX);
        self.only = found.is_some();
        self.only
    }

    /// Lets go of what the registry has, and keeps the memory.
    pub(crate) fn end(&mut self) {
        self.readers = None;
        self.collectors = Arc::default();
        self.hidden = Arc::default();
    }

    /// Goes on. Before each series and after it, `sink` may say that it is full; then the walk
    /// stops. Answers whether there is more.
    pub(crate) fn step<S: Sink>(&mut self, sink: &mut S, is_full: impl Fn(&S) -> bool) -> bool {
        let readers = self.readers.clone();
        let readers = readers.as_deref().map_or(&[][..], |readers| readers);
        while let Some(reader) = readers.get(self.next) {
            let family = reader.family();
            if is_hidden(&self.hidden, family.name) {
                self.next += 1;
                continue;
            }
            if self.cursor.is_none() {
                // What is idle for too long is found before the walk. Where the lock cannot be had,
                // it is shown once more.
                if reader.series.schema().idle.is_some() {
                    let _ = reader.series.sweep();
                }
                self.cursor = Some(Cursor::default());
                self.series = 0;
                reader.gather(&mut self.memory);
                sink.family(&family);
            }
            if reader.is_gathered() {
                while let Some(series) = self.memory.processes.series(self.series) {
                    self.series += 1;
                    sink.series(&family, &series);
                    if is_full(sink) {
                        return true;
                    }
                }
            } else {
                let cursor = self.cursor.get_or_insert_default();
                let memory = &mut self.memory;
                let flow = reader.series.walk(cursor, &mut self.texts, |view| {
                    reader.give(&family, view, memory, sink);
                    if is_full(sink) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                if flow.is_break() {
                    return true;
                }
            }
            self.next += 1;
            self.cursor = None;
            if self.only {
                return false;
            }
        }
        while let Some(collector) = self.collectors.get(self.next - readers.len()) {
            self.next += 1;
            collector.collect(sink);
            if is_full(sink) {
                return true;
            }
        }
        self.overflows(readers, sink);
        false
    }

    /// Shows how many updates went to overflow series, if any did.
    fn overflows(&mut self, readers: &[Arc<Reader>], sink: &mut impl Sink) {
        let mut is_begun = false;
        for reader in readers {
            let total = reader.series.overflowed();
            if total == 0 || is_hidden(&self.hidden, reader.name()) {
                continue;
            }
            if !std::mem::replace(&mut is_begun, true) {
                sink.family(&OVERFLOWED);
            }
            let name = reader.name();
            self.texts.clear();
            Texts::push(&mut self.texts, name);
            let series = Series {
                group: 0,
                texts: Texts::new(&self.texts),
                plain: !name.contains(['"', '\\', '\n']),
                overflow: false,
                start: Some(Timestamp(reader.series.created())),
                value: Value::Counter { total: Number::Unsigned(total), exemplar: None },
            };
            sink.series(&OVERFLOWED, &series);
        }
    }
}

fn is_hidden(hidden: &[Arc<str>], name: &str) -> bool {
    hidden.binary_search_by(|other| (**other).cmp(name)).is_ok()
}

const OVERFLOWED: Family<'static> = Family {
    name: "quipu_series_overflowed",
    help: "Updates that were counted in an overflow series, by family.",
    unit: "",
    kind: Kind::Counter,
    labels: &[Label { name: "family", values: None }],
    groups: 1,
};
