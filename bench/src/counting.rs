//! Counters and histograms of quipu, compared to its peers.
//!
//! A [`contender`] is a library; a [`workload`] is a task to measure. Each turn of a contender at a
//! workload runs in a new process, because the memory of one library must not affect another. The
//! binary `counting` lets the contenders take turns, and merges the rounds.
//!
//! On several threads, a figure here is the *core time* of an operation: the elapsed time divided
//! by the operations per core. This is the cost of the operation. It is constant if adding threads
//! costs no time, even with more threads than cores.

pub mod contender;
pub mod data;
mod latency;
pub mod peer;
mod quipu;
pub(crate) mod version;
pub mod workload;

use std::time::Duration;

use crate::record::Record;
use contender::Contender;
pub(crate) use quipu::in_file;
pub use quipu::{Quipu, QuipuInFile, QuipuLarge};

/// How much to measure in a turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The duration of a loop of calls.
    pub run_time: Duration,
    /// The divisor for all other amounts, compared to a full measurement.
    pub divisor: usize,
}

impl Plan {
    /// A full turn.
    pub fn full() -> Plan {
        Plan { run_time: Duration::from_millis(60), divisor: 1 }
    }

    /// A turn of a few milliseconds, to try out a benchmark.
    pub fn quick() -> Plan {
        Plan { run_time: Duration::from_millis(2), divisor: 200 }
    }

    /// Scales the number of series of a full turn.
    fn series(&self, full: usize) -> usize {
        (full / self.divisor).max(100)
    }

    /// Scales the numbers of series of a full turn, without duplicates.
    fn sizes<const N: usize>(&self, full: [usize; N]) -> Vec<usize> {
        let mut sizes = full.map(|full| self.series(full)).to_vec();
        sizes.dedup();
        sizes
    }

    /// Scales the time of a full turn.
    fn time(&self, full: Duration) -> Duration {
        (full / self.divisor as u32).max(Duration::from_millis(10))
    }
}

/// One contender's turn at a workload. It returns the records of one run, or none if the contender
/// does not support the workload.
pub type Turn = fn(&Plan) -> Vec<Record>;

/// A contender with its turns. You can add one in [`entrants`].
pub struct Entrant {
    /// The contender's name on the command line.
    pub key: &'static str,
    /// The turns in the order of [`WORKLOADS`].
    turns: [Turn; WORKLOADS.len()],
    /// The workloads of this contender.
    workloads: &'static [&'static str],
}

/// The names of the workloads.
pub const WORKLOADS: [&str; 10] = [
    "handle",
    "enums",
    "route",
    "user",
    "histogram",
    "create",
    "insert",
    "memory",
    "encode",
    "scrape",
];

impl Entrant {
    fn of<C: Contender>() -> Entrant {
        Entrant {
            key: C::KEY,
            turns: [
                workload::handle::run::<C>,
                workload::enums::run::<C>,
                workload::route::run::<C>,
                workload::user::run::<C>,
                workload::histogram::run::<C>,
                workload::create::run::<C>,
                workload::insert::run::<C>,
                workload::memory::run::<C>,
                workload::encode::run::<C>,
                workload::scrape::run::<C>,
            ],
            workloads: &WORKLOADS,
        }
    }

    /// Returns a variant that runs only in the workloads where it differs.
    fn only(self, workloads: &'static [&'static str]) -> Entrant {
        Entrant { workloads, ..self }
    }

    /// Returns the turn at a workload of that name, if the contender supports it.
    pub fn turn(&self, workload: &str) -> Option<Turn> {
        let index = WORKLOADS.iter().position(|name| *name == workload)?;
        self.workloads.contains(&workload).then(|| self.turns[index])
    }
}

/// All contenders, quipu first.
pub fn entrants() -> Vec<Entrant> {
    vec![
        Entrant::of::<Quipu>(),
        Entrant::of::<QuipuInFile>().only(&[
            "handle",
            "enums",
            "route",
            "user",
            "histogram",
            "create",
        ]),
        Entrant::of::<peer::Measured>(),
        Entrant::of::<peer::MeasuredParacord>()
            .only(&["user", "create", "insert", "memory", "encode"]),
        Entrant::of::<peer::Fastmetrics>(),
        Entrant::of::<peer::PrometheusClient>(),
        Entrant::of::<peer::Prometheus>(),
        Entrant::of::<peer::PrometheusStatic>(),
        Entrant::of::<peer::PrometheusLocal>(),
        Entrant::of::<peer::OpenTelemetry>().only(&[
            "handle",
            "enums",
            "route",
            "user",
            "histogram",
            "encode",
            "scrape",
        ]),
        Entrant::of::<peer::Metrics>(),
        Entrant::of::<peer::MetricsLib>(),
        Entrant::of::<peer::MetricsLibSharded>(),
        Entrant::of::<peer::Contatori>(),
        Entrant::of::<peer::Metriken>(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use contender::{ByRoute, ByText, ByUser, Scrape};
    use data::Keys;
    use std::collections::BTreeSet;

    /// The samples of a scrape, without comments.
    fn samples(family: &impl Scrape) -> BTreeSet<String> {
        let mut page = Default::default();
        family.scrape(&mut page);
        // The second scrape reuses the page of the first, and must not be longer.
        let text = String::from_utf8(family.scrape(&mut page).to_vec()).unwrap();
        let mut streamed = Vec::new();
        if let Some(result) = family.stream(&mut streamed) {
            result.unwrap();
            let mut lines: Vec<_> = text.lines().collect();
            let streamed = String::from_utf8(streamed).unwrap();
            let mut streamed: Vec<_> = streamed.lines().collect();
            lines.sort_unstable();
            streamed.sort_unstable();
            assert_eq!(lines, streamed);
        }
        let is_sample = |line: &&str| !line.starts_with('#') && !line.is_empty();
        text.lines().filter(is_sample).map(str::to_owned).collect()
    }

    fn counts_the_same<C: Contender>() {
        if let Some(family) = C::by_route() {
            family.inc(data::Kind::User, "/api/v1/users");
            family.inc(data::Kind::Network, "/api/v1/users/:id");
            family.inc(data::Kind::Network, "/api/v1/users/:id");
            let expected = [
                r#"http_request_errors_total{kind="user",route="/api/v1/users"} 1"#,
                r#"http_request_errors_total{kind="network",route="/api/v1/users/:id"} 2"#,
            ];
            assert_eq!(samples(&family), expected.map(str::to_owned).into(), "{}", C::KEY);
        }
        if let Some(family) = C::by_user() {
            let keys = Keys::new(0..1000);
            let expected: BTreeSet<String> = keys
                .iter()
                .map(|(kind, route, user)| {
                    family.inc(kind, route, user);
                    let labels = format!("kind=\"{}\",route=\"{route}\"", kind.text());
                    format!("http_request_errors_total{{{labels},user=\"{user}\"}} 1")
                })
                .collect();
            assert_eq!(samples(&family), expected, "{}", C::KEY);
        }
        if let Some(family) = C::by_text() {
            (0..100).for_each(|number| family.inc(&number.to_string()));
            let expected =
                (0..100).map(|number| format!("counters_total{{kind=\"{number}\"}} 1")).collect();
            assert_eq!(samples(&family), expected, "{}", C::KEY);
        }
    }

    fn encodes_all_series_of_enums<C: Contender>() {
        for mut filled in C::filled_by_enums() {
            let instruments = filled.instruments;
            let lines = if instruments == "histograms" { 100 * (9 + 2) } else { 100 };
            for _ in 0..2 {
                filled.scrape(&mut |page| {
                    let samples = page.split(|byte| *byte == b'\n');
                    let samples = samples.filter(|line| !line.is_empty() && line[0] != b'#');
                    assert_eq!(samples.count(), lines, "{instruments} of {}", C::KEY);
                });
            }
        }
    }

    #[test]
    fn all_contenders_encode_all_series_of_enums() {
        encodes_all_series_of_enums::<Quipu>();
        encodes_all_series_of_enums::<peer::Measured>();
        encodes_all_series_of_enums::<peer::Fastmetrics>();
        encodes_all_series_of_enums::<peer::PrometheusClient>();
        encodes_all_series_of_enums::<peer::Prometheus>();
        encodes_all_series_of_enums::<peer::Metrics>();
    }

    #[test]
    fn six_contenders_make_families() {
        let made = entrants().into_iter().filter(|entrant| {
            let turn = entrant.turn("create");
            turn.is_some_and(|turn| !turn(&Plan::quick()).is_empty())
        });
        assert_eq!(made.count(), 6);
    }

    #[test]
    fn all_contenders_count_the_same() {
        counts_the_same::<Quipu>();
        counts_the_same::<QuipuInFile>();
        counts_the_same::<peer::Measured>();
        counts_the_same::<peer::MeasuredParacord>();
        counts_the_same::<peer::Fastmetrics>();
        counts_the_same::<peer::PrometheusClient>();
        counts_the_same::<peer::Prometheus>();
        counts_the_same::<peer::Metrics>();
        counts_the_same::<peer::MetricsLib>();
        counts_the_same::<peer::OpenTelemetry>();
    }
}
