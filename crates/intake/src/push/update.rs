//! Applies a change of groups to the segment, in steps: series that go, values that come, and the
//! times of the group. The index is changed first; no scrape and no other change runs in between.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quipu::intake::{Given, Intake, Metric, Mode, Refused};

use super::builder::{
    EXPIRY, EXPIRY_HELP, FAILURE_HELP, FAILURE_TIME, Kind, OWN, PUSH_HELP, PUSH_TIME,
};
use super::content::{Content, Families, Family, Held, Place};
use super::groups::{self, Groups, Key, Nanos};
use super::options::{Gauges, Options};
use super::packed::{self, SeriesSet};
use super::spots::{Destination, Spots};
use super::values;
use crate::refusals::Refusals;
use quipu_process::address::Source;

/// A change that has begun. It must be brought to its end.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// The times that a new group has first, so that a crash leaves no series without a group.
    opening: Option<Times>,
    /// Series that go before values come.
    first: Vec<Gone>,
    coming: Option<Coming>,
    /// Series that go after values came.
    last: Vec<Gone>,
    closing: Option<Times>,
    settling: Option<Settling>,
    outcome: Outcome,
}

/// When a group was last pushed to with success, and without.
#[derive(Debug)]
struct Times {
    key: Key,
    pushed: Option<Nanos>,
    failed: Option<Nanos>,
    /// When it expires, if it says so.
    ttl: Option<Duration>,
}

/// Series that leave the exposition.
#[derive(Debug)]
struct Gone {
    key: Key,
    name: Arc<str>,
    series: Arc<SeriesSet>,
    /// Where the rest of the series begins.
    at: usize,
    /// Whether they keep their values, and come back with them.
    keeps: bool,
}

/// Values that come.
#[derive(Debug)]
struct Coming {
    key: Key,
    content: Content,
    options: Options,
    /// The number of the next series, and its place, unless a form says where it is.
    number: usize,
    place: Place,
    /// What is being found out of a form that is new.
    new: Vec<Destination>,
    /// Where the series of a push that has a form are, and whether any of it was found just now.
    spots: Option<Spots>,
    has_found: bool,
    /// See [`Settling::absent`].
    absent: Vec<(Arc<str>, SeriesSet)>,
}

/// What the index learns when values came.
#[derive(Debug)]
struct Settling {
    key: Key,
    /// The identifier of a push that was added.
    id: Option<u64>,
    /// Where the series are, if that was found just now.
    spots: Option<Spots>,
    /// The series that were not taken, and are not there from before.
    absent: Vec<(Arc<str>, SeriesSet)>,
}

/// What became of the values.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) taken: u64,
    pub(super) refused: u64,
    /// Whether a value was refused because the state has no room, which may change.
    pub(super) is_full: bool,
    /// The name of the first series that was refused, and why.
    pub(super) first: Option<(Arc<str>, String)>,
}

/// A push, and how it is treated.
#[derive(Debug)]
pub(super) struct Push {
    pub(super) key: Key,
    pub(super) content: Content,
    pub(super) options: Options,
    /// Whether families that are not pushed go (PUT).
    pub(super) removes: bool,
    pub(super) now: Nanos,
    /// The time after which groups expire that say nothing else.
    pub(super) expiry: Option<Duration>,
}

impl Work {
    /// Begins a push.
    pub(super) fn push(groups: &mut Groups, push: Push) -> Self {
        let Push { key, content, options, removes, now, expiry } = push;
        let mut work = Self::default();
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
            work.add(groups, &key, &content, now);
        } else {
            let families = &content.families;
            let is_kept = |name: &str| !removes && !was_expired || families.get(name).is_some();
            let gone = groups.retain(&key, |family| is_kept(&family.name));
            work.last.extend(gone.into_iter().map(|family| Gone::family(&key, family, false)));
            work.replace(groups, &key, &content, now);
        }
        if is_new {
            work.opening = Some(Times { key: key.clone(), pushed: Some(0), failed, ttl: None });
        }
        work.closing = Some(Times { key: key.clone(), pushed: Some(now), failed, ttl: own_ttl });
        work.coming = Some(Coming::new(key, content, options, spots));
        work
    }

    /// Begins to note that a push failed.
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
        let times = Times { key, pushed: is_new.then_some(0), failed: Some(now), ttl: None };
        Self { closing: Some(times), ..Self::default() }
    }

    /// Begins to remove a group, if it is there.
    pub(super) fn delete(groups: &mut Groups, key: &Key) -> Self {
        let Some(families) = groups.remove(key) else { return Self::default() };
        let families = families.into_iter().map(|family| Gone::family(key, family, false));
        // The times go last, so that a crash leaves no series without a group.
        let times = OWN.map(|name| Gone::own(key, name, false));
        Self { last: families.chain(times).collect(), ..Self::default() }
    }

    /// Begins to hide a group that expired. One whose pushes were never added up is removed: it has
    /// no totals to keep.
    pub(super) fn expire(groups: &mut Groups, key: &Key) -> Self {
        let Some(group) = groups.group(key) else { return Self::default() };
        if !group.adds {
            return Self::delete(groups, key);
        }
        let families = group.families().iter().map(|family| Gone {
            key: key.clone(),
            name: family.name.clone(),
            series: family.series.clone(),
            at: 0,
            keeps: true,
        });
        let mut last: Vec<Gone> = families.collect();
        last.extend(OWN.map(|name| Gone::own(key, name, true)));
        groups.expire(key);
        Self { last, ..Self::default() }
    }

    /// Does this before anything else.
    pub(super) fn after(mut self, other: Self) -> Self {
        self.first.splice(..0, other.first.into_iter().chain(other.last));
        self
    }

    /// Does a part of the work, for about 100 us. Returns the outcome at the end.
    pub(super) fn step(
        &mut self,
        index: &Mutex<Groups>,
        intake: &mut Intake,
        refusals: &Refusals,
    ) -> Option<Outcome> {
        let mut left = OPERATIONS;
        if let Some(times) = self.opening.take() {
            times.set(intake, &mut self.outcome);
        }
        step_gone(&mut self.first, intake, &mut left)?;
        if let Some(coming) = &mut self.coming {
            intake.set_source(&Source::Job(&coming.content.job));
            coming.step(intake, refusals, &mut self.outcome, &mut left)?;
            refusals.count_taken(super::INPUT, self.outcome.taken);
            self.settling = self.coming.take().map(Coming::settling);
        }
        step_gone(&mut self.last, intake, &mut left)?;
        if let Some(times) = self.closing.take() {
            times.set(intake, &mut self.outcome);
        }
        if let Some(settling) = self.settling.take() {
            // The index is consistent between any two changes of it.
            let mut groups = index.lock().unwrap_or_else(PoisonError::into_inner);
            settling.settle(&mut groups, &self.outcome);
        }
        Some(std::mem::take(&mut self.outcome))
    }

    /// Adds the series of a push to the index.
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
                    let before = groups.put(key, indexed(family, now));
                    self.first.extend(before.map(|before| Gone::family(key, before, false)));
                }
            }
        }
    }

    /// Replaces families in the index by those of a push.
    fn replace(&mut self, groups: &mut Groups, key: &Key, content: &Content, now: Nanos) {
        // Most pushes have the families of the push before, in the same order.
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
            let Some(before) = groups.put(key, indexed(family, now)) else { continue };
            if before.kind != family.kind {
                self.first.push(Gone::family(key, before, false));
                continue;
            }
            let gone = Arc::new(before.series.without(&family.series));
            let before = groups::Family { series: gone, ..before };
            self.last.push(Gone::family(key, before, false));
        }
    }
}

/// Notes that a family of the index is pushed again, if it has the same series.
fn renew(before: &mut groups::Family, family: &Family, content: &Content, now: Nanos) -> bool {
    let is_same =
        before.name == family.name && before.kind == family.kind && before.series == family.series;
    if is_same {
        before.time = now;
        content.share(family, &mut before.series);
    }
    is_same
}

/// A family as the index has it.
fn indexed(family: &Family, now: Nanos) -> groups::Family {
    let Family { name, kind, series, .. } = family;
    groups::Family { name: name.clone(), kind: *kind, time: now, series: Arc::clone(series) }
}

/// That time, later.
pub(super) fn after(now: Nanos, ttl: Duration) -> Nanos {
    now.saturating_add(u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX))
}

/// Does as much as is left of the operations. `None` if there is more to do.
fn step_gone(list: &mut Vec<Gone>, intake: &mut Intake, left: &mut usize) -> Option<()> {
    while let Some(gone) = list.first_mut() {
        gone.step(intake, left)?;
        list.remove(0);
    }
    Some(())
}

impl Gone {
    fn family(key: &Key, family: groups::Family, keeps: bool) -> Self {
        Self { key: key.clone(), name: family.name, series: family.series, at: 0, keeps }
    }

    /// One of the gateway's own series of a group.
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
            // A segment that cannot be changed refuses what comes as well, which is reported.
            let _ = match self.keeps {
                true => intake.hide_grouped(&self.name, &labels),
                false => intake.remove_grouped(&self.name, &labels),
            };
            self.at = next;
        }
        Some(())
    }
}

impl Coming {
    /// `spots` are those of the group for the form of the content.
    fn new(key: Key, content: Content, options: Options, spots: Option<Spots>) -> Self {
        let (place, new, absent) = (Place::default(), Vec::new(), Vec::new());
        Self { key, content, options, number: 0, place, new, spots, has_found: false, absent }
    }

    fn step(
        &mut self,
        intake: &mut Intake,
        refusals: &Refusals,
        outcome: &mut Outcome,
        left: &mut usize,
    ) -> Option<()> {
        let (key, families) = (Arc::clone(&self.key), Arc::clone(&self.content.families));
        let (named, mut labels) = ((&key, &*families), Vec::new());
        let form = self.content.form.clone();
        let known = form.as_ref().map_or(&[][..], |form| form.known());
        let ahead = known.iter().enumerate().skip(self.number).take(AHEAD);
        ahead.for_each(|(number, series)| self.prefetch(number, series));
        while self.number < self.content.values.held.len() {
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
            form.know(std::mem::take(&mut self.new));
        }
        Some(())
    }

    /// Begins to fetch a series, by its number.
    fn prefetch(&self, number: usize, series: &Destination) {
        if let (Some(handle), Some(spots)) = (&series.handle, &self.spots) {
            handle.prefetch(spots.get(number));
        }
    }

    /// Takes the value of the next series at its spot. Returns true if that changed the series.
    fn take_at_spot(&self, series: &Destination, intake: &Intake) -> Option<bool> {
        let (handle, spots) = (series.handle.as_ref()?, self.spots.as_ref()?);
        let family = self.content.families.at(series.place.family)?;
        let held = self.content.values.held.get(self.number)?;
        let (mode, spot) = (self.mode(family, held)?, spots.get(self.number));
        let take = |given: &Given<'_>| intake.take_at(handle, spot, given, mode);
        Some(self.content.values.with_given(family.kind, held, take))
    }

    /// Takes the value of the next series in the usual way. A form says where the series is, unless
    /// it is new. `labels` is memory for its labels.
    fn take_next<'a>(
        &mut self,
        series: Option<&Destination>,
        (key, families): (&'a Key, &'a Families),
        labels: &mut Vec<(&'a str, &'a str)>,
        intake: &mut Intake,
        refusals: &Refusals,
        outcome: &mut Outcome,
    ) {
        let place = series.map_or(self.place, |series| series.place);
        let Some((family, own, [place, next])) = families.series(place) else { return };
        let Some(held) = self.content.values.held.get(self.number) else { return };
        full_labels(key, own, labels);
        match self.take(intake, family, labels, held) {
            Ok(()) => outcome.taken += 1,
            Err(refused) => {
                let why = intake.explain(refused);
                let what = format_args!("{}{labels:?}: {why}", family.name);
                refusals.refuse(super::INPUT, &self.content.job, refused.reason(), &what);
                outcome.refuse(&family.name, refused, &why);
                let mut is_there = false;
                values::read(intake, &family.name, labels, |_| is_there = true);
                if !is_there {
                    forget(&mut self.absent, &family.name, own);
                }
            }
        }
        let has_mode = || self.mode(family, held).is_some();
        let has_spot = series.is_none_or(|series| series.handle.is_some() && has_mode());
        if has_spot && let Some(mut spots) = self.spots.take() {
            let (metric, count) = (metric_of(family), self.content.values.held.len());
            self.content.values.with_given(family.kind, held, |given| {
                let located = intake.locate(metric, labels, given, Mode::Set);
                if let Some((_, spot)) = located
                    && spot != spots.get(self.number)
                {
                    spots.set(self.number, spot, count);
                    self.has_found = true;
                }
                if series.is_none() {
                    let handle = intake.handle(metric, labels, given, Mode::Set);
                    self.new.push(Destination { place, handle });
                }
            });
            self.spots = Some(spots);
        }
        self.place = next;
    }

    fn settling(self) -> Settling {
        let id = self.options.id.filter(|_| self.options.adds());
        let spots = self.spots.filter(|_| self.has_found);
        Settling { key: self.key, id, spots, absent: self.absent }
    }

    /// How a value changes its series. `None` if that depends on the value there.
    fn mode(&self, family: &Family, held: &Held) -> Option<Mode> {
        let is_plain =
            matches!(family.kind, Kind::Gauge | Kind::Untyped) && !is_total(family, held);
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
        family: &Family,
        labels: &[(&str, &str)],
        held: &Held,
    ) -> Result<(), Refused> {
        let metric = metric_of(family);
        let Some(mode) = self.mode(family, held) else {
            return self.bounded(intake, (metric, labels), (family.kind, held));
        };
        self.content.values.with_given(family.kind, held, |given| {
            intake.take(metric, labels, given, mode, held.start)
        })
    }

    /// Sets a value to the lesser or the greater one of the pushed one and the one that is there.
    fn bounded(
        &self,
        intake: &mut Intake,
        (metric, labels): (Metric<'_>, &[(&str, &str)]),
        (kind, held): (Kind, &Held),
    ) -> Result<(), Refused> {
        let is_max = self.options.gauges == Gauges::Max;
        let there = values::number(intake, metric.name, labels);
        self.content.values.with_given(kind, held, |given| {
            let merged = |value: f64| match there {
                Some(there) if is_max => there.max(value),
                Some(there) => there.min(value),
                None => value,
            };
            let given = match *given {
                Given::Gauge(value) => Given::Gauge(merged(value)),
                Given::Unknown(value) => Given::Unknown(merged(value)),
                other => other,
            };
            intake.take(metric, labels, &given, Mode::Set, held.start)
        })
    }
}

/// Whether a value without a type is a total by its name, as in
/// [`types::class`](crate::types::class).
fn is_total(family: &Family, held: &Held) -> bool {
    let is_count = held.value >= 0.0 && held.value.is_finite();
    family.kind == Kind::Untyped && family.name.ends_with("_total") && is_count
}

/// The metric of a family, as an intake takes it.
fn metric_of(family: &Family) -> Metric<'_> {
    let Family { name, help, unit, .. } = family;
    Metric { help, unit, grouped: true, ..Metric::new(name) }
}

impl Times {
    fn set(self, intake: &mut Intake, outcome: &mut Outcome) {
        let mut labels = Vec::new();
        full_labels(&self.key, &[], &mut labels);
        // The intake of the thread has the source of what it took before.
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
            let given = Given::Gauge(value);
            if let Err(refused) = intake.take(metric, &labels, &given, Mode::Set, None) {
                outcome.refuse(&name.into(), refused, &intake.explain(refused));
            }
        }
    }
}

/// Notes a series that is not there.
fn forget(absent: &mut Vec<(Arc<str>, SeriesSet)>, name: &Arc<str>, labels: &[u8]) {
    match absent.last_mut().filter(|(last, _)| last == name) {
        Some((_, series)) => _ = series.insert(labels),
        None => {
            let mut series = SeriesSet::default();
            series.insert(labels);
            absent.push((name.clone(), series));
        }
    }
}

impl Settling {
    fn settle(self, groups: &mut Groups, outcome: &Outcome) {
        for (name, series) in self.absent {
            groups.forget(&self.key, &name, &series);
        }
        if self.id.is_none() && self.spots.is_none() {
            return;
        }
        let Some(group) = groups.group_mut(&self.key) else { return };
        group.keep_spots(self.spots);
        // A push of which nothing was taken may be sent again.
        let counts = outcome.taken > 0 || outcome.refused == 0;
        if let Some(id) = self.id.filter(|_| counts) {
            group.remember(id, outcome.fault());
        }
    }
}

impl Outcome {
    /// What the client is told of series that were not taken.
    pub(super) fn fault(&self) -> Option<String> {
        let (name, refused) = self.first.as_ref()?;
        let all = self.taken + self.refused;
        let others = if self.taken > 0 { ", the others were" } else { "" };
        Some(format!(
            "{} of {all} series were not taken{others}; the first is of {name:?}: {refused}",
            self.refused
        ))
    }

    fn refuse(&mut self, name: &Arc<str>, refused: Refused, why: &dyn fmt::Display) {
        self.refused += 1;
        self.is_full |= refused == Refused::Full;
        self.first.get_or_insert_with(|| (name.clone(), why.to_string()));
    }
}

/// All labels of a series, by name: those of the group, its own, and an empty `instance` if there
/// is none.
pub(super) fn full_labels<'a>(key: &'a [u8], own: &'a [u8], labels: &mut Vec<(&'a str, &'a str)>) {
    labels.clear();
    labels.extend(packed::unpack(key).chain(packed::unpack(own)));
    if !labels.iter().any(|label| label.0 == "instance") {
        labels.push(("instance", ""));
    }
    labels.sort_unstable_by_key(|label| label.0);
}

/// How many series a step changes, in about 100 us.
const OPERATIONS: usize = 256;

/// The number of series from the one that is taken at its spot to the one that is prefetched.
const AHEAD: usize = 12;
