//! Applies a push, a deletion or an expiry to a group in the segment. A large push would block the
//! other requests of its thread, so an update runs in steps of about 100 us
//! ([`GroupUpdate::step`]). No scrape and no other update runs between two steps.
//!
//! An update runs in this order:
//!
//! 1. add the series to the index of groups
//! 2. store the times of a new group; they are first because a crash must not leave series without
//!    a group
//! 3. remove the series of families whose type changes
//! 4. store the values
//! 5. remove the other old series
//! 6. store the times of the push
//! 7. add the results to the index ([`IndexUpdate`])

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quipu::intake::{InputValue, Intake, Metric, Mode, Rejection};

use super::builder::{
    EXPIRY, EXPIRY_HELP, FAILURE_HELP, FAILURE_TIME, Kind, OWN, PUSH_HELP, PUSH_TIME,
};
use super::content::{Content, PushFamilies, PushFamily, SeriesPosition, SeriesValue};
use super::groups::{self, Groups, Key, Nanos};
use super::options::{Gauges, Options};
use super::packed::{self, SeriesSet};
use super::spots::{Destination, Spots};
use super::values;
use crate::refusals::Refusals;
use quipu_process::address::Source;

/// An update in progress. Once begun, it must be completed.
#[derive(Debug, Default)]
pub(super) struct GroupUpdate {
    /// The first times of a new group. They are stored first, because a crash must not leave series
    /// without a group.
    opening_times: Option<GroupTimes>,
    /// The series to remove before storing the values.
    removals_before: Vec<SeriesRemoval>,
    values: Option<PendingValues>,
    /// The series to remove after storing the values.
    removals_after: Vec<SeriesRemoval>,
    closing_times: Option<GroupTimes>,
    index_update: Option<IndexUpdate>,
    outcome: UpdateOutcome,
}

/// The times of the last successful and the last failed push to a group. They are stored as series
/// of the group.
#[derive(Debug)]
struct GroupTimes {
    key: Key,
    pushed: Option<Nanos>,
    failed: Option<Nanos>,
    /// The time after which the group expires, if the push set one.
    ttl: Option<Duration>,
}

/// A removal of series, in progress.
#[derive(Debug)]
struct SeriesRemoval {
    key: Key,
    name: Arc<str>,
    series: Arc<SeriesSet>,
    /// The byte position of the next series in `series`.
    at: usize,
    /// Whether the series are only hidden. A hidden series keeps its value, and continues from it
    /// when it returns.
    keeps: bool,
}

/// The values of a push, in progress.
#[derive(Debug)]
struct PendingValues {
    key: Key,
    content: Content,
    options: Options,
    /// The index of the next series in the push.
    number: usize,
    /// The position of the next series in `content.families`. Unused if a cached form contains the
    /// position.
    position: SeriesPosition,
    /// The destinations of the series so far, to be cached in a new form.
    destinations: Vec<Destination>,
    /// The spots of the series, if the body has a form.
    spots: Option<Spots>,
    /// Whether `spots` contains any spot that the group's index does not.
    has_new_spots: bool,
    /// See [`IndexUpdate::absent`].
    absent: Vec<(Arc<str>, SeriesSet)>,
}

/// The changes of the index that depend on the result of storing the values.
#[derive(Debug)]
struct IndexUpdate {
    key: Key,
    /// The identifier of a push whose values were added up, to detect a repetition.
    id: Option<u64>,
    /// The spots of the series, if any spot is new.
    spots: Option<Spots>,
    /// Refused series that were not in the segment before either.
    absent: Vec<(Arc<str>, SeriesSet)>,
}

/// The number of accepted and refused series of an update, and the first refusal.
#[derive(Debug, Default)]
pub(super) struct UpdateOutcome {
    pub(super) taken: u64,
    pub(super) refused: u64,
    /// Whether a value was refused because the state is full. The client can retry later.
    pub(super) is_full: bool,
    /// The name of the first refused series, and the reason.
    pub(super) first: Option<(Arc<str>, String)>,
}

/// A push whose body was read, with its options.
#[derive(Debug)]
pub(super) struct ParsedPush {
    pub(super) key: Key,
    pub(super) content: Content,
    pub(super) options: Options,
    /// Whether families that are not in the push are removed (PUT).
    pub(super) removes: bool,
    pub(super) now: Nanos,
    /// The default time after which groups expire.
    pub(super) expiry: Option<Duration>,
}

impl GroupUpdate {
    /// Begins a push: updates the index, and collects the removals and the values for the steps.
    pub(super) fn push(groups: &mut Groups, push: ParsedPush) -> Self {
        let ParsedPush { key, content, options, removes, now, expiry } = push;
        let mut update = Self::default();
        let is_new = groups.group(&key).is_none();
        let group = groups.create(&key);
        let was_expired = group.is_expired();
        let failed = (is_new || was_expired).then_some(group.failed);
        let spots = content.form.as_ref().map(|form| group.spots(form.number()));
        group.pushed = now;
        group.adds |= options.adds();
        group.ttl = options.ttl.or(group.ttl);
        let own_ttl = if was_expired { group.ttl } else { options.ttl };
        let ttl = group.ttl.or(expiry).filter(|ttl| !ttl.is_zero());
        groups.set_deadline(&key, ttl.map(|ttl| after(now, ttl)));
        if options.adds() {
            update.add(groups, &key, &content, now);
        } else {
            let families = &content.families;
            let is_kept = |name: &str| !removes && !was_expired || families.get(name).is_some();
            let gone = groups.retain(&key, |family| is_kept(&family.name));
            update
                .removals_after
                .extend(gone.into_iter().map(|family| SeriesRemoval::family(&key, family, false)));
            update.replace(groups, &key, &content, now);
        }
        if is_new {
            update.opening_times =
                Some(GroupTimes { key: key.clone(), pushed: Some(0), failed, ttl: None });
        }
        update.closing_times =
            Some(GroupTimes { key: key.clone(), pushed: Some(now), failed, ttl: own_ttl });
        update.values = Some(PendingValues::new(key, content, options, spots));
        update
    }

    /// Begins to store the time of a failed push.
    pub(super) fn fail(
        groups: &mut Groups,
        key: Key,
        now: Nanos,
        expiry: Option<Duration>,
    ) -> Self {
        let is_new = groups.group(&key).is_none();
        let group = groups.create(&key);
        group.failed = now;
        if group.pushed == 0 {
            let ttl = expiry.filter(|ttl| !ttl.is_zero());
            groups.set_deadline(&key, ttl.map(|ttl| after(now, ttl)));
        }
        let times = GroupTimes { key, pushed: is_new.then_some(0), failed: Some(now), ttl: None };
        Self { closing_times: Some(times), ..Self::default() }
    }

    /// Begins to remove a group. Does nothing if it does not exist.
    pub(super) fn delete(groups: &mut Groups, key: &Key) -> Self {
        let Some(families) = groups.remove(key) else { return Self::default() };
        let families = families.into_iter().map(|family| SeriesRemoval::family(key, family, false));
        // We remove the times last, because a crash must not leave series without a group.
        let times = OWN.map(|name| SeriesRemoval::own(key, name, false));
        Self { removals_after: families.chain(times).collect(), ..Self::default() }
    }

    /// Begins to hide an expired group. The group is removed instead if its pushes were never added
    /// up, because it then contains no totals that must continue later.
    pub(super) fn expire(groups: &mut Groups, key: &Key) -> Self {
        let Some(group) = groups.group(key) else { return Self::default() };
        if !group.adds {
            return Self::delete(groups, key);
        }
        let families = group.families().iter().map(|family| SeriesRemoval {
            key: key.clone(),
            name: family.name.clone(),
            series: family.series.clone(),
            at: 0,
            keeps: true,
        });
        let mut removals_after: Vec<SeriesRemoval> = families.collect();
        removals_after.extend(OWN.map(|name| SeriesRemoval::own(key, name, true)));
        groups.expire(key);
        Self { removals_after, ..Self::default() }
    }

    /// Runs the removals of `other` before this update.
    pub(super) fn after(mut self, other: Self) -> Self {
        self.removals_before
            .splice(..0, other.removals_before.into_iter().chain(other.removals_after));
        self
    }

    /// Runs one step of about 100 us. Returns the outcome after the last step.
    pub(super) fn step(
        &mut self,
        index: &Mutex<Groups>,
        intake: &mut Intake,
        refusals: &Refusals,
    ) -> Option<UpdateOutcome> {
        let mut left = OPERATIONS;
        if let Some(times) = self.opening_times.take() {
            times.set(intake, &mut self.outcome);
        }
        step_removals(&mut self.removals_before, intake, &mut left)?;
        if let Some(values) = &mut self.values {
            intake.set_source(&Source::Job(&values.content.job));
            values.step(intake, refusals, &mut self.outcome, &mut left)?;
            refusals.count_taken(super::INPUT, self.outcome.taken);
            self.index_update = self.values.take().map(PendingValues::into_index_update);
        }
        step_removals(&mut self.removals_after, intake, &mut left)?;
        if let Some(times) = self.closing_times.take() {
            times.set(intake, &mut self.outcome);
        }
        if let Some(index_update) = self.index_update.take() {
            // A poisoned mutex is fine, because the index is consistent between any two changes.
            let mut groups = index.lock().unwrap_or_else(PoisonError::into_inner);
            index_update.apply(&mut groups, &self.outcome);
        }
        Some(std::mem::take(&mut self.outcome))
    }

    /// Adds the families of a push to the index, and keeps the existing ones (a push with
    /// `mode=add`).
    fn add(&mut self, groups: &mut Groups, key: &Key, content: &Content, now: Nanos) {
        for family in content.families.iter() {
            let group = groups.group_mut(key);
            match group.and_then(|group| group.family_mut(&family.name)) {
                Some(before) if before.kind == family.kind => {
                    before.time = now;
                    if before.series != family.series {
                        let series = Arc::make_mut(&mut before.series);
                        for labels in family.series.iter() {
                            series.insert(labels);
                        }
                    } else {
                        content.share(family, &mut before.series);
                    }
                }
                _ => {
                    let before = groups.put(key, to_group_family(family, now));
                    self.removals_before
                        .extend(before.map(|before| SeriesRemoval::family(key, before, false)));
                }
            }
        }
    }

    /// Replaces the families in the index that the push contains. Their old series are removed
    /// later.
    fn replace(&mut self, groups: &mut Groups, key: &Key, content: &Content, now: Nanos) {
        // Most pushes contain the families of the previous push, in the same order.
        let same = groups.group_mut(key).map_or(0, |group| {
            let pairs = group.families_mut().iter_mut().zip(content.families.iter());
            let renewed = pairs.map(|(before, family)| renew(before, family, content, now));
            renewed.take_while(|renewed| *renewed).count()
        });
        for family in content.families.iter().skip(same) {
            let group = groups.group_mut(key);
            let before = group.and_then(|group| group.family_mut(&family.name));
            if before.is_some_and(|before| renew(before, family, content, now)) {
                continue;
            }
            let Some(before) = groups.put(key, to_group_family(family, now)) else { continue };
            if before.kind != family.kind {
                self.removals_before.push(SeriesRemoval::family(key, before, false));
                continue;
            }
            let gone = Arc::new(before.series.without(&family.series));
            let before = groups::GroupFamily { series: gone, ..before };
            self.removals_after.push(SeriesRemoval::family(key, before, false));
        }
    }
}

/// Updates the time of a family that was pushed again with exactly the same series. Returns false
/// if the series differ.
fn renew(
    before: &mut groups::GroupFamily,
    family: &PushFamily,
    content: &Content,
    now: Nanos,
) -> bool {
    let is_same =
        before.name == family.name && before.kind == family.kind && before.series == family.series;
    if is_same {
        before.time = now;
        content.share(family, &mut before.series);
    }
    is_same
}

fn to_group_family(family: &PushFamily, now: Nanos) -> groups::GroupFamily {
    let PushFamily { name, kind, series, .. } = family;
    groups::GroupFamily { name: name.clone(), kind: *kind, time: now, series: Arc::clone(series) }
}

/// Returns `now` plus `ttl`, saturating.
pub(super) fn after(now: Nanos, ttl: Duration) -> Nanos {
    now.saturating_add(u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX))
}

/// Removes series, at most `left`. Returns `None` if some series remain for the next step.
fn step_removals(
    list: &mut Vec<SeriesRemoval>,
    intake: &mut Intake,
    left: &mut usize,
) -> Option<()> {
    while let Some(removal) = list.first_mut() {
        removal.step(intake, left)?;
        list.remove(0);
    }
    Some(())
}

impl SeriesRemoval {
    fn family(key: &Key, family: groups::GroupFamily, keeps: bool) -> Self {
        Self { key: key.clone(), name: family.name, series: family.series, at: 0, keeps }
    }

    /// Creates the removal of one of the group's own metrics, for example `push_time_seconds`.
    fn own(key: &Key, name: &str, keeps: bool) -> Self {
        let mut series = SeriesSet::default();
        series.insert(&[]);
        Self { key: key.clone(), name: name.into(), series: series.into(), at: 0, keeps }
    }

    fn step(&mut self, intake: &mut Intake, left: &mut usize) -> Option<()> {
        let mut labels = Vec::new();
        while let Some((own, next)) = self.series.next(self.at) {
            *left = left.checked_sub(1)?;
            full_labels(&self.key, own, &mut labels);
            // Ignore the error, because a segment that cannot be changed also refuses values, which
            // is reported.
            let _ = match self.keeps {
                true => intake.hide_grouped(&self.name, &labels),
                false => intake.remove_grouped(&self.name, &labels),
            };
            self.at = next;
        }
        Some(())
    }
}

impl PendingValues {
    fn new(key: Key, content: Content, options: Options, spots: Option<Spots>) -> Self {
        let (position, destinations, absent) = (SeriesPosition::default(), Vec::new(), Vec::new());
        Self {
            key,
            content,
            options,
            number: 0,
            position,
            destinations,
            spots,
            has_new_spots: false,
            absent,
        }
    }

    fn step(
        &mut self,
        intake: &mut Intake,
        refusals: &Refusals,
        outcome: &mut UpdateOutcome,
        left: &mut usize,
    ) -> Option<()> {
        let (key, families) = (Arc::clone(&self.key), Arc::clone(&self.content.families));
        let (named, mut labels) = ((&key, &*families), Vec::new());
        let form = self.content.form.clone();
        let known = form.as_ref().map_or(&[][..], |form| form.destinations());
        let ahead = known.iter().enumerate().skip(self.number).take(AHEAD);
        ahead.for_each(|(number, series)| self.prefetch(number, series));
        while self.number < self.content.values.series.len() {
            *left = left.checked_sub(1)?;
            if let Some(series) = known.get(self.number + AHEAD) {
                self.prefetch(self.number + AHEAD, series);
            }
            let series = known.get(self.number);
            let is_taken = series.and_then(|series| self.take_at_spot(series, intake));
            if is_taken == Some(true) {
                outcome.taken += 1;
            } else {
                self.take_next(series, named, &mut labels, intake, refusals, outcome);
            }
            self.number += 1;
        }
        if let Some(form) = form {
            form.set_destinations(std::mem::take(&mut self.destinations));
        }
        Some(())
    }

    /// Prefetches the memory of a series.
    fn prefetch(&self, number: usize, series: &Destination) {
        if let (Some(handle), Some(spots)) = (&series.handle, &self.spots) {
            handle.prefetch(spots.get(number));
        }
    }

    /// Stores the value of the next series through its cached spot, without a lookup. Returns true
    /// on success; otherwise, use [`Self::take_next`].
    fn take_at_spot(&self, series: &Destination, intake: &Intake) -> Option<bool> {
        let (handle, spots) = (series.handle.as_ref()?, self.spots.as_ref()?);
        let family = self.content.families.at(series.position.family)?;
        let value = self.content.values.series.get(self.number)?;
        let (mode, spot) = (self.mode(family, value)?, spots.get(self.number));
        let take = |given: &InputValue<'_>| intake.take_at(handle, spot, given, mode);
        Some(self.content.values.with_input_value(family.kind, value, take))
    }

    /// Stores the value of the next series by its name and labels. `series` is the cached
    /// destination, if the form is known; `labels` is a reused buffer.
    fn take_next<'a>(
        &mut self,
        series: Option<&Destination>,
        (key, families): (&'a Key, &'a PushFamilies),
        labels: &mut Vec<(&'a str, &'a str)>,
        intake: &mut Intake,
        refusals: &Refusals,
        outcome: &mut UpdateOutcome,
    ) {
        let position = series.map_or(self.position, |series| series.position);
        let Some((family, own, [position, next])) = families.series(position) else { return };
        let Some(value) = self.content.values.series.get(self.number) else { return };
        full_labels(key, own, labels);
        match self.take(intake, family, labels, value) {
            Ok(()) => outcome.taken += 1,
            Err(refused) => {
                let explanation = intake.explain(refused);
                let detail = format_args!("{}{labels:?}: {explanation}", family.name);
                refusals.refuse(super::INPUT, &self.content.job, refused.reason(), &detail);
                outcome.refuse(&family.name, refused, &explanation);
                let mut is_there = false;
                values::read(intake, &family.name, labels, |_| is_there = true);
                if !is_there {
                    note_absent(&mut self.absent, &family.name, own);
                }
            }
        }
        let has_mode = || self.mode(family, value).is_some();
        let has_spot = series.is_none_or(|series| series.handle.is_some() && has_mode());
        if has_spot && let Some(mut spots) = self.spots.take() {
            let (metric, count) = (metric_of(family), self.content.values.series.len());
            self.content.values.with_input_value(family.kind, value, |given| {
                let located = intake.locate(metric, labels, given, Mode::Set);
                if let Some((_, spot)) = located
                    && spot != spots.get(self.number)
                {
                    spots.set(self.number, spot, count);
                    self.has_new_spots = true;
                }
                if series.is_none() {
                    let handle = intake.handle(metric, labels, given, Mode::Set);
                    self.destinations.push(Destination { position, handle });
                }
            });
            self.spots = Some(spots);
        }
        self.position = next;
    }

    fn into_index_update(self) -> IndexUpdate {
        let id = self.options.id.filter(|_| self.options.adds());
        let spots = self.spots.filter(|_| self.has_new_spots);
        IndexUpdate { key: self.key, id, spots, absent: self.absent }
    }

    /// Returns the mode of the intake for a value; `None` if the result depends on the current
    /// value (`gauges=min` and `gauges=max`).
    fn mode(&self, family: &PushFamily, value: &SeriesValue) -> Option<Mode> {
        let is_plain =
            matches!(family.kind, Kind::Gauge | Kind::Untyped) && !is_total(family, value);
        match self.options.gauges {
            _ if !self.options.adds() => Some(Mode::Set),
            _ if !is_plain => Some(Mode::Add),
            Gauges::Set => Some(Mode::Set),
            Gauges::Sum => Some(Mode::Add),
            Gauges::Min | Gauges::Max => None,
        }
    }

    fn take(
        &self,
        intake: &mut Intake,
        family: &PushFamily,
        labels: &[(&str, &str)],
        value: &SeriesValue,
    ) -> Result<(), Rejection> {
        let metric = metric_of(family);
        let Some(mode) = self.mode(family, value) else {
            return self.bounded(intake, (metric, labels), (family.kind, value));
        };
        self.content.values.with_input_value(family.kind, value, |given| {
            intake.take(metric, labels, given, mode, value.start)
        })
    }

    /// Sets a gauge to the minimum or the maximum of the pushed value and the current value.
    fn bounded(
        &self,
        intake: &mut Intake,
        (metric, labels): (Metric<'_>, &[(&str, &str)]),
        (kind, value): (Kind, &SeriesValue),
    ) -> Result<(), Rejection> {
        let is_max = self.options.gauges == Gauges::Max;
        let current = values::number(intake, metric.name, labels);
        self.content.values.with_input_value(kind, value, |given| {
            let merged = |number: f64| match current {
                Some(current) if is_max => current.max(number),
                Some(current) => current.min(number),
                None => number,
            };
            let given = match *given {
                InputValue::Gauge(value) => InputValue::Gauge(merged(value)),
                InputValue::Unknown(value) => InputValue::Unknown(merged(value)),
                other => other,
            };
            intake.take(metric, labels, &given, Mode::Set, value.start)
        })
    }
}

/// Returns whether an untyped value is a counter, judging by the suffix `_total`.
fn is_total(family: &PushFamily, value: &SeriesValue) -> bool {
    let is_count = value.value >= 0.0 && value.value.is_finite();
    family.kind == Kind::Untyped && family.name.ends_with("_total") && is_count
}

fn metric_of(family: &PushFamily) -> Metric<'_> {
    let PushFamily { name, help, unit, .. } = family;
    Metric { help, unit, grouped: true, ..Metric::new(name) }
}

impl GroupTimes {
    fn set(self, intake: &mut Intake, outcome: &mut UpdateOutcome) {
        let mut labels = Vec::new();
        full_labels(&self.key, &[], &mut labels);
        // The intake of this thread may still hold the source of other samples.
        let job = labels.iter().find(|(name, _)| *name == "job");
        intake.set_source(&Source::Job(job.map_or("", |(_, job)| job)));
        let seconds = |nanos: Option<Nanos>| nanos.map(|nanos| nanos as f64 / 1e9);
        for (name, help, value) in [
            (PUSH_TIME, PUSH_HELP, seconds(self.pushed)),
            (FAILURE_TIME, FAILURE_HELP, seconds(self.failed)),
            (EXPIRY, EXPIRY_HELP, self.ttl.map(|ttl| ttl.as_secs_f64())),
        ] {
            let Some(value) = value else { continue };
            let metric = Metric { help, grouped: true, ..Metric::new(name) };
            let given = InputValue::Gauge(value);
            if let Err(refused) = intake.take(metric, &labels, &given, Mode::Set, None) {
                outcome.refuse(&name.into(), refused, &intake.explain(refused));
            }
        }
    }
}

/// Adds a series to a list of missing series, grouped by name.
fn note_absent(absent: &mut Vec<(Arc<str>, SeriesSet)>, name: &Arc<str>, labels: &[u8]) {
    match absent.last_mut().filter(|(last, _)| last == name) {
        Some((_, series)) => _ = series.insert(labels),
        None => {
            let mut series = SeriesSet::default();
            series.insert(labels);
            absent.push((name.clone(), series));
        }
    }
}

impl IndexUpdate {
    fn apply(self, groups: &mut Groups, outcome: &UpdateOutcome) {
        for (name, series) in self.absent {
            groups.forget(&self.key, &name, &series);
        }
        if self.id.is_none() && self.spots.is_none() {
            return;
        }
        let Some(group) = groups.group_mut(&self.key) else { return };
        group.keep_spots(self.spots);
        // We don't remember a push if no series was accepted, because the client can repeat it.
        let counts = outcome.taken > 0 || outcome.refused == 0;
        if let Some(id) = self.id.filter(|_| counts) {
            group.remember(id, outcome.fault());
        }
    }
}

impl UpdateOutcome {
    /// Returns the error message about the refused series, if any.
    pub(super) fn fault(&self) -> Option<String> {
        let (name, refused) = self.first.as_ref()?;
        let all = self.taken + self.refused;
        let others = if self.taken > 0 { ", the others were" } else { "" };
        Some(format!(
            "{} of {all} series were not taken{others}; the first is of {name:?}: {refused}",
            self.refused
        ))
    }

    fn refuse(&mut self, name: &Arc<str>, refused: Rejection, explanation: &dyn fmt::Display) {
        self.refused += 1;
        self.is_full |= refused == Rejection::Full;
        self.first.get_or_insert_with(|| (name.clone(), explanation.to_string()));
    }
}

/// Writes all labels of a series to `labels`, sorted by name: the labels of the group (`key`), the
/// labels of the series (`own`), and an empty `instance` if neither contains one.
pub(super) fn full_labels<'a>(key: &'a [u8], own: &'a [u8], labels: &mut Vec<(&'a str, &'a str)>) {
    labels.clear();
    labels.extend(packed::unpack(key).chain(packed::unpack(own)));
    if !labels.iter().any(|label| label.0 == "instance") {
        labels.push(("instance", ""));
    }
    labels.sort_unstable_by_key(|label| label.0);
}

/// The maximum number of series per step. A step then takes about 100 us.
const OPERATIONS: usize = 256;

/// The number of series by which prefetching is ahead of storing.
const AHEAD: usize = 12;
