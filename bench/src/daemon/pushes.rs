//! Pushes like those in batch jobs: PUT of 100 lines to one of many groups.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use super::Bench;
use super::exposition::samples;
use super::requests::{Load, load, request};
use super::series::amount;
use super::subject::{PATIENCE, Program, Running, Subject};
use crate::Result;
use crate::turns::{Figure, Outcome, Turn, take};

/// The families of a push, and the samples of a family.
const FAMILIES: usize = 10;
const SAMPLES: usize = 10;

/// Pushgateway's file.
const FILE: &str = "--persistence.file={folder}/pushes";

/// Returns Pushgateway without its check, to fill its file: with the check, the time of a push is
/// proportional to all existing metrics.
pub(super) fn unchecked(with_file: bool) -> Subject {
    let options = ["--push.disable-consistency-check", FILE];
    let options = &options[..1 + usize::from(with_file)];
    Subject::new(Program::Pushgateway, options).variant("no check")
}

/// Measures all cases.
pub(super) fn pushes(bench: &Bench) -> Result<Outcome> {
    let mut turns = Vec::new();
    for groups in bench.plan.groups {
        let case = format!("push/{}", amount(groups));
        let mut add = |subject: Subject, filler: Option<Subject>| {
            if bench.has(subject.program) {
                let name = subject.name.clone();
                let run = move || -> Result<Vec<Figure>> {
                    let folder = bench.folder()?;
                    measure(bench, &subject, filler.as_ref(), folder.path(), groups)
                };
                turns.push(Turn { case: case.clone(), subject: name, run: Box::new(run) });
            }
        };
        add(Subject::new(Program::Quipu, &[]), None);
        add(unchecked(false), None);
        add(Subject::new(Program::Pushgateway, &[FILE]), Some(unchecked(true)));
    }
    Ok(take(&turns, bench.plan.runs))
}

/// Fills all groups, by the subject itself or by another one with the same files, and then pushes
/// to one after the other.
fn measure(
    bench: &Bench,
    subject: &Subject,
    filler: Option<&Subject>,
    folder: &Path,
    groups: usize,
) -> Result<Vec<Figure>> {
    let running = match filler {
        None => {
            let running = subject.start(bench, folder)?;
            fill(&running, groups)?;
            running
        }
        Some(filler) => {
            let before = filler.start(bench, folder)?;
            fill(&before, groups)?;
            before.stop()?;
            subject.start(bench, folder)?
        }
    };
    let load = push(&running, groups, 1, bench.plan.load, u64::MAX)?;
    let metrics = running.metrics()?;
    let lost = groups as f64 - shown_groups(&metrics) as f64;
    let pushes = load.requests.max(1) as f64;
    Ok(vec![
        Figure::new("pushes/s", "1/s", load.requests as f64 / load.cpu.as_secs_f64().max(0.01)),
        Figure::new("time of a push", "us", load.elapsed.as_secs_f64() * 1e6 / pushes),
        Figure::new("cpu time of a push", "us", load.cpu.as_secs_f64() * 1e6 / pushes),
        Figure::new("lost groups", "groups", lost),
    ])
}

/// Pushes once to each group.
pub(super) fn fill(running: &Running, groups: usize) -> Result<()> {
    push(running, groups, 0, PATIENCE, groups as u64).map(drop)
}

/// Returns the number of groups in an exposition.
pub(super) fn shown_groups(metrics: &[u8]) -> usize {
    samples(metrics, "push_time_seconds{").count()
}

/// Pushes to one group after the other, for a time, at most this often.
fn push(running: &Running, groups: usize, turn: u64, time: Duration, most: u64) -> Result<Load> {
    let body = body(turn);
    let mut sent = 0;
    load(running, time, |send| {
        let is_due = sent < most;
        if is_due {
            let target = format!("/metrics/job/batch/instance/host-{:05}", sent % groups as u64);
            send(&request("PUT", &target, "Content-Type: text/plain; version=0.0.4\r\n", &body));
            sent += 1;
        }
        is_due
    })
}

/// 100 samples in 10 families, half of them counters.
fn body(turn: u64) -> Vec<u8> {
    let mut text = String::new();
    for family in 0..FAMILIES {
        let kind = if family % 2 == 0 { "counter" } else { "gauge" };
        let name = format!("batch_processed_{family:02}");
        let _ = writeln!(text, "# HELP {name} Records processed.");
        let _ = writeln!(text, "# TYPE {name} {kind}");
        for sample in 0..SAMPLES {
            let value = 1000 * turn as usize + 10 * family + sample;
            let _ = writeln!(text, "{name}{{stage=\"s{sample:02}\",status=\"ok\"}} {value}");
        }
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_has_100_samples_in_10_families() {
        let text = String::from_utf8(body(1)).unwrap();
        let is_comment = |line: &&str| line.starts_with('#');
        assert_eq!(text.lines().filter(is_comment).count(), 2 * FAMILIES);
        assert_eq!(text.lines().count() - 2 * FAMILIES, FAMILIES * SAMPLES);
        assert!((5_000..6_500).contains(&text.len()), "{}", text.len());
    }

    #[test]
    fn groups_are_counted_by_their_time() {
        let text = b"push_time_seconds{instance=\"a\",job=\"b\"} 1\n\
            push_time_seconds{instance=\"b\",job=\"b\"} 2\nother{job=\"b\"} 3\n";
        assert_eq!(shown_groups(text), 2);
    }
}
