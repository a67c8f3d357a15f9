//! Stores the points of InfluxDB lines as values of the daemon's families.

use std::borrow::Cow;
use std::cell::RefMut;

use quipu::intake::{InputValue, Intake, Metric, Mode, Order, Rejection};
use quipu_wire::remote::Cut;
use quipu_wire::remote::influx::{FieldValue, InfluxLines, InfluxPoint};

use crate::outcome::{RequestOutcome, SeriesDisplay};
use crate::requests::Context;
use crate::{Inputs, types};
use quipu_process::time::now_ms;

/// A unit of time, relative to a millisecond.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unit {
    /// A millisecond is this number of units.
    Fraction(i64),
    /// A unit is this number of milliseconds.
    Multiple(i64),
}

/// The state between the lines of a body.
pub(super) struct Points {
    unit: Unit,
    now_ms: i64,
    /// The number of lines in earlier pieces.
    lines: u64,
    /// A reused buffer for the name of a sample.
    name: String,
}

/// One step over a few lines. It borrows the intake of the thread.
pub(super) struct InfluxStep<'t> {
    inputs: &'t Inputs,
    intake: RefMut<'t, Intake>,
    outcome: &'t mut RequestOutcome,
    points: &'t mut Points,
}

impl Points {
    pub(super) fn new(unit: Unit) -> Self {
        Self { unit, now_ms: now_ms(), lines: 0, name: String::new() }
    }

    /// Begins a step.
    pub(super) fn step<'t>(&'t mut self, context: &'t mut Context<'_>) -> InfluxStep<'t> {
        let (inputs, intake, outcome) = (context.inputs, context.intake(), &mut *context.outcome);
        InfluxStep { inputs, intake, outcome, points: self }
    }
}

impl InfluxStep<'_> {
    /// Stores the points of whole lines.
    pub(super) fn take(&mut self, cut: Cut<'_>) {
        let Cut::Lines(lines) = cut else {
            self.points.lines += 1;
            let line = self.points.lines;
            let detail = format_args!("influx: line {line} is longer than 64 KiB");
            return self.outcome.refuse("line_too_long", detail);
        };
        for read in InfluxLines::new(lines) {
            match read {
                Ok(point) => self.point(&point),
                Err(error) => {
                    let (reason, error) = (error.reason().as_str(), error.after(self.points.lines));
                    self.outcome.refuse(reason, format_args!("{error}"));
                }
            }
        }
        self.points.lines += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
    }

    fn point(&mut self, point: &InfluxPoint<'_>) {
        let time = point.time.map_or(Some(self.points.now_ms), |time| self.points.unit.to_ms(time));
        let measurement = escaped(point.measurement.to_cow());
        let tags: Vec<_> =
            point.tags().map(|(name, value)| (escaped(name.to_cow()), value.to_cow())).collect();
        let mut labels: Vec<(&str, &str)> =
            tags.iter().map(|(name, value)| (&**name, &**value)).collect();
        // If several tags share a name, the last one counts.
        labels.reverse();
        labels.sort_by_key(|label| label.0);
        labels.dedup_by_key(|label| label.0);
        // Check the faults that concern all fields only once, because a line can contain thousands
        // of fields, and each field would check all labels again.
        let limits = self.intake.limits();
        let refused = match () {
            () if labels.len() > limits.labels => Some(Rejection::Labels),
            () if measurement.len() > limits.name_bytes => Some(Rejection::Name),
            () => None,
        };
        if let Some(refused) = refused {
            labels.truncate(limits.labels);
            let display = SeriesDisplay { name: &measurement, labels: &labels };
            let (reason, detail) = (refused.reason(), self.intake.explain(refused));
            return self.outcome.refuse(reason, format_args!("influx: {display}: {detail}"));
        }
        for (field, value) in point.fields() {
            let field = field.to_cow();
            let mut name = std::mem::take(&mut self.points.name);
            name.clear();
            name.push_str(&measurement);
            if field != "value" {
                name.push('_');
                push_escaped(&mut name, &field);
            }
            self.field(&name, &labels, value, time);
            self.points.name = name;
        }
    }

    fn field(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        value: FieldValue,
        time_ms: Option<i64>,
    ) {
        let Self { inputs, intake, outcome, .. } = self;
        let shared = inputs.shared();
        let display = SeriesDisplay { name, labels };
        let Some(number) = value.number() else {
            let detail = format_args!("influx: {display}: a text is not a value of a metric");
            return outcome.omit("text_field", detail);
        };
        let Some(time_ms) = time_ms else {
            let detail = format_args!("influx: {display}: its time is beyond all times in ms");
            return outcome.refuse("malformed_time", detail);
        };
        let (time, order) = (Some(types::sample_time(time_ms)), Order::Latest);
        let metric = Metric { time, order, ..inputs.metric(name) };
        let taken =
            shared.take(intake, metric, labels, &InputValue::Unknown(number), Mode::Set, None);
        match taken {
            Ok(()) => outcome.count_taken(1),
            Err(refused) => {
                let (reason, detail) = (refused.reason(), intake.explain(refused));
                outcome.refuse(reason, format_args!("influx: {display}: {detail}"));
            }
        }
    }
}

impl Unit {
    /// Converts a timestamp in this unit to milliseconds; `None` if it is out of range.
    fn to_ms(self, time: i64) -> Option<i64> {
        match self {
            Self::Fraction(units) => Some(time.div_euclid(units)),
            Self::Multiple(ms) => time.checked_mul(ms),
        }
    }
}

/// Replaces each character that is not an ASCII letter or digit with an underscore, and adds one
/// before a leading digit, like influxdb_exporter.
fn escaped(name: Cow<'_, str>) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let begins_well = !name.starts_with(|first: char| first.is_ascii_digit());
    if begins_well && name.bytes().all(is_plain) {
        return name;
    }
    let mut text = String::with_capacity(name.len() + 1);
    if !begins_well {
        text.push('_');
    }
    push_escaped(&mut text, &name);
    Cow::Owned(text)
}

fn push_escaped(text: &mut String, name: &str) {
    let plain = |character: char| match character.is_ascii_alphanumeric() {
        true => character,
        false => '_',
    };
    text.extend(name.chars().map(plain));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_times_are_converted_for_prometheus() {
        for (from, to) in
            [("cpu_load", "cpu_load"), ("1.a-b", "_1_a_b"), ("\u{e9} x", "__x"), ("a--b", "a__b")]
        {
            assert_eq!(escaped(from.into()), to);
        }
        assert_eq!(Unit::Fraction(1_000_000).to_ms(-1), Some(-1));
        assert_eq!(Unit::Multiple(1000).to_ms(7), Some(7000));
        assert_eq!(Unit::Multiple(1000).to_ms(i64::MAX), None);
    }
}
