//! Handles: caches for callers that receive the same names and labels again and again.
//!
//! A [`FamilyHandle`] is the family of a metric with certain labels, and a [`Spot`] the place of a
//! series in this family. The handle saves the caller the search for the family, and the spot the
//! search for the series. Each search costs about as much as the update. A value that you put
//! through them is either stored in the series where [`Intake::take`] would put it, or not stored
//! at all, because a handle holds no data of any series, no family is freed while it is used, and a
//! series that is removed, hidden or made again is no longer at its spot. If a value is not stored,
//! the caller takes it in the usual way, which makes the series within the limits, or refuses the
//! value.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

pub use quipu_segment::series::Spot;
use quipu_segment::series::{KeyWriter, SeriesCells};

use super::following::put_next;
use super::input::{InputValue, Metric, Mode, Order};
use super::moment::Moment;
use super::put::{PutResult, put};
use super::rejection::Rejection;
use super::table::{FamilyEntry, SortedLabels};
use super::{Intake, settings};
use crate::kind::{AnyKind, Times};
use crate::snapshot::Timestamp;

/// The family of a metric with certain labels. You can use it with any intake of the registry where
/// it was found.
#[derive(Clone)]
pub struct FamilyHandle(Arc<FamilyEntry>);

impl Intake {
    /// Returns the family where [`Intake::take_in`] puts values such as this one, with labels of
    /// these names. Returns `None` if there is none yet, and for values that only [`Intake::take`]
    /// accepts: all except gauges, values of unknown type, increments and followed totals of
    /// counters, counters of groups, and observations. A handle does not keep a help that arrives
    /// later, so look for the handle after a value was accepted.
    ///
    /// ```
    /// use quipu::Registry;
    /// use quipu::intake::{InputValue, Intake, Limits, Metric, Mode};
    ///
    /// let registry = Registry::new();
    /// let mut intake = Intake::new(&registry, Limits::default())?;
    /// let (hits, one, add) = (Metric::new("hits"), InputValue::Counter(1.0), Mode::Add);
    /// let labels = [("code", "200"), ("path", "/")];
    /// intake.take(hits, &labels, &one, add, None)?;
    /// let handle = intake.handle(hits, &labels, &one, add).expect("the family exists by now");
    /// assert!(intake.take_in(&handle, &["200", "/"], &one, add)?);
    /// // This series does not exist, and is not made.
    /// assert!(!intake.take_in(&handle, &["404", "/"], &one, add)?);
    /// assert!(registry.text().contains("hits{code=\"200\",path=\"/\"} 2\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn handle(
        &mut self,
        metric: Metric<'_>,
        labels: &[(&str, &str)],
        input: &InputValue<'_>,
        mode: Mode,
    ) -> Option<FamilyHandle> {
        let labels = SortedLabels::new(labels, self.limits.labels, metric.grouped).ok()?;
        self.handle_of(&metric, &labels, input, mode)
    }

    /// Returns the family for values such as this one, and the spot of the series with these
    /// labels, for [`Intake::take_at`]. Returns `None` like [`Intake::handle`], and if the series
    /// does not exist or is not shown.
    ///
    /// ```
    /// use quipu::Registry;
    /// use quipu::intake::{InputValue, Intake, Limits, Metric, Mode};
    ///
    /// let registry = Registry::new();
    /// let mut intake = Intake::new(&registry, Limits::default())?;
    /// let (level, labels) = (Metric::new("level"), [("room", "a")]);
    /// let set = Mode::Set;
    /// intake.take(level, &labels, &InputValue::Gauge(1.0), set, None)?;
    /// let located = intake.locate(level, &labels, &InputValue::Gauge(1.0), set);
    /// let (handle, spot) = located.expect("the series is there");
    /// assert!(intake.take_at(&handle, spot, &InputValue::Gauge(2.0), set));
    /// assert!(registry.text().contains("level{room=\"a\"} 2\n"));
    /// // It may come back, but not to this spot.
    /// intake.remove("level", &labels)?;
    /// intake.take(level, &labels, &InputValue::Gauge(3.0), set, None)?;
    /// assert!(!intake.take_at(&handle, spot, &InputValue::Gauge(4.0), set));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn locate(
        &mut self,
        metric: Metric<'_>,
        labels: &[(&str, &str)],
        input: &InputValue<'_>,
        mode: Mode,
    ) -> Option<(FamilyHandle, Spot)> {
        let labels = SortedLabels::new(labels, self.limits.labels, metric.grouped).ok()?;
        let handle = self.handle_of(&metric, &labels, input, mode)?;
        let spot = handle.0.family.spot(|key| labels.write(key))?;
        Some((handle, spot))
    }

    fn handle_of(
        &mut self,
        metric: &Metric<'_>,
        labels: &SortedLabels<'_>,
        input: &InputValue<'_>,
        mode: Mode,
    ) -> Option<FamilyHandle> {
        let mut settings = std::mem::take(&mut self.settings);
        let wanted = settings::family_needs(metric, input, mode, &mut settings).ok();
        let entry = wanted.and_then(|wanted| self.table.find(&wanted, labels).map(Arc::clone));
        self.settings = settings;
        entry.filter(|entry| is_plain(entry, input, mode)).map(FamilyHandle)
    }

    /// Takes a value like [`Intake::take`], if its series exists. Returns false, without a change,
    /// if it does not, if the family does not take such values, or if all of the family's series
    /// are hidden, because another metric may have taken its name. `values` contains the values of
    /// the labels, in the order of the labels' names. A wrong number of values matches no series,
    /// and outside of groups, an empty value matches none either.
    ///
    /// # Errors
    /// The errors of [`Intake::take`], but never for a limit.
    #[inline]
    pub fn take_in(
        &mut self,
        handle: &FamilyHandle,
        values: &[&str],
        input: &InputValue<'_>,
        mode: Mode,
    ) -> Result<bool, Rejection> {
        let entry = &*handle.0;
        // Taking a value shows a series of a group again, which requires a lock.
        let may_be_hidden =
            entry.family.hidden() > 0 && (entry.class.grouped || entry.is_dormant());
        if may_be_hidden || !is_plain(entry, input, mode) {
            return Ok(false);
        }
        settings::check(input, mode)?;
        let rounded = self.rounded(input);
        let input = rounded.as_ref().unwrap_or(input);
        let done = Cell::new(PutResult::Done);
        let is_there = handle.takes(values)
            && entry.family.change(
                |key| write(key, values),
                |cells| done.set(put(entry, &cells, input, mode, Times::UNKNOWN)),
            );
        match done.get() {
            PutResult::Done => Ok(is_there),
            // `Locked`: the series was not changed. The other results require times, and this
            // value carries none.
            _ => Err(Rejection::Full),
        }
    }

    /// Takes a value without times like [`Intake::take`], if its series is still at the spot that
    /// [`Intake::locate`] found in this family. Returns false, without a change, if the series is
    /// gone or another series uses the spot now, if the family does not take such values, or if
    /// [`Intake::take`] would refuse the value. This does not keep a help.
    #[inline]
    pub fn take_at(
        &self,
        handle: &FamilyHandle,
        spot: Spot,
        input: &InputValue<'_>,
        mode: Mode,
    ) -> bool {
        handle.put_at(spot, input, mode, |entry, cells| {
            put(entry, cells, input, mode, Times::UNKNOWN) == PutResult::Done
        })
    }

    /// Takes a sample with a time like [`Intake::take`] in [`Order::Strict`], if its series is
    /// still at the spot that [`Intake::locate`] found in this family, and stores the time of its
    /// last sample. Returns false, without a change, like [`Intake::take_at`]. The times are the
    /// start of the source and the time of the sample.
    #[inline]
    pub fn take_next_at(
        &self,
        handle: &FamilyHandle,
        spot: Spot,
        (input, mode): (&InputValue<'_>, Mode),
        (start, time): (Option<Timestamp>, Timestamp),
        moment: &Moment,
    ) -> bool {
        let times = moment.times(start, Some(time));
        !handle.0.class.grouped
            && handle.put_at(spot, input, mode, |entry, cells| {
                put_next(entry, cells, (input, mode), times, Order::Strict) == Some(Ok(()))
            })
    }
}

impl fmt::Debug for FamilyHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FamilyHandle").field(&self.0.family.schema().name).finish()
    }
}

impl FamilyHandle {
    /// Returns whether the help of its name is already kept, or cannot be kept.
    #[inline]
    pub fn has_help(&self) -> bool {
        self.0.has_help()
    }

    /// Prefetches the series at a spot, for callers that will change it soon.
    #[inline]
    pub fn prefetch(&self, spot: Spot) {
        self.0.family.prefetch(spot);
    }

    /// Calls `act` with the series at a spot, if such a value can be put there.
    #[inline]
    fn put_at(
        &self,
        spot: Spot,
        input: &InputValue<'_>,
        mode: Mode,
        act: impl FnOnce(&FamilyEntry, &SeriesCells<'_>) -> bool,
    ) -> bool {
        let entry = &*self.0;
        let is_observation = matches!(input, InputValue::Observation { .. });
        if is_observation || !is_plain(entry, input, mode) || settings::check(input, mode).is_err()
        {
            return false;
        }
        let mut done = false;
        entry.family.change_at(spot, |cells| done = act(entry, &cells));
        done
    }

    /// Returns whether there can be a series with these label values.
    #[inline]
    fn takes(&self, values: &[&str]) -> bool {
        let labels = if self.0.class.alone { 0 } else { self.0.family.schema().labels.len() };
        let has_empty = || values.iter().any(|value| value.is_empty());
        values.len() == labels && (self.0.class.grouped || !has_empty())
    }
}

/// Returns whether putting such values into the cells of this family only takes a few additions or
/// stores.
#[inline]
fn is_plain(entry: &FamilyEntry, input: &InputValue<'_>, mode: Mode) -> bool {
    match (input, &entry.kind) {
        (InputValue::Counter(_), AnyKind::MixedCounter(_)) => mode == Mode::Add,
        // The series of a group belong to this group only.
        (InputValue::Counter(_), AnyKind::RelayCounter(_)) => {
            entry.class.grouped || mode == Mode::Follow
        }
        (InputValue::Gauge(_), AnyKind::Gauge(_))
        | (InputValue::Unknown(_), AnyKind::Unknown(_))
        | (InputValue::Observation { .. }, AnyKind::Histogram(_) | AnyKind::Summary(_)) => true,
        _ => false,
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
