//! Reads single values of groups from the segment.

use quipu::intake::{Intake, StoredSeries};
use quipu::snapshot::Value;

/// Calls `act` with a series of a group, if it exists.
pub(super) fn read(
    intake: &mut Intake,
    name: &str,
    labels: &[(&str, &str)],
    mut act: impl FnMut(&StoredSeries<'_>),
) {
    // We ignore the error, because an inconsistent segment is already refused at the start.
    let _ = intake.read(name, labels, |taken| {
        if taken.grouped {
            act(taken);
        }
    });
}

/// Returns the value of a gauge or an untyped series.
pub(super) fn number(intake: &mut Intake, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let mut number = None;
    read(intake, name, labels, |taken| {
        if let Value::Gauge(value) | Value::Unknown(value) = taken.value {
            number = Some(value.as_f64());
        }
    });
    number
}
