//! The YAML schema of a mapping file: the keys of statsd_exporter 0.31 and of earlier versions
//! (`timer_type`, `buckets`, `quantiles`). An unknown key is an error.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde_saphyr::Spanned;

/// A string with its position in the file, for error messages.
pub(super) type Text = Spanned<String>;

/// The whole file.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) defaults: Option<Defaults>,
    pub(super) mappings: Option<Vec<Rule>>,
}

/// The default settings of all rules.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Defaults {
    #[serde(alias = "timer_type")]
    pub(super) observer_type: Option<Observer>,
    pub(super) match_type: Option<MatchType>,
    #[serde(default)]
    pub(super) glob_disable_ordering: bool,
    pub(super) ttl: Option<GoDuration>,
    pub(super) summary_options: Option<Spanned<Summary>>,
    pub(super) histogram_options: Option<Spanned<Histogram>>,
    pub(super) buckets: Option<Spanned<Vec<f64>>>,
    pub(super) quantiles: Option<Spanned<Vec<Quantile>>>,
}

/// A rule: an entry of `mappings`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    #[serde(rename = "match")]
    pub(super) pattern: Text,
    pub(super) name: Option<Text>,
    pub(super) labels: Option<BTreeMap<String, Text>>,
    #[serde(default)]
    pub(super) honor_labels: bool,
    #[serde(alias = "timer_type")]
    pub(super) observer_type: Option<Observer>,
    pub(super) match_type: Option<MatchType>,
    pub(super) help: Option<String>,
    pub(super) action: Option<Action>,
    pub(super) match_metric_type: Option<MetricClass>,
    pub(super) ttl: Option<GoDuration>,
    pub(super) summary_options: Option<Spanned<Summary>>,
    pub(super) histogram_options: Option<Spanned<Histogram>>,
    pub(super) buckets: Option<Spanned<Vec<f64>>>,
    pub(super) quantiles: Option<Spanned<Vec<Quantile>>>,
    pub(super) scale: Option<Spanned<f64>>,
}

/// The metric type for observations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Observer {
    Histogram,
    #[serde(alias = "")]
    Summary,
}

/// The syntax of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MatchType {
    #[serde(alias = "")]
    Glob,
    Regex,
}

/// The action of a rule on the lines that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Action {
    #[serde(alias = "")]
    Map,
    Drop,
}

/// A class of line types. A rule can be limited to one class by `match_metric_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricClass {
    /// Counters and meters.
    Counter,
    /// Gauges.
    Gauge,
    /// Timers, histograms and distributions.
    #[serde(alias = "timer")]
    Observer,
}

/// The options of a summary. Options of statsd_exporter's algorithm are accepted but have no
/// effect: the errors of quantiles, the number of age buckets, and the size of the buffer.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Summary {
    pub(super) quantiles: Option<Vec<Quantile>>,
    pub(super) max_age: Option<GoDuration>,
    #[serde(rename = "age_buckets")]
    _age_buckets: Option<u32>,
    #[serde(rename = "buf_cap")]
    _buf_cap: Option<u32>,
}

/// The options of a histogram.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Histogram {
    pub(super) buckets: Option<Vec<f64>>,
    pub(super) native_histogram_bucket_factor: Option<f64>,
    pub(super) native_histogram_max_buckets: Option<u32>,
}

/// A quantile of a summary.
#[derive(Debug, Clone, Copy, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Quantile {
    pub(super) quantile: f64,
    #[serde(rename = "error")]
    _error: Option<f64>,
}

/// A duration in the syntax of Go: `1m20s`, `1.5h`, or a number of nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GoDuration(pub(super) Duration);

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = GoDuration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time such as 30s, 1m20s, or 0")
            }

            fn visit_u64<E: de::Error>(self, nanoseconds: u64) -> Result<GoDuration, E> {
                Ok(GoDuration(Duration::from_nanos(nanoseconds)))
            }

            fn visit_i64<E: de::Error>(self, nanoseconds: i64) -> Result<GoDuration, E> {
                let nanoseconds = u64::try_from(nanoseconds);
                let text = de::Unexpected::Other("a negative time");
                nanoseconds
                    .map(|nanoseconds| GoDuration(Duration::from_nanos(nanoseconds)))
                    .map_err(|_| E::invalid_value(text, &self))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<GoDuration, E> {
                let time = go_duration(text);
                time.map(GoDuration)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

fn go_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut seconds = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        seconds += number
            * match &rest[..unit] {
                "ns" => 1e-9,
                "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_syntax_of_go() {
        for (text, milliseconds) in [
            ("0", 0),
            ("1m20s", 80_000),
            ("1.5h", 5_400_000),
            ("250ms", 250),
            ("+1s", 1_000),
            ("1500us", 1),
            ("1h0.5s", 3_600_500),
        ] {
            assert_eq!(go_duration(text).unwrap().as_millis(), milliseconds, "{text}");
        }
        for text in ["", "1", "s", "1d", "-1s", "1 s", "1..2s", "+", "9e99h", "1s2"] {
            assert_eq!(go_duration(text), None, "{text}");
        }
    }
}
