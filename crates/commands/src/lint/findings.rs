//! The rules of `quipu check metrics`, and the findings of a check.

use std::collections::BTreeMap;

use clap::ValueEnum;
use quipu_wire::remote::exposition::text::TextLineError;
use serde::{Serialize, Serializer};

use super::Outcome;

/// A rule, by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Rule {
    /// promlint: a family needs a help text
    Help,
    /// promlint: names have base units, such as seconds
    Unit,
    /// promlint: the names of counters, and of nothing else, end in _total
    Total,
    /// promlint: suffixes and labels of histograms and summaries are theirs alone
    Reserved,
    /// promlint: a name does not repeat the type
    TypeInName,
    /// promlint: colons are for recording rules
    Colon,
    /// promlint: names are in snake_case
    CamelCase,
    /// promlint: units are not abbreviated
    Abbreviation,
    /// promlint: each series has one sample
    Duplicate,
    /// A family needs a type
    Type,
    /// Buckets and quantiles have a number in le and quantile
    Bound,
    /// A family has one type, one help and one unit, before its samples
    Misplaced,
    /// The lines of a family follow each other
    Split,
    /// No two families have samples of the same name
    Collision,
    /// A family does not use two units for the same thing
    MixedUnits,
    /// In OpenMetrics, the name ends in the unit
    UnitSuffix,
    /// Families have a bounded number of series
    Cardinality,
    /// The series of a family have the same labels
    LabelNames,
    /// Labels that begin with __, and those that scrapers set, are theirs
    LabelReserved,
    /// Labels have values
    LabelEmpty,
    /// Values of labels are short
    LabelLong,
    /// Lines have at most 1 MiB; a longer one is not checked
    LineLong,
    /// Series have at most 64 labels; one with more is not checked
    LabelsMany,
    /// Texts have no control characters
    Control,
    /// Names need no quotes
    Quoted,
    /// Histograms have a bucket +Inf, counts that only grow, and agree with their count
    Buckets,
    /// Quantiles are from 0 to 1
    Quantile,
    /// Histograms and summaries have a sum and a count
    Parts,
    /// Counters are not negative, and numbers
    CounterValue,
    /// Samples have no timestamps
    Timestamp,
    /// Responses have a Content-Type
    ContentType,
}

impl Rule {
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

/// A violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// The name of the family or sample; empty if the finding concerns no metric.
    pub(super) metric: String,
    pub(super) rule: Rule,
    #[serde(rename = "what")]
    pub(super) message: String,
    /// The first line with this finding.
    pub(super) line: Option<u64>,
    /// The number of lines with this finding.
    pub(super) count: u64,
}

/// An unreadable line.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Unreadable {
    pub(super) line: u64,
    pub(super) offset: usize,
    #[serde(rename = "what")]
    pub(super) message: String,
}

/// All findings.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The findings, by metric, rule and message.
    found: BTreeMap<(String, Rule, String), (Option<u64>, u64)>,
    unreadable: Vec<Unreadable>,
    ignored: Vec<Rule>,
    /// The number of lines that were not checked.
    pub(super) unchecked: u64,
    /// The number of unchecked lines whose rule is not ignored.
    missing: u64,
    pub(super) more: u64,
    pub(super) families: u64,
    pub(super) series: u64,
}

/// The maximum number of findings to store, and of lines.
const MAX: usize = 10_000;

impl Findings {
    pub(super) fn new(ignored: &[Rule]) -> Self {
        Self { ignored: ignored.to_vec(), ..Self::default() }
    }

    /// Adds a finding, or counts a repeated one.
    pub(super) fn add(
        &mut self,
        metric: &str,
        rule: Rule,
        message: impl Into<String>,
        line: Option<u64>,
    ) {
        if self.ignored.contains(&rule) {
            return;
        }
        let key = (metric.to_owned(), rule, message.into());
        if self.found.len() >= MAX && !self.found.contains_key(&key) {
            self.more += 1;
            return;
        }
        let (_, count) = self.found.entry(key).or_insert((line, 0));
        *count += 1;
    }

    /// Adds a line that was not checked. This is not an error, because no format defines this
    /// limit.
    pub(super) fn unchecked(&mut self, metric: &str, rule: Rule, message: &str, line: u64) {
        self.add(metric, rule, format!("{message}, and was not checked"), Some(line));
        self.unchecked += 1;
        self.missing += u64::from(!self.ignored.contains(&rule));
    }

    /// Adds an unreadable line.
    pub(super) fn unreadable(&mut self, error: &TextLineError) {
        match self.unreadable.len() < MAX {
            true => self.unreadable.push(Unreadable {
                line: error.line(),
                offset: error.offset(),
                message: error.to_string(),
            }),
            false => self.more += 1,
        }
    }

    /// Returns the unreadable lines.
    pub(super) fn lines(&self) -> &[Unreadable] {
        &self.unreadable
    }

    /// Returns the findings, sorted by metric.
    pub(super) fn all(&self) -> impl ExactSizeIterator<Item = Finding> {
        self.found.iter().map(|((metric, rule, message), (line, count))| Finding {
            metric: metric.clone(),
            rule: *rule,
            message: message.clone(),
            line: *line,
            count: *count,
        })
    }

    pub(super) fn outcome(&self) -> Outcome {
        if !self.unreadable.is_empty() || self.missing > 0 {
            return Outcome::Unreadable;
        }
        if self.unchecked > 0 || !self.found.is_empty() { Outcome::Found } else { Outcome::Sound }
    }
}
