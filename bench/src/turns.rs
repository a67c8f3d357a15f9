//! Turns: each subject measures each load once a round, in rotation.

use crate::Result;
use crate::progress::Progress;
use crate::record::{Label, Record};

/// A quantity that a turn measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) metric: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
}

impl Figure {
    pub(crate) fn new(metric: &'static str, unit: &'static str, value: f64) -> Figure {
        Figure { metric, unit, value }
    }
}

/// A subject under a load.
pub(crate) struct Turn<'a> {
    pub(crate) case: String,
    pub(crate) subject: String,
    /// Measures it, with a new process. Each call returns the same metrics.
    pub(crate) run: Box<dyn Fn() -> Result<Vec<Figure>> + 'a>,
}

/// The figures of a workload, and its failures.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The figures.
    pub records: Vec<Record>,
    /// The turns that failed, with the reasons. A subject that failed once gets no figures.
    pub failures: Vec<String>,
}

impl Outcome {
    /// Adds the outcome of another part of the workload.
    pub(crate) fn add(&mut self, other: Outcome) {
        self.records.extend(other.records);
        self.failures.extend(other.failures);
    }
}

/// Takes all turns, this number of times.
pub(crate) fn take(turns: &[Turn<'_>], rounds: u32) -> Outcome {
    let mut figures: Vec<Vec<Vec<Figure>>> = vec![Vec::new(); turns.len()];
    let mut outcome = Outcome::default();
    let mut failed = vec![false; turns.len()];
    let mut progress = Progress::new(turns.len() * rounds as usize);
    for round in 1..=rounds {
        for (index, turn) in turns.iter().enumerate() {
            progress.step(&format!("round {round}: {}: {}", turn.case, turn.subject));
            if failed[index] {
                continue;
            }
            match (turn.run)() {
                Ok(measured) => figures[index].push(measured),
                Err(error) => {
                    failed[index] = true;
                    let name = format!("{}: {}", turn.case, turn.subject);
                    eprintln!("not measured: {name}: {error}");
                    outcome.failures.push(format!("{name}: {error}"));
                }
            }
        }
    }
    progress.finish("done");
    for (index, turn) in turns.iter().enumerate().filter(|(index, _)| !failed[*index]) {
        outcome.records.extend(merge(turn, &figures[index]));
    }
    outcome
}

/// Merges the figures of a turn in all rounds into records.
fn merge(turn: &Turn<'_>, rounds: &[Vec<Figure>]) -> Vec<Record> {
    let Some(first) = rounds.first() else { return Vec::new() };
    let record = |figure: &Figure| {
        let of = |round: &Vec<Figure>| {
            round.iter().find(|other| other.metric == figure.metric).map(|other| other.value)
        };
        let values: Vec<f64> = rounds.iter().filter_map(of).collect();
        Label::new(&turn.case, &turn.subject, figure.metric, figure.unit).of(&values)
    };
    first.iter().map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use std::cell::Cell;

    #[test]
    fn a_subject_that_fails_does_not_take_the_others_along() {
        let (calls, order) = (Cell::new(0.0), Cell::new(String::new()));
        let note = |name: &str| order.set(order.take() + name);
        let turns = [
            Turn {
                case: "c".into(),
                subject: "a".into(),
                run: Box::new(|| {
                    note("a");
                    calls.set(calls.get() + 1.0);
                    Ok(vec![Figure::new("time", "ns", calls.get())])
                }),
            },
            Turn {
                case: "c".into(),
                subject: "b".into(),
                run: Box::new(|| {
                    note("b");
                    Err(Error::report("broken"))
                }),
            },
        ];
        let outcome = take(&turns, 3);
        assert_eq!(order.take(), "abaa");
        assert_eq!(outcome.failures, ["c: b: broken"]);
        let [record] = &outcome.records[..] else { panic!("{outcome:?}") };
        assert_eq!((record.median, record.min, record.max, record.runs), (2.0, 1.0, 3.0, 3));
    }
}
