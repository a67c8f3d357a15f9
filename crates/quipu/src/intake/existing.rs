//! Changes by callers that know the name of a metric but not which program made it, such as a
//! shell.
//!
//! The existing families decide. If an application registered a metric under the name, this metric
//! takes the change, with the labels that the application registered. Otherwise, the variant with
//! the same labels takes it; otherwise a new variant is made, with the existing type and buckets of
//! the name. Only a new name takes its type from the change.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quipu_segment::series::{KeyWriter, Schema, SeriesCells};

use super::class::{Class, Role};
use super::input::{Change, Metric, Mode, Shape};
use super::put::put_gauge;
use super::table::{FamilyEntry, FamilyNeeds, SortedLabels};
use super::{InputValue, Intake, Rejection};
use crate::error::Error;
use crate::kind::{AnyKind, MetricKind, MixedCounter, RelayCounter, Total};

impl Intake {
    /// Changes a series of the metric with this name, whichever program made it. If an application
    /// registered the metric, you must pass all of its labels, even labels with an empty value.
    ///
    /// Returns false if the change was counted in the overflow series, like a change by the
    /// application itself: its limit on series is reached, or the segment is full.
    ///
    /// ```
    /// use quipu::{Description, Registry};
    /// use quipu::intake::{Change, Intake, Limits, Metric};
    ///
    /// let registry = Registry::new();
    /// let jobs = registry.counter("jobs", "Jobs.")?;
    /// let mut intake = Intake::new(&registry, Limits::default())?;
    /// jobs.inc();
    /// intake.change(Metric::new("jobs_total"), &[], &Change::Add(2.0))?;
    /// assert_eq!(jobs.get(), 3);
    /// # Ok::<(), quipu::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the metric cannot take the change; the error explains what the metric is and what to do.
    /// Also the errors of [`Intake::take`].
    pub fn change(
        &mut self,
        metric: Metric<'_>,
        labels: &[(&str, &str)],
        change: &Change<'_>,
    ) -> Result<bool, Error> {
        let name = metric.name;
        self.table.refresh(self.registry.segment())?;
        let sorted = SortedLabels::new(labels, self.limits.labels, false);
        let sorted = sorted.map_err(|rejection| self.invalid(name, rejection))?;
        let checked = self.check_names(name, &sorted, Role::Shown);
        checked.map_err(|rejection| self.invalid(name, rejection))?;
        if let Some(entry) = self.table.registered_as(name) {
            return change_in(&entry, name, labels, change);
        }
        let variants = self.table.variants_of(name);
        if let Some(entry) = variants.iter().find(|entry| has_labels(entry, &sorted)) {
            let labels: Vec<_> = sorted.iter().collect();
            if !entry.has_shown() {
                check(entry, name, change)?;
                let values = values_of(entry.family.schema(), name, &labels)?;
                let key = |key: &mut KeyWriter<'_>| values.iter().for_each(|value| key.text(value));
                // Without room for the series, the change is counted in the overflow series.
                if let Err(rejection @ Rejection::Collision) = self.make_in(entry, key) {
                    return Err(self.invalid(name, rejection));
                }
            }
            return change_in(entry, name, &labels, change);
        }
        match variants.first() {
            Some(entry) => self.change_beside(entry, metric, &sorted, change),
            None => {
                let made = match *change {
                    Change::Add(n) => {
                        self.take(metric, labels, &InputValue::Counter(n), Mode::Add, None)
                    }
                    Change::Set(n) => {
                        self.take(metric, labels, &InputValue::Gauge(n), Mode::Set, None)
                    }
                    Change::Observe(value, shape) => {
                        let metric = Metric { shape: Some(shape.any()), ..metric };
                        let input = InputValue::Observation { value, weight: 1.0 };
                        self.take(metric, labels, &input, Mode::Add, None)
                    }
                };
                made.map_err(|rejection| self.invalid(name, rejection)).map(|()| true)
            }
        }
    }

    /// Makes a variant that only differs from `like` in its labels, and changes one of its series.
    fn change_beside(
        &mut self,
        like: &Arc<FamilyEntry>,
        metric: Metric<'_>,
        labels: &SortedLabels<'_>,
        change: &Change<'_>,
    ) -> Result<bool, Error> {
        check(like, metric.name, change)?;
        let schema = like.family.schema();
        if !can_be_made(schema.kind) {
            let reason = format!("it has {}: give these, or use another name", label_names(schema));
            return Err(Error::invalid(metric.name, reason));
        }
        let class = Class { alone: false, ..Class::from_schema(schema) };
        let wanted = FamilyNeeds {
            name: &schema.name,
            kind: schema.kind,
            shown: like.kind.snapshot_kind(),
            cells: schema.cells,
            floats: schema.floats,
            class,
            settings: &schema.settings,
        };
        let metric = Metric {
            help: if metric.help.is_empty() { &schema.help } else { metric.help },
            unit: &schema.unit,
            expiry: metric.expiry.or(schema.idle),
            ..Metric::new(&schema.name)
        };
        let act = |entry: &FamilyEntry, cells: &SeriesCells<'_>| apply(entry, cells, change);
        let made = self.update(&metric, &wanted, labels, act);
        made.map_err(|rejection| self.invalid(metric.name, rejection)).map(|()| true)
    }

    fn invalid(&self, name: &str, rejection: Rejection) -> Error {
        Error::rejected(name, rejection, self.explain(rejection).to_string())
    }
}

/// Returns whether an intake makes families of this kind.
fn can_be_made(kind: u8) -> bool {
    use crate::kind::{GaugeKind, HistogramLayout, SummaryLayout, UnknownKind};
    [
        MixedCounter::NUMBER,
        RelayCounter::NUMBER,
        GaugeKind::NUMBER,
        UnknownKind::NUMBER,
        HistogramLayout::NUMBER,
        SummaryLayout::NUMBER,
    ]
    .contains(&kind)
}

/// Returns whether the labels of a family are these, in any order.
fn has_labels(entry: &FamilyEntry, labels: &SortedLabels<'_>) -> bool {
    let schema = entry.family.schema();
    if Class::from_schema(schema).alone {
        return labels.is_empty();
    }
    let is_there = |name: &str| schema.labels.iter().any(|label| label.name == name);
    // No name occurs twice, on either side.
    labels.iter().count() == schema.labels.len() && labels.iter().all(|(name, _)| is_there(name))
}

/// Changes a series of a family.
fn change_in(
    entry: &FamilyEntry,
    name: &str,
    labels: &[(&str, &str)],
    change: &Change<'_>,
) -> Result<bool, Error> {
    let (family, schema) = (&entry.family, entry.family.schema());
    check(entry, name, change)?;
    let values = values_of(schema, name, labels)?;
    let key = |key: &mut KeyWriter<'_>| values.iter().for_each(|value| key.text(value));
    let act = |cells: SeriesCells<'_>| apply(entry, &cells, change);
    if family.change(key, act) || (family.make_series(key) && family.change(key, act)) {
        return Ok(true);
    }
    let overflow = RefCell::new(false);
    family.update_shown(key, |cells| {
        overflow.replace(true);
        act(cells);
    });
    if overflow.into_inner() {
        return Ok(false);
    }
    Err(Error::invalid(name, "its series cannot be locked in time: try again"))
}

/// Returns the values of the labels, in the order of the family's labels.
fn values_of<'v>(
    schema: &Schema,
    name: &str,
    labels: &[(&str, &'v str)],
) -> Result<Vec<&'v str>, Error> {
    if Class::from_schema(schema).alone {
        return Ok(vec![""]);
    }
    let fail = |message: String| Error::invalid(name, message);
    let is_unknown =
        |(name, _): &&(&str, &str)| !schema.labels.iter().any(|label| label.name == *name);
    if let Some((other, _)) = labels.iter().find(is_unknown) {
        return Err(fail(format!(
            "the application registered it with {}, not with {other:?}: leave that out, or use \
             another name",
            label_names(schema)
        )));
    }
    let values = schema.labels.iter().map(|label| {
        let Some((_, value)) = labels.iter().find(|(name, _)| *name == label.name) else {
            return Err(fail(format!(
                "the application registered it with {}: give {:?}, too",
                label_names(schema),
                label.name
            )));
        };
        match &label.values {
            Some(values) if !values.iter().any(|known| known == value) => {
                let known: Vec<_> = values.iter().take(LISTED).map(|v| format!("{v:?}")).collect();
                let more = if values.len() > LISTED { ", ..." } else { "" };
                Err(fail(format!(
                    "the label {:?} is {}{more}, not {value:?}: choose one of these",
                    label.name,
                    known.join(" or ")
                )))
            }
            _ => Ok(*value),
        }
    });
    values.collect()
}

/// The maximum number of values that an error lists.
const LISTED: usize = 10;

fn label_names(schema: &Schema) -> String {
    let names: Vec<_> = schema.labels.iter().map(|label| format!("{:?}", label.name)).collect();
    match &names[..] {
        [] => "no labels".into(),
        _ if Class::from_schema(schema).alone => "no labels".into(),
        [one] => format!("the label {one}"),
        many => format!("the labels {}", many.join(", ")),
    }
}

/// Checks that the metric can take the change.
fn check(entry: &FamilyEntry, name: &str, change: &Change<'_>) -> Result<(), Error> {
    let fail = |message: String| Err(Error::invalid(name, message));
    match (change, &entry.kind) {
        (Change::Add(n) | Change::Set(n) | Change::Observe(n, _), _) if n.is_nan() => {
            if matches!((change, &entry.kind), (Change::Set(_), AnyKind::Gauge(_))) {
                return Ok(());
            }
            fail("the value is not a number: give a number".into())
        }
        (Change::Add(n), AnyKind::Counter(_)) if whole(*n).is_none_or(|n| n < 0) => {
            fail(format!("it counts whole numbers, to which {n} cannot be added: give 0 or more"))
        }
        (Change::Add(n), kind) if is_counter(kind) => match *n >= 0.0 && n.is_finite() {
            true => Ok(()),
            false => fail(format!("it is a counter, which only grows: {n} cannot be added")),
        },
        (Change::Add(n) | Change::Set(n), AnyKind::IntGauge(_)) if whole(*n).is_none() => {
            fail(format!("it is a gauge of whole numbers: {n} does not fit, give a whole number"))
        }
        (
            Change::Add(_) | Change::Set(_),
            AnyKind::Gauge(_) | AnyKind::IntGauge(_) | AnyKind::Unknown(_),
        ) => Ok(()),
        (Change::Add(_) | Change::Set(_), AnyKind::ProcessGauge(layout)) => {
            match layout.is_shared() {
                true => Ok(()),
                false => fail(
                    "each process has a value of its own in this gauge, and the value of a command \
                     ends with it: register the gauge with the aggregation mostrecent, or use \
                     another name"
                        .into(),
                ),
            }
        }
        (Change::Set(_), kind) if is_counter(kind) => {
            fail("it is a counter, which only grows: add to it, or use another name".into())
        }
        (Change::Observe(_, shape), AnyKind::Histogram(_) | AnyKind::Summary(_)) => {
            match shape.is_of(entry) {
                true => Ok(()),
                false => fail(
                    "it exists already with other buckets: leave the buckets out to use those, or \
                     use another name"
                        .into(),
                ),
            }
        }
        _ => fail(format!("it is {}: {}", described(entry), remedy(entry))),
    }
}

fn is_counter(kind: &AnyKind) -> bool {
    matches!(
        kind,
        AnyKind::Counter(_)
            | AnyKind::FloatCounter(_)
            | AnyKind::MixedCounter(_)
            | AnyKind::RelayCounter(_)
    )
}

fn described(entry: &FamilyEntry) -> &'static str {
    match &entry.kind {
        AnyKind::RelayHistogram(_) => "a histogram of totals that another program sends",
        AnyKind::RelaySummary(_) => "a summary of totals that another program sends",
        kind => kind.snapshot_kind().with_article(),
    }
}

fn remedy(entry: &FamilyEntry) -> &'static str {
    match &entry.kind {
        AnyKind::Histogram(_) | AnyKind::Summary(_) => "observe values in it, or use another name",
        AnyKind::Gauge(_) | AnyKind::IntGauge(_) => "set it, or use another name",
        kind if is_counter(kind) => "add to it, or use another name",
        _ => "use another name",
    }
}

/// Returns the number, if it is whole and a 64-bit float represents it exactly.
fn whole(n: f64) -> Option<i64> {
    // The cast saturates, and converts NaN to 0.
    let whole = n as i64;
    (whole as f64 == n && whole.unsigned_abs() <= 1 << 53).then_some(whole)
}

/// Changes the cells of a series. Call this after `check` has accepted the change.
fn apply(entry: &FamilyEntry, cells: &SeriesCells<'_>, change: &Change<'_>) {
    match (&entry.kind, *change) {
        (AnyKind::Counter(_) | AnyKind::IntGauge(_), Change::Add(n)) => {
            cells.add(0, whole(n).unwrap_or(0).cast_unsigned());
        }
        (AnyKind::FloatCounter(_), Change::Add(n)) => cells.add_float(0, n),
        (AnyKind::MixedCounter(_), Change::Add(n)) => MixedCounter::add_to(*cells, n),
        (AnyKind::RelayCounter(_), Change::Add(n)) => {
            // Adding requires a lock if a process died during a restart. Without it, the change is
            // dropped.
            let _ = RelayCounter::relay(*cells).add_beside(entry.family.segment(), |_| n);
        }
        (AnyKind::IntGauge(_), Change::Set(n)) => {
            cells.plain(0).store(whole(n).unwrap_or(0).cast_unsigned(), Ordering::Relaxed);
        }
        (AnyKind::Gauge(_) | AnyKind::Unknown(_) | AnyKind::ProcessGauge(_), Change::Add(n)) => {
            put_gauge(entry, cells, n, Mode::Add, None);
        }
        (AnyKind::Gauge(_) | AnyKind::Unknown(_) | AnyKind::ProcessGauge(_), Change::Set(n)) => {
            put_gauge(entry, cells, n, Mode::Set, None);
        }
        (AnyKind::Histogram(layout), Change::Observe(value, _)) => {
            layout.observe_many(&entry.family, cells, value, 1);
        }
        (AnyKind::Summary(layout), Change::Observe(value, _)) => {
            layout.observe_many(&entry.family, cells, value, 1);
        }
        _ => {}
    }
}

impl super::input::Buckets<'_> {
    /// Returns the shape of a new metric.
    fn any(&self) -> &Shape {
        match self {
            Self::OrElse(shape) | Self::Only(shape) => shape,
        }
    }

    /// Returns whether a histogram or a summary can use this shape.
    fn is_of(&self, entry: &FamilyEntry) -> bool {
        let Self::Only(Shape::Classic(wanted)) = self else {
            return matches!(self, Self::OrElse(_));
        };
        let AnyKind::Histogram(layout) = &entry.kind else { return false };
        let wanted = wanted.iter().filter(|bound| **bound != f64::INFINITY);
        layout.native.is_none() && layout.bounds().iter().eq(wanted)
    }
}
