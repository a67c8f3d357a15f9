//! Metrics that other programs send: names and labels are only known at run time. The daemon uses
//! this module, which may change in any version.
//!
//! An [`Intake`] puts values from other programs into families of a registry: increments
//! ([`Intake::take`] with [`Mode::Add`]), totals of sources that restart ([`Mode::Follow`]), values
//! that replace others ([`Mode::Set`]), and single observations ([`InputValue::Observation`]). It
//! makes families and series when they are first needed, within [`Limits`], and rejects the other
//! values with a reason.
//!
//! Each set of label names under a name is a separate family (see
//! [`Description::variant`](crate::Description::variant)). The intake finds families in a table, so
//! an update of an existing series takes no lock and does not allocate. If you receive the same
//! names again and again, you can look for their family once ([`Intake::handle`]), or for their
//! series ([`Intake::locate`]).
//!
//! ```
//! use quipu::Registry;
//! use quipu::intake::{InputValue, Intake, Limits, Metric, Mode};
//!
//! let registry = Registry::new();
//! let mut intake = Intake::new(&registry, Limits::default())?;
//! let jobs = Metric::new("jobs_total");
//! intake.take(jobs, &[("queue", "mail")], &InputValue::Counter(2.0), Mode::Add, None)?;
//! // The source counted 5, restarted, and counted 3.
//! let seen = Metric::new("seen");
//! for total in [4.0, 5.0, 0.0, 3.0] {
//!     intake.take(seen, &[], &InputValue::Counter(total), Mode::Follow, None)?;
//! }
//! let text = registry.text();
//! assert!(text.contains("jobs_total{queue=\"mail\"} 2\n") && text.contains("seen 8\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod class;
mod exemplars;
mod existing;
mod following;
mod growth;
mod handle;
mod input;
mod limits;
mod making;
mod moment;
mod put;
mod rejection;
mod senders;
mod settings;
mod sources;
mod table;
mod unused;

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quipu_segment::ForkSafeCell;
use quipu_segment::series::SeriesCells;

pub use exemplars::InputExemplar;
pub use handle::{FamilyHandle, Spot};
pub use input::{Buckets, Change, InputValue, Metric, Mode, Order, Shape, StoredSeries};
pub use limits::{Limits, Usage};
pub use moment::Moment;
pub use rejection::{Explanation, Rejection};

use crate::error::Error;
use crate::kind::{AnyKind, Scratch, Times};
use crate::names;
use crate::registry::Registry;
use crate::snapshot::{Kind, Texts, Timestamp};
use class::{Class, Role};
use put::PutResult;
use senders::SentTotal;
use sources::{SourceHash, Sources};
use table::{FamilyEntry, FamilyNeeds, SortedLabels, Table};

/// Puts metrics that other programs send into a registry. Give each thread a clone: clones share
/// the registry, the limits and their usage.
#[derive(Clone)]
pub struct Intake {
    registry: Registry,
    limits: Limits,
    table: Table,
    used: Arc<IntakeUsage>,
    source: SourceHash,
    /// Scratch memory for settings.
    settings: Vec<u8>,
    /// The state of the random numbers that decide how fractions of a weight are rounded.
    random: u64,
    /// Whether the intake is adding the growth of a source.
    is_in_step: bool,
    /// The number of values from senders that were alive at the same time as another sender.
    overlaps: u64,
}

impl std::fmt::Debug for Intake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Intake").field("registry", &self.registry).finish_non_exhaustive()
    }
}

/// The number of families and series that all intakes of a registry made.
#[derive(Debug, Default)]
struct IntakeUsage {
    series: AtomicU64,
    /// The number of families at the last sweep.
    families: AtomicU64,
    unused: AtomicU64,
    /// The number of refusals at the limit on series since there was last room.
    without_room: AtomicU64,
    /// Exemplars that were omitted.
    exemplars: AtomicU64,
    sources: Sources,
    /// Locked while the growth of a source is added and its total stored.
    step: ForkSafeCell<()>,
}

impl Intake {
    /// Creates an intake into the families of a registry, including the families that earlier
    /// intakes made.
    ///
    /// # Errors
    /// If the families of the segment are inconsistent.
    pub fn new(registry: &Registry, limits: Limits) -> Result<Self, Error> {
        let segment = registry.segment();
        let mut table = Table::default();
        table.refresh(segment)?;
        let intake = Self {
            registry: registry.clone(),
            used: Arc::new(IntakeUsage {
                sources: Sources::new(&limits),
                ..IntakeUsage::default()
            }),
            limits,
            table,
            source: SourceHash::default(),
            settings: Vec::new(),
            random: 0x9e37_79b9_7f4a_7c15,
            is_in_step: false,
            overlaps: 0,
        };
        intake.count();
        Ok(intake)
    }

    /// Explains why the intake has just rejected a value: the message of the [`Rejection`] with the
    /// names that matter, for example the metric that it collides with or the reserved prefix.
    pub fn explain(&self, rejection: Rejection) -> Explanation<'_> {
        Explanation { intake: self, rejection }
    }

    /// Returns the registry.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the used part of the limits.
    pub fn usage(&self) -> Usage {
        Usage { families: self.table.len() as u64, ..self.swept_usage() }
    }

    /// Returns the usage at the time when this intake was created, or when any of its clones
    /// [swept](Self::sweep) last. Only the number of series is current.
    pub fn swept_usage(&self) -> Usage {
        let used = &*self.used;
        let [series, families, unused, exemplars] =
            [&used.series, &used.families, &used.unused, &used.exemplars]
                .map(|count| count.load(Ordering::Relaxed));
        Usage { series, families, unused, exemplars }
    }

    /// Names the source of the values from now on, such as an address or a job. The families and
    /// series of the source count toward the limits on a source, in all clones of the intake
    /// together.
    #[inline]
    pub fn set_source(&mut self, source: &(impl Hash + ?Sized)) {
        self.source = self.used.sources.find(source);
    }

    /// Hides expired series, and counts the remaining ones. If the limit on series is reached, this
    /// removes hidden series for good, because new ones need the room; if a removed counter
    /// returns, it starts at zero.
    ///
    /// Call this now and then. Scrapes hide expired series, too, and new series take the room of
    /// hidden ones at once. But without scrapes, only this call hides any.
    ///
    /// # Errors
    /// The errors of a segment in a file.
    pub fn sweep(&mut self) -> Result<(), Error> {
        self.table.refresh(self.registry.segment())?;
        for entry in self.table.entries() {
            if entry.family.schema().idle.is_some() {
                let swept = entry.family.sweep();
                swept.map_err(|error| Error::segment(&entry.family.schema().name, error))?;
            }
        }
        for entry in self.table.entries().iter().filter(|entry| entry.has_places()) {
            let forgotten = entry.family.forget_hidden(FORGOTTEN);
            forgotten.map_err(|error| Error::segment(&entry.family.schema().name, error))?;
        }
        self.count();
        if self.is_full() {
            for entry in self.table.entries() {
                let forgotten = entry.family.forget_hidden(FORGOTTEN);
                forgotten.map_err(|error| Error::segment(&entry.family.schema().name, error))?;
            }
            self.count();
        }
        Ok(())
    }

    /// Takes a value that is complete in itself. `labels` can be in any order; labels with an empty
    /// value are omitted. `start` is the time when the source began to count from zero, if the
    /// source states it. With [`Mode::Follow`], a later start than the last one is a restart of the
    /// source, and an earlier start is a value that arrives late, which is omitted. Without a
    /// start, a total that is less than the last one is a restart.
    ///
    /// Counters and classic histograms take increments and totals. If one sender adds to a series
    /// and another sends totals, the series also grows by the growth of the totals.
    ///
    /// A native histogram that is followed passes restarts of its source on, so its buckets begin
    /// at zero again.
    ///
    /// # Errors
    /// [`Rejection`]: the value was rejected, and the series are unchanged.
    pub fn take(
        &mut self,
        metric: Metric<'_>,
        labels: &[(&str, &str)],
        input: &InputValue<'_>,
        mode: Mode,
        start: Option<Timestamp>,
    ) -> Result<(), Rejection> {
        settings::check(input, mode)?;
        let rounded = self.rounded(input);
        let input = rounded.as_ref().unwrap_or(input);
        let labels = SortedLabels::new(labels, self.limits.labels, metric.grouped)?;
        let times = self.times(&metric, start, mode);
        let has_order =
            metric.order != Order::Arrival && metric.time.is_some() && mode != Mode::Add;
        if has_order && self.take_in_order(&metric, &labels, (input, mode), times)? {
            return Ok(());
        }
        match self.put(&metric, Role::Shown, &labels, input, mode, times)? {
            PutResult::Done => Ok(()),
            PutResult::Locked => Err(Rejection::Full),
            PutResult::Added => self.follow_beside(&metric, &labels, input, times),
            PutResult::Again => Err(Rejection::Duplicate),
            PutResult::Untimed => self.add_untimed(&metric, &labels, input, times),
            PutResult::Other(known) => {
                let (metric, labels, role) = (&metric, &labels, Role::Shown);
                let sent = SentTotal { metric, role, labels, input, times };
                self.take_of_other(&sent, known, |intake, grown| {
                    // Quantiles of several senders cannot be added, so the last ones are shown.
                    let grown = match (input, grown) {
                        (
                            InputValue::Summary { quantiles, .. },
                            InputValue::Summary { count, sum, .. },
                        ) => InputValue::Summary { quantiles, count: *count, sum: *sum },
                        _ => *grown,
                    };
                    intake.add_beside(metric, labels, &grown)
                })
            }
        }
    }

    /// Removes the series of these labels from all families of this name that contain them and are
    /// not [grouped](Metric::grouped). Returns the number of removed series.
    ///
    /// # Errors
    /// The errors of a segment in a file.
    pub fn remove(&mut self, name: &str, labels: &[(&str, &str)]) -> Result<u64, Error> {
        self.remove_from(name, labels, false)
    }

    /// Removes only series that were stored with [`Metric::grouped`]; otherwise like
    /// [`Intake::remove`].
    ///
    /// # Errors
    /// The errors of a segment in a file.
    pub fn remove_grouped(&mut self, name: &str, labels: &[(&str, &str)]) -> Result<u64, Error> {
        self.remove_from(name, labels, true)
    }

    /// Calls `visit` with every series that was stored with [`Metric::grouped`], including hidden
    /// ones. Use this when your program starts and must learn the content of its groups.
    ///
    /// # Errors
    /// If the families of the segment are inconsistent.
    pub fn visit_grouped(&mut self, mut visit: impl FnMut(&StoredSeries<'_>)) -> Result<(), Error> {
        self.table.refresh(self.registry.segment())?;
        let mut scratch = Scratch::default();
        for entry in self.table.entries() {
            let schema = entry.family.schema();
            let class = Class::from_schema(schema);
            if !class.grouped {
                continue;
            }
            // Removes no series. This uses `retain` because the walk of a scrape omits hidden
            // series.
            let walked = entry.family.retain(|view| {
                let names = schema.labels.iter().map(|label| label.name.as_str());
                let pairs: Vec<(&str, &str)> = names.zip(Texts::new(view.texts)).collect();
                let labels = if class.alone { &[][..] } else { &pairs[..] };
                if !view.overflow {
                    entry.kind.read(&entry.family, &view.cells, &mut scratch, |value| {
                        visit(&StoredSeries::new(entry, labels, &value));
                    });
                }
                true
            });
            walked.map_err(|error| Error::segment(&schema.name, error))?;
        }
        Ok(())
    }

    /// Calls `read` with the series of these labels in each family of this name, even if the series
    /// is hidden. Returns the number of these series.
    ///
    /// # Errors
    /// If the families of the segment are inconsistent.
    pub fn read(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        mut read: impl FnMut(&StoredSeries<'_>),
    ) -> Result<u64, Error> {
        self.table.refresh(self.registry.segment())?;
        let mut scratch = Scratch::default();
        let mut count = 0;
        for grouped in [false, true] {
            let Ok(sorted) = SortedLabels::new(labels, table::MAX_LABELS, grouped) else {
                continue;
            };
            for entry in self.table.of_labels(Role::Shown, name, &sorted) {
                if Class::from_schema(entry.family.schema()).grouped != grouped {
                    continue;
                }
                let mut act = |entry: &FamilyEntry, cells: &SeriesCells<'_>| {
                    entry.kind.read(&entry.family, cells, &mut scratch, |value| {
                        read(&StoredSeries::new(entry, labels, &value));
                    });
                };
                count += u64::from(change(&entry, &sorted, &mut act));
            }
        }
        Ok(count)
    }

    /// Hides the series of these labels that were stored with [`Metric::grouped`]. Scrapes omit
    /// them until their next value arrives; then they continue from their totals. Returns their
    /// number.
    ///
    /// # Errors
    /// The errors of a segment in a file.
    pub fn hide_grouped(&mut self, name: &str, labels: &[(&str, &str)]) -> Result<u64, Error> {
        let hide = |entry: &FamilyEntry, labels: &SortedLabels<'_>| {
            entry.family.set_shown(|key| labels.write(key), false)
        };
        self.for_each(Role::Shown, name, labels, true, hide)
    }

    /// Returns a number that changes whenever any process makes a family. This number does not
    /// always increase.
    pub fn version(&self) -> u64 {
        self.registry.segment().newest()
    }

    /// Returns the type of the newest family of this name.
    ///
    /// # Errors
    /// If the families of the segment are inconsistent.
    pub fn kind_of(&mut self, name: &str) -> Result<Option<Kind>, Error> {
        self.table.refresh(self.registry.segment())?;
        Ok(self.table.newest_of(name).map(|entry| entry.kind.snapshot_kind()))
    }

    /// Calls `act` for each family of this role, name and labels that is grouped if `grouped` is
    /// true, and not grouped otherwise. Returns how often `act` returned true.
    fn for_each(
        &mut self,
        role: Role,
        name: &str,
        labels: &[(&str, &str)],
        grouped: bool,
        act: impl Fn(&FamilyEntry, &SortedLabels<'_>) -> Result<bool, quipu_segment::Error>,
    ) -> Result<u64, Error> {
        self.table.refresh(self.registry.segment())?;
        let Ok(labels) = SortedLabels::new(labels, table::MAX_LABELS, grouped) else {
            return Ok(0);
        };
        let mut count = 0;
        for entry in self.table.of_labels(role, name, &labels) {
            if Class::from_schema(entry.family.schema()).grouped == grouped {
                let acted = act(&entry, &labels);
                count += u64::from(acted.map_err(|error| Error::segment(name, error))?);
            }
        }
        Ok(count)
    }

    /// Removes the series of these labels from the families of this name that are grouped if
    /// `grouped` is true, and not grouped otherwise. Also removes the last totals of the sources
    /// that were followed into them, because they must count in full in a new series. Returns the
    /// number of removed shown series.
    fn remove_from(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        grouped: bool,
    ) -> Result<u64, Error> {
        let remove = |entry: &FamilyEntry, labels: &SortedLabels<'_>| {
            entry.family.remove(|key| labels.write(key))
        };
        let beside = self.for_each(Role::Beside, name, labels, grouped, remove)?;
        self.release(beside);
        if !grouped {
            self.remove_places(name, labels);
        }
        let removed = self.for_each(Role::Shown, name, labels, grouped, remove)?;
        self.release(removed);
        Ok(removed)
    }

    /// Releases the room of removed series.
    fn release(&self, removed: u64) {
        // Another thread may have counted less in the meantime: the next sweep counts again.
        let subtract = |series: u64| Some(series.saturating_sub(removed));
        let _ = self.used.series.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract);
    }

    /// Returns the times of the source and the sample, as far as the mode uses them.
    fn times(&self, metric: &Metric<'_>, start: Option<Timestamp>, mode: Mode) -> Times {
        let by_start = metric.streams && !metric.grouped;
        let is_used = match mode {
            Mode::Add => by_start,
            Mode::Follow => true,
            Mode::Set => metric.order != Order::Arrival,
        };
        if !is_used || (start.is_none() && metric.time.is_none()) {
            return Times { start: start.map_or(0, Timestamp::as_nanos), ..Times::UNKNOWN };
        }
        Times { by_start, ..Moment::now().times(start, metric.time) }
    }

    /// Stores a value in its series of this role.
    fn put(
        &mut self,
        metric: &Metric<'_>,
        role: Role,
        labels: &SortedLabels<'_>,
        input: &InputValue<'_>,
        mode: Mode,
        times: Times,
    ) -> Result<PutResult, Rejection> {
        let mut done = PutResult::Done;
        self.with_cells(metric, role, labels, (input, mode), |entry, cells| {
            done = put::put(entry, cells, input, mode, times);
        })?;
        Ok(done)
    }

    /// Calls `act` with the cells of the series of this role that a value belongs to.
    fn with_cells(
        &mut self,
        metric: &Metric<'_>,
        role: Role,
        labels: &SortedLabels<'_>,
        (input, mode): (&InputValue<'_>, Mode),
        act: impl FnMut(&FamilyEntry, &SeriesCells<'_>),
    ) -> Result<(), Rejection> {
        let mut settings = std::mem::take(&mut self.settings);
        let updated =
            settings::family_needs(metric, input, mode, &mut settings).and_then(|wanted| {
                let wanted = FamilyNeeds { class: Class { role, ..wanted.class }, ..wanted };
                self.update(metric, &wanted, labels, act)
            });
        self.settings = settings;
        updated
    }

    /// Changes the cells of a series. Makes the series, and its family, within the limits.
    fn update(
        &mut self,
        metric: &Metric<'_>,
        wanted: &FamilyNeeds<'_>,
        labels: &SortedLabels<'_>,
        mut act: impl FnMut(&FamilyEntry, &SeriesCells<'_>),
    ) -> Result<(), Rejection> {
        if let Some(entry) = self.table.find(wanted, labels)
            && !entry.is_dormant()
            && change(entry, labels, &mut act)
        {
            let shown = show(entry, labels);
            if !metric.help.is_empty() && !entry.has_help() {
                let entry = Arc::clone(entry);
                self.keep_help(&entry, metric);
            }
            return shown;
        }
        self.check_names(metric.name, labels, wanted.class.role)?;
        if let Some(own) = names::label_of_samples(wanted.shown)
            && labels.iter().any(|(name, _)| name == own)
        {
            return Err(Rejection::LabelName);
        }
        let known = self.family(wanted, labels)?;
        if let Some(entry) = &known {
            if !metric.help.is_empty() && !entry.has_help() {
                self.keep_help(entry, metric);
            }
            if !entry.is_dormant() && change(entry, labels, &mut act) {
                return show(entry, labels);
            }
        }
        let (entry, is_new) = self.make(known, metric, wanted, labels)?;
        if !change(&entry, labels, &mut act) {
            return Err(Rejection::Full);
        }
        if !is_new {
            return Ok(());
        }
        self.used.series.fetch_add(1, Ordering::Relaxed);
        let is_relayed =
            matches!(entry.kind, AnyKind::RelayHistogram(_) | AnyKind::RelaySummary(_));
        if wanted.class.role == Role::Shown && (metric.grouped || is_relayed) {
            self.replace_others(&entry, labels);
        }
        if let Some(series) = self.used.sources.series() {
            series.add(self.source);
        }
        Ok(())
    }

    /// Keeps the help of a name whose families were made without help. It is not kept if there is
    /// no room for this. If only this source is at its limit, another source can still provide the
    /// help.
    fn keep_help(&mut self, entry: &FamilyEntry, metric: &Metric<'_>) {
        let families = self.used.sources.families();
        let has_room = families.is_none_or(|families| families.has_room(self.source));
        if !has_room && !self.table.has_help(metric.name) {
            return;
        }
        let registry = self.registry.clone();
        // If the segment cannot be read, it cannot store help either.
        let _ = self.table.refresh(registry.segment());
        if (self.table.len() as u64) < self.limits.families
            && self.table.keep_help(registry.segment(), metric)
            && let Some(families) = families
        {
            families.add(self.source);
        }
        entry.set_help();
    }

    /// Removes the series of these labels from the other families, if these are grouped like this
    /// one, or not grouped like this one. This way, a series with another type or with other
    /// buckets replaces the old one.
    fn replace_others(&mut self, entry: &FamilyEntry, labels: &SortedLabels<'_>) {
        // Another thread may have made one of the other families. If the refresh fails, the next
        // value tries it again.
        let _ = self.table.refresh(self.registry.segment());
        let class = Class::from_schema(entry.family.schema());
        for other in self.table.of_labels(Role::Shown, &entry.family.schema().name, labels) {
            let is_alike = Class::from_schema(other.family.schema()).grouped == class.grouped;
            let is_replaced =
                class.grouped || other.kind.snapshot_kind() == entry.kind.snapshot_kind();
            if is_alike && is_replaced && other.family.id() != entry.family.id() {
                // If the lock is not available in time, the old series stays next to the new one.
                if let Ok(true) = other.family.remove(|key| labels.write(key)) {
                    self.release(1);
                }
            }
        }
    }

    /// Counts the series of all families.
    fn count(&self) {
        let (mut series, mut unused) = (0, 0);
        for entry in self.table.entries() {
            let (all, hidden) = (entry.family.len(), entry.family.hidden());
            series += all;
            unused += u64::from(all <= hidden);
        }
        self.used.series.store(series, Ordering::Relaxed);
        self.used.families.store(self.table.len() as u64, Ordering::Relaxed);
        self.used.unused.store(unused, Ordering::Relaxed);
    }

    /// Returns an observation with its weight rounded to a whole number; `None` for other values.
    #[inline]
    fn rounded(&mut self, input: &InputValue<'_>) -> Option<InputValue<'static>> {
        let InputValue::Observation { value, weight } = *input else { return None };
        Some(InputValue::Observation { value, weight: self.whole(weight) as f64 })
    }

    /// Rounds a weight to a whole number. The fraction is the probability of rounding up.
    fn whole(&mut self, weight: f64) -> u64 {
        // `settings::check` limits the weight.
        let whole = weight as u64;
        let fraction = weight - whole as f64;
        if fraction <= 0.0 {
            return whole;
        }
        // xorshift64 (Marsaglia, 2003): never zero, because it does not begin with zero.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let drawn = (self.random >> 11) as f64 / (1_u64 << 53) as f64;
        whole + u64::from(drawn < fraction)
    }
}

/// The maximum number of hidden series of a family that a sweep removes.
const FORGOTTEN: usize = 10_000;

/// Changes the cells of a series, if the series exists.
#[inline]
fn change(
    entry: &FamilyEntry,
    labels: &SortedLabels<'_>,
    act: &mut impl FnMut(&FamilyEntry, &SeriesCells<'_>),
) -> bool {
    let act = std::cell::RefCell::new(act);
    let once = |cells: SeriesCells<'_>| {
        // The family calls this once, and `act` does not re-enter this function.
        if let Ok(mut act) = act.try_borrow_mut() {
            act(entry, &cells);
        }
    };
    entry.family.change(|key| labels.write(key), once)
}

/// Shows a series of a group again, if it was hidden.
#[inline]
fn show(entry: &FamilyEntry, labels: &SortedLabels<'_>) -> Result<(), Rejection> {
    if entry.family.hidden() == 0 || !Class::from_schema(entry.family.schema()).grouped {
        return Ok(());
    }
    let shown = entry.family.set_shown(|key| labels.write(key), true);
    shown.map_or(Err(Rejection::Full), |_| Ok(()))
}
