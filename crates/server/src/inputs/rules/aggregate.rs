//! Aggregation: series with fewer labels, which samples are added to as they come.
//!
//! Nothing is kept for the series of the sources, so an output can be made only of samples that need
//! no comparison with earlier ones of their source:
//!
//! | output | of | gives |
//! |---|---|---|
//! | `sum` | increments: counters, gauges, histograms and summaries that are added | the same, under the same name |
//! | `last`, `min`, `max` | gauges that are set | a gauge with that suffix |
//! | `count` | all | a counter of samples, `_samples_total` |
//!
//! A sample of which an output cannot be made, such as the total of a counter, is kept as it is.

use std::sync::{Mutex, PoisonError};

use quipu::intake::{Given, Intake, Metric, Mode, Refused, Shape};
use quipu::snapshot::Value;
use regex::Regex;

use super::file::{self, Output};
use super::pattern::anchored;

/// An aggregation.
#[derive(Debug)]
pub(super) struct Aggregation {
    pattern: Regex,
    labels: Which,
    outputs: Vec<Output>,
    pub(super) keep_input: bool,
}

#[derive(Debug)]
enum Which {
    By(Vec<String>),
    Without(Vec<String>),
}

/// The value of a sample.
#[derive(Clone, Copy)]
pub(super) enum Input<'a> {
    Given(&'a Given<'a>, Mode),
    Observed(&'a Shape, f64, f64),
}

impl Aggregation {
    /// Checks an aggregation.
    ///
    /// # Errors
    /// The key, and what is wrong with it.
    pub(super) fn new(rule: &file::Aggregation) -> Result<Self, String> {
        let pattern = anchored(&rule.pattern).map_err(|error| format!("key `match`: {error}"))?;
        let labels = match (&rule.by, &rule.without) {
            (Some(names), None) => Which::By(names.clone()),
            (None, Some(names)) => Which::Without(names.clone()),
            _ => return Err("keys `by` and `without`: give one of them".into()),
        };
        if rule.outputs.is_empty() {
            return Err("key `outputs`: give sum, last, min, max or count".into());
        }
        let (outputs, keep_input) = (rule.outputs.clone(), rule.keep_input);
        Ok(Self { pattern, labels, outputs, keep_input })
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        self.pattern.is_match(name)
    }

    /// Makes the outputs of a sample. Returns whether all could be made.
    ///
    /// # Errors
    /// Those of the intake.
    pub(super) fn give(
        &self,
        intake: &mut Intake,
        metric: Metric<'_>,
        labels: &[(&str, &str)],
        input: Input<'_>,
    ) -> Result<bool, Refused> {
        let is_wanted = |name: &str| match &self.labels {
            Which::By(names) => names.iter().any(|wanted| wanted == name),
            Which::Without(names) => !names.iter().any(|other| other == name),
        };
        let labels: Vec<_> = labels.iter().copied().filter(|(name, _)| is_wanted(name)).collect();
        let mut all = true;
        for output in &self.outputs {
            all &= match output {
                Output::Sum => sum(intake, metric, &labels, input)?,
                Output::Count => {
                    let weight = match input {
                        Input::Observed(_, _, weight) => weight,
                        Input::Given(..) => 1.0,
                    };
                    let name = format!("{}_samples_total", base(metric.name));
                    let metric = Metric { expiry: metric.expiry, ..Metric::new(&name) };
                    intake.take(metric, &labels, &Given::Counter(weight), Mode::Add, None)?;
                    true
                }
                Output::Last => level(intake, metric, &labels, input, "last", |_, new| new)?,
                Output::Min => level(intake, metric, &labels, input, "min", f64::min)?,
                Output::Max => level(intake, metric, &labels, input, "max", f64::max)?,
            };
        }
        Ok(all)
    }
}

fn base(name: &str) -> &str {
    name.strip_suffix("_total").unwrap_or(name)
}

fn sum(
    intake: &mut Intake,
    metric: Metric<'_>,
    labels: &[(&str, &str)],
    input: Input<'_>,
) -> Result<bool, Refused> {
    match input {
        Input::Observed(shape, value, weight) => {
            intake.observe(metric, labels, shape, value, weight)?;
        }
        Input::Given(&Given::Summary { count, sum, .. }, Mode::Add) => {
            // Quantiles of several sources have no sum.
            let given = Given::Summary { quantiles: &[], count, sum };
            intake.take(metric, labels, &given, Mode::Add, None)?;
        }
        Input::Given(given, Mode::Add) => intake.take(metric, labels, given, Mode::Add, None)?,
        Input::Given(..) => return Ok(false),
    }
    Ok(true)
}

/// Sets a gauge to what `combine` makes of its value and the new one.
fn level(
    intake: &mut Intake,
    metric: Metric<'_>,
    labels: &[(&str, &str)],
    input: Input<'_>,
    suffix: &str,
    combine: fn(f64, f64) -> f64,
) -> Result<bool, Refused> {
    let Input::Given(Given::Gauge(new) | Given::Unknown(new), Mode::Set | Mode::Follow) = input
    else {
        return Ok(false);
    };
    /// Reading and setting is one step: no other thread sets the gauge in between.
    static STEP: Mutex<()> = Mutex::new(());
    let _step = STEP.lock().unwrap_or_else(PoisonError::into_inner);
    let name = format!("{}_{suffix}", metric.name);
    let metric = Metric { name: &name, ..metric };
    let mut before = None;
    // An inconsistent segment is refused when it is opened.
    let _ = intake.read(&name, labels, |taken| {
        if let Value::Gauge(value) = taken.value {
            before = Some(value.as_f64());
        }
    });
    let value = before.map_or(*new, |before| combine(before, *new));
    intake.take(metric, labels, &Given::Gauge(value), Mode::Set, None)?;
    Ok(true)
}
