//! Observes the values of a large batch timer in several steps, because one message can contain
//! very many values.

use std::time::Instant;

use quipu::intake::{InputValue, Intake, Metric, Mode, Rejection, Shape};
use quipu_wire::BatchTimer;

use super::{Fault, id};
use crate::Inputs;
use crate::requests::STEP;

/// A timer whose values are not all observed yet.
pub(super) struct PendingTimer {
    id: Vec<u8>,
    values: Vec<f64>,
    /// The number of observed values.
    taken: usize,
    /// The position of the message in the body, for error messages.
    pub(super) position: u64,
}

/// The number of values between two checks of the clock.
pub(super) const VALUES_PER_LOOK: usize = 64;

impl PendingTimer {
    /// Creates a timer from a message at this position of the body.
    pub(super) fn new(timer: &BatchTimer<'_>, position: u64) -> Self {
        Self { id: timer.id.to_vec(), values: timer.values.to_vec(), taken: 0, position }
    }

    /// Observes values until the time slice of the step is over. Returns whether all values were
    /// observed.
    ///
    /// # Errors
    /// Returns the reason why a value was refused. The values before it remain.
    pub(super) fn step(
        &mut self,
        inputs: &Inputs,
        intake: &mut Intake,
        timers: &Shape,
        begun: Instant,
    ) -> Result<bool, Fault> {
        let Self { id, values, taken, .. } = self;
        let taken = id::split(id, |name, labels| {
            let metric = Metric { shape: Some(timers), ..inputs.metric(name) };
            for values in values[*taken..].chunks(VALUES_PER_LOOK) {
                for value in values {
                    let given = InputValue::Observation { value: *value, weight: 1.0 };
                    inputs.shared().take(intake, metric, labels, &given, Mode::Add, None)?;
                }
                *taken += values.len();
                if begun.elapsed() >= STEP {
                    break;
                }
            }
            Ok(*taken == values.len())
        });
        let taken = taken.map_err(|detail| super::wrong_id(id, detail))?;
        taken.map_err(|refused: Rejection| (refused.reason(), intake.explain(refused).to_string()))
    }
}
