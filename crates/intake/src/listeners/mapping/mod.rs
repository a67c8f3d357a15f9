//! The mapping file of statsd_exporter, which graphite_exporter uses as well. Its rules convert the
//! names of lines to metric names and labels. For example, `match: "*.requests"` with `name:
//! requests` and `labels: {job: "$1"}` converts `web.requests` to `requests{job="web"}`.
//!
//! A glob rule matches a name part by part. The rules with regular expressions are tried after all
//! globs, in the order of the file, and the first matching rule wins. A name without a matching
//! rule does not change.

mod file;
mod glob;
mod template;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quipu::intake::Shape;
use quipu_segment::printable;
use regex::Regex;
use serde_saphyr::{Location, Spanned};

pub use file::MetricClass;
use file::{Action, Defaults, File, GoDuration, Histogram, MatchType, Observer, Quantile, Summary};
use glob::Globs;
use template::Template;

/// The parsed rules of a file.
#[derive(Debug)]
pub struct Mapping {
    globs: Globs,
    rules: Vec<Rule>,
    /// The regular expressions in the order of the file, each with the index of its rule.
    expressions: Vec<(Regex, usize)>,
    unmapped: Treatment,
}

/// The properties of a metric that a rule or the defaults can set.
#[derive(Debug, Clone)]
pub struct Treatment {
    /// The help, which can be empty.
    pub help: String,
    /// The metric type for observations: a histogram or a summary.
    pub shape: Shape,
    /// The time after which an unchanged series is hidden.
    pub expiry: Option<Duration>,
    /// The factor to multiply each value by.
    pub scale: Option<f64>,
}

/// The rule that matched a name, and the resulting metric name and labels.
#[derive(Debug)]
pub struct RuleMatch {
    /// The name of the metric, from the rule.
    pub name: String,
    /// The labels from the rule.
    pub labels: Vec<(String, String)>,
    rule: usize,
}

/// The error of an unreadable or invalid mapping file.
#[derive(Debug)]
pub struct Error {
    /// The flag of the protocol.
    flag: &'static str,
    path: PathBuf,
    /// The line number and the line, if the error is in a line.
    line: Option<(u64, String)>,
    detail: String,
}

#[derive(Debug)]
struct Rule {
    class: Option<MetricClass>,
    is_dropped: bool,
    honors_labels: bool,
    text: RuleTemplates,
    treatment: Treatment,
}

/// The templates of a rule's name and labels. Globs and regular expressions use different syntax
/// for references.
#[derive(Debug)]
enum RuleTemplates {
    Glob { name: Template, labels: Vec<(String, Template)> },
    Expression { name: String, labels: Vec<(String, String)> },
}

impl Default for Treatment {
    /// Returns the defaults for metrics without a rule, if the daemon has no mapping file.
    fn default() -> Self {
        let shape = Shape::Summary(QUANTILES.to_vec(), MAX_AGE);
        Self { help: String::new(), shape, expiry: None, scale: None }
    }
}

/// Multiplies a value by the `scale` of its rule. Returns `None` if a finite value becomes
/// infinite.
#[inline]
pub fn scaled(value: f64, scale: Option<f64>) -> Option<f64> {
    let Some(scale) = scale else { return Some(value) };
    let scaled = value * scale;
    (scaled.is_finite() || !value.is_finite()).then_some(scaled)
}

impl Mapping {
    /// Reads and parses a file, for the protocol with this flag.
    ///
    /// # Errors
    /// Returns an [`Error`] that names the line and the key.
    pub fn read(path: &Path, flag: &'static str) -> Result<Self, Error> {
        let error = |detail: String| Error { flag, path: path.into(), line: None, detail };
        let length = path.metadata().map_err(|e| error(e.to_string()))?.len();
        if length > MAX_BYTES {
            let detail = format!("it has {length} bytes; a mapping may have {MAX_BYTES}");
            return Err(error(detail));
        }
        let text = std::fs::read_to_string(path).map_err(|e| error(e.to_string()))?;
        Self::parse(&text).map_err(|(line, detail)| {
            let line = line.map(|line| {
                let index = usize::try_from(line).unwrap_or(0).saturating_sub(1);
                let text = text.lines().nth(index).unwrap_or_default().trim();
                (line, text.chars().take(100).collect())
            });
            Error { flag, path: path.into(), line, detail }
        })
    }

    /// Returns the first rule that matches a name.
    pub fn find(&self, name: &str, class: MetricClass) -> Option<RuleMatch> {
        if let Some(glob_match) = self.globs.find(name, class) {
            let rule = &self.rules[glob_match.rule];
            let RuleTemplates::Glob { name: new, labels } = &rule.text else { return None };
            let captures = &glob_match.captures;
            let expand =
                |(label, value): &(String, Template)| (label.clone(), value.expand(name, captures));
            return Some(RuleMatch {
                name: new.expand(name, captures),
                labels: labels.iter().map(expand).collect(),
                rule: glob_match.rule,
            });
        }
        self.expressions.iter().find_map(|(expression, index)| {
            let rule = &self.rules[*index];
            if rule.class.is_some_and(|only| only != class) {
                return None;
            }
            let RuleTemplates::Expression { name: new, labels } = &rule.text else { return None };
            let captures = expression.captures(name)?;
            let expand = |template: &str| {
                let mut text = String::new();
                captures.expand(template, &mut text);
                text
            };
            Some(RuleMatch {
                name: expand(new),
                labels: labels
                    .iter()
                    .map(|(label, value)| (label.clone(), expand(value)))
                    .collect(),
                rule: *index,
            })
        })
    }

    /// Returns the properties that the rule sets for its metrics.
    pub fn treatment(&self, rule_match: &RuleMatch) -> &Treatment {
        &self.rules[rule_match.rule].treatment
    }

    /// Returns whether the rule drops the lines that it matches.
    pub fn drops(&self, rule_match: &RuleMatch) -> bool {
        self.rules[rule_match.rule].is_dropped
    }

    /// Returns whether a tag overrides a label of the rule with the same name.
    pub fn honors_labels(&self, rule_match: &RuleMatch) -> bool {
        self.rules[rule_match.rule].honors_labels
    }

    /// Returns the properties of metrics without a matching rule.
    pub fn unmapped(&self) -> &Treatment {
        &self.unmapped
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let options = serde_saphyr::options! { with_snippet: false };
        let file: Option<File> = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| (error.location().map(|place| place.line()), error.to_string()))?;
        let file = file.unwrap_or_default();
        let defaults = file.defaults.unwrap_or_default();
        let unmapped = Treatment {
            shape: shape(&defaults, None)?,
            expiry: expiry(defaults.ttl),
            ..Treatment::default()
        };
        let mut mapping = Self {
            globs: Globs::new(!defaults.glob_disable_ordering),
            rules: Vec::new(),
            expressions: Vec::new(),
            unmapped,
        };
        for rule in file.mappings.unwrap_or_default() {
            mapping.add(rule, &defaults)?;
        }
        Ok(mapping)
    }

    fn add(&mut self, rule: file::Rule, defaults: &Defaults) -> Result<(), Fault> {
        let index = self.rules.len();
        let pattern = &rule.pattern;
        let name = match &rule.name {
            Some(name) if template::is_name(&name.value) => name.value.as_str(),
            Some(name) => {
                let detail =
                    "is not a name: give letters, digits, underscores, and references as ${1}";
                return fault(name, "name", detail);
            }
            None => return fault(pattern, "match", "has no `name` beside it: add one"),
        };
        let labels = rule.labels.as_ref();
        if let Some((name, value)) =
            labels.into_iter().flatten().find(|(name, _)| !template::is_label(name))
        {
            let detail =
                format!("{name:?} is not the name of a label: give letters, digits, underscores");
            return Err((Some(value.referenced.line()), format!("key `labels`: {detail}")));
        }
        let scale = rule.scale.as_ref();
        if let Some(scale) = scale.filter(|scale| !scale.value.is_finite()) {
            return fault(scale, "scale", "is not a finite number");
        }
        let text = match rule.match_type.or(defaults.match_type).unwrap_or(MatchType::Glob) {
            MatchType::Glob => {
                if !glob::is_pattern(&pattern.value) {
                    let detail = "is not a glob: give parts of letters, digits, _ and -, or *, \
                                with dots between them, or set `match_type: regex`";
                    return fault(pattern, "match", detail);
                }
                self.globs.add(&pattern.value, rule.match_metric_type, index);
                RuleTemplates::glob(name, &pattern.value, labels)
            }
            MatchType::Regex => match Regex::new(&pattern.value) {
                Ok(expression) => {
                    self.expressions.push((expression, index));
                    RuleTemplates::expression(name, labels)
                }
                Err(error) => return fault(pattern, "match", &error.to_string()),
            },
        };
        self.rules.push(Rule {
            class: rule.match_metric_type,
            is_dropped: rule.action == Some(Action::Drop),
            honors_labels: rule.honor_labels,
            text,
            treatment: Treatment {
                shape: shape(defaults, Some(&rule))?,
                expiry: expiry(rule.ttl).or(expiry(defaults.ttl)),
                scale: scale.map(|scale| scale.value),
                help: rule.help.unwrap_or_default(),
            },
        });
        Ok(())
    }
}

/// A line number, and an error message.
type Fault = (Option<u64>, String);

fn fault<T, R>(place: &Spanned<T>, key: &str, detail: &str) -> Result<R, Fault> {
    Err(at(place.referenced, key, detail))
}

fn at(place: Location, key: &str, detail: &str) -> Fault {
    (Some(place.line()), format!("key `{key}`: {detail}"))
}

fn expiry(ttl: Option<GoDuration>) -> Option<Duration> {
    ttl.map(|ttl| ttl.0).filter(|ttl| !ttl.is_zero())
}

impl RuleTemplates {
    fn glob(name: &str, pattern: &str, labels: Option<&BTreeMap<String, file::Text>>) -> Self {
        let captures = pattern.split('.').filter(|part| *part == "*").count();
        let labels = labels.into_iter().flatten();
        let read = |(label, value): (&String, &file::Text)| {
            (label.clone(), Template::read(&value.value, captures))
        };
        Self::Glob { name: Template::read(name, captures), labels: labels.map(read).collect() }
    }

    fn expression(name: &str, labels: Option<&BTreeMap<String, file::Text>>) -> Self {
        let labels = labels.into_iter().flatten();
        let labels = labels.map(|(label, value)| (label.clone(), value.value.clone()));
        Self::Expression { name: name.to_owned(), labels: labels.collect() }
    }
}

/// Returns the metric type for observations: from the rule, or else from the defaults, or else a
/// summary.
fn shape(defaults: &Defaults, rule: Option<&file::Rule>) -> Result<Shape, Fault> {
    let summary = rule.and_then(|rule| rule.summary_options.as_ref());
    let histogram = rule.and_then(|rule| rule.histogram_options.as_ref());
    let observer_type = rule.and_then(|rule| rule.observer_type).or(defaults.observer_type);
    match (observer_type, summary, histogram) {
        (Some(Observer::Histogram), Some(options), _) => {
            let detail = "a histogram has no summary options: remove them, or the `observer_type`";
            fault(options, "summary_options", detail)
        }
        (Some(Observer::Summary), _, Some(options)) => {
            let detail = "a summary has no histogram options: remove them, or set `observer_type: \
                        histogram`";
            fault(options, "histogram_options", detail)
        }
        (Some(Observer::Histogram), ..) => {
            let old = rule.map(|rule| rule.buckets.as_ref());
            histogram_shape(
                [histogram, defaults.histogram_options.as_ref()],
                [old.flatten(), defaults.buckets.as_ref()],
            )
        }
        _ => {
            let old = rule.map(|rule| rule.quantiles.as_ref());
            summary_shape(
                [summary, defaults.summary_options.as_ref()],
                [old.flatten(), defaults.quantiles.as_ref()],
            )
        }
    }
}

/// Creates a histogram from the first options that are not empty. Options with buckets create a
/// classic histogram. Options with only a growth factor or a maximum number of native buckets
/// create a native histogram.
fn histogram_shape(
    options: [Option<&Spanned<Histogram>>; 2],
    old: [Option<&Spanned<Vec<f64>>>; 2],
) -> Result<Shape, Fault> {
    for (options, old) in options.into_iter().zip(old) {
        let new =
            options.and_then(|options| Some((options.value.buckets.as_ref()?, options.referenced)));
        let buckets = new.or(old.map(|buckets| (&buckets.value, buckets.referenced)));
        if let Some((buckets, place)) = buckets.filter(|(buckets, _)| !buckets.is_empty()) {
            let mut bounds = buckets.clone();
            // We remove the infinite bucket, because every histogram ends with it.
            bounds.pop_if(|last| *last == f64::INFINITY);
            let ascend = bounds.windows(2).all(|pair| pair[0] < pair[1]);
            if !ascend || bounds.is_empty() || !bounds.iter().all(|bound| bound.is_finite()) {
                return Err(at(place, "buckets", "give finite numbers in ascending order"));
            }
            return Ok(Shape::Classic(bounds));
        }
        if let Some(options) = options {
            let Histogram { native_histogram_bucket_factor: factor, .. } = options.value;
            let most = options.value.native_histogram_max_buckets;
            if factor.is_some() || most.is_some() {
                let factor = factor.unwrap_or(1.1);
                if !(factor > 1.0 && factor.is_finite()) {
                    let key = "native_histogram_bucket_factor";
                    return Err(at(options.referenced, key, "give a number over 1, such as 1.1"));
                }
                let most = u16::try_from(most.unwrap_or(256)).unwrap_or(u16::MAX).clamp(8, 384);
                return Ok(Shape::Native(schema(factor), most));
            }
        }
    }
    Ok(Shape::Classic(BUCKETS.to_vec()))
}

/// Returns the coarsest native schema whose growth factor is at most `factor`, like client_golang.
fn schema(factor: f64) -> i8 {
    let exponent = factor.log2().log2().floor();
    (-exponent).clamp(-4.0, 8.0) as i8
}

/// Creates a summary from the first options that are not empty.
fn summary_shape(
    options: [Option<&Spanned<Summary>>; 2],
    old: [Option<&Spanned<Vec<Quantile>>>; 2],
) -> Result<Shape, Fault> {
    let quantiles = options.iter().zip(old).find_map(|(options, old)| {
        let new = options
            .and_then(|options| Some((options.value.quantiles.as_ref()?, options.referenced)));
        let old = old.map(|quantiles| (&quantiles.value, quantiles.referenced));
        new.or(old).filter(|(quantiles, _)| !quantiles.is_empty())
    });
    let quantiles = match quantiles {
        Some((quantiles, place)) => {
            let mut all: Vec<f64> = quantiles.iter().map(|entry| entry.quantile).collect();
            if !all.iter().all(|quantile| (0.0..=1.0).contains(quantile)) {
                return Err(at(place, "quantiles", "give quantiles from 0 to 1"));
            }
            all.sort_by(f64::total_cmp);
            all.dedup();
            all
        }
        None => QUANTILES.to_vec(),
    };
    let age = options
        .into_iter()
        .flatten()
        .find_map(|options| expiry(options.value.max_age).map(|age| (age, options.referenced)));
    match age {
        Some((age, place)) if age < MIN_AGE => {
            Err(at(place, "max_age", &format!("is too short: give at least {MIN_AGE:?}")))
        }
        Some((age, _)) => Ok(Shape::Summary(quantiles, age)),
        None => Ok(Shape::Summary(quantiles, MAX_AGE)),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flag, path, line, detail } = self;
        write!(f, "cannot use --{flag}-mapping {}", printable(path))?;
        if let Some((number, text)) = line {
            write!(f, ", line {number} (`{text}`)")?;
        }
        write!(f, ": {detail}")
    }
}

impl std::error::Error for Error {}

/// The default quantiles of a summary, like in statsd_exporter and client_golang.
const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];
/// The default buckets of a histogram, like in statsd_exporter and client_golang.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// The default age of a summary, like in statsd_exporter and client_golang.
const MAX_AGE: Duration = Duration::from_secs(600);
/// The minimum age of a summary. Its window is divided into five ages of whole milliseconds.
const MIN_AGE: Duration = Duration::from_millis(5);

/// The maximum size of a mapping file in bytes.
const MAX_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests;
