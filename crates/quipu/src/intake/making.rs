//! How an intake makes families and series: within the limits, and only if every format can show
//! them next to the other metrics.
//!
//! Two threads must not make two contradicting metrics at the same time. So the first shown series
//! of a family is made under the segment's registration lock, after a look at the families that
//! others made before. Further series of the family need no look, and updates of known series take
//! no lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use quipu_segment::series::{Family, KeyWriter};

use super::class::Role;
use super::input::Metric;
use super::senders::{PLACE, TIME};
use super::table::{FamilyEntry, FamilyNeeds, SortedLabels, label_names};
use super::{Intake, Rejection};
use crate::exposition::{is_legacy_label, underscored_label, underscored_name};
use crate::names;

impl Intake {
    /// Checks the names and the values of a new series.
    pub(super) fn check_names(
        &mut self,
        name: &str,
        labels: &SortedLabels<'_>,
        role: Role,
    ) -> Result<(), Rejection> {
        let limits = &self.limits;
        if name.len() > limits.name_bytes || !names::is_metric(name) {
            return Err(Rejection::Name);
        }
        if limits.reserved.is_some_and(|prefix| underscored_name(name).starts_with(prefix)) {
            return Err(Rejection::Reserved);
        }
        for (name, value) in labels.iter() {
            let is_own = [PLACE, TIME].contains(&name) && role == Role::Apart;
            if name.len() > limits.name_bytes || !(is_own || names::is_label(name)) {
                return Err(Rejection::LabelName);
            }
            if value.len() > limits.value_bytes {
                return Err(Rejection::LabelValue);
            }
        }
        // Series with the role `Apart` are not shown.
        if role == Role::Apart || labels.iter().all(|(name, _)| is_legacy_label(name)) {
            return Ok(());
        }
        let mut shown: Vec<_> =
            labels.iter().map(|(name, _)| (underscored_label(name), name)).collect();
        shown.sort_unstable();
        match shown.windows(2).find(|two| two[0].0 == two[1].0) {
            Some(two) => Err(self.table.refuse_alike([two[0].1, two[1].1])),
            None => Ok(()),
        }
    }

    /// Finds the family that matches `wanted`, even if another thread made it.
    pub(super) fn family(
        &mut self,
        wanted: &FamilyNeeds<'_>,
        labels: &SortedLabels<'_>,
    ) -> Result<Option<Arc<FamilyEntry>>, Rejection> {
        if let Some(entry) = self.table.find(wanted, labels) {
            return Ok(Some(Arc::clone(entry)));
        }
        self.table.refresh(self.registry.segment()).map_err(|_| Rejection::Full)?;
        Ok(self.table.find(wanted, labels).map(Arc::clone))
    }

    /// Makes a series of a family, or shows a hidden one again; makes the family if `known` is
    /// `None`. Returns the family, and whether the series is new.
    pub(super) fn make(
        &mut self,
        known: Option<Arc<FamilyEntry>>,
        metric: &Metric<'_>,
        wanted: &FamilyNeeds<'_>,
        labels: &SortedLabels<'_>,
    ) -> Result<(Arc<FamilyEntry>, bool), Rejection> {
        let key = |key: &mut KeyWriter<'_>| labels.write(key);
        if known.is_none() {
            self.check_family_room()?;
        }
        // Without room for a series, its family would stay empty. A hidden series needs no room.
        if !known.as_ref().is_some_and(|entry| is_there(&entry.family, key)) {
            self.check_room()?;
        }
        match known {
            Some(entry) if wanted.class.role != Role::Shown || entry.has_shown() => {
                let is_new = make_series(&entry.family, key)?;
                Ok((entry, is_new))
            }
            _ => self.make_first(metric, wanted, labels),
        }
    }

    /// Makes the first shown series of a family while no other thread or process makes a family.
    fn make_first(
        &mut self,
        metric: &Metric<'_>,
        wanted: &FamilyNeeds<'_>,
        labels: &SortedLabels<'_>,
    ) -> Result<(Arc<FamilyEntry>, bool), Rejection> {
        let registry = self.registry.clone();
        let segment = registry.segment();
        step::reach(step::Step::BeforeLock);
        let registration = segment.lock_registration().map_err(|_| Rejection::Full)?;
        self.table.refresh(segment).map_err(|_| Rejection::Full)?;
        step::reach(step::Step::Locked);
        let mut entry = self.table.find(wanted, labels).map(Arc::clone);
        let is_shown = wanted.class.role == Role::Shown;
        if is_shown && !entry.as_ref().is_some_and(|entry| entry.has_shown()) {
            let names = labels.iter().map(|(name, _)| name);
            self.table.check_shown(wanted.name, wanted.shown, names)?;
        }
        if entry.is_none() {
            self.check_family_room()?;
            self.table.make(&registration, wanted, labels, metric)?;
            if let Some(families) = self.used.sources.families() {
                families.add(self.source);
            }
            entry = self.table.find(wanted, labels).map(Arc::clone);
        }
        let entry = entry.ok_or(Rejection::Full)?;
        let key = |key: &mut KeyWriter<'_>| labels.write(key);
        let is_new = make_series(&entry.family, key)?;
        if is_shown {
            show_again(&entry.family, key)?;
        }
        Ok((entry, is_new))
    }

    /// Makes a series of a family that exists, or shows a hidden one again, unless other metrics
    /// that are shown contradict the family. `key` writes the labels.
    pub(super) fn make_in(
        &mut self,
        entry: &FamilyEntry,
        key: impl Fn(&mut KeyWriter<'_>) + Copy,
    ) -> Result<(), Rejection> {
        let registry = self.registry.clone();
        let _registration = registry.segment().lock_registration().map_err(|_| Rejection::Full)?;
        self.table.refresh(registry.segment()).map_err(|_| Rejection::Full)?;
        let schema = entry.family.schema();
        let kind = entry.kind.snapshot_kind();
        self.table.check_shown(&schema.name, kind, label_names(schema))?;
        make_series(&entry.family, key)?;
        show_again(&entry.family, key)
    }

    /// Checks that a family can be made.
    fn check_family_room(&self) -> Result<(), Rejection> {
        if self.table.len() as u64 >= self.limits.families {
            return Err(Rejection::Families);
        }
        let families = self.used.sources.families();
        if families.is_some_and(|families| !families.has_room(self.source)) {
            return Err(Rejection::SourceFamilies);
        }
        Ok(())
    }

    /// Checks that a series can be made. At the limit, hidden series are removed to make room.
    fn check_room(&mut self) -> Result<(), Rejection> {
        if self.is_full() && !self.make_room() {
            return Err(Rejection::Series);
        }
        let series = self.used.sources.series();
        if series.is_some_and(|series| !series.has_room(self.source)) {
            return Err(Rejection::SourceSeries);
        }
        Ok(())
    }

    /// Returns whether the limit on series is reached, according to the last count.
    pub(super) fn is_full(&self) -> bool {
        self.used.series.load(Ordering::Relaxed) >= self.limits.series
    }

    /// Makes room for new series at the limit: counts the series again, because others may have
    /// removed some, and removes hidden ones for good, like [`Intake::sweep`]. Returns false if
    /// this frees no room.
    ///
    /// This looks at all families. So if one look finds no room, only the next one of many calls
    /// looks again.
    #[cold]
    fn make_room(&mut self) -> bool {
        let calls = self.used.without_room.fetch_add(1, Ordering::Relaxed);
        let families = self.table.entries().len() as u64;
        if !calls.is_multiple_of(families / FAMILIES_EACH + 1) {
            return false;
        }
        // Families that cannot be read contain no series to remove.
        let _ = self.table.refresh(self.registry.segment());
        self.count();
        let mut most = if self.is_full() { REMOVED_AT_ONCE } else { 0 };
        for entry in self.table.entries() {
            let (all, hidden) = (entry.family.len(), entry.family.hidden());
            if most == 0 {
                break;
            }
            // The fewer series are hidden, the longer the search for one takes.
            if hidden > 0 && hidden >= all / SEARCHED_EACH {
                let removed = entry.family.forget_hidden(most).unwrap_or(0);
                most = most.saturating_sub(usize::try_from(removed).unwrap_or(usize::MAX));
                self.release(removed);
            }
        }
        let has_room = !self.is_full();
        if has_room {
            self.used.without_room.store(0, Ordering::Relaxed);
        }
        has_room
    }
}

/// The number of families that a call of [`Intake::make_room`] looks at, on average.
const FAMILIES_EACH: u64 = 4;
/// The maximum length of the search for a hidden series, on average.
const SEARCHED_EACH: u64 = 64;
/// The maximum number of hidden series that are removed at once.
const REMOVED_AT_ONCE: usize = 64;

/// Returns whether a family contains a series, even if the series is hidden.
fn is_there(family: &Family, key: impl Fn(&mut KeyWriter<'_>)) -> bool {
    family.change(key, |_| {})
}

/// Makes a series, unless there is one. Returns whether it is new.
fn make_series(
    family: &Family,
    key: impl Fn(&mut KeyWriter<'_>) + Copy,
) -> Result<bool, Rejection> {
    let is_new = !is_there(family, key);
    if is_new && !family.make_series(key) {
        return Err(Rejection::Full);
    }
    Ok(is_new)
}

/// Shows a series, if it was hidden.
fn show_again(family: &Family, key: impl Fn(&mut KeyWriter<'_>)) -> Result<(), Rejection> {
    if family.hidden() > 0 {
        family.set_shown(key, true).map_err(|_| Rejection::Full)?;
    }
    Ok(())
}

/// Steps of making a series. Between these steps, a test can let another intake run.
mod step {
    /// A point that an intake reaches.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Step {
        /// The intake did not find a family that it could use.
        BeforeLock,
        /// The intake holds the lock, and knows all families.
        Locked,
    }

    #[cfg(not(test))]
    #[inline(always)]
    pub(super) fn reach(_: Step) {}

    #[cfg(test)]
    pub(super) use in_tests::{reach, when};

    #[cfg(test)]
    mod in_tests {
        use std::cell::RefCell;

        use super::Step;

        type Act = (Step, Box<dyn FnOnce()>);

        thread_local! {
            static ACT: RefCell<Option<Act>> = const { RefCell::new(None) };
        }

        /// Calls `act` once, when this thread reaches the step next.
        pub(in super::super) fn when(step: Step, act: impl FnOnce() + 'static) {
            ACT.replace(Some((step, Box::new(act))));
        }

        pub(in super::super) fn reach(step: Step) {
            // Taken before it runs: the act may reach the step, too.
            let act = ACT.with_borrow_mut(|act| act.take_if(|(wanted, _)| *wanted == step));
            if let Some((_, act)) = act {
                act();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(clippy::disallowed_types, reason = "no test forks while its threads wait")]

    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::Barrier;

    use super::step::{Step, when};
    use super::*;
    use crate::Registry;
    use crate::intake::{Change, InputValue, Limits, Mode};

    type TakeResult = Result<(), Rejection>;

    fn take(
        intake: &mut Intake,
        name: &str,
        labels: &[(&str, &str)],
        input: InputValue<'_>,
    ) -> TakeResult {
        intake.take(Metric::new(name), labels, &input, Mode::Set, None)
    }

    /// Lets another intake take a value when `one` reaches a step. Returns both results.
    fn interrupt(
        step: Step,
        one: impl FnOnce(&mut Intake) -> TakeResult,
        other: impl FnOnce(&mut Intake) -> TakeResult + 'static,
    ) -> (Registry, TakeResult, TakeResult) {
        let registry = Registry::new();
        let mut intake = Intake::new(&registry, Limits::default()).unwrap();
        let mut clone = intake.clone();
        let result = Rc::new(RefCell::new(None));
        let to = Rc::clone(&result);
        when(step, move || _ = to.replace(Some(other(&mut clone))));
        let taken = one(&mut intake);
        let other = result.borrow_mut().take().expect("the step was reached");
        (registry, taken, other)
    }

    const GAUGE: InputValue<'_> = InputValue::Gauge(1.0);
    const COUNTER: InputValue<'_> = InputValue::Counter(1.0);

    #[test]
    fn a_metric_that_another_thread_makes_after_the_search_is_noticed() {
        let (registry, one, other) = interrupt(
            Step::BeforeLock,
            |intake| take(intake, "n_total", &[], GAUGE),
            |intake| take(intake, "n_total", &[], COUNTER),
        );
        assert_eq!((one, other), (Err(Rejection::Collision), Ok(())));
        assert_eq!(registry.text().matches("# TYPE").count(), 1);
    }

    #[test]
    fn no_metric_is_made_between_the_check_and_the_first_series() {
        let (registry, one, other) = interrupt(
            Step::Locked,
            |intake| take(intake, "n_total", &[], GAUGE),
            |intake| take(intake, "n_total", &[], COUNTER),
        );
        // The lock is held by this very thread, so it is not waited for.
        assert_eq!((one, other), (Ok(()), Err(Rejection::Full)));
        assert_eq!(registry.text().matches("# TYPE").count(), 1);
        let mut intake = Intake::new(&registry, Limits::default()).unwrap();
        assert_eq!(take(&mut intake, "n_total", &[], COUNTER), Err(Rejection::Collision));
    }

    #[test]
    fn of_two_threads_that_make_contradicting_metrics_one_is_refused() {
        let registry = Registry::new();
        let intake = Intake::new(&registry, Limits::default()).unwrap();
        let (rounds, barrier) = (if cfg!(miri) { 3 } else { 300 }, Barrier::new(2));
        let run = |input: InputValue<'static>| {
            let (mut intake, barrier) = (intake.clone(), &barrier);
            move || -> Vec<TakeResult> {
                let take = |round| {
                    barrier.wait();
                    take(&mut intake, &format!("n{round}_total"), &[], input)
                };
                (0..rounds).map(take).collect()
            }
        };
        let (gauges, counters) = std::thread::scope(|scope| {
            let [one, other] = [GAUGE, COUNTER].map(|input| scope.spawn(run(input)));
            (one.join().unwrap(), other.join().unwrap())
        });
        for (gauge, counter) in gauges.iter().zip(&counters) {
            assert!(gauge.is_ok() != counter.is_ok(), "{gauge:?} {counter:?}");
        }
    }

    /// A panic in a step leaves the lock to others.
    #[test]
    fn a_thread_that_panics_with_the_lock_does_not_stop_others() {
        let registry = Registry::new();
        let intake = Intake::new(&registry, Limits::default()).unwrap();
        let mut panicking = intake.clone();
        let panicked = std::thread::spawn(move || {
            when(Step::Locked, || panic!("on purpose"));
            take(&mut panicking, "a", &[], GAUGE)
        });
        assert!(panicked.join().is_err());
        let mut intake = intake;
        take(&mut intake, "a", &[], GAUGE).unwrap();
        assert!(registry.text().contains("a 1\n"));
    }

    #[test]
    fn a_metric_whose_series_were_hidden_comes_back_only_if_its_name_is_free() {
        let registry = Registry::new();
        let mut intake = Intake::new(&registry, Limits::default()).unwrap();
        let grouped = |name| Metric { grouped: true, ..Metric::new(name) };
        let labels = [("job", "a")];
        let mut set = |name, input| intake.take(grouped(name), &labels, &input, Mode::Set, None);
        set("n_total", GAUGE).unwrap();
        let mut other = Intake::new(&registry, Limits::default()).unwrap();
        assert_eq!(other.hide_grouped("n_total", &labels).unwrap(), 1);
        take(&mut other, "n_total", &[], COUNTER).unwrap();
        assert_eq!(set("n_total", GAUGE), Err(Rejection::Collision));
        assert_eq!(registry.text().matches("# TYPE").count(), 1);
        assert_eq!(other.remove("n_total", &[]).unwrap(), 1);
        set("n_total", GAUGE).unwrap();
        assert_eq!(take(&mut other, "n_total", &[], COUNTER), Err(Rejection::Collision));
        assert_eq!(registry.text().matches("# TYPE n_total gauge").count(), 1);
    }

    #[test]
    fn a_command_revives_a_metric_only_if_its_name_is_free() {
        let registry = Registry::new();
        let mut intake = Intake::new(&registry, Limits::default()).unwrap();
        let set = |intake: &mut Intake| {
            intake.change(Metric::new("n_total"), &[], &Change::Set(1.0)).map_err(|e| e.to_string())
        };
        set(&mut intake).unwrap();
        assert_eq!(intake.remove("n_total", &[]).unwrap(), 1);
        take(&mut intake, "n_total", &[], COUNTER).unwrap();
        let error = set(&mut intake).unwrap_err();
        assert!(error.contains("\"n_total\" (counter)"), "{error}");
        assert_eq!(registry.text().matches("# TYPE").count(), 1);
        assert_eq!(intake.remove("n_total", &[]).unwrap(), 1);
        set(&mut intake).unwrap();
        assert!(registry.text().contains("# TYPE n_total gauge\nn_total 1\n"));
    }
}
