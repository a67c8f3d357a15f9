//! Senders that use the same labels, as in OpenTelemetry's data model.
//!
//! The start time of a total identifies its sender. A followed series stores the totals of one
//! sender, usually the sender that started last. The last totals of up to [`PLACES`] others are in
//! *places*: series that no scrape shows, with the same labels and [`PLACE`]. So the series is the
//! sum of all senders, whether one replaced the other or both are alive.
//!
//! | a total with | is |
//! |---|---|
//! | the start of the followed sender | followed |
//! | a later start | the first total of a new sender, which is followed from now on; the last total of the earlier sender is moved to a place |
//! | an earlier start that is in a place | from a sender that is alive: its growth is added |
//! | any other earlier start | from a sender that was not seen before: all of it is added. If no place is free, the sender may have been forgotten, and its total is refused |
//!
//! A sender without samples for [`KEPT`] loses its place.
//!
//! An increment cannot be identified in this way. It counts if it is later than the last increment
//! of its series. The cells of the series store the time of the last increment. If its family was
//! made without a cell for this time, a series that no scrape shows stores it, with [`TIME`]. An
//! increment whose time cannot be kept, for example at a limit on series, counts without this
//! check, so it is added at least once.

use std::time::Duration;

use quipu_segment::series::SeriesCells;

use super::class::Role;
use super::input::{InputValue, Metric, Mode};
use super::put::{self, PutResult, relay};
use super::table::{FamilyEntry, FamilyNeeds, SortedLabels};
use super::{Intake, Rejection, change, settings};
use crate::kind::{LastTotal, Times};

/// The label that distinguishes places.
pub(super) const PLACE: &str = "__place";
/// The label of the time of the last increment. Its families are separate from the families of
/// places because they expire earlier.
pub(super) const TIME: &str = "__time";
/// The place of the time of the last increment.
const LAST_INCREMENT: (&str, &str) = (TIME, "last");
/// The number of senders of a series that are followed at once, in addition to the last one.
const PLACES: usize = 8;
/// How long a place is kept without samples.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// How long the time of the last increment is kept. Clients retry for a few minutes.
const KEPT_TIME: Duration = Duration::from_secs(15 * 60);
/// A sender without samples for this time gives up its place if another one needs it.
const SILENT: u64 = 15 * 60 * 1_000_000_000;

/// A total of a sender.
#[derive(Clone, Copy)]
pub(super) struct SentTotal<'a> {
    pub(super) metric: &'a Metric<'a>,
    /// The role of the series that is followed.
    pub(super) role: Role,
    pub(super) labels: &'a SortedLabels<'a>,
    pub(super) input: &'a InputValue<'a>,
    pub(super) times: Times,
}

/// The place of a sender.
enum Place {
    /// The sender owns this place.
    Own(usize),
    /// The sender can take this place.
    Free(usize),
    /// All places belong to other senders.
    None,
}

impl Intake {
    /// Returns the number of values that this intake took from senders while another sender with
    /// the same labels was alive (see [`Metric::streams`]). Each clone counts separately.
    pub fn overlaps(&self) -> u64 {
        self.overlaps
    }

    /// Calls `give` unless the [time](Metric::time) of an increment repeats or precedes the time of
    /// the last increment of the same series. Use this for an increment that you add elsewhere. The
    /// time is kept for 15 minutes, in a series that no scrape shows. If it cannot be kept, for
    /// example because a limit is reached, `give` is called without this check.
    ///
    /// ```
    /// use quipu::Registry;
    /// use quipu::intake::{InputValue, Intake, Limits, Metric, Mode, Rejection};
    /// use quipu::snapshot::Timestamp;
    ///
    /// let registry = Registry::new();
    /// let mut intake = Intake::new(&registry, Limits::default())?;
    /// let hits = Metric { time: Some(Timestamp::from_nanos(1000)), ..Metric::new("hits") };
    /// let mut add = || {
    ///     intake.add_once(hits, &[("host", "a")], |intake| {
    ///         intake.take(Metric::new("hits"), &[], &InputValue::Counter(5.0), Mode::Add, None)
    ///     })
    /// };
    /// assert_eq!((add(), add()), (Ok(()), Err(Rejection::Duplicate)));
    /// assert!(registry.text().contains("hits 5\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Rejection::Duplicate`], and the error of `give`. If `give` fails, you can send the
    /// increment again.
    pub fn add_once(
        &mut self,
        metric: Metric<'_>,
        labels: &[(&str, &str)],
        give: impl FnOnce(&mut Self) -> Result<(), Rejection>,
    ) -> Result<(), Rejection> {
        let metric = Metric { streams: true, ..metric };
        let times = self.times(&metric, None, Mode::Add);
        // The code that adds the increment may drop excess labels.
        match SortedLabels::new(labels, self.limits.labels, false) {
            Ok(labels) => self.give_once(&metric, &labels, times, give),
            Err(_) => give(self),
        }
    }

    /// Adds an increment to a series whose family does not store the time of the last increment.
    pub(super) fn add_untimed(
        &mut self,
        metric: &Metric<'_>,
        labels: &SortedLabels<'_>,
        input: &InputValue<'_>,
        times: Times,
    ) -> Result<(), Rejection> {
        self.give_once(metric, labels, times, |intake| {
            match intake.put(metric, Role::Shown, labels, input, Mode::Add, Times::UNKNOWN)? {
                PutResult::Done => Ok(()),
                _ => Err(Rejection::Full),
            }
        })
    }

    fn give_once(
        &mut self,
        metric: &Metric<'_>,
        labels: &SortedLabels<'_>,
        times: Times,
        give: impl FnOnce(&mut Self) -> Result<(), Rejection>,
    ) -> Result<(), Rejection> {
        if times.sample.is_none() {
            return give(self);
        }
        // A total of zero that never grows stores the time of its last sample.
        let zero = InputValue::Counter(0.0);
        let times = Times { start: 0, by_start: false, ..times };
        let hidden = Metric { expiry: Some(KEPT_TIME), ..of_place(metric) };
        let mut give = Some(give);
        let kept = in_place(labels, LAST_INCREMENT, |labels| {
            self.follow_apart(&hidden, Role::Apart, labels, &zero, times, |intake, _| {
                give.take().map_or(Ok(()), |give| give(intake))
            })
        });
        match (give, kept) {
            (None, input) => input,
            (Some(_), Ok(())) => Err(Rejection::Duplicate),
            // It is better to count an increment twice than to lose it.
            (Some(give), Err(_)) => give(self),
        }
    }

    /// Takes a total of a sender other than the followed one, which has the start `known`. `give`
    /// adds an increment to the series, in addition to the followed total.
    pub(super) fn take_of_other(
        &mut self,
        sent: &SentTotal<'_>,
        known: u64,
        give: impl FnOnce(&mut Self, &InputValue<'_>) -> Result<(), Rejection>,
    ) -> Result<(), Rejection> {
        self.in_step(|intake| {
            let known = if sent.role == Role::Shown {
                // Another thread may have begun to follow this sender before the step.
                let SentTotal { metric, role, labels, input, times } = *sent;
                match intake.put(metric, role, labels, input, Mode::Follow, times)? {
                    PutResult::Done => return Ok(()),
                    PutResult::Other(known) => known,
                    _ => return Err(Rejection::Full),
                }
            } else {
                known
            };
            if sent.times.start < known {
                intake.add_growth(sent, known, give)
            } else {
                intake.change_sender(sent, give)
            }
        })
    }

    /// Adds the growth of a sender that started before the followed one.
    fn add_growth(
        &mut self,
        sent: &SentTotal<'_>,
        known: u64,
        give: impl FnOnce(&mut Self, &InputValue<'_>) -> Result<(), Rejection>,
    ) -> Result<(), Rejection> {
        let SentTotal { metric, role, labels, input, times } = *sent;
        let (place, is_new) = match self.place_of(sent, times.start) {
            Place::Own(place) => (place, false),
            Place::Free(place) => (place, true),
            Place::None => return Err(Rejection::Senders),
        };
        let alone = Times { by_start: false, ..times };
        in_place(labels, (PLACE, &place_name(role, place)), |labels| {
            if is_new {
                // Another sender may have stored its total there.
                let none = LastTotal { start: times.start, time: 0, values: Vec::new() };
                self.store_in_place(sent, labels, &none)?;
            }
            self.follow_apart(&of_place(metric), Role::Apart, labels, input, alone, give)
        })?;
        // If the sample precedes the start of the followed sender, it arrives late, and its sender
        // can be gone.
        self.overlaps += u64::from(times.sample.is_none_or(|time| time > known));
        Ok(())
    }

    /// Follows another sender from now on.
    fn change_sender(
        &mut self,
        sent: &SentTotal<'_>,
        give: impl FnOnce(&mut Self, &InputValue<'_>) -> Result<(), Rejection>,
    ) -> Result<(), Rejection> {
        let SentTotal { metric, role, labels, input, times } = *sent;
        let hidden = Metric { help: "", ..*metric };
        let metric = if role == Role::Shown { metric } else { &hidden };
        let value = (input, Mode::Follow);
        let mut before = None;
        self.with_cells(metric, role, labels, value, |entry, cells| {
            before = relay(entry, cells, input).map(|relay| relay.last_total());
        })?;
        let before = before.ok_or(Rejection::Full)?;
        // In this case, the sender is unlikely to return.
        let has_ended = before.time <= times.start;
        let place = match self.place_of(sent, before.start) {
            Place::Own(place) | Place::Free(place) => Some(place),
            Place::None if has_ended => None,
            Place::None => return Err(Rejection::Senders),
        };
        // Before the turn ends, because the sender stays followed if this fails, and because its
        // next total would count in full if this process died with the total in no place.
        if let Some(place) = place {
            let stored = self.store_last(sent, place, &before);
            if !has_ended {
                stored?;
            }
        }
        if role != Role::Shown {
            let values: Vec<f64> = (0..before.values.len()).map(|i| put::value(input, i)).collect();
            put::with_increment(input, &values, |grown| give(self, grown))?;
        }
        let mut last = None;
        self.with_cells(metric, role, labels, value, |entry, cells| {
            let segment = entry.family.segment();
            last = relay(entry, cells, input).and_then(|relay| relay.end_turn(segment));
        })?;
        let last = last.ok_or(Rejection::Full)?;
        // Another thread may have stored a later total in the meantime.
        if let Some(place) = place
            && last != before
        {
            let stored = self.store_last(sent, place, &last);
            if !has_ended {
                stored?;
            }
        }
        let mut is_begun = false;
        self.with_cells(metric, role, labels, value, |entry, cells| {
            let Some(relay) = relay(entry, cells, input) else { return };
            let value = |i| put::value(input, i);
            is_begun = relay.begin_turn(entry.family.segment(), &last, times, value);
        })?;
        if is_begun { Ok(()) } else { Err(Rejection::Full) }
    }

    /// Returns the place of the sender with this start.
    fn place_of(&mut self, sent: &SentTotal<'_>, start: u64) -> Place {
        let (mut free, mut oldest) = (None, None);
        for place in 0..PLACES {
            let [other, time] = self.in_that_place(sent, place).unwrap_or([0; 2]);
            if other == start && start != 0 {
                return Place::Own(place);
            }
            if other == 0 {
                free = free.or(Some(place));
            } else if oldest.is_none_or(|(before, _)| time < before) {
                oldest = Some((time, place));
            }
        }
        let now = sent.times.sample.unwrap_or(sent.times.start);
        let silent = oldest.filter(|(time, _)| time.saturating_add(SILENT) < now);
        free.or(silent.map(|(_, place)| place)).map_or(Place::None, Place::Free)
    }

    /// Returns the start of the sender that owns a place, and the time of its last sample. `None`
    /// if the place was never used.
    fn in_that_place(&mut self, sent: &SentTotal<'_>, place: usize) -> Option<[u64; 2]> {
        let SentTotal { metric, role, labels, input, .. } = *sent;
        let registry = self.registry.clone();
        // Another thread may have made the first place of this series.
        self.table.refresh(registry.segment()).ok()?;
        let mut settings = std::mem::take(&mut self.settings);
        let metric = of_place(metric);
        let mut found = None;
        let _ = in_place(labels, (PLACE, &place_name(role, place)), |labels| {
            let wanted = settings::family_needs(&metric, input, Mode::Follow, &mut settings)?;
            let class = super::class::Class { role: Role::Apart, ..wanted.class };
            if let Some(entry) = self.table.find(&FamilyNeeds { class, ..wanted }, labels) {
                change(entry, labels, &mut |entry: &FamilyEntry, cells: &SeriesCells<'_>| {
                    found = relay(entry, cells, input).map(|relay| relay.turn());
                });
            }
            Ok(())
        });
        self.settings = settings;
        found
    }

    /// Stores the last total of the followed sender in a place.
    fn store_last(
        &mut self,
        sent: &SentTotal<'_>,
        place: usize,
        last: &LastTotal,
    ) -> Result<(), Rejection> {
        in_place(sent.labels, (PLACE, &place_name(sent.role, place)), |labels| {
            self.store_in_place(sent, labels, last)
        })
    }

    /// Stores a total as the last one of the sender that owns a place.
    fn store_in_place(
        &mut self,
        sent: &SentTotal<'_>,
        labels: &SortedLabels<'_>,
        total: &LastTotal,
    ) -> Result<(), Rejection> {
        let value = (sent.input, Mode::Follow);
        self.with_cells(&of_place(sent.metric), Role::Apart, labels, value, |entry, cells| {
            if let Some(relay) = relay(entry, cells, sent.input) {
                relay.replace(total);
            }
        })
    }

    /// Removes the places of a series, and the time of its last increment.
    pub(super) fn remove_places(&mut self, name: &str, labels: &[(&str, &str)]) {
        let Ok(labels) = SortedLabels::new(labels, self.limits.labels, false) else { return };
        self.remove_place(name, &labels, LAST_INCREMENT);
        for place in 0..PLACES {
            for role in [Role::Shown, Role::Apart] {
                if !self.remove_place(name, &labels, (PLACE, &place_name(role, place))) {
                    return;
                }
            }
        }
    }

    /// Removes a place of a series. Returns false if there are no places for these labels.
    fn remove_place(&mut self, name: &str, labels: &SortedLabels<'_>, place: (&str, &str)) -> bool {
        let found = in_place(labels, place, |labels| {
            let entries = self.table.of_labels(Role::Apart, name, labels);
            let remove = |entry: &std::sync::Arc<FamilyEntry>| {
                // A place that cannot be locked now becomes free after a day.
                entry.family.remove(|key| labels.write(key)).unwrap_or(false)
            };
            self.release(entries.iter().filter(|entry| remove(entry)).count() as u64);
            Ok(!entries.is_empty())
        });
        found.unwrap_or(false)
    }
}

/// Returns the metric of a place.
fn of_place<'a>(metric: &Metric<'a>) -> Metric<'a> {
    let expiry = Some(KEPT);
    Metric { help: "", expiry, exemplars: false, streams: false, grouped: false, ..*metric }
}

/// Returns the label value of a place. A series that is followed apart from the shown series has
/// separate places, so their names have a prefix.
fn place_name(role: Role, place: usize) -> String {
    let prefix = if role == Role::Apart { "apart" } else { "" };
    format!("{prefix}{place}")
}

/// Calls `act` with the labels of a place of the series with these labels.
fn in_place<R>(
    labels: &SortedLabels<'_>,
    place: (&str, &str),
    act: impl FnOnce(&SortedLabels<'_>) -> Result<R, Rejection>,
) -> Result<R, Rejection> {
    let labels: Vec<(&str, &str)> = labels.iter().chain([place]).collect();
    act(&SortedLabels::new(&labels, super::table::MAX_LABELS, false)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::intake::Limits;
    use crate::registry::Registry;
    use crate::snapshot::Timestamp;

    /// Two requests of a new sender arrive on two threads, and both find the old one followed.
    #[test]
    fn a_sender_that_another_thread_follows_already_takes_over_once() {
        let registry = Registry::new();
        let mut intake = Intake::new(&registry, Limits::default()).unwrap();
        let labels = SortedLabels::new(&[], 1, false).unwrap();
        let metric = |time| Metric {
            streams: true,
            time: Some(Timestamp::from_nanos(time)),
            ..Metric::new("c_total")
        };
        for (total, start, time) in [(5.0, 100, 150), (2.0, 200, 250)] {
            let input = InputValue::Counter(total);
            let start = Some(Timestamp::from_nanos(start));
            intake.take(metric(time), &[], &input, Mode::Follow, start).unwrap();
        }
        let (metric, input) = (metric(260), InputValue::Counter(3.0));
        let times = intake.times(&metric, Some(Timestamp::from_nanos(200)), Mode::Follow);
        let (metric, role, labels, input) = (&metric, Role::Shown, &labels, &input);
        let sent = SentTotal { metric, role, labels, input, times };
        intake.take_of_other(&sent, 100, |_, _| Err(Rejection::Value)).unwrap();
        assert!(registry.text().contains("c_total 8\n"), "{}", registry.text());
    }

    /// Increments and totals of one counter: a client retries for minutes, a sender may be silent
    /// for hours.
    #[test]
    fn the_times_of_increments_are_kept_less_long_than_senders() {
        let registry = Registry::new();
        let mut intake = Intake::new(&registry, Limits::default()).unwrap();
        let metric = |time| Metric {
            streams: true,
            time: Some(Timestamp::from_nanos(time)),
            ..Metric::new("c_total")
        };
        intake.add_once(metric(100), &[], |_| Ok(())).unwrap();
        for (total, start) in [(5.0, 100), (2.0, 200)] {
            let (input, start) = (InputValue::Counter(total), Some(Timestamp::from_nanos(start)));
            intake.take(metric(300), &[], &input, Mode::Follow, start).unwrap();
        }
        let entries = intake.table.entries().iter().filter(|entry| entry.has_places());
        let kept: Vec<_> = entries.map(|entry| entry.family.schema().idle).collect();
        assert_eq!(kept, [Some(KEPT_TIME), Some(KEPT)]);
        assert_eq!(intake.usage().series, 3);
        intake.remove("c_total", &[]).unwrap();
        assert_eq!(intake.usage().series, 0);
    }
}
