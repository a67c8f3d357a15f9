//! Families that were found before: for callers that get the same names of metrics and labels again
//! and again.
//!
//! A [`Prepared`] is the family of a metric with certain labels. It spares the caller the look for
//! the family, which costs about as much as that for the series. It promises that a value goes to
//! the series to which [`Intake::take`] and [`Intake::observe`] would add it, or nowhere: it
//! contains nothing of any series, and no family is freed while it is used. So series may come,
//! expire, be hidden and be removed in any way; a value whose series is not there changes nothing,
//! and the caller takes it in the usual way, which makes the series within the limits, or refuses
//! the value.

use std::cell::Cell;
use std::sync::Arc;

use quipu_segment::clock::Clock;
use quipu_segment::series::{KeyWriter, SeriesCells};
pub use quipu_segment::series::{SeriesSearch, Spot};

use super::given::{Given, Metric, Mode, Shape};
use super::moment::Moment;
use super::put::{PutResult, put, put_observation};
use super::refused::Refused;
use super::table::{FamilyEntry, FamilyNeeds, SortedLabels};
use super::{Intake, settings};
use crate::kind::{AnyKind, Times};

/// The family of a metric with certain labels. It belongs to the registry of the intake that
/// prepared it, and may be used with any intake of that registry.
#[derive(Clone)]
pub struct Prepared {
    entry: Arc<FamilyEntry>,
    /// The number of its labels.
    labels: usize,
}

impl Intake {
    /// The family that takes values such as this one, with labels of these names, by
    /// [`Intake::take_prepared`]. `None` if there is none yet, and for values that only
    /// [`Intake::take`] takes: all but gauges, values of unknown type, increments of counters, and
    /// counters of groups. A help that came later is not kept: prepare once a value was taken.
    ///
    /// ```
    /// use quipu::Registry;
    /// use quipu::intake::{Given, Intake, Limits, Metric, Mode};
    ///
    /// let registry = Registry::new();
    /// let mut intake = Intake::new(&registry, Limits::default())?;
    /// let (hits, one, add) = (Metric::new("hits"), Given::Counter(1.0), Mode::Add);
    /// let labels = [("code", "200"), ("path", "/")];
    /// intake.take(hits, &labels, &one, add, None)?;
    /// let prepared = intake.prepare(hits, &labels, &one, add).expect("the family exists by now");
    /// assert!(intake.take_prepared(&prepared, &["200", "/"], &one, add)?);
    /// // This series does not exist, and is not made.
    /// assert!(!intake.take_prepared(&prepared, &["404", "/"], &one, add)?);
    /// assert!(registry.text().contains("hits{code=\"200\",path=\"/\"} 2\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prepare(
        &mut self,
        metric: Metric<'_>,
        labels: &[(&str, &str)],
        given: &Given<'_>,
        mode: Mode,
    ) -> Option<Prepared> {
        let mut settings = std::mem::take(&mut self.settings);
        let wanted = settings::of_given(&metric, given, mode, &mut settings).ok();
        let prepared = wanted.and_then(|wanted| self.find_prepared(&metric, &wanted, labels));
        self.settings = settings;
        prepared.filter(|prepared| is_plain(&prepared.entry, given, mode))
    }

    /// The family that takes observations of this shape, with labels of these names, by
    /// [`Intake::observe_prepared`]. `None` if there is none yet, or one that others send totals
    /// to, and for groups.
    pub fn prepare_observations(
        &mut self,
        metric: Metric<'_>,
        labels: &[(&str, &str)],
        shape: &Shape,
    ) -> Option<Prepared> {
        let mut settings = std::mem::take(&mut self.settings);
        // What is taken shows a series of a group again.
        let wanted = settings::of_shape(&metric, shape, &mut settings).ok();
        let wanted = wanted.filter(|_| !metric.grouped);
        let prepared = wanted.and_then(|wanted| self.find_prepared(&metric, &wanted, labels));
        self.settings = settings;
        prepared.filter(|prepared| is_observed(&prepared.entry.kind))
    }

    fn find_prepared(
        &mut self,
        metric: &Metric<'_>,
        wanted: &FamilyNeeds<'_>,
        labels: &[(&str, &str)],
    ) -> Option<Prepared> {
        let labels = SortedLabels::new(labels, self.limits.labels, metric.grouped).ok()?;
        let entry = self.table.find(wanted, &labels)?;
        Some(Prepared { entry: Arc::clone(entry), labels: labels.iter().count() })
    }

    /// Takes a value as [`Intake::take`] does, if its series is there; returns false, and changes
    /// nothing, if it is not, if the family does not take such values, or if all of the family's
    /// series are hidden, so that another metric may have taken its name. `values` are those of the
    /// labels, in the order of the labels' names; a wrong number of them has no series, and neither
    /// has one that is empty, outside of groups.
    ///
    /// # Errors
    /// As for [`Intake::take`], but never for a limit.
    #[inline]
    pub fn take_prepared(
        &mut self,
        prepared: &Prepared,
        values: &[&str],
        given: &Given<'_>,
        mode: Mode,
    ) -> Result<bool, Refused> {
        let entry = &*prepared.entry;
        // What is taken shows a series of a group again, which takes a lock.
        let may_be_hidden =
            entry.family.hidden() > 0 && (entry.class.grouped || entry.is_dormant());
        if may_be_hidden || !is_plain(entry, given, mode) {
            return Ok(false);
        }
        settings::check(given, mode)?;
        let stamp = if is_stamped(given, mode) { self.clock.now() } else { 0 };
        let times = Times::unknown(stamp);
        let done = Cell::new(PutResult::Done);
        let is_there =
            prepared.change(values, |cells| done.set(put(entry, cells, given, mode, times)));
        match done.get() {
            PutResult::Done => Ok(is_there),
            // It was not changed. The value has no times, so it is none of the others.
            _ => Err(Refused::Full),
        }
    }

    /// Takes a value as [`Intake::take_prepared`] does, if its series is still at the spot that
    /// [`Prepared::spot`] of the same [`Prepared`] returned. Returns false, and changes nothing, if
    /// it is not, also if another series is there now, and for a value that [`Intake::take`]
    /// refuses.
    ///
    /// ```
    /// use quipu::Registry;
    /// use quipu::intake::{Given, Intake, Limits, Metric, Mode};
    ///
    /// let registry = Registry::new();
    /// let mut intake = Intake::new(&registry, Limits::default())?;
    /// let (hits, one, add) = (Metric::new("hits"), Given::Counter(1.0), Mode::Add);
    /// let labels = [("code", "200")];
    /// intake.take(hits, &labels, &one, add, None)?;
    /// let prepared = intake.prepare(hits, &labels, &one, add).expect("the family exists by now");
    /// let spot = prepared.spot(&["200"]).expect("the series is there");
    /// let moment = intake.moment();
    /// assert!(intake.take_prepared_at(&prepared, spot, &one, add, &moment));
    /// assert!(registry.text().contains("hits{code=\"200\"} 2\n"));
    /// intake.remove("hits", &labels)?;
    /// assert!(!intake.take_prepared_at(&prepared, spot, &one, add, &moment));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn take_prepared_at(
        &self,
        prepared: &Prepared,
        spot: Spot,
        given: &Given<'_>,
        mode: Mode,
        moment: &Moment,
    ) -> bool {
        let entry = &*prepared.entry;
        if !is_plain(entry, given, mode) || settings::check(given, mode).is_err() {
            return false;
        }
        let times = Times::unknown(if is_stamped(given, mode) { moment.stamp } else { 0 });
        let mut done = PutResult::Locked;
        entry.family.change_at(spot, |cells| done = put(entry, &cells, given, mode, times));
        done == PutResult::Done
    }

    /// Observes a value as [`Intake::observe`] does, if its series is there; returns false, and
    /// changes nothing, otherwise. `values` are as for [`Intake::take_prepared`].
    ///
    /// # Errors
    /// As for [`Intake::observe`], but never for a limit.
    #[inline]
    pub fn observe_prepared(
        &mut self,
        prepared: &Prepared,
        values: &[&str],
        value: f64,
        weight: f64,
    ) -> Result<bool, Refused> {
        let entry = &*prepared.entry;
        if !is_observed(&entry.kind) || entry.is_dormant() {
            return Ok(false);
        }
        let times = self.times_of(value, weight)?;
        // These kinds take no lock.
        Ok(prepared.change(values, |cells| _ = put_observation(entry, cells, value, times)))
    }
}

/// Whether values of that sort are put into the cells of this family by a few additions or stores,
/// and need nothing else.
fn is_plain(entry: &FamilyEntry, given: &Given<'_>, mode: Mode) -> bool {
    match (given, &entry.kind) {
        (Given::Counter(_), AnyKind::MixedCounter(_)) => mode == Mode::Add,
        // A group has its series for itself.
        (Given::Counter(_), AnyKind::RelayCounter(_)) => entry.class.grouped,
        (Given::Gauge(_), AnyKind::Gauge(_)) | (Given::Unknown(_), AnyKind::Unknown(_)) => true,
        _ => false,
    }
}

/// Whether an update of that sort has a number that differs from that of any earlier one.
#[inline]
pub(super) fn is_stamped(given: &Given<'_>, mode: Mode) -> bool {
    matches!(given, Given::Gauge(_) | Given::Unknown(_)) || mode != Mode::Add
}

/// Whether observations are put into the cells of this kind by additions alone.
fn is_observed(kind: &AnyKind) -> bool {
    matches!(kind, AnyKind::Histogram(_) | AnyKind::Summary(_))
}

impl Prepared {
    /// Begins to search for a series, for a caller that has many values: with many series, taking
    /// one mostly waits for memory. So the caller begins all searches, then
    /// [fetches](Prepared::fetch) all series, and then takes one value after the other; the memory
    /// comes meanwhile. `values` are as for [`Intake::take_prepared`].
    #[inline]
    pub fn seek(&self, values: &[&str]) -> SeriesSearch {
        self.entry.family.seek(|key| write(key, values))
    }

    /// Begins to fetch the series that [`Prepared::seek`] began to search.
    #[inline]
    pub fn fetch(&self, sought: SeriesSearch) {
        self.entry.family.fetch(sought);
    }

    /// Where a series is, for [`Intake::take_prepared_at`]. `values` are as for
    /// [`Intake::take_prepared`]. `None` if it is not there or not shown.
    pub fn spot(&self, values: &[&str]) -> Option<Spot> {
        self.takes(values).then(|| self.entry.family.spot(|key| write(key, values))).flatten()
    }

    /// Begins to fetch the series at a spot, for a caller that changes it soon.
    #[inline]
    pub fn prefetch(&self, spot: Spot) {
        self.entry.family.prefetch(spot);
    }

    /// Changes the cells of a series, if it is there.
    #[inline]
    fn change(&self, values: &[&str], act: impl Fn(&SeriesCells<'_>)) -> bool {
        self.takes(values)
            && self.entry.family.change(|key| write(key, values), |cells| act(&cells))
    }

    /// Whether there can be a series with labels of these values.
    #[inline]
    fn takes(&self, values: &[&str]) -> bool {
        let has_empty = || values.iter().any(|value| value.is_empty());
        values.len() == self.labels && (self.entry.class.grouped || !has_empty())
    }
}

/// Writes the values of labels as the key of a series.
#[inline]
fn write(key: &mut KeyWriter<'_>, values: &[&str]) {
    if values.is_empty() {
        // The value of the label ALONE.
        key.text("");
    }
    values.iter().for_each(|value| key.text(value));
}
