//! Measures increments while the daemon reads the segment for ten scrapes a second, and without the
//! daemon. The second case is measured twice, because the difference between these two is noise.

use std::path::Path;
use std::time::{Duration, Instant};

use quipu::{CounterFamily, Registry};

use super::children::SERIES;
use super::programs::description;
use super::serving::Watcher;
use super::times::Times;
use super::{Bench, CORE, MEMORY, failed, folder};
use crate::Result;
use crate::counting::data::Random;
use crate::measure::on_core;
use crate::record::{Label, Record};
use crate::turns::{Figure, Outcome, Turn, take};

const SUBJECTS: [&str; 3] = ["quipu (not watched)", "quipu (not watched, again)", WATCHED];
const WATCHED: &str = "quipu (watched)";
const CASE: &str = "watched";
const P99: &str = "99 %";

/// Measures the increments.
pub(super) fn watched(bench: &Bench) -> Result<Outcome> {
    let turns = SUBJECTS.map(|subject| Turn {
        case: CASE.into(),
        subject: subject.into(),
        run: Box::new(move || turn(bench, subject == WATCHED)),
    });
    let mut outcome = take(&turns, bench.plan.runs);
    let beyond = beyond(&outcome.records);
    outcome.records.extend(beyond);
    Ok(outcome)
}

fn turn(bench: &Bench, is_watched: bool) -> Result<Vec<Figure>> {
    let folder = folder(Path::new(MEMORY))?;
    let registry = Registry::open(folder.path().join("counted.quipu")).map_err(failed)?;
    let family = registry.register(description(SERIES)).map_err(failed)?;
    let labels: Vec<[String; 2]> = (0..SERIES)
        .map(|number| [format!("/api/v1/r{number:05}"), (200 + number % 5).to_string()])
        .collect();
    let labels: &'static [[String; 2]] = labels.leak();
    let watcher = match is_watched {
        true => Some(Watcher::start(bench, folder.path())?),
        false => None,
    };
    let times = on_core(CORE, || count(&family, labels, bench.plan.watched));
    let scrapes = watcher.map(Watcher::stop).transpose()?.unwrap_or(0);
    Ok(vec![
        Figure::new("median", "ns", times.quantile(0.5)),
        Figure::new(P99, "ns", times.quantile(0.99)),
        Figure::new("99.99 %", "ns", times.quantile(0.9999)),
        Figure::new("greatest", "ns", times.greatest.as_nanos() as f64),
        Figure::new("timed", "increments", times.count as f64),
        Figure::new("meanwhile", "scrapes", scrapes as f64),
    ])
}

/// Counts in random series, and times each increment.
fn count(
    family: &CounterFamily<[&'static str; 2]>,
    labels: &'static [[String; 2]],
    time: Duration,
) -> Times {
    for [route, code] in labels {
        family.inc(&[route.as_str(), code.as_str()]);
    }
    let (mut times, mut random) = (Times::default(), Random::new(1));
    let begun = Instant::now();
    while begun.elapsed() < time {
        for _ in 0..1_000 {
            let [route, code] = &labels[random.below(labels.len())];
            let start = Instant::now();
            family.inc(&[route.as_str(), code.as_str()]);
            times.add(start.elapsed());
        }
    }
    times
}

/// Returns how much the quantile of the watched program exceeds the greatest one of all rounds
/// without a watcher.
fn beyond(records: &[Record]) -> Option<Record> {
    let of = |subject: &str| {
        records.iter().find(|record| record.metric == P99 && record.subject == subject)
    };
    let [first, again, watched] = SUBJECTS.map(of);
    let noise = first?.max.max(again?.max);
    let label = Label::new(CASE, WATCHED, "99 % beyond noise", "ns");
    Some(label.of(&[(watched?.median - noise).max(0.0)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_the_range_without_a_watcher() {
        let of = |subject, values: &[f64]| Label::new(CASE, subject, P99, "ns").of(values);
        let with = |values: &[f64]| {
            let [first, again, watched] = SUBJECTS;
            beyond(&[of(first, &[50.0, 52.0]), of(again, &[49.0, 55.0]), of(watched, values)])
        };
        assert_eq!(with(&[55.0, 54.0, 90.0]).unwrap().median, 0.0);
        assert_eq!(with(&[58.0]).unwrap().median, 3.0);
        assert!(beyond(&[]).is_none());
    }
}
