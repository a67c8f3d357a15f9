//! A walk over everything that a registry has, in steps, so that whoever takes it can stop in
//! between for as long as it likes: nothing is held meanwhile.

use std::ops::ControlFlow;
use std::sync::Arc;

use quipu_segment::series::Cursor;

use crate::collector::Collector;
use crate::error::Error;
use crate::read::{Memory, Reader};
use crate::registry::Registry;
use crate::snapshot::{Family, Kind, Label, Number, Series, Sink, Texts, Timestamp, Value};

/// Where a walk is, and the memory that it needs.
#[derive(Default)]
pub(crate) struct Walk {
    readers: Arc<[Reader]>,
    collectors: Arc<[Arc<dyn Collector>]>,
    /// The names of families that are not shown.
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
        self.readers = registry.readers().of(registry.segment())?;
        self.collectors = Arc::default();
        self.hidden = Arc::default();
        self.next = 0;
        self.cursor = None;
        self.memory.processes.forget();
        self.only = false;
        Ok(())
    }

    /// Makes it a walk over the family of that name alone; false where there is none.
    pub(crate) fn narrow(&mut self, name: &str) -> bool {
        let found = self.readers.iter().position(|reader| reader.series.schema().name == name);
        self.next = found.unwrap_or(self.readers.len());
        self.only = found.is_some();
        self.only
    }

    /// Lets go of what the registry has, and keeps the memory.
    pub(crate) fn end(&mut self) {
        self.readers = Arc::default();
        self.collectors = Arc::default();
        self.hidden = Arc::default();
    }

    /// Goes on. Before each series and after it, `sink` may say that it is full; then the walk
    /// stops. Answers whether there is more.
    pub(crate) fn step<S: Sink>(&mut self, sink: &mut S, is_full: impl Fn(&S) -> bool) -> bool {
        while let Some(reader) = self.readers.get(self.next) {
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
        while let Some(collector) = self.collectors.get(self.next - self.readers.len()) {
            self.next += 1;
            collector.collect(sink);
            if is_full(sink) {
                return true;
            }
        }
        self.overflows(sink);
        false
    }

    /// Shows how many updates went to overflow series, if any did.
    fn overflows(&mut self, sink: &mut impl Sink) {
        let mut is_begun = false;
        for reader in self.readers.iter() {
            let total = reader.series.overflowed();
            if total == 0 || is_hidden(&self.hidden, &reader.series.schema().name) {
                continue;
            }
            if !std::mem::replace(&mut is_begun, true) {
                sink.family(&OVERFLOWED);
            }
            let name = &reader.series.schema().name;
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
    !hidden.is_empty() && hidden.iter().any(|other| **other == *name)
}

const OVERFLOWED: Family<'static> = Family {
    name: "quipu_series_overflowed",
    help: "Updates that were counted in an overflow series, by family.",
    unit: "",
    kind: Kind::Counter,
    labels: &[Label { name: "family", values: None }],
    groups: 1,
};
