//! Parses durations in settings, and reads the clock.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A duration as people write it: `200ms`, `1m 30s`, `1h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct Time(pub Duration);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        humantime::parse_duration(text)
            .map(Self)
            .map_err(|error| format!("{error}; write a time such as 200ms, 60s, or 1h 30m"))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(InQuotes)
    }
}

/// Parses a duration in a TOML file. Quotes are required, because a plain number lacks a unit.
struct InQuotes;

impl Visitor<'_> for InQuotes {
    type Value = Time;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time in quotes, such as \"60s\"")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Time, E> {
        Err(E::custom(format_args!(
            "{number} has no unit: write \"{number}s\" for seconds, in quotes"
        )))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
        text.parse().map_err(|error| E::custom(format_args!("{text:?}: {error}")))
    }
}

impl From<Time> for String {
    fn from(time: Time) -> Self {
        time.to_string()
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", humantime::format_duration(self.0))
    }
}

/// Returns the current time in nanoseconds since 1970.
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the current time in milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
