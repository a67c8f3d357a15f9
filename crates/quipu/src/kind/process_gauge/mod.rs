//! Gauges with a value for each process, which a scrape combines.
//!
//! The series of a process carries an additional label with the name of the process: its ID, and
//! its token. No other process of the segment ever uses the same token, so the system can reuse the
//! ID without harm. `fold.rs` reads these series.

mod cells;
mod fold;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use quipu_segment::series::{
    self, CachedSeries, KeyWriter, Label, Schema, SeriesCells, SeriesHandle, Values,
};
use quipu_segment::sync::Ordering;

use super::aggregation::Aggregation;
use super::family::{Family, Instrument, single};
use super::gauge::unix_seconds;
use super::in_progress::InProgress;
use crate::description::{Description, Setting};
use crate::error::Error;
use crate::label::{LabelGroup, LabelWriter};
use crate::scope::{Register, Scope};

pub(crate) use cells::{ProcessGaugeLayout, process_of};
pub(crate) use fold::Processes;

use cells::{NAME_LENGTH, VALUE};

/// A gauge with a separate value for each process of a shared segment. You can scrape any of the
/// processes: the scrape combines the values according to [`Description::aggregation`].
///
/// A process does not take part until it sets a value. With [`Aggregation::MostRecent`], there is a
/// single value that all processes set, like the value of a [`Gauge`](crate::Gauge).
///
/// A scrape merges or removes the values of ended processes. It recognizes them by a lock that the
/// system releases, not by their IDs, because the system reuses IDs. With [`Aggregation::All`], it
/// keeps the values of the 64 ended processes that started last.
///
/// In a child of a fork, a handle from before the fork sets the child's value.
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
/// [`Family::len`] counts the series of all processes, and [`Family::retain`] visits each of these
/// series.
///
/// ```
/// use quipu::{Aggregation, Description, ProcessGaugeFamily, Registry};
///
/// let registry = Registry::new();
/// let description = Description::new("busy_threads", "Busy threads.").labels(["pool"]);
/// let busy: ProcessGaugeFamily<[&str; 1]> =
///     registry.register(description.aggregation(Aggregation::LiveSum))?;
/// busy.set(&["io"], 3.0);
/// assert_eq!(registry.value("busy_threads", &[("pool", "io")]), Some(3.0));
/// # Ok::<(), quipu::Error>(())
/// ```
pub type ProcessGaugeFamily<L> = Family<ProcessGauge, L>;

enum Handle {
    Shared(SeriesHandle),
    Own {
        family: series::Family,
        layout: Arc<ProcessGaugeLayout>,
        values: Values,
        cached: CachedSeries,
    },
}

impl ProcessGauge {
    /// Sets this process' value.
    #[inline]
    pub fn set(&self, value: f64) {
        match &self.0 {
            Handle::Shared(bound) => {
                bound.cells().plain(VALUE).store(value.to_bits(), Ordering::Relaxed);
            }
            Handle::Own { family, layout, values, cached } => family.follow(
                cached,
                |key| write(family, layout, values, key),
                |cells| layout.set(family, &cells, value),
            ),
        }
    }

    /// Adds `n`, which may be negative, to this process' value, which starts at zero.
    #[inline]
    pub fn add(&self, n: f64) {
        match &self.0 {
            Handle::Shared(bound) => bound.cells().add_float(VALUE, n),
            Handle::Own { family, layout, values, cached } => family.follow(
                cached,
                |key| write(family, layout, values, key),
                |cells| layout.add(family, &cells, n),
            ),
        }
    }

    /// Subtracts `n` from this process' value.
    #[inline]
    pub fn sub(&self, n: f64) {
        self.add(-n);
    }

    /// Adds one to this process' value.
    #[doc(alias = "increment")]
    #[inline]
    pub fn inc(&self) {
        self.add(1.0);
    }

    /// Subtracts one from this process' value.
    #[doc(alias = "decrement")]
    #[inline]
    pub fn dec(&self) {
        self.add(-1.0);
    }

    /// Adds one to this process' value, and subtracts it when the guard is dropped. The guard
    /// borrows this handle: to move a guard to another task or thread, use
    /// [`ProcessGauge::in_progress_owned`].
    #[inline]
    pub fn in_progress(&self) -> InProgress<'_> {
        InProgress::process(Cow::Borrowed(self))
    }

    /// Like [`ProcessGauge::in_progress`], with a guard that can move to another task or thread.
    pub fn in_progress_owned(&self) -> InProgress<'static> {
        InProgress::process(Cow::Owned(self.clone()))
    }

    /// Sets this process' value to the wall-clock time, in seconds since 1970-01-01 00:00 UTC.
    pub fn set_to_current_time(&self) {
        self.set(unix_seconds());
    }

    /// Returns whether the handle's series was removed. If so, values that you set through it are
    /// no longer shown. This is always false if each process owns a series, because setting a value
    /// creates the series again.
    #[doc(hidden)]
    #[inline]
    pub fn is_removed(&self) -> bool {
        match &self.0 {
            Handle::Shared(bound) => bound.is_removed(),
            Handle::Own { .. } => false,
        }
    }

    /// Returns this process' value; 0 if it is not set.
    pub fn get(&self) -> f64 {
        match &self.0 {
            Handle::Shared(bound) => {
                f64::from_bits(bound.cells().plain(VALUE).load(Ordering::Relaxed))
            }
            Handle::Own { family, layout, values, .. } => {
                let found = family.find(|key| write(family, layout, values, key));
                found.ok().flatten().map_or(0.0, |cells| layout.get(&cells))
            }
        }
    }
}

fn write(
    family: &series::Family,
    layout: &ProcessGaugeLayout,
    values: &Values,
    key: &mut KeyWriter<'_>,
) {
    key.write_saved(values);
    layout.write(family, key);
}

impl<L: LabelGroup> Family<ProcessGauge, L> {
    /// Sets this process' value for these labels.
    #[inline]
    pub fn set<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, value: f64) {
        let (family, layout) = (&self.family, &*self.kind);
        self.update_own(labels, |cells| layout.set(family, &cells, value));
    }

    /// Adds `n` to this process' value for these labels, which starts at zero.
    #[inline]
    pub fn add<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: f64) {
        let (family, layout) = (&self.family, &*self.kind);
        self.update_own(labels, |cells| layout.add(family, &cells, n));
    }

    /// Subtracts `n` from this process' value for these labels.
    #[inline]
    pub fn sub<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, n: f64) {
        self.add(labels, -n);
    }

    /// Adds one to this process' value for these labels.
    #[doc(alias = "increment")]
    #[inline]
    pub fn inc<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) {
        self.add(labels, 1.0);
    }

    /// Subtracts one from this process' value for these labels.
    #[doc(alias = "decrement")]
    #[inline]
    pub fn dec<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) {
        self.add(labels, -1.0);
    }

    /// Adds one to this process' value for these labels, and subtracts it when the guard is
    /// dropped.
    pub fn in_progress<K: LabelGroup<Identity = L::Identity>>(
        &self,
        labels: &K,
    ) -> InProgress<'static> {
        InProgress::process(Cow::Owned(self.bind(labels)))
    }

    /// Sets this process' value for these labels to the wall-clock time, in seconds since
    /// 1970-01-01 00:00 UTC.
    pub fn set_to_current_time<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) {
        self.set(labels, unix_seconds());
    }

    /// Returns this process' value for these labels; `None` if there is no such series. It is not
    /// created.
    pub fn get<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) -> Option<f64> {
        let found = self.family.find(|key| self.write(labels, key));
        found.ok().flatten().map(|cells| self.kind.get(&cells))
    }

    /// Changes the cells of this process' series of these labels, and creates the series if it does
    /// not exist.
    #[inline(always)]
    fn update_own<K>(&self, labels: &K, act: impl Fn(SeriesCells<'_>))
    where
        K: LabelGroup<Identity = L::Identity>,
    {
        let key = |key: &mut KeyWriter<'_>| self.write(labels, key);
        match labels.cached() {
            None => self.family.update_shown(key, act),
            Some(cached) => self.family.follow(cached, key, act),
        }
    }

    #[inline]
    fn write<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K, key: &mut KeyWriter<'_>) {
        LabelWriter::wrap(key, |writer| labels.encode(writer));
        if !self.kind.is_shared() {
            self.kind.write(&self.family, key);
        }
    }
}

impl Clone for ProcessGauge {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Handle::Shared(bound) => Handle::Shared(bound.clone()),
            Handle::Own { family, layout, values, .. } => Handle::Own {
                family: family.clone(),
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
            Handle::Own { family, .. } => family.fmt(f),
        }
    }
}

impl crate::kind::sealed::Sealed for ProcessGauge {}

impl Instrument for ProcessGauge {
    type Kind = ProcessGaugeLayout;
    const SETTINGS: &'static [Setting] = &[Setting::Aggregation];

    fn describe(description: &Description, schema: &mut Schema) -> Result<(), Error> {
        let aggregation = description.aggregation;
        schema.cells = cells::cells(aggregation);
        let number = Aggregation::ALL.iter().position(|every| *every == aggregation);
        // There are ten aggregations.
        schema.settings = vec![number.unwrap_or_default() as u8];
        if aggregation == Aggregation::MostRecent {
            schema.floats = 1 << VALUE;
        } else {
            schema.labels = vec![Label { name: cells::label(aggregation).into(), values: None }];
        }
        Ok(())
    }

    fn from_handle(handle: SeriesHandle, _: &Arc<ProcessGaugeLayout>) -> Self {
        Self(Handle::Shared(handle))
    }

    fn bind(
        family: &series::Family,
        layout: &Arc<ProcessGaugeLayout>,
        labels: impl Fn(&mut KeyWriter<'_>),
    ) -> Self {
        if layout.is_shared() {
            return Self::from_handle(family.bind(labels), layout);
        }
        let (values, cached) = (family.values(labels), CachedSeries::default());
        Self(Handle::Own { family: family.clone(), layout: Arc::clone(layout), values, cached })
    }

    fn remove(
        family: &series::Family,
        layout: &Arc<ProcessGaugeLayout>,
        labels: impl Fn(&mut KeyWriter<'_>),
    ) -> Result<bool, quipu_segment::Error> {
        if layout.is_shared() {
            return family.remove(labels);
        }
        // Remove the series of all processes.
        let values = family.values(labels);
        let is_one =
            |rest: &[u8]| usize::from(rest[0]) == NAME_LENGTH && rest.len() == NAME_LENGTH + 1;
        let removed = family.retain(|view| {
            let rest = values.rest_of(view.group, view.texts);
            view.overflow || !rest.is_some_and(|rest| !rest.is_empty() && is_one(rest))
        })?;
        Ok(removed > 0)
    }
}

impl Register for ProcessGauge {
    fn register(scope: &Scope, description: Description) -> Result<Self, Error> {
        single(scope, &description)
    }
}
