//! The moment where a replay starts, given with `--at`.

use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

use crate::inspect::text::date;
use crate::look::Moment;

/// The moment where a replay starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplayStart(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nanoseconds of Unix time.
    Unix(u64),
    /// Nanoseconds before the last tick.
    BeforeEnd(u64),
}

const FORMS: &str =
    "write 2026-11-18T11:31:39Z, seconds of Unix time, or -30s for 30 seconds before the end";

impl FromStr for ReplayStart {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_number = text.starts_with(|c: char| c.is_ascii_digit())
            && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let kind = if let Some(time) = text.strip_prefix('-') {
            let time =
                humantime::parse_duration(time).map_err(|error| format!("{error}; {FORMS}"))?;
            nanos(time).map(Kind::BeforeEnd)
        } else if is_number {
            let seconds: f64 = text.parse().map_err(|_| FORMS.to_owned())?;
            Duration::try_from_secs_f64(seconds).ok().and_then(nanos).map(Kind::Unix)
        } else {
            rfc3339(text).map(Kind::Unix)
        };
        kind.map(Self).ok_or_else(|| FORMS.to_owned())
    }
}

fn nanos(time: Duration) -> Option<u64> {
    time.as_nanos().try_into().ok()
}

/// Parses a date of RFC 3339. Returns nanoseconds of Unix time.
fn rfc3339(text: &str) -> Option<u64> {
    let offset = text.len().checked_sub(6).and_then(|at| text.split_at_checked(at));
    let (date, behind) = match offset.and_then(|(date, offset)| Some((date, seconds(offset)?))) {
        Some((date, behind)) => (format!("{date}Z"), behind),
        None => (text.to_owned(), 0),
    };
    let time = humantime::parse_rfc3339(&date).ok()?;
    let nanos = time.duration_since(UNIX_EPOCH).ok().and_then(nanos)?;
    nanos.checked_add_signed(-behind * 1_000_000_000)
}

/// Parses an offset from UTC, for example `+01:30`. Returns seconds.
fn seconds(offset: &str) -> Option<i64> {
    let (sign, rest) = match offset.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let number = |text: &str, most: i64| {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i64>().ok().filter(|n| is_number && *n <= most)
    };
    Some(sign * (number(hours, 23)? * 3600 + number(minutes, 59)? * 60))
}

impl ReplayStart {
    /// Returns the index of the last tick that is not after this moment.
    ///
    /// # Errors
    /// Fails for a moment outside of the recording.
    pub(super) fn find(self, moments: &[Moment], interval: u64) -> Result<usize, String> {
        let (Some(first), Some(last)) = (moments.first(), moments.last()) else {
            return Err("nothing was recorded".into());
        };
        // We allow a second, because dates are shown in whole seconds.
        let slack = interval.max(1_000_000_000);
        let found = match self.0 {
            Kind::Unix(unix) if unix > last.unix.saturating_add(slack) => None,
            Kind::Unix(unix) => match moments.iter().rposition(|moment| moment.unix <= unix) {
                None => (first.unix.saturating_sub(slack) <= unix).then_some(0),
                place => place,
            },
            Kind::BeforeEnd(nanos) => {
                let time = last.time.saturating_sub(nanos);
                match moments.partition_point(|moment| moment.time <= time) {
                    0 => (first.time.saturating_sub(slack) <= time).then_some(0),
                    after => Some(after - 1),
                }
            }
        };
        let (first, last) = (date(first.unix), date(last.unix));
        found.ok_or_else(|| format!("nothing was recorded then: it has {first} to {last}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn dates_unix_times_and_offsets_are_parsed() {
        let unix = |text: &str| match text.parse() {
            Ok(ReplayStart(Kind::Unix(nanos))) => nanos,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(unix("1700000000"), 1_700_000_000 * SECOND);
        assert_eq!(unix("1700000000.5"), 1_700_000_000 * SECOND + SECOND / 2);
        assert_eq!(unix("2023-11-14T22:13:20Z"), 1_700_000_000 * SECOND);
        assert_eq!(unix("2023-11-14T22:13:20.25Z"), 1_700_000_000 * SECOND + SECOND / 4);
        assert_eq!(unix("2023-11-15T00:13:20+02:00"), 1_700_000_000 * SECOND);
        assert_eq!(unix("2023-11-14T18:43:20-03:30"), 1_700_000_000 * SECOND);
        assert_eq!("-1m 30s".parse(), Ok(ReplayStart(Kind::BeforeEnd(90 * SECOND))));
        let wrong = ["", "-", "-x", "soon", "1.2.3", "99999999999999", "2023-11-14T22:13:20+2:00"];
        for text in wrong.into_iter().chain(["2023-11-14", "2023-11-14T22:13:20+24:00", "\u{e9}"]) {
            let error = text.parse::<ReplayStart>().unwrap_err();
            assert!(error.contains("-30s"), "{text}: {error}");
        }
    }

    #[test]
    fn a_replay_starts_at_the_last_tick_before_the_moment() {
        // The wall clock is an hour ahead.
        let moment = |second: u64| Moment { time: second * SECOND, unix: (second + 3600) * SECOND };
        let moments: Vec<_> = [10, 11, 12, 20, 21].map(moment).into();
        let find = |text: &str| text.parse::<ReplayStart>().unwrap().find(&moments, SECOND);
        for (text, place) in [
            ("3611", 1),
            ("3611.9", 1),
            ("3615", 2),
            ("3609", 0),
            ("3622", 4),
            ("-0s", 4),
            ("-1s", 3),
            ("-1500ms", 2),
            ("-11s", 0),
            ("-12s", 0),
        ] {
            assert_eq!(find(text), Ok(place), "{text}");
        }
        for text in ["3600", "3624", "-13s", "0"] {
            let error = find(text).unwrap_err();
            assert!(error.contains("1970-01-01T01:00:10Z to 1970-01-01T01:00:21Z"), "{error}");
        }
        assert!(ReplayStart(Kind::Unix(0)).find(&[], SECOND).is_err());
    }
}
