//! The values of a large timer, which are observed in several steps.

use std::time::Instant;

use quipu::intake::{Given, Intake, Metric, Mode, Refused, Shape};
use quipu_wire::BatchTimer;

use super::{Fault, id};
use crate::Inputs;
use crate::requests::STEP;

/// A timer that is being taken.
pub(super) struct Batch {
    id: Vec<u8>,
    values: Vec<f64>,
    /// How many values were observed.
    taken: usize,
    /// Where its message begins.
    pub(super) position: u64,
}

/// The values that are observed between two looks at the time. A timer with more is a batch.
pub(super) const AT_ONCE: usize = 64;

impl Batch {
    /// A timer of a message that begins at this byte.
    pub(super) fn new(timer: &BatchTimer<'_>, position: u64) -> Self {
        Self { id: timer.id.to_vec(), values: timer.values.to_vec(), taken: 0, position }
    }

    /// Observes values until the time of the step is over. Returns whether these were all.
    ///
    /// # Errors
    /// Why a value is refused. What came before it stays.
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
            for values in values[*taken..].chunks(AT_ONCE) {
                for value in values {
                    let given = Given::Observation { value: *value, weight: 1.0 };
                    inputs.shared().take(intake, metric, labels, &given, Mode::Add, None)?;
                }
                *taken += values.len();
                if begun.elapsed() >= STEP {
                    break;
                }
            }
            Ok(*taken == values.len())
        });
        let taken = taken.map_err(|what| super::wrong_id(id, what))?;
        taken.map_err(|refused: Refused| (refused.reason(), intake.explain(refused).to_string()))
    }
}
