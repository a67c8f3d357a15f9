//! Series that were located before: for callers that get the same series again and again.
//!
//! A [`Located`] is the family of a series and the place where the series was found. It spares the
//! caller the look for both. It promises that a value goes to the series to which [`Intake::take`]
//! would put it, or nowhere: no family is freed meanwhile, and a series that is removed, hidden or
//! made again is no longer at its place. A value that goes nowhere changes nothing, and the caller
//! takes it in the usual way.

use std::sync::Arc;

use quipu_segment::series::Spot;

use super::following::{Followed, follow_in};
use super::given::{Given, Metric, Mode};
use super::moment::Moment;
use super::put::{PutResult, put};
use super::table::{FamilyEntry, SortedLabels};
use super::{Intake, settings};
use crate::kind::{AnyKind, RelayCounter, Times};
use crate::snapshot::Timestamp;

/// A series that was located. It belongs to the registry of the intake that located it, and may be
/// used with any intake of that registry.
#[derive(Clone)]
pub struct Located {
    entry: Arc<FamilyEntry>,
    spot: Spot,
}

impl Intake {
    /// The place of the series that such a value was put into. `None` if the series is not there or
    /// not shown, and for values that only [`Intake::take`] takes: all but followed totals of
    /// counters, and gauges and values of unknown type that are set, outside of groups.
    ///
    /// ```
    /// use quipu::Registry;
    /// use quipu::intake::{Given, Intake, Limits, Metric, Mode};
    ///
    /// let registry = Registry::new();
    /// let mut intake = Intake::new(&registry, Limits::default())?;
    /// let (level, labels) = (Metric::new("level"), [("room", "a")]);
    /// intake.take(level, &labels, &Given::Gauge(1.0), Mode::Set, None)?;
    /// let located = intake.locate(level, &labels, &Given::Gauge(1.0), Mode::Set);
    /// let (located, moment) = (located.expect("the series is there"), intake.moment());
    /// assert!(intake.take_located(&located, &Given::Gauge(2.0), Mode::Set, &moment));
    /// assert!(registry.text().contains("level{room=\"a\"} 2\n"));
    /// // It may come back, but not to this place.
    /// intake.remove("level", &labels)?;
    /// intake.take(level, &labels, &Given::Gauge(3.0), Mode::Set, None)?;
    /// assert!(!intake.take_located(&located, &Given::Gauge(4.0), Mode::Set, &moment));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn locate(
        &mut self,
        metric: Metric<'_>,
        labels: &[(&str, &str)],
        given: &Given<'_>,
        mode: Mode,
    ) -> Option<Located> {
        if metric.grouped {
            // What is taken shows a series of a group again.
            return None;
        }
        let labels = SortedLabels::new(labels, self.limits.labels, false).ok()?;
        let mut settings = std::mem::take(&mut self.settings);
        let wanted = settings::of_given(&metric, given, mode, &mut settings).ok();
        let entry = wanted.and_then(|wanted| self.table.find(&wanted, &labels).map(Arc::clone));
        self.settings = settings;
        let entry = entry.filter(|entry| is_plain(&entry.kind, given, mode))?;
        let spot = entry.family.spot(|key| labels.write(key))?;
        Some(Located { entry, spot })
    }

    /// Follows the total of a counter as [`Intake::follow`] does, if its series is where it was
    /// located. Returns `None`, and changes nothing, if it is not, and wherever [`Intake::follow`]
    /// returns `None` or an error. It does not keep a help: see [`Located::has_help`].
    #[inline]
    pub fn follow_located(
        &self,
        located: &Located,
        total: f64,
        time: Option<Timestamp>,
        start: Option<Timestamp>,
        moment: &Moment,
    ) -> Option<Followed> {
        let entry = &*located.entry;
        let times = moment.times(start, time);
        let is_total = settings::check(&Given::Counter(total), Mode::Follow).is_ok();
        let sample = times.sample?;
        if !is_total || !matches!(entry.kind, AnyKind::RelayCounter(_)) {
            return None;
        }
        let mut followed = None;
        entry.family.change_at(located.spot, |cells| {
            let relay = RelayCounter::relay(cells);
            followed = follow_in(entry, &relay, total, times, sample).ok().flatten();
        });
        followed
    }

    /// Takes a value without times as [`Intake::take`] does, if its series is where it was located.
    /// Returns false, and changes nothing, if it is not, if its family does not take such values,
    /// and for a value that [`Intake::take`] refuses. It does not keep a help.
    #[inline]
    pub fn take_located(
        &self,
        located: &Located,
        given: &Given<'_>,
        mode: Mode,
        moment: &Moment,
    ) -> bool {
        let entry = &*located.entry;
        if !is_plain(&entry.kind, given, mode) || settings::check(given, mode).is_err() {
            return false;
        }
        let times = Times::unknown(moment.stamp);
        let mut done = PutResult::Locked;
        entry.family.change_at(located.spot, |cells| {
            done = put(entry, &cells, given, mode, times);
        });
        done == PutResult::Done
    }
}

impl Located {
    /// Whether nothing is to be done for the help of its name.
    #[inline]
    pub fn has_help(&self) -> bool {
        self.entry.has_help()
    }

    /// Begins to fetch the series into the cache, for callers that will change it soon.
    #[inline]
    pub fn prefetch(&self) {
        self.entry.family.prefetch(self.spot);
    }
}

/// Whether values of that sort are put into the cells of this kind, and need nothing else.
#[inline]
fn is_plain(kind: &AnyKind, given: &Given<'_>, mode: Mode) -> bool {
    match given {
        Given::Counter(_) => mode == Mode::Follow && matches!(kind, AnyKind::RelayCounter(_)),
        Given::Gauge(_) => mode == Mode::Set && matches!(kind, AnyKind::Gauge(_)),
        Given::Unknown(_) => mode == Mode::Set && matches!(kind, AnyKind::Unknown(_)),
        _ => false,
    }
}
