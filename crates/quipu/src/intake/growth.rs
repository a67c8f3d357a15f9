//! Totals that are followed into series that other senders add to.
//!
//! A series that is added to only holds a sum, so it cannot store the last total of a source. This
//! total is stored in a series that no scrape shows, in a family with another [`Role`], and only
//! the growth since then is added. The growth is added first and the total stored second: if the
//! process dies in between, the growth is added again when the source sends its next total, but it
//! is never lost. (Logging the addition first would not help, because others add to the same cells,
//! on several CPUs' lanes: their sum does not show whether the addition was made. Each addition
//! would have to be written to a log.)

use std::sync::Arc;

use super::class::Role;
use super::input::{InputValue, Metric, Mode};
use super::put::{self, PutResult};
use super::senders::SentTotal;
use super::table::SortedLabels;
use super::{Intake, Rejection};
use crate::description::DEFAULT_ZERO_THRESHOLD;
use crate::kind::{Growth, RelaySummary, Times};
use crate::snapshot::{Native, Timestamp};

impl InputValue<'_> {
    /// Returns whether [`Intake::follow_into`] can follow this value's counts: it is a counter, a
    /// histogram or a summary.
    pub fn has_growth(&self) -> bool {
        !matches!(self, Self::Gauge(_) | Self::Unknown(_) | Self::Observation { .. })
    }
}

impl Intake {
    /// Follows the total of a source, like [`Intake::take`] with [`Mode::Follow`], and calls `give`
    /// with its growth, an increment that you add elsewhere: for example, to a sum over many
    /// sources. The first total of a source has grown from zero. No scrape shows the series of the
    /// source itself. `give` is not called for a sample that arrives late, or again. The increment
    /// of a summary contains no quantiles.
    ///
    /// Clones of one intake may follow the same source at the same time; others, and other
    /// processes that share the segment, must not.
    ///
    /// ```
    /// use quipu::Registry;
    /// use quipu::intake::{InputValue, Intake, Limits, Metric, Mode};
    ///
    /// let registry = Registry::new();
    /// let mut intake = Intake::new(&registry, Limits::default())?;
    /// let jobs = Metric::new("jobs_total");
    /// for (host, total) in [("a", 2.0), ("b", 5.0), ("a", 3.0), ("b", 1.0)] {
    ///     let total = InputValue::Counter(total);
    ///     intake.follow_into(jobs, &[("host", host)], &total, None, |intake, grown| {
    ///         intake.take(jobs, &[], grown, Mode::Add, None)
    ///     })?;
    /// }
    /// // The source `b` restarted.
    /// assert!(registry.text().contains("jobs_total 9\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Rejection::Value`] for a value without counts ([`InputValue::has_growth`]), the errors of
    /// [`Intake::take`], and the error of `give`. If `give` fails, the source can send the same
    /// total again.
    pub fn follow_into(
        &mut self,
        metric: Metric<'_>,
        labels: &[(&str, &str)],
        input: &InputValue<'_>,
        start: Option<Timestamp>,
        give: impl FnOnce(&mut Self, &InputValue<'_>) -> Result<(), Rejection>,
    ) -> Result<(), Rejection> {
        super::settings::check(input, Mode::Follow)?;
        if !input.has_growth() {
            return Err(Rejection::Value);
        }
        let metric = Metric { grouped: false, ..metric };
        let labels = SortedLabels::new(labels, self.limits.labels, false)?;
        let times = self.times(&metric, start, Mode::Follow);
        match input {
            InputValue::Native { buckets, sum } => {
                self.follow_native(&metric, &labels, (buckets, *sum), times, give)
            }
            input => self.follow_apart(&metric, Role::Apart, &labels, input, times, give),
        }
    }

    /// Adds a value to a mean over all values, and sets a gauge to this mean. The sum and the
    /// number of the values are stored in a series that no scrape shows.
    ///
    /// # Errors
    /// The errors of [`Intake::take`]; a value or a weight that is infinite or not a number is
    /// refused.
    pub fn average(
        &mut self,
        metric: Metric<'_>,
        labels: &[(&str, &str)],
        value: f64,
        weight: f64,
    ) -> Result<(), Rejection> {
        let input = InputValue::Summary { quantiles: &[], count: weight, sum: value * weight };
        super::settings::check(&input, Mode::Add)?;
        if !value.is_finite() {
            return Err(Rejection::Value);
        }
        let metric = Metric { grouped: false, ..metric };
        let sorted = SortedLabels::new(labels, self.limits.labels, false)?;
        self.in_step(|intake| {
            let hidden = Metric { help: "", ..metric };
            let (mut done, mut mean) = (PutResult::Done, None);
            let value = (&input, Mode::Add);
            intake.with_cells(&hidden, Role::Apart, &sorted, value, |entry, cells| {
                done = put::put(entry, cells, &input, Mode::Add, Times::UNKNOWN);
                mean = RelaySummary::mean(cells);
            })?;
            match (done, mean) {
                (PutResult::Done, Some(mean)) => {
                    intake.take(metric, labels, &InputValue::Gauge(mean), Mode::Set, None)
                }
                // All weights are zero.
                (PutResult::Done, None) => Ok(()),
                _ => Err(Rejection::Full),
            }
        })
    }

    /// Follows a total into the series of its name and labels, which other senders add to.
    pub(super) fn follow_beside(
        &mut self,
        metric: &Metric<'_>,
        labels: &SortedLabels<'_>,
        input: &InputValue<'_>,
        times: Times,
    ) -> Result<(), Rejection> {
        self.follow_apart(metric, Role::Beside, labels, input, times, |intake, grown| {
            intake.add_beside(metric, labels, grown)
        })
    }

    /// Adds the growth of a source to the series of its name and labels.
    pub(super) fn add_beside(
        &mut self,
        metric: &Metric<'_>,
        labels: &SortedLabels<'_>,
        grown: &InputValue<'_>,
    ) -> Result<(), Rejection> {
        let put = self.put(metric, Role::Shown, labels, grown, Mode::Add, Times::UNKNOWN)?;
        if matches!(put, PutResult::Done) { Ok(()) } else { Err(Rejection::Full) }
    }

    /// Follows a native histogram. Its count and its sum are followed like a summary. The series of
    /// this summary stores the times of the source, and notices its restarts; another series stores
    /// the last buckets. If the buckets contradict the count, because the source redrew its
    /// buckets, the count is right.
    fn follow_native(
        &mut self,
        metric: &Metric<'_>,
        labels: &SortedLabels<'_>,
        (buckets, sum): (&Native<'_>, f64),
        times: Times,
        give: impl FnOnce(&mut Self, &InputValue<'_>) -> Result<(), Rejection>,
    ) -> Result<(), Rejection> {
        let count = buckets.count();
        let summary = InputValue::Summary { quantiles: &[], count: count as f64, sum };
        // In one family, even if the source changes its threshold.
        let zero_threshold = DEFAULT_ZERO_THRESHOLD;
        let total = Native { zero_threshold, exemplars: &[], ..*buckets };
        let total = InputValue::Native { buckets: total, sum };
        let hidden = Metric { help: "", ..*metric };
        // Its last buckets are kept for one sender only.
        let times = Times { by_start: false, ..times };
        self.in_step(|intake| {
            let mut is_given = false;
            intake.follow_apart(
                metric,
                Role::Apart,
                labels,
                &summary,
                times,
                |intake, grown| {
                    let InputValue::Summary { count: most, sum, .. } = *grown else {
                        return Ok(());
                    };
                    let (most, mut by) = (most as u64, None);
                    let value = (&total, Mode::Follow);
                    intake.with_cells(&hidden, Role::Apart, labels, value, |entry, cells| {
                        by = put::native_growth(entry, cells, buckets, most, most >= count);
                    })?;
                    let Some(by) = by else { return Err(Rejection::Buckets) };
                    is_given = true;
                    let grown = Native {
                        schema: by.schema,
                        zero_count: by.zero_count,
                        positive: &by.positive,
                        negative: &by.negative,
                        zero_threshold: buckets.zero_threshold,
                        exemplars: &[],
                    };
                    give(intake, &InputValue::Native { buckets: grown, sum })
                },
            )?;
            if !is_given {
                return Ok(());
            }
            match intake.put(&hidden, Role::Apart, labels, &total, Mode::Follow, times)? {
                PutResult::Done => Ok(()),
                _ => Err(Rejection::Full),
            }
        })
    }

    pub(super) fn follow_apart(
        &mut self,
        metric: &Metric<'_>,
        role: Role,
        labels: &SortedLabels<'_>,
        input: &InputValue<'_>,
        times: Times,
        give: impl FnOnce(&mut Self, &InputValue<'_>) -> Result<(), Rejection>,
    ) -> Result<(), Rejection> {
        let hidden = Metric { help: "", ..*metric };
        self.in_step(|intake| {
            let mut growth = (Growth::Late, Vec::new());
            intake.with_cells(&hidden, role, labels, (input, Mode::Follow), |entry, cells| {
                growth = put::growth(entry, cells, input, times);
            })?;
            match growth.0 {
                Growth::Known => {}
                Growth::Late => return Ok(()),
                Growth::Locked => return Err(Rejection::Full),
                Growth::Other(known) => {
                    let sent = SentTotal { metric, role, labels, input, times };
                    return intake.take_of_other(&sent, known, give);
                }
            }
            put::with_increment(input, &growth.1, |grown| give(intake, grown))?;
            match intake.put(&hidden, role, labels, input, Mode::Follow, times)? {
                PutResult::Done => Ok(()),
                _ => Err(Rejection::Full),
            }
        })
    }

    /// Calls `act` while no clone adds the growth of a source, so no two threads add the same
    /// growth. `act` can call functions that use `in_step` again.
    pub(super) fn in_step<R>(&mut self, act: impl FnOnce(&mut Self) -> R) -> R {
        if self.is_in_step {
            return act(self);
        }
        let used = Arc::clone(&self.used);
        used.step.read(|()| {
            self.is_in_step = true;
            let done = act(self);
            self.is_in_step = false;
            done
        })
    }
}
