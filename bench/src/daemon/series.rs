//! The series of the load: spread over 100 names, with three labels.

use std::fmt;

/// The number of names.
const NAMES: usize = 100;

/// The kind of a metric, both in a line and in the exposition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Timer,
}

/// A series, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Series(pub(super) usize);

impl Series {
    /// Returns its kind: 70 % of the series are counters, 10 % gauges, and 20 % timers.
    pub(super) fn kind(self) -> Kind {
        match self.0 % 10 {
            0..=6 => Kind::Counter,
            7 => Kind::Gauge,
            _ => Kind::Timer,
        }
    }

    /// Returns its name, one of 100.
    pub(super) fn name(self) -> usize {
        self.0 % NAMES
    }

    pub(super) fn service(self) -> Service {
        Service(self.0 / NAMES % 20)
    }

    /// Returns its route. No two series of a name share a route.
    pub(super) fn route(self) -> Route {
        Route(self.0 / NAMES)
    }

    pub(super) fn code(self) -> usize {
        200 + self.0 / NAMES % 5
    }
}

/// A service: `svc-017`.
pub(super) struct Service(usize);

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "svc-{:03}", self.0)
    }
}

/// A route: `/api/v1/r00123`.
pub(super) struct Route(usize);

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/api/v1/r{:05}", self.0)
    }
}

/// Pseudo-random numbers: xorshift.
pub(super) struct Random(u64);

impl Random {
    /// Returns a generator of the same numbers in each run.
    pub(super) fn new() -> Random {
        Random(88_172_645_463_325_252)
    }

    /// Returns a number below another one.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % limit as u64) as usize
    }
}

/// A number with commas: `100,000`.
pub(super) fn amount(number: usize) -> String {
    quipu_bench_report::report::format::commas(&number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn series_differ_and_have_their_shares() {
        let all: Vec<Series> = (0..100_000).map(Series).collect();
        let keys: HashSet<_> =
            all.iter().map(|series| (series.name(), series.route().to_string())).collect();
        assert_eq!(keys.len(), all.len());
        let of = |kind| all.iter().filter(|series| series.kind() == kind).count();
        assert_eq!([of(Kind::Counter), of(Kind::Gauge), of(Kind::Timer)], [70_000, 10_000, 20_000]);
        let series = Series(12_342);
        assert_eq!(
            format!("{} {} {}", series.service(), series.route(), series.code()),
            "svc-003 /api/v1/r00123 203"
        );
        assert_eq!(amount(100_000), "100,000");
    }
}
