//! Aggregation rules: they add each arriving sample to a series with fewer labels. For example,
//! `by: [job]` with the output `sum` adds up the requests of all instances of a job.
//!
//! | output | input | result |
//! |---|---|---|
//! | `sum` | increments, and the growth of totals | their sum, under the same name |
//! | `count` | all | a counter of samples, `_samples_total` |
//! | `last`, `min`, `max`, `avg` | values: gauges that are set, and observations | a gauge with this suffix |
//! | `histogram` | values | a classic histogram, `_histogram` |
//! | `quantiles` | values | a summary, `_quantiles` |
//!
//! The intake stores the last total of each source as a hidden series, because growth is the
//! difference from this total. If no output can be updated, the sample itself is stored unchanged.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use quipu::exposition::counter_stem;
use quipu::intake::{InputValue, Intake, Metric, Mode, Rejection, Shape};
use quipu::snapshot::{Timestamp, Value};
use regex::Regex;

use super::file;
use super::output::Output;
use super::pattern::anchored;

/// An aggregation rule.
#[derive(Debug)]
pub(super) struct Aggregation {
    pattern: Regex,
    labels: Which,
    /// The outputs. `sum` is first; if it fails, the other outputs are not updated.
    outputs: Vec<OutputState>,
    pub(super) keep_input: bool,
}

/// The labels of the result: only the listed labels, or all except the listed ones.
#[derive(Debug)]
enum Which {
    By(Vec<String>),
    Without(Vec<String>),
}

/// An output, and the metric type for its observations.
#[derive(Debug)]
struct OutputState {
    output: Output,
    shape: Option<Shape>,
}

/// A sample after relabelling.
#[derive(Clone, Copy)]
pub(super) struct Sample<'a> {
    pub(super) metric: Metric<'a>,
    pub(super) labels: &'a [(&'a str, &'a str)],
    pub(super) input: Input<'a>,
}

/// The value of a sample.
#[derive(Clone, Copy)]
pub(super) enum Input<'a> {
    /// A value as received, with its mode and its start time.
    Value(&'a InputValue<'a>, Mode, Option<Timestamp>),
    /// The increase of a total since its last sample.
    Growth(&'a InputValue<'a>),
}

/// The result of adding one sample to all outputs of the matching rules.
#[derive(Debug, Default)]
pub(super) struct AggregateResult {
    /// Whether at least one output was updated.
    pub(super) any: bool,
    /// Whether any output does not support such samples.
    pub(super) is_partial: bool,
    /// The first failure, if an output could not be updated.
    pub(super) fault: Option<Rejection>,
}

/// The sliding window of a summary: its quantiles cover the last ten minutes.
const WINDOW: Duration = Duration::from_secs(600);

impl Aggregation {
    /// Creates an aggregation, after checking its rule.
    ///
    /// # Errors
    /// Returns the key and the problem.
    pub(super) fn new(rule: &file::AggregationConfig) -> Result<Self, String> {
        let pattern = anchored(&rule.pattern).map_err(|error| format!("key `match`: {error}"))?;
        let labels = match (&rule.by, &rule.without) {
            (Some(names), None) => Which::By(names.clone()),
            (None, Some(names)) => Which::Without(names.clone()),
            _ => return Err("keys `by` and `without`: give one of them".into()),
        };
        let mut outputs: Vec<Output> = Vec::new();
        for text in &rule.outputs {
            let output =
                text.parse::<Output>().map_err(|wrong| format!("key `outputs`: {wrong}"))?;
            if outputs.iter().any(|other| other.name() == output.name()) {
                return Err(format!("key `outputs`: {output} is there twice: remove one"));
            }
            outputs.push(output);
        }
        if outputs.is_empty() {
            return Err("key `outputs`: give one, such as sum".into());
        }
        outputs.sort_by_key(|output| *output != Output::Sum);
        let outputs = outputs.into_iter().map(|output| {
            let shape = match &output {
                Output::Histogram(bounds) => Some(Shape::Classic(bounds.clone())),
                Output::Quantiles(quantiles) => Some(Shape::Summary(quantiles.clone(), WINDOW)),
                _ => None,
            };
            OutputState { output, shape }
        });
        Ok(Self { pattern, labels, outputs: outputs.collect(), keep_input: rule.keep_input })
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        self.pattern.is_match(name)
    }

    /// Returns whether any output adds up the growth of totals.
    pub(super) fn sums(&self) -> bool {
        self.outputs.iter().any(|made| made.output == Output::Sum)
    }

    /// Adds a sample to all outputs of this rule.
    pub(super) fn give(&self, intake: &mut Intake, sample: &Sample<'_>) -> AggregateResult {
        let is_wanted = |name: &str| match &self.labels {
            Which::By(names) => names.iter().any(|wanted| wanted == name),
            Which::Without(names) => !names.iter().any(|other| other == name),
        };
        let labels = sample.labels.iter().copied().filter(|(name, _)| is_wanted(name));
        let labels: Vec<_> = labels.collect();
        // We drop the timestamp, because it belongs to one source among many.
        let metric = Metric { time: None, ..sample.metric };
        let sample = Sample { metric, labels: &labels, ..*sample };
        let mut outcome = AggregateResult::default();
        for made in &self.outputs {
            match made.give(intake, &sample) {
                Ok(true) => outcome.any = true,
                Ok(false) => outcome.is_partial = true,
                Err(refused) => {
                    outcome.fault.get_or_insert(refused);
                    if !outcome.any {
                        // No output was updated yet, so refuse the sample as a whole.
                        break;
                    }
                }
            }
        }
        outcome
    }
}

impl OutputState {
    /// Adds a sample to the output. Returns false if the output does not support such samples.
    fn give(&self, intake: &mut Intake, sample: &Sample<'_>) -> Result<bool, Rejection> {
        let Sample { metric, labels, input } = *sample;
        match self.output {
            Output::Sum => return sum(intake, sample),
            Output::Count => {
                let weight = match input {
                    Input::Value(&InputValue::Observation { weight, .. }, ..) => weight,
                    _ => 1.0,
                };
                let name = format!("{}_samples_total", counter_stem(metric.name));
                let metric = Metric { expiry: metric.expiry, ..Metric::new(&name) };
                intake.take(metric, labels, &InputValue::Counter(weight), Mode::Add, None)?;
                return Ok(true);
            }
            _ => {}
        }
        let Some((value, weight)) = value(input) else { return Ok(false) };
        let name = format!("{}_{}", metric.name, self.output);
        let metric = Metric { name: &name, unit: "", ..metric };
        match (&self.output, &self.shape) {
            (Output::Last, _) => level(intake, metric, labels, value, |_, new| new)?,
            (Output::Min, _) => level(intake, metric, labels, value, f64::min)?,
            (Output::Max, _) => level(intake, metric, labels, value, f64::max)?,
            // A mean or a bucket cannot include a value that is not a number.
            (Output::Avg, _) if value.is_finite() => {
                intake.average(metric, labels, value, weight)?;
            }
            (_, shape @ Some(_)) if !value.is_nan() => {
                let metric = Metric { shape: shape.as_ref(), ..metric };
                let given = InputValue::Observation { value, weight };
                intake.take(metric, labels, &given, Mode::Add, None)?;
            }
            _ => {}
        }
        Ok(true)
    }
}

/// Returns the value of a sample and its weight; `None` if it is not a single value.
fn value(input: Input<'_>) -> Option<(f64, f64)> {
    match input {
        Input::Value(
            InputValue::Gauge(value) | InputValue::Unknown(value),
            Mode::Set | Mode::Follow,
            _,
        ) => Some((*value, 1.0)),
        Input::Value(&InputValue::Observation { value, weight }, ..) => Some((value, weight)),
        _ => None,
    }
}

/// The width of the zero bucket in sums, 2^-128, which is the default of Prometheus' libraries.
const ZERO_THRESHOLD: f64 = 2.938_735_877_055_719e-39;

/// Adds an increment, or the growth of a total, to the sum. Returns false for other samples.
fn sum(intake: &mut Intake, sample: &Sample<'_>) -> Result<bool, Rejection> {
    let Sample { metric, labels, input } = *sample;
    match input {
        Input::Value(&InputValue::Summary { count, sum, .. }, Mode::Add, _) => {
            // Quantiles of several sources cannot be added up.
            let given = InputValue::Summary { quantiles: &[], count, sum };
            intake.take(metric, labels, &given, Mode::Add, None)?;
        }
        Input::Value(given, Mode::Add, _) | Input::Growth(given) => {
            let mut given = *given;
            if let InputValue::Native { buckets, .. } = &mut given {
                // Use a common threshold, because sources with different thresholds share one sum.
                buckets.zero_threshold = ZERO_THRESHOLD;
            }
            intake.take(metric, labels, &given, Mode::Add, None)?;
        }
        Input::Value(..) => return Ok(false),
    }
    Ok(true)
}

/// Sets a gauge to the result of `combine`, given the current and the new value.
fn level(
    intake: &mut Intake,
    metric: Metric<'_>,
    labels: &[(&str, &str)],
    new: f64,
    combine: fn(f64, f64) -> f64,
) -> Result<(), Rejection> {
    /// Held while the gauge is read and then set, because another thread could otherwise set it in
    /// between.
    static STEP: Mutex<()> = Mutex::new(());
    let _step = STEP.lock().unwrap_or_else(PoisonError::into_inner);
    let mut before = None;
    // We ignore the error, because an inconsistent segment is already refused when it is opened.
    let _ = intake.read(metric.name, labels, |taken| {
        if let Value::Gauge(value) = taken.value {
            before = Some(value.as_f64());
        }
    });
    let value = before.map_or(new, |before| combine(before, new));
    intake.take(metric, labels, &InputValue::Gauge(value), Mode::Set, None)
}
