//! A table of records: a row for each case, threads and metric, a column for each subject.

use super::format;
use crate::record::{self, Record};
use crate::{Error, Result};

/// A Markdown table with a line under it that says how to read it. With a peer, every other
/// subject's cell says how many times better than the peer it is.
pub(super) fn render(records: &[&Record], peer: Option<&str>) -> Result<String> {
    if let Some(peer) = peer
        && !records.iter().any(|record| record.subject == peer)
    {
        return Err(Error::report(format!("no record of these cases is of the peer {peer}")));
    }
    let subjects = subjects(records);
    let many_threads = records.iter().any(|record| record.threads > 1);

    let mut text = "| |".to_string();
    for subject in &subjects {
        text.push_str(&format!(" {} |", escape(subject)));
    }
    text.push_str("\n| --- |");
    text.push_str(&" ---: |".repeat(subjects.len()));
    for row in rows(records) {
        text.push_str(&format!("\n| {} |", escape(&row.title(many_threads))));
        let reference = peer.and_then(|peer| row.of(records, peer));
        for subject in &subjects {
            let cell = match row.of(records, subject) {
                None => "-".to_string(),
                Some(record) => cell(record, reference),
            };
            text.push_str(&format!(" {cell} |"));
        }
    }
    text.push_str("\n\n");
    text.push_str(&legend(records, peer));
    Ok(text)
}

/// The subjects in the order of the records, ours first.
pub(super) fn subjects<'a>(records: &[&'a Record]) -> Vec<&'a str> {
    let mut subjects: Vec<&str> = Vec::new();
    for record in records {
        if !subjects.contains(&record.subject.as_str()) {
            subjects.push(&record.subject);
        }
    }
    subjects.sort_by_key(|subject| !record::is_ours(subject));
    subjects
}

/// What the records of one row have in common.
#[derive(PartialEq)]
pub(super) struct Row<'a> {
    case: &'a str,
    threads: u32,
    metric: &'a str,
}

/// The rows in the order of the records.
pub(super) fn rows<'a>(records: &[&'a Record]) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    for record in records {
        let row = Row { case: &record.case, threads: record.threads, metric: &record.metric };
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    rows
}

impl Row<'_> {
    /// The row's name, without what every reader supposes: that a time was measured, on one thread.
    fn title(&self, many_threads: bool) -> String {
        let title = self.case_and_threads(many_threads);
        match self.metric == "time" || self.case.ends_with(&format!("/{}", self.metric)) {
            true => title,
            false => format!("{title}: {}", self.metric),
        }
    }

    /// The row's name without the metric.
    pub(super) fn case_and_threads(&self, many_threads: bool) -> String {
        match (many_threads, self.threads) {
            (false, _) => self.case.to_string(),
            (true, 1) => format!("{}, 1 thread", self.case),
            (true, threads) => format!("{}, {threads} threads", self.case),
        }
    }

    /// The row's record of a subject.
    pub(super) fn of<'a>(&self, records: &[&'a Record], subject: &str) -> Option<&'a Record> {
        records.iter().copied().find(|record| {
            record.subject == subject
                && record.case == self.case
                && record.threads == self.threads
                && record.metric == self.metric
        })
    }
}

/// Text that does not end a cell.
pub(super) fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

fn cell(record: &Record, reference: Option<&Record>) -> String {
    let mut cell = format::quantity(record.median, &record.unit);
    if record.is_ours() {
        cell = format!("**{cell}**");
    }
    let other = reference.filter(|reference| reference.subject != record.subject);
    if let Some(ratio) = other.and_then(|reference| record.times_better_than(reference)) {
        cell.push_str(&format!(" {}", format::ratio(ratio)));
    }
    if record.min < record.max {
        let range = format::range(record.median, record.min, record.max, &record.unit);
        cell.push_str(&format!("<br><sub>{range}</sub>"));
    }
    cell
}

fn legend(records: &[&Record], peer: Option<&str>) -> String {
    let fewest = records.iter().map(|record| record.runs).min().unwrap_or(0);
    let most = records.iter().map(|record| record.runs).max().unwrap_or(0);
    let runs = if fewest == most { format!("{most}") } else { format!("{fewest} to {most}") };
    let mut text = format!("Median of {runs} runs; below it the least and the greatest.");
    if let Some(peer) = peer {
        text.push_str(&format!("\nNx: N times better than {peer}."));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Label;

    #[test]
    fn rows_are_cases_and_columns_are_subjects() {
        let label = |case: &str, subject: &str| Label::new(case, subject, "time", "ns");
        let records = [
            label("bucketed/add", "peer | 1").of(&[50.0, 60.0, 55.0]),
            label("bucketed/add", "peer | 1").threads(2).of(&[60.0]),
            Label::new("bucketed/memory", "peer | 1", "memory", "B").of(&[9792.0]),
            label("bucketed/add", "quipu").of(&[5.0]),
            label("bucketed/add", "quipu").threads(2).of(&[120.0]),
        ];
        let records: Vec<&Record> = records.iter().collect();
        assert_eq!(
            render(&records, Some("peer | 1")).unwrap(),
            "| | quipu | peer \\| 1 |\n\
             | --- | ---: | ---: |\n\
             | bucketed/add, 1 thread | **5.00 ns** 11.0x | 55.0 ns<br><sub>50.0 to 60.0</sub> |\n\
             | bucketed/add, 2 threads | **120 ns** 0.500x | 60.0 ns |\n\
             | bucketed/memory, 1 thread | - | 9.79 kB |\n\
             \n\
             Median of 1 to 3 runs; below it the least and the greatest.\n\
             Nx: N times better than peer | 1."
        );
        assert!(render(&records, Some("nobody")).is_err());
    }

    #[test]
    fn a_row_names_a_metric_that_its_case_does_not() {
        let record = Label::new("ab -k", "quipu", "requests/s", "1/s").of(&[152_300.0]);
        let text = render(&[&record], None).unwrap();
        assert!(text.contains("| ab -k: requests/s | **152,000/s** |"), "{text}");
    }

    #[test]
    fn zero_has_no_ratio() {
        let label = |subject: &str| Label::new("kill -9", subject, "lost requests", "requests");
        let records = [label("peer").of(&[19_366.0]), label("quipu").of(&[0.0])];
        let text = render(&records.iter().collect::<Vec<_>>(), Some("peer")).unwrap();
        assert!(text.contains("| **0 requests** | 19,366 requests |"), "{text}");
    }
}
