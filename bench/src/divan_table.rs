//! Parses the tables that divan prints, because divan supports no other output.
//!
//! A leaf of the tree shows its times in columns, and its allocations below them:
//!
//! ```text
//! counting_seed           fastest       | slowest       | median        | mean     | samples | iters
//! |- fixed_cardinality                  |               |               |          |         |
//! |  |- Measured          1.495 ms      | 1.503 ms      | 1.499 ms      | 1.499 ms | 2       | 2
//! |  |                    alloc:        |               |               |          |         |
//! |  |                      2           | 2             | 2             | 2        |         |
//! |  |                      47 B        | 47 B          | 47 B          | 47 B     |         |
//! ```
//!
//! In the real output, the lines are box-drawing characters.

use crate::record::Record;
use crate::{Error, Result};

/// Returns the records of all leaves. The case of a leaf is `prefix/group`; `subject` returns the
/// subject for its name.
///
/// The metrics are `time`, `allocations` and `allocated`, per iteration. The time is the median of
/// the samples. The others, which include the growth of blocks, are the mean, because only the mean
/// covers all samples.
pub fn records(
    prefix: &str,
    table: &str,
    subject: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Record>> {
    let mut records: Vec<Record> = Vec::new();
    let mut group = "";
    let mut section = "";
    for (number, line) in table.lines().enumerate() {
        let problem = |what: &str| Error::Line {
            place: "table of divan".into(),
            line: number + 1,
            problem: format!("{what}: {line}"),
        };
        let columns: Vec<&str> = line.split(VERTICAL).map(str::trim).collect();
        // The last six are the fastest, the slowest, the median, the mean, samples and iterations.
        let value = |from_the_end: usize| columns[columns.len().saturating_sub(from_the_end)];
        let node = BRANCHES.iter().find_map(|branch| line.split_once(branch));
        if let Some((indent, node)) = node {
            let name = node.split([' ', VERTICAL]).next().unwrap_or_default();
            section = "";
            if indent.is_empty() {
                group = name;
                continue;
            }
            let time = |text: &str| quantity(text).ok_or_else(|| problem("no time is in"));
            let fastest = node[name.len()..].split(VERTICAL).next().unwrap_or_default();
            let subject = subject(name).ok_or_else(|| problem("an unknown contender is in"))?;
            let runs = value(2).parse().map_err(|_| problem("no number of samples is in"))?;
            let record = |metric: &str, unit: &str| Record {
                case: format!("{prefix}/{group}"),
                subject: subject.clone(),
                threads: 1,
                metric: metric.into(),
                unit: unit.into(),
                median: 0.0,
                min: 0.0,
                max: 0.0,
                runs,
            };
            let (min, median) = (time(fastest.trim())?, time(value(4))?);
            records.push(Record { min, median, max: time(value(5))?, ..record("time", "ns") });
            records.push(record("allocations", "allocations"));
            records.push(record("allocated", "B"));
        } else if columns.iter().any(|column| column.ends_with(':')) {
            section = columns.iter().find(|column| column.ends_with(':')).unwrap_or(&"");
        } else if columns.len() >= 6
            && matches!(section, "alloc:" | "grow:")
            && let [.., allocations, bytes] = &mut records[..]
        {
            let mean = value(3);
            let amount = quantity(mean).ok_or_else(|| problem("no amount is in"))?;
            let record = if mean.ends_with('B') { bytes } else { allocations };
            record.median += amount;
            (record.min, record.max) = (record.median, record.median);
        }
    }
    Ok(records)
}

const VERTICAL: char = '\u{2502}';
/// The prefix of the name of a node, and the prefix of the last of its siblings.
const BRANCHES: [&str; 2] = ["\u{251c}\u{2500} ", "\u{2570}\u{2500} "];

/// Converts a number with a unit to nanoseconds or bytes; leaves a number without a unit unchanged.
fn quantity(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let factor = match unit {
        "" | "ns" | "B" => 1.0,
        "\u{b5}s" | "KB" => 1e3,
        "ms" | "MB" => 1e6,
        "s" | "GB" => 1e9,
        "ps" => 1e-3,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replaces the plain lines of a table by box-drawing characters.
    fn drawn(table: &str) -> String {
        let table = table.replace("`-", "\u{2570}\u{2500}").replace("|-", "\u{251c}\u{2500}");
        table.replace('|', "\u{2502}")
    }

    const TABLE: &str = "\
counting_seed           fastest       | slowest       | median        | mean     | samples | iters
|- fixed_cardinality                  |               |               |          |         |
|  |- Measured          1.495 ms      | 1.503 ms      | 1.499 ms      | 1.499 ms | 2       | 2
|  |                    max alloc:    |               |               |          |         |
|  |                      9           | 9             | 9             | 9        |         |
|  |                      9 B         | 9 B           | 9 B           | 9 B      |         |
|  |                    alloc:        |               |               |          |         |
|  |                      2           | 2             | 2             | 2.5      |         |
|  |                      47 B        | 47 B          | 47 B          | 47 B     |         |
|  |                    grow:         |               |               |          |         |
|  |                      7           | 7             | 7             | 7        |         |
|  |                      2.041 KB    | 2.041 KB      | 2.041 KB      | 2.041 KB |         |
|  `- Prometheus        900 ns        | 2 s           | 10.34 ms      | 10.34 ms | 504     | 2520
`- high_cardinality                   |               |               |          |         |
   `- Measured          1.305 s       | 3.213 s       | 1.917 s       | 2.108 s  | 24      | 48
                        grow:         |               |               |          |         |
                          0           | 0             | 0             | 1.854    |         |
                          0 B         | 0 B           | 0 B           | 6.247 MB |         |

";

    #[test]
    fn reads_times_and_allocations() {
        let subject = |name: &str| Some(format!("{name} 1.0"));
        let records = records("seed", &drawn(TABLE), subject).unwrap();
        let figures: Vec<_> = records
            .iter()
            .map(|r| (r.case.as_str(), r.subject.as_str(), r.metric.as_str(), r.median, r.runs))
            .collect();
        let (fixed, high) = ("seed/fixed_cardinality", "seed/high_cardinality");
        assert_eq!(
            figures,
            [
                (fixed, "Measured 1.0", "time", 1.499e6, 2),
                (fixed, "Measured 1.0", "allocations", 9.5, 2),
                (fixed, "Measured 1.0", "allocated", 2088.0, 2),
                (fixed, "Prometheus 1.0", "time", 10.34e6, 504),
                (fixed, "Prometheus 1.0", "allocations", 0.0, 504),
                (fixed, "Prometheus 1.0", "allocated", 0.0, 504),
                (high, "Measured 1.0", "time", 1.917e9, 24),
                (high, "Measured 1.0", "allocations", 1.854, 24),
                (high, "Measured 1.0", "allocated", 6.247e6, 24),
            ]
        );
        assert_eq!((records[3].min, records[3].max), (900.0, 2e9));
    }

    #[test]
    fn says_what_it_does_not_understand() {
        let error = |table: &str| records("seed", &drawn(table), |_| None).unwrap_err().to_string();
        assert!(error(TABLE).contains(":3: an unknown contender is in"), "{}", error(TABLE));
        let other =
            records("seed", &drawn(&TABLE.replace("1.499 ms", "soon")), |_| Some("".into()));
        assert!(other.unwrap_err().to_string().contains(":3: no time is in"));
    }
}
