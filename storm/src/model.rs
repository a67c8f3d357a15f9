//! The expected contents of the segment. Each series is known as a range, because an operation may
//! be in flight when a worker is killed. The lower end counts the acknowledged operations, and the
//! upper end also the operations in flight.

use std::collections::BTreeMap;

use crate::sequence::{self, BUCKETS, Operation, Sequence};

/// A sample: its name in the exposition, for example `storm_jobs_total`, and its labels.
pub(crate) type Key = (String, String);

/// The ranges of all samples, in halves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    samples: BTreeMap<Key, Range>,
    overflow: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Range {
    least: u64,
    most: u64,
}

/// The difference between a model and a scrape, in halves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Difference {
    /// Acknowledged counts that are missing.
    pub(crate) lost: u64,
    /// Counts that are present, although no worker made them.
    pub(crate) doubled: u64,
    /// Descriptions of the samples that differ.
    pub(crate) samples: Vec<String>,
}

/// A command to a worker: `count` operations drawn from a seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Command {
    pub(crate) tag: u64,
    pub(crate) seed: u64,
    pub(crate) count: u64,
}

impl Model {
    /// Records that a worker did the first `done` operations of a command. If `in_flight` is true,
    /// it was killed and may also have done the next operation, completely or in part.
    pub(crate) fn apply(&mut self, command: Command, done: u64, in_flight: bool) {
        self.apply_range(command, done, if in_flight { done + 1 } else { done });
    }

    /// Records that a worker did the first `done` operations of a command, and possibly any part of
    /// the operations up to `end`.
    pub(crate) fn apply_range(&mut self, command: Command, done: u64, end: u64) {
        let mut sequence = Sequence::new(command.seed);
        let mut created = Vec::new();
        for index in 0..end.min(command.count) {
            let operation = sequence.draw();
            self.apply_one(command.tag, index, operation, index < done, &mut created);
        }
    }

    fn apply_one(
        &mut self,
        tag: u64,
        index: u64,
        operation: Operation,
        is_done: bool,
        created: &mut Vec<String>,
    ) {
        match operation {
            Operation::Add { job, halves } => self.add(jobs(&sequence::job(job)), halves, is_done),
            Operation::AddBound { job } => self.add(jobs(&sequence::job(job)), 2, is_done),
            Operation::Observe { host, value } => {
                let host = sequence::host(host);
                let sample = |name: &str| (format!("storm_seconds_{name}"), format!("host={host}"));
                self.add(sample("count"), 2, is_done);
                self.add(sample("sum"), 2 * value, is_done);
                for bound in BUCKETS.iter().filter(|bound| value as f64 <= **bound) {
                    let key = format!("host={host},le={bound}");
                    self.add(("storm_seconds_bucket".into(), key), 2, is_done);
                }
                let key = format!("host={host},le=+Inf");
                self.add(("storm_seconds_bucket".into(), key), 2, is_done);
            }
            Operation::Create { padding } => {
                let label = sequence::created(tag, index, padding);
                self.add(jobs(&label), 2, is_done);
                created.push(label);
            }
            Operation::Remove => {
                if let Some(label) = created.pop() {
                    let key = jobs(&label);
                    if is_done {
                        self.samples.remove(&key);
                    } else if let Some(range) = self.samples.get_mut(&key) {
                        range.least = 0;
                    }
                }
            }
        }
    }

    fn add(&mut self, key: Key, halves: u64, is_done: bool) {
        let range = self.samples.entry(key).or_default();
        range.most += halves;
        if is_done {
            range.least += halves;
        }
    }

    /// Compares the model with a scrape taken while no worker counted, and adopts its values.
    ///
    /// A count whose series did not fit is in the overflow series, so this many may be missing
    /// elsewhere.
    pub(crate) fn compare(&mut self, scrape: &BTreeMap<Key, u64>, overflow: u64) -> Difference {
        let mut difference = Difference::default();
        let mut missing = 0;
        let keys: Vec<Key> = self.samples.keys().chain(scrape.keys()).cloned().collect();
        for key in keys {
            let range = self.samples.get(&key).copied().unwrap_or_default();
            let value = scrape.get(&key).copied().unwrap_or(0);
            if value < range.least {
                missing += range.least - value;
            }
            difference.doubled += value.saturating_sub(range.most);
            if value < range.least || value > range.most {
                let (name, labels) = &key;
                difference.samples.push(format!(
                    "{name}{{{labels}}} is {}, not {} to {}",
                    value as f64 / 2.0,
                    range.least as f64 / 2.0,
                    range.most as f64 / 2.0
                ));
            }
            if value == 0 {
                self.samples.remove(&key);
            } else {
                self.samples.insert(key, Range { least: value, most: value });
            }
        }
        difference.lost = missing.saturating_sub(overflow.saturating_sub(self.overflow));
        self.overflow = overflow;
        difference
    }

    /// Forgets the series that commands created. Call this after you removed them from the segment.
    pub(crate) fn forget_created(&mut self) {
        self.samples.retain(|(_, labels), _| !labels.starts_with("job=c"));
    }

    /// Returns the number of samples.
    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }
}

fn jobs(label: &str) -> Key {
    ("storm_jobs_total".into(), format!("job={label}"))
}

/// Parses the text format, as far as the storm's metrics need this. Also returns the sum of the
/// overflow series.
pub(crate) fn parse(text: &str) -> (BTreeMap<Key, u64>, u64) {
    let mut samples = BTreeMap::new();
    let mut overflow = 0;
    for line in text.lines().filter(|line| line.starts_with("storm_")) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let halves = (value.parse::<f64>().unwrap_or(f64::NAN) * 2.0) as u64;
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let labels = labels.trim_end_matches('}').replace('"', "");
        if labels.contains("quipu_overflow") {
            let counts = name == "storm_jobs_total" || name == "storm_seconds_count";
            overflow += if counts { halves } else { 0 };
            // An overflowed observation is also missing from sum and buckets: at most 3 + 4 more.
            overflow += if name == "storm_seconds_count" { 7 * halves } else { 0 };
            continue;
        }
        // A series that appears twice counts twice.
        *samples.entry((name.to_owned(), labels)).or_default() += halves;
    }
    (samples, overflow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_worker_may_have_done_one_operation_more() {
        let command = Command { tag: 1, seed: 7, count: 50 };
        let (mut exact, mut killed) = (Model::default(), Model::default());
        exact.apply(command, 50, false);
        killed.apply(command, 49, true);
        let values = |model: &Model, least: bool| -> BTreeMap<Key, u64> {
            let value = |range: &Range| if least { range.least } else { range.most };
            model.samples.iter().map(|(key, range)| (key.clone(), value(range))).collect()
        };
        let difference = killed.clone().compare(&values(&exact, false), 0);
        assert_eq!((difference.lost, difference.doubled), (0, 0), "{:?}", difference.samples);
        let difference = exact.compare(&values(&killed, true), 0);
        assert_eq!(difference.doubled, 0);
    }

    #[test]
    fn a_scrape_is_read() {
        let (samples, overflow) = parse(
            "# TYPE storm_jobs counter\nstorm_jobs_total{job=\"j1\"} 2.5\n\
             storm_jobs_total{quipu_overflow=\"true\"} 1\n",
        );
        assert_eq!(samples[&jobs("j1")], 5);
        assert_eq!((samples.len(), overflow), (1, 2));
    }
}
