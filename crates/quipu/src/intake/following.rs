//! Totals with the times of their samples: their series keep the order of the samples.
//!
//! The invariant: the cell for the time of the last sample is stored after the total of that
//! sample, and no sample that is not later changes the series. So a sample that is sent again
//! counts once, also if this process has ended meanwhile: if it ended between the total and its
//! time, the sample is later than the time in the cell, and stores the same total again. A total
//! that is not less than the last one does not count as a restart of the source. While the total is
//! stored, the cell has a time past that of the sample before, which is late if it is sent again,
//! too.

use std::time::Duration;

use quipu_segment::clock::Clock;
use quipu_segment::series::SeriesCells;

use super::class::{Class, Role};
use super::given::{Given, Metric, Mode};
use super::refused::Refused;
use super::table::{FamilyEntry, MAX_LABELS, SortedLabels};
use super::{Intake, change, settings};
use crate::kind::{AnyKind, FollowResult, Relay, RelayCounter, Times};
use crate::snapshot::Timestamp;

/// What a sample is to the last one of its series. There are no other cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// It is later, and was followed.
    Next,
    /// It is the last one again.
    Again,
    /// It has the time of the last one and another value, and changed nothing.
    Other,
    /// It is older by that much, and changed nothing.
    Late(Duration),
}

impl Intake {
    /// Follows the total of a counter as [`Intake::take`] does with [`Mode::Follow`], if its series
    /// has the time of its last sample, and returns what it is to that sample. Returns `None`, and
    /// changes nothing, if the series is not there, does not have that time, or is one that others
    /// add to; if the help is new; if the sample has no [time](Metric::time), or one that is far
    /// ahead; and for a group.
    ///
    /// # Errors
    /// As for [`Intake::take`], but never for a limit on series or families.
    pub fn follow(
        &mut self,
        metric: Metric<'_>,
        labels: &[(&str, &str)],
        total: f64,
        start: Option<Timestamp>,
    ) -> Result<Option<Followed>, Refused> {
        let given = Given::Counter(total);
        settings::check(&given, Mode::Follow)?;
        let times = self.times(&metric, start, Mode::Follow, self.clock.now());
        let Some(sample) = times.sample.filter(|_| !metric.grouped) else { return Ok(None) };
        let labels = SortedLabels::new(labels, self.limits.labels, false)?;
        let mut settings = std::mem::take(&mut self.settings);
        let wanted = settings::of_given(&metric, &given, Mode::Follow, &mut settings);
        let followed = wanted.and_then(|wanted| {
            let Some(entry) = self.table.find(&wanted, &labels) else { return Ok(None) };
            let is_followed = matches!(entry.kind, AnyKind::RelayCounter(_));
            if !is_followed || entry.is_dormant() || !(metric.help.is_empty() || entry.has_help()) {
                return Ok(None);
            }
            let mut followed = Ok(None);
            change(entry, &labels, &mut |entry: &FamilyEntry, cells: &SeriesCells<'_>| {
                followed = follow_in(entry, &RelayCounter::relay(*cells), total, times, sample);
            });
            followed
        });
        self.settings = settings;
        followed
    }

    /// The time of the last sample of the counter of these labels, if it is followed, alone or
    /// beside increments, has that time, and belongs to no group. One that is far ahead is not
    /// known.
    pub fn last_sample(&mut self, name: &str, labels: &[(&str, &str)]) -> Option<Timestamp> {
        self.table.refresh(self.registry.segment()).ok()?;
        let labels = SortedLabels::new(labels, MAX_LABELS, false).ok()?;
        let (mut last, latest) = (0, self.moment().latest);
        let followed = [Role::Shown, Role::Beside];
        for entry in followed.map(|role| self.table.of_labels(role, name, &labels)).concat() {
            let is_grouped = Class::from_schema(entry.family.schema()).grouped;
            if matches!(entry.kind, AnyKind::RelayCounter(_)) && !is_grouped {
                change(&entry, &labels, &mut |_: &FamilyEntry, cells: &SeriesCells<'_>| {
                    let time = RelayCounter::relay(*cells).last_sample(latest);
                    last = last.max(time.unwrap_or(0));
                });
            }
        }
        (last > 0).then_some(Timestamp(last))
    }
}

pub(super) fn follow_in(
    entry: &FamilyEntry,
    relay: &Relay<'_>,
    total: f64,
    times: Times,
    sample: u64,
) -> Result<Option<Followed>, Refused> {
    let Some(last) = relay.last_sample(times.latest) else { return Ok(None) };
    let followed = if sample < last {
        Followed::Late(Duration::from_nanos(last - sample))
    } else if sample > last {
        match relay.follow(entry.family.segment(), times, |_| total) {
            FollowResult::Done => Followed::Next,
            FollowResult::Locked => return Err(Refused::Full),
            // Only `Intake::take` follows several senders.
            FollowResult::Other(_) => return Ok(None),
        }
    } else if relay.is_last(|_| total) {
        Followed::Again
    } else {
        Followed::Other
    };
    Ok(Some(followed))
}
