//! A table of records: a row for each case, number of threads and metric, and a column for each
//! subject, or the other way round.

use super::{BEST, best, format, our_best};
use crate::record::{self, Record};
use crate::{Error, Result};

/// The meaning of the rows of a table.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Rows {
    Cases,
    Subjects,
}

/// Renders a Markdown table, followed by a line that explains it. With a peer, the cell of every
/// other subject shows how many times better than this peer it is. If the peer is [`BEST`], each
/// case is compared to its best peer, and only the cells of quipu show the ratio.
pub(super) fn render(records: &[&Record], peer: Option<&str>, rows: Rows) -> Result<String> {
    if let Some(peer) = peer.filter(|peer| *peer != BEST)
        && !records.iter().any(|record| record.subject == peer)
    {
        return Err(Error::report(format!("no record of these cases is of the peer {peer}")));
    }
    let subjects = subjects(records);
    let cases = cases(records);
    let titles: Vec<String> = titles(&cases, records, rows);
    let cell = |case: &Case, subject: &str| {
        let Some(record) = case.of(records, subject) else { return "-".to_string() };
        cell(record, &case.all(records), peer)
    };
    let (columns, lines): (Vec<String>, Vec<Vec<String>>) = match rows {
        Rows::Cases => {
            let lines = cases.iter().zip(&titles).map(|(case, title)| {
                let cells = subjects.iter().map(|subject| cell(case, subject));
                std::iter::once(title.clone()).chain(cells).collect()
            });
            (subjects.iter().map(|subject| escape(subject)).collect(), lines.collect())
        }
        Rows::Subjects => {
            let lines = subjects.iter().map(|subject| {
                let cells = cases.iter().map(|case| cell(case, subject));
                std::iter::once(escape(subject)).chain(cells).collect()
            });
            (titles.clone(), lines.collect())
        }
    };

    let mut text = "| |".to_string();
    for column in &columns {
        text.push_str(&format!(" {column} |"));
    }
    text.push_str("\n| --- |");
    text.push_str(&" ---: |".repeat(columns.len()));
    for line in lines {
        text.push_str(&format!("\n| {} |", line.join(" | ")));
    }
    text.push_str("\n\n");
    text.push_str(&legend(records, peer));
    Ok(text)
}

/// Returns the titles of the cases. If all columns share the metric and the number of threads,
/// these are omitted above a column.
fn titles(cases: &[Case], records: &[&Record], rows: Rows) -> Vec<String> {
    let many_threads = records.iter().any(|record| record.threads > 1);
    let one_metric = cases.iter().all(|case| case.metric == cases[0].metric);
    let title = |case: &Case| match rows {
        Rows::Subjects if one_metric => case.case_and_threads(many_threads),
        _ => case.title(many_threads),
    };
    cases.iter().map(|case| escape(&title(case))).collect()
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

/// The key that the records of one case share.
#[derive(PartialEq)]
pub(super) struct Case<'a> {
    pub(super) case: &'a str,
    pub(super) threads: u32,
    metric: &'a str,
}

/// The cases in the order of the records.
pub(super) fn cases<'a>(records: &[&'a Record]) -> Vec<Case<'a>> {
    let mut cases = Vec::new();
    for record in records {
        let case = Case { case: &record.case, threads: record.threads, metric: &record.metric };
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    cases
}

impl Case<'_> {
    /// Returns the case's name and metric. A metric is omitted if it is a time or the case names
    /// it, and the number of threads unless there are `many_threads`.
    fn title(&self, many_threads: bool) -> String {
        let title = self.case_and_threads(many_threads);
        match self.metric == "time" || self.case.ends_with(&format!("/{}", self.metric)) {
            true => title,
            false => format!("{title}: {}", self.metric),
        }
    }

    /// Like `title`, without the metric.
    pub(super) fn case_and_threads(&self, many_threads: bool) -> String {
        match (many_threads, self.threads) {
            (false, _) => self.case.to_string(),
            (true, 1) => format!("{}, 1 thread", self.case),
            (true, threads) => format!("{}, {threads} threads", self.case),
        }
    }

    /// The case's record of a subject.
    pub(super) fn of<'a>(&self, records: &[&'a Record], subject: &str) -> Option<&'a Record> {
        self.all(records).into_iter().find(|record| record.subject == subject)
    }

    /// The case's records of all subjects.
    fn all<'a>(&self, records: &[&'a Record]) -> Vec<&'a Record> {
        let is_of = |record: &&Record| {
            record.case == self.case
                && record.threads == self.threads
                && record.metric == self.metric
        };
        records.iter().copied().filter(is_of).collect()
    }
}

/// Escapes characters that would end a cell.
pub(super) fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

fn cell(record: &Record, case: &[&Record], peer: Option<&str>) -> String {
    let reference = match peer {
        Some(BEST) => best(case),
        Some(peer) => case.iter().copied().find(|record| record.subject == peer),
        None => None,
    };
    let is_reference = reference.is_some_and(|reference| reference.subject == record.subject);
    let mut cell = format::quantity(record.median, &record.unit);
    if record.is_ours() {
        cell = format!("**{cell}**");
    } else if is_reference && peer == Some(BEST) {
        cell = format!("*{cell}*");
    }
    let compared = !is_reference && (record.is_ours() || peer != Some(BEST));
    if let Some(ratio) = reference.filter(|_| compared).and_then(|r| record.times_better_than(r)) {
        // A variant of ours is not marked as lost if another one of ours wins.
        let is_our_best = our_best(case).is_some_and(|best| best.subject == record.subject);
        let text = if is_our_best { format::verdict(ratio) } else { format::ratio(ratio) };
        cell.push_str(&format!(" {text}"));
    }
    if record.min < record.max {
        let range = format::range(record.median, record.min, record.max, &record.unit);
        cell.push_str(&format!("<br><sub>{range}</sub>"));
    }
    cell
}

fn legend(records: &[&Record], peer: Option<&str>) -> String {
    let mut text = match format::runs(records).as_str() {
        "one run" => "One run.".to_string(),
        runs => format!("Median of {runs}; below it the least and the greatest."),
    };
    match peer {
        Some(BEST) => text.push_str("\nNx: N times better than the best peer, in italics."),
        Some(peer) => text.push_str(&format!("\nNx: N times better than {peer}.")),
        None => {}
    }
    text
}

/// Returns the head of the first Markdown table without rows.
pub(super) fn first_empty(text: &str) -> Option<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let is_rule = |line: &str| {
        line.starts_with('|') && line.contains("--") && line.chars().all(|c| "|-: ".contains(c))
    };
    let rule = (1..lines.len()).find(|&number| {
        let next = lines.get(number + 1);
        is_rule(lines[number]) && !next.is_some_and(|line| line.starts_with('|'))
    });
    rule.map(|number| lines[number - 1])
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
            render(&records, Some("peer | 1"), Rows::Cases).unwrap(),
            "| | quipu | peer \\| 1 |\n\
             | --- | ---: | ---: |\n\
             | bucketed/add, 1 thread | **5.00 ns** 11.0x | 55.0 ns<br><sub>50.0 to 60.0</sub> |\n\
             | bucketed/add, 2 threads | **120 ns** 0.500x, *lost* | 60.0 ns |\n\
             | bucketed/memory, 1 thread | - | 9.79 kB |\n\
             \n\
             Median of 1 to 3 runs; below it the least and the greatest.\n\
             Nx: N times better than peer | 1."
        );
        assert!(render(&records, Some("unknown"), Rows::Cases).is_err());
    }

    #[test]
    fn a_row_names_a_metric_that_its_case_does_not() {
        let record = Label::new("ab -k", "quipu", "requests/s", "1/s").of(&[152_300.0]);
        let text = render(&[&record], None, Rows::Cases).unwrap();
        assert!(text.contains("| ab -k: requests/s | **152,000/s** |"), "{text}");
    }

    #[test]
    fn subjects_may_be_rows_and_the_best_peer_the_measure() {
        let label = |subject: &str| Label::new("handle/add", subject, "core time", "ns");
        let records = [
            label("a").of(&[8.0]),
            label("b").of(&[4.0]),
            label("quipu").of(&[2.0]),
            label("quipu (in a file)").of(&[2.0]),
            label("a").threads(2).of(&[9.0]),
        ];
        let records: Vec<&Record> = records.iter().collect();
        assert_eq!(
            render(&records, Some(BEST), Rows::Subjects).unwrap(),
            "| | handle/add, 1 thread | handle/add, 2 threads |\n\
             | --- | ---: | ---: |\n\
             | quipu | **2.00 ns** 2.00x | - |\n\
             | quipu (in a file) | **2.00 ns** 2.00x | - |\n\
             | a | 8.00 ns | *9.00 ns* |\n\
             | b | *4.00 ns* | - |\n\
             \n\
             One run.\n\
             Nx: N times better than the best peer, in italics."
        );
    }

    #[test]
    fn zero_has_no_ratio() {
        let label = |subject: &str| Label::new("kill -9", subject, "lost requests", "requests");
        let records = [label("peer").of(&[19_366.0]), label("quipu").of(&[0.0])];
        let records: Vec<&Record> = records.iter().collect();
        let text = render(&records, Some("peer"), Rows::Cases).unwrap();
        assert!(text.contains("| **0 requests** | 19,366 requests |"), "{text}");
    }
}
