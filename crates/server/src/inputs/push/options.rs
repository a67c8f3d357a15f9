//! How pushes are treated: by the settings of the daemon, and by what a push asks for in its query
//! or its header.

use std::borrow::Cow;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use clap::ValueEnum;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use super::path::Grouping;
use crate::http::{Access, Request};
use crate::time::Time;

/// The settings of pushes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whether the routes exist.
    pub enabled: bool,
    /// Which web pages may read the values of groups.
    pub access: Access,
    /// Whether pushes are checked for consistency with other groups.
    pub checks: bool,
    /// Whether `PUT /api/v1/admin/wipe` exists.
    pub admin: bool,
    /// The most groups.
    pub groups: usize,
    /// What a push does to its group, if neither it nor its job says so.
    pub mode: Mode,
    /// What a push that is added does to gauges, if it does not say so.
    pub gauges: Gauges,
    /// The jobs whose pushes are added up; `*` stands for any text.
    pub add_jobs: Vec<String>,
    /// The time after which a group expires, if its pushes do not say so.
    pub expiry: Option<Duration>,
}

/// What a push does to the series of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It replaces them, as in Pushgateway.
    Replace,
    /// It is added to them.
    Add,
}

/// What a push that is added does to a gauge or an untyped value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Gauges {
    /// The pushed value replaces it.
    Set,
    /// The pushed value is added.
    Sum,
    /// The lesser one stays.
    Min,
    /// The greater one stays.
    Max,
}

/// How one push is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) mode: Mode,
    pub(super) gauges: Gauges,
    /// The time after which the group expires; zero for never.
    pub(super) ttl: Option<Duration>,
    /// A hash of the identifier of the push.
    pub(super) id: Option<u64>,
}

impl Options {
    /// What a push to that group asks for: in its query, in its header, or else by the settings.
    ///
    /// # Errors
    /// A text that names the parameter and the way out.
    pub(super) fn of(
        settings: &Settings,
        grouping: &Grouping,
        request: &Request,
    ) -> Result<Self, String> {
        let header = |name: &str| match request.headers().get(name).map(|value| value.to_str()) {
            Some(Err(_)) => Err(format!("the header {name} is not text: use ASCII")),
            Some(Ok(value)) => Ok(Some(value.trim())),
            None => Ok(None),
        };
        let mode = asked(query(request, "mode")?, header("quipu-push-mode")?, |mode| {
            choice("mode", mode)
        })?;
        let mode = match mode {
            Some(mode) => mode,
            None if settings.add_jobs.iter().any(|pattern| matches(pattern, grouping.job())) => {
                Mode::Add
            }
            None => settings.mode,
        };
        let gauges = asked(query(request, "gauges")?, header("quipu-push-gauges")?, |gauges| {
            choice("gauges", gauges)
        })?;
        let gauges = gauges.unwrap_or(settings.gauges);
        let ttl = asked(query(request, "ttl")?, header("quipu-push-ttl")?, |ttl| {
            let parsed = ttl.parse::<Time>();
            parsed.map_err(|error| format!("the ttl cannot be read: {error}"))
        })?;
        let id = header("quipu-push-id")?.filter(|id| !id.is_empty()).map(|id| {
            let mut hasher = DefaultHasher::new();
            id.hash(&mut hasher);
            hasher.finish()
        });
        Ok(Self { mode, gauges, ttl: ttl.map(|ttl| ttl.0), id })
    }

    /// Whether the push is added to what is there.
    pub(super) fn adds(&self) -> bool {
        self.mode == Mode::Add
    }
}

/// The value of a parameter of the query, decoded.
fn query(request: &Request, name: &str) -> Result<Option<String>, String> {
    let mut pairs = request.query().unwrap_or_default().split('&');
    let value = pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let decode = |value: &str| {
        let value = value.replace('+', " ");
        percent_decode_str(&value).decode_utf8().map(Cow::into_owned)
    };
    value.map(decode).transpose().map_err(|_| {
        format!("the parameter {name:?} is not UTF-8; percent-encode the bytes of a UTF-8 text")
    })
}

/// What a push asks for. The query precedes the header, but a header that cannot be read is a fault
/// beside it, too.
fn asked<T>(
    query: Option<String>,
    header: Option<&str>,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    let header = header.map(&read).transpose()?;
    let query = query.as_deref().map(&read).transpose()?;
    Ok(query.or(header))
}

fn choice<T: ValueEnum>(name: &str, value: &str) -> Result<T, String> {
    T::from_str(value, true).map_err(|_| {
        let known = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let known: Vec<String> = known.map(|value| value.get_name().to_owned()).collect();
        format!("unknown {name} {value:?}; give {}", known.join(" or "))
    })
}

/// Whether a text matches a pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    // A split has at least one part.
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
