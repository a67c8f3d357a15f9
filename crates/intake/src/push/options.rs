//! The options of pushes: the settings of the daemon ([`Settings`]), and the query parameters and
//! headers of one push ([`Options`]).

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::path::Grouping;
use quipu_http::{Query, Request};
use quipu_process::time::Time;

/// The settings of pushes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whether the routes are enabled.
    pub enabled: bool,
    /// Whether pushes are checked for consistency with other groups.
    pub checks: bool,
    /// Whether `PUT /api/v1/admin/wipe` is enabled.
    pub admin: bool,
    /// The maximum number of groups.
    pub groups: usize,
    /// The default mode of pushes, unless the push or its job sets one.
    pub mode: Mode,
    /// The default effect of an added push on gauges.
    pub gauges: Gauges,
    /// Patterns for jobs whose pushes are added up; `*` matches any string.
    pub add_jobs: Vec<String>,
    /// The default time after which a group expires.
    pub expiry: Option<Duration>,
}

/// The effect of a push on the series of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The push replaces the series, like in Pushgateway.
    Replace,
    /// The push is added to the series.
    Add,
}

/// The effect of an added push on a gauge or an untyped value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Gauges {
    /// The pushed value replaces the current one.
    Set,
    /// The pushed value is added.
    Sum,
    /// The minimum of both values is stored.
    Min,
    /// The maximum of both values is stored.
    Max,
}

/// The header with the identifier of a push. A push with the same identifier is a repetition.
const ID: &str = "quipu-push-id";

/// The options of one push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) mode: Mode,
    pub(super) gauges: Gauges,
    /// The time after which the group expires; zero for never.
    pub(super) ttl: Option<Duration>,
    /// The hash of the identifier, if any.
    pub(super) id: Option<u64>,
}

impl Options {
    /// Parses the query parameters and headers of a push to this group.
    ///
    /// # Errors
    /// Returns a message that names the parameter and the remedy.
    pub(super) fn from_request(
        settings: &Settings,
        grouping: &Grouping,
        request: &Request,
    ) -> Result<Self, String> {
        let query = Query::from_request(request)?;
        let mode = match query.one("mode").map(|mode| choice("mode", mode)).transpose()? {
            Some(mode) => mode,
            None if settings.add_jobs.iter().any(|pattern| matches(pattern, grouping.job())) => {
                Mode::Add
            }
            None => settings.mode,
        };
        let gauges = query.one("gauges").map(|gauges| choice("gauges", gauges)).transpose()?;
        let gauges = gauges.unwrap_or(settings.gauges);
        let ttl = query.one("ttl").map(str::parse::<Time>).transpose();
        let ttl = ttl.map_err(|error| format!("the ttl cannot be read: {error}"))?;
        let id = request.headers().get(ID).map(|id| id.to_str()).transpose();
        let id = id.map_err(|_| format!("the header {ID} is not text: use ASCII"))?;
        let id = id.map(str::trim).filter(|id| !id.is_empty()).map(|id| {
            let mut hasher = DefaultHasher::new();
            id.hash(&mut hasher);
            hasher.finish()
        });
        Ok(Self { mode, gauges, ttl: ttl.map(|ttl| ttl.0), id })
    }

    /// Returns whether the push is added to the current values, instead of replacing them.
    pub(super) fn adds(&self) -> bool {
        self.mode == Mode::Add
    }
}

fn choice<T: ValueEnum>(name: &str, value: &str) -> Result<T, String> {
    T::from_str(value, true).map_err(|_| {
        let known = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let known: Vec<String> = known.map(|value| value.get_name().to_owned()).collect();
        format!("unknown {name} {value:?}; give {}", known.join(" or "))
    })
}

/// Returns whether a string matches a pattern, where `*` matches any string.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    // A split always returns at least one part.
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, expected) in [
            ("batch", "batch", true),
            ("batch", "batch-1", false),
            ("batch-*", "batch-1", true),
            ("batch-*", "batch", false),
            ("*", "", true),
            ("*-job", "a-job", true),
            ("*-job", "a-jobs", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn an_unknown_choice_names_the_known_ones() {
        assert_eq!(choice::<Gauges>("gauges", "MAX"), Ok(Gauges::Max));
        let error = choice::<Mode>("mode", "sum").unwrap_err();
        assert_eq!(error, "unknown mode \"sum\"; give replace or add");
    }
}
