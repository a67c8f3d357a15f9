//! One figure of a benchmark, and the JSON lines that hold the figures.
//!
//! A file of records has one object per line, with exactly the keys of [`Record`]. Peer programs
//! print the same format, so figures of any origin can be in one file.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// A figure: the case, the subject and the metric, with the median and the range of all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The operation, as `group/action`, for example `bucketed/add`.
    pub case: String,
    /// The library: `quipu`, `quipu (variant)`, or a peer's name and version.
    pub subject: String,
    /// The number of concurrent threads.
    pub threads: u32,
    /// The measured quantity, for example `time`, `memory` or `requests/s`.
    pub metric: String,
    /// The unit of the values: `ns`, `us`, `ms`, `s`, `B`, `1/s`, `%`, or the plural of a thing.
    pub unit: String,
    /// The median of the runs: the mean of the two middle ones if their number is even.
    pub median: f64,
    /// The minimum of the runs.
    pub min: f64,
    /// The maximum of the runs.
    pub max: f64,
    /// The number of runs, at least 1.
    pub runs: u32,
}

impl Record {
    /// Returns whether the record is a figure of quipu.
    pub fn is_ours(&self) -> bool {
        is_ours(&self.subject)
    }

    /// Returns whether higher values are better, like for rates and shares, but not for times and
    /// sizes.
    pub fn higher_is_better(&self) -> bool {
        self.metric.ends_with("/s") || self.metric.starts_with("share")
    }

    /// Returns how many times better this figure is than another one, below 1 if it is worse;
    /// `None` if either is zero or the units differ.
    pub fn times_better_than(&self, other: &Record) -> Option<f64> {
        let (ours, theirs) = (self.median, other.median);
        if self.unit != other.unit || ours <= 0.0 || theirs <= 0.0 {
            return None;
        }
        Some(if self.higher_is_better() { ours / theirs } else { theirs / ours })
    }

    fn key(&self) -> (&str, &str, u32, &str) {
        (&self.case, &self.subject, self.threads, &self.metric)
    }
}

/// Returns whether a subject is `quipu`, a variant of it, or one of its formats, `quipu:NAME`.
pub fn is_ours(subject: &str) -> bool {
    subject == "quipu" || subject.starts_with("quipu (") || subject.starts_with("quipu:")
}

/// A record without its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    /// See [`Record::case`].
    pub case: String,
    /// See [`Record::subject`].
    pub subject: String,
    /// See [`Record::threads`].
    pub threads: u32,
    /// See [`Record::metric`].
    pub metric: String,
    /// See [`Record::unit`].
    pub unit: String,
}

impl Label {
    /// Creates a label for one thread.
    pub fn new(case: &str, subject: &str, metric: &str, unit: &str) -> Label {
        Label {
            case: case.into(),
            subject: subject.into(),
            threads: 1,
            metric: metric.into(),
            unit: unit.into(),
        }
    }

    /// Returns the same label for another number of threads.
    pub fn threads(self, threads: u32) -> Label {
        Label { threads, ..self }
    }

    /// Returns the record of the values of all runs.
    ///
    /// # Panics
    ///
    /// If there is no value, or one is not finite, because this is a bug in the benchmark.
    pub fn of(&self, values: &[f64]) -> Record {
        assert!(!values.is_empty(), "{self:?} has no runs");
        assert!(values.iter().all(|v| v.is_finite()), "{self:?} has a value that is not finite");
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        };
        Record {
            case: self.case.clone(),
            subject: self.subject.clone(),
            threads: self.threads,
            metric: self.metric.clone(),
            unit: self.unit.clone(),
            median,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            runs: sorted.len() as u32,
        }
    }
}

/// Reads a file of records.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let text = std::fs::read_to_string(path).map_err(Error::file("read", path))?;
    parse(&path.display().to_string(), &text)
}

/// Reads records from a string. `place` names its origin in errors.
///
/// Two records of the same case, subject, threads and metric are an error, because a report must
/// not mix the figures of two measurements.
pub fn parse(place: &str, text: &str) -> Result<Vec<Record>> {
    let mut records: Vec<Record> = Vec::new();
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let number = index + 1;
        let record = parse_line(line).map_err(|problem| Error::line(place, number, problem))?;
        if let Some(first) = records.iter().position(|other| other.key() == record.key()) {
            let problem = format!(
                "a second figure for {} of {} ({}, threads: {}); the first is on line {}. \
                 Run the whole benchmark again.",
                record.metric, record.case, record.subject, record.threads, lines[first],
            );
            return Err(Error::line(place, number, problem));
        }
        records.push(record);
        lines.push(number);
    }
    Ok(records)
}

/// Appends records to a file, which is created if necessary.
pub fn append(path: &Path, records: &[Record]) -> Result<()> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .and_then(|mut file| write(&mut file, records))
        .map_err(Error::file("append to", path))
}

/// Writes records, for example to the program that started this one.
pub fn write(writer: &mut impl Write, records: &[Record]) -> io::Result<()> {
    let mut text = String::new();
    for record in records {
        text.push_str(&to_line(record));
        text.push('\n');
    }
    writer.write_all(text.as_bytes())
}

/// Merges rounds of one run each into records of many runs.
///
/// You need this for subjects in several programs: each round runs every program once, with one
/// run, because a drift of the machine then affects all equally. All rounds must contain the same
/// figures, each of one run; otherwise this returns an error.
pub fn merge(rounds: &[Vec<Record>]) -> Result<Vec<Record>> {
    let Some(first) = rounds.first() else {
        return Ok(Vec::new());
    };
    let same_size = rounds.iter().all(|round| round.len() == first.len());
    let single = rounds.iter().flatten().all(|record| record.runs == 1);
    if !same_size || !single {
        return Err(Error::report("rounds can be merged if all have the same figures of one run"));
    }
    let mut merged = Vec::new();
    for record in first {
        let values: Vec<f64> = rounds
            .iter()
            .filter_map(|round| round.iter().find(|other| other.key() == record.key()))
            .map(|other| other.median)
            .collect();
        if values.len() != rounds.len() {
            return Err(Error::report(format!(
                "not every round has the {} of {} ({})",
                record.metric, record.case, record.subject,
            )));
        }
        let label = Label::new(&record.case, &record.subject, &record.metric, &record.unit);
        merged.push(label.threads(record.threads).of(&values));
    }
    Ok(merged)
}

fn parse_line(line: &str) -> std::result::Result<Record, String> {
    let record: Record = serde_json::from_str(line).map_err(|error| {
        // Drop the position, because it is within the line, and would contradict the caller's line
        // number.
        let text = error.to_string();
        let problem = text.split(" at line ").next().unwrap_or(&text).to_string();
        format!("not a record: {problem} (column {})", error.column())
    })?;
    for (key, text) in [
        ("case", &record.case),
        ("subject", &record.subject),
        ("metric", &record.metric),
        ("unit", &record.unit),
    ] {
        if text.is_empty() {
            return Err(format!("{key} is empty"));
        }
    }
    if record.runs == 0 || record.threads == 0 {
        return Err("runs and threads must be at least 1".into());
    }
    if !(record.min <= record.median && record.median <= record.max) {
        return Err(format!(
            "min {} <= median {} <= max {} does not hold",
            record.min, record.median, record.max
        ));
    }
    Ok(record)
}

fn to_line(record: &Record) -> String {
    serde_json::to_string(record).expect("strings and finite numbers are always JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(subject: &str, median: f64) -> Record {
        Label::new("bucketed/add", subject, "time", "ns").of(&[median])
    }

    #[test]
    fn median_of_odd_and_even_numbers_of_runs() {
        let label = Label::new("c", "s", "time", "ns");
        let odd = label.of(&[3.0, 1.0, 2.0]);
        assert_eq!((odd.median, odd.min, odd.max, odd.runs), (2.0, 1.0, 3.0, 3));
        assert_eq!(label.of(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(label.of(&[7.0]).median, 7.0);
    }

    #[test]
    fn a_line_has_exactly_the_keys_in_order() {
        assert_eq!(
            to_line(&sample("quipu", 4.5)),
            concat!(
                r#"{"case":"bucketed/add","subject":"quipu","threads":1,"metric":"time","#,
                r#""unit":"ns","median":4.5,"min":4.5,"max":4.5,"runs":1}"#,
            )
        );
    }

    #[test]
    fn appends_and_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        append(&path, &[sample("quipu", 4.5)]).unwrap();
        append(&path, &[sample("peer 1.0", 56.0)]).unwrap();
        assert_eq!(read(&path).unwrap(), [sample("quipu", 4.5), sample("peer 1.0", 56.0)]);
    }

    #[test]
    fn errors_name_the_file_the_line_and_the_fault() {
        let good = to_line(&sample("quipu", 4.5));
        let fault = |line: &str| parse("a.jsonl", &format!("{good}\n\n{line}\n")).unwrap_err();
        let text = |line: &str| fault(line).to_string();
        assert!(text("{").starts_with("a.jsonl:3: not a record: EOF"), "{}", text("{"));
        let extra = good.replace("quipu", "p").replace("\"runs\":1", "\"runs\":1,\"more\":1");
        assert!(text(&extra).contains("unknown field `more`"), "{}", text(&extra));
        let missing = good.replace(",\"runs\":1", "");
        assert!(text(&missing).contains("missing field `runs`"), "{}", text(&missing));
        let disorder = good.replace("\"min\":4.5", "\"min\":5");
        assert!(text(&disorder).contains("does not hold"), "{}", text(&disorder));
        assert!(text(&good).contains("a.jsonl:3: a second figure"), "{}", text(&good));
        assert!(text(&good).contains("line 1"), "{}", text(&good));
    }

    #[test]
    fn ratio_follows_the_direction_of_the_metric() {
        let better = sample("quipu", 5.0).times_better_than(&sample("peer", 50.0));
        assert_eq!(better, Some(10.0));
        let rate = |v| Label::new("ab", "s", "requests/s", "1/s").of(&[v]);
        assert_eq!(rate(20.0).times_better_than(&rate(10.0)), Some(2.0));
        assert_eq!(sample("quipu", 0.0).times_better_than(&sample("peer", 5.0)), None);
        assert_eq!(sample("quipu", 5.0).times_better_than(&rate(5.0)), None);
    }

    #[test]
    fn merges_rounds_of_single_runs() {
        let round = |v| vec![sample("quipu", v), sample("peer", 10.0 * v)];
        let merged = merge(&[round(3.0), round(1.0), round(2.0)]).unwrap();
        assert_eq!(merged.len(), 2);
        assert_eq!((merged[0].median, merged[0].runs), (2.0, 3));
        assert_eq!((merged[1].min, merged[1].max), (10.0, 30.0));
        assert!(merge(&[round(1.0), vec![sample("quipu", 1.0)]]).is_err());
        assert!(merge(&[vec![sample("a", 1.0)], vec![sample("b", 1.0)]]).is_err());
    }

    #[test]
    fn only_quipu_and_its_variants_are_ours() {
        assert!(is_ours("quipu") && is_ours("quipu (coarse clock)"));
        assert!(!is_ours("quipus") && !is_ours("derlaft/ratecounter"));
    }
}
