//! Rules for all received samples: first relabelling, then aggregation.
//!
//! A sample is a counter, a gauge, or a whole histogram or summary. A rule sees each sample once,
//! with its metric name, and without `le` or `quantile`. Pushed groups bypass the rules, because a
//! later push must find their labels unchanged to replace them.

mod aggregate;
mod file;
mod labels;
mod output;
mod pattern;
mod relabel;
mod relabelling;

use std::fmt;
use std::path::{Path, PathBuf};

use quipu::intake::{InputValue, Intake, Metric, Mode, Order, Rejection};
use quipu::snapshot::Timestamp;
use quipu::{Counter, CounterFamily, Description, Registry};
use quipu_segment::printable;
use serde::de::DeserializeOwned;

use aggregate::{Aggregation, Input, Sample};
use labels::{Labels, NAME};
pub use relabelling::Relabelling;

/// The parsed rules of a file.
#[derive(Debug)]
pub struct Rules {
    relabel: Relabelling,
    aggregations: Vec<(Aggregation, Counts)>,
}

/// The counters of a rule. The first counts the samples that it changed or aggregated. The second
/// counts the samples that it dropped or, for an aggregation, kept. `None` if the rules are only
/// checked.
type Counts = Option<[Counter; 2]>;

/// The error of an unreadable or invalid rule file.
#[derive(Debug)]
pub struct Error {
    path: PathBuf,
    line: Option<u64>,
    message: String,
}

/// The maximum size of a rule file in bytes.
const MAX_BYTES: u64 = 1 << 20;

impl Rules {
    /// Reads and parses a rule file.
    ///
    /// # Errors
    /// Returns an [`Error`] with the line, the key and the remedy.
    pub fn read(path: &Path) -> Result<Self, Error> {
        read(path, Self::parse)
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let file: file::File = parse(text)?;
        let relabel = Relabelling::new(file.metric_relabel_configs)?;
        let mut rules = Self { relabel, aggregations: Vec::new() };
        for rule in file.aggregations.unwrap_or_default() {
            let line = Some(rule.referenced.line());
            let read = Aggregation::new(&rule.value).map_err(|message| (line, message))?;
            rules.aggregations.push((read, None));
        }
        Ok(rules)
    }

    /// Registers counters for the effects of each rule.
    ///
    /// # Errors
    /// Fails if there is not enough memory.
    pub fn count(&mut self, registry: &Registry) -> Result<(), quipu::Error> {
        let changed = ("quipu_rule_changed", "Samples that a rule of relabelling changed.");
        let dropped = ("quipu_rule_dropped", "Samples that a rule of relabelling dropped.");
        self.relabel.count(registry, changed, dropped)?;
        let family = |name, help| -> Result<CounterFamily<[String; 1]>, quipu::Error> {
            registry.register(Description::new(name, help).labels(["aggregation"]))
        };
        let taken = family("quipu_rule_aggregated", "Samples that an aggregation used.")?;
        let kept = family(
            "quipu_rule_kept",
            "Samples that were kept unchanged, because an output could not be computed.",
        )?;
        for (number, (_, counts)) in (1..).zip(&mut self.aggregations) {
            let labels = [number_text(number)];
            *counts = Some([taken.bind(&labels), kept.bind(&labels)]);
        }
        Ok(())
    }

    /// Applies the rules to a sample, and stores the result like [`Intake::take`].
    ///
    /// # Errors
    /// Fails like [`Intake::take`].
    pub fn take(
        &self,
        intake: &mut Intake,
        metric: Metric<'_>,
        labels: &[(&str, &str)],
        given: &InputValue<'_>,
        mode: Mode,
        start: Option<Timestamp>,
    ) -> Result<(), Rejection> {
        let Some(relabelled) = self.relabelled(metric.name, labels) else { return Ok(()) };
        let is_once = metric.streams && metric.time.is_some() && mode == Mode::Add;
        let own = (metric, labels);
        let streams = metric.streams && !is_once;
        // Samples of different series can share a timestamp after a rule has merged these series.
        let order = metric.order.min(Order::Latest);
        let metric = Metric { name: relabelled.get(NAME), streams, order, ..metric };
        let labels = &*relabelled.pairs();
        let take = |intake: &mut Intake| {
            let input = Input::Value(given, mode, start);
            if self.aggregate(intake, &Sample { metric, labels, input })? {
                intake.take(metric, labels, given, mode, start)?;
            }
            Ok(())
        };
        if is_once {
            // We check the original labels, because a rule can merge the series of many senders.
            return intake.add_once(own.0, own.1, take);
        }
        take(intake)
    }

    /// Applies relabelling to a series, and calls `act` with the resulting name and labels. Returns
    /// `None` if a rule drops the series.
    pub fn with_relabelled<R>(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        act: impl FnOnce(&str, &[(&str, &str)]) -> R,
    ) -> Option<R> {
        let sample = self.relabelled(name, labels)?;
        Some(act(sample.get(NAME), &sample.pairs()))
    }

    /// Applies relabelling. Returns `None` if this drops the sample or removes its name.
    fn relabelled<'a>(&self, name: &'a str, labels: &[(&'a str, &'a str)]) -> Option<Labels<'a>> {
        let mut labels = Labels::new(name, labels);
        (self.relabel.apply(&mut labels) && !labels.get(NAME).is_empty()).then_some(labels)
    }

    /// Adds a sample to the outputs of all matching aggregations. Returns whether to store the
    /// sample itself as well.
    fn aggregate(&self, intake: &mut Intake, sample: &Sample<'_>) -> Result<bool, Rejection> {
        let Sample { metric, labels, input } = *sample;
        let matching = self.aggregations.iter().filter(|(one, _)| one.matches(metric.name));
        let matching: Vec<_> = matching.collect();
        if matching.is_empty() {
            return Ok(true);
        }
        // A late or repeated sample affects no output.
        let mut is_kept = Ok(matching.iter().any(|(one, _)| one.keep_input));
        let (given, start) = match input {
            Input::Value(given, Mode::Follow, start)
                if given.has_growth() && matching.iter().any(|(one, _)| one.sums()) =>
            {
                (given, start)
            }
            _ if metric.order == Order::Arrival => return give(&matching, intake, sample).1,
            _ => {
                let once = intake.add_once(metric, labels, |intake| {
                    is_kept = give(&matching, intake, sample).1;
                    is_kept.map(drop)
                });
                return if once == Err(Rejection::Duplicate) { is_kept } else { once.and(is_kept) };
            }
        };
        intake.follow_into(metric, labels, given, start, |intake, grown| {
            let any;
            let grown = Sample { input: Input::Growth(grown), ..*sample };
            (any, is_kept) = give(&matching, intake, &grown);
            // After one sum contains the growth, the next total of the source must not count it
            // again.
            match is_kept {
                Err(refused) if !any => Err(refused),
                _ => Ok(()),
            }
        })?;
        is_kept
    }
}

/// The line number of an error, if it is known, and its message.
type Fault = (Option<u64>, String);

/// Reads and parses a file, up to the maximum size.
fn read<T>(path: &Path, parse: impl Fn(&str) -> Result<T, Fault>) -> Result<T, Error> {
    let error = |line, message| Error { path: path.into(), line, message };
    let length = path.metadata().map_err(|e| error(None, e.to_string()))?.len();
    if length > MAX_BYTES {
        let reason = format!("it has {length} bytes; rules may have {MAX_BYTES}");
        return Err(error(None, reason));
    }
    let text = std::fs::read_to_string(path).map_err(|e| error(None, e.to_string()))?;
    parse(&text).map_err(|(line, message)| error(line, message))
}

fn parse<T: Default + DeserializeOwned>(text: &str) -> Result<T, Fault> {
    let options = serde_saphyr::options! { with_snippet: false };
    let file: Option<T> = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| (error.location().map(|place| place.line()), error.to_string()))?;
    Ok(file.unwrap_or_default())
}

/// Adds a sample to the outputs of some aggregations. Returns whether at least one output was
/// updated, and whether to store the sample itself as well.
fn give(
    aggregations: &[&(Aggregation, Counts)],
    intake: &mut Intake,
    sample: &Sample<'_>,
) -> (bool, Result<bool, Rejection>) {
    let (mut any, mut is_kept, mut fault) = (false, false, None);
    for (aggregation, counts) in aggregations {
        let made = aggregation.give(intake, sample);
        any |= made.any;
        if made.fault.is_some() {
            fault = fault.or(made.fault);
            if any {
                continue;
            }
            break;
        }
        is_kept |= made.is_partial || aggregation.keep_input;
        if let Some([taken, kept]) = counts {
            if made.is_partial { kept } else { taken }.inc();
        }
    }
    (any, fault.map_or(Ok(is_kept), Err))
}

fn number_text(number: usize) -> String {
    number.to_string()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot use the rules in {}", printable(&self.path))?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests;
