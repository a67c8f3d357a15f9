//! The ratios for the goals of the daemon, as records with the case `goal/NAME`.

use crate::record::{Label, Record};

/// A figure of quipu divided by a peer's figure, or by another figure of quipu.
struct Goal {
    name: &'static str,
    case: &'static str,
    metric: &'static str,
    /// The beginning of the name of the other subject.
    other: &'static str,
    other_case: &'static str,
}

const GOALS: [Goal; 15] = [
    Goal::of("StatsD, packed, 1,000 series", "statsd/packed, 1,000 series", LINES, EXPORTER),
    Goal::of("StatsD, packed, 100,000 series", "statsd/packed, 100,000 series", LINES, EXPORTER),
    // By the time of a line, because the sender limits the rate.
    Goal::of("StatsD, single, 1,000 series", "statsd/single, 1,000 series", "cpu time", EXPORTER),
    Goal::of("StatsD, packed, by statsd", "statsd/packed, 1,000 series", LINES, "statsd 0"),
    Goal::of("remote write, 1,000 series", "remote write/1,000 series", SAMPLES, VMAGENT),
    Goal::of("remote write, 100,000 series", "remote write/100,000 series", SAMPLES, VMAGENT),
    Goal::of("import, 1,000 series", "import/1,000 series", SAMPLES, VMAGENT),
    Goal::of("import, 100,000 series", "import/100,000 series", SAMPLES, VMAGENT),
    Goal::of("push, 1 group", "push/1", PUSHES, UNCHECKED),
    Goal::of("push, 10,000 groups", "push/10,000", PUSHES, UNCHECKED),
    Goal { other_case: "push/1", ..Goal::of("push, flat", "push/10,000", PUSHES, "quipu") },
    Goal::of("memory, 100,000 series", "memory, histograms/100,000", "memory", EXPORTER),
    Goal::of("memory, 1,000,000 series", "memory, histograms/1,000,000", "memory", EXPORTER),
    Goal::of("scrape, 100,000 series", "memory, histograms/100,000", "scrape", EXPORTER),
    Goal::of("scrape, 1,000,000 series", "memory, histograms/1,000,000", "scrape", EXPORTER),
];

const LINES: &str = "lines/s";
const SAMPLES: &str = "samples/s";
const PUSHES: &str = "pushes/s";
const EXPORTER: &str = "statsd_exporter";
const VMAGENT: &str = "vmagent";
const UNCHECKED: &str = "pushgateway 1.11.1 (no check)";

impl Goal {
    const fn of(
        name: &'static str,
        case: &'static str,
        metric: &'static str,
        other: &'static str,
    ) -> Goal {
        Goal { name, case, metric, other, other_case: case }
    }

    fn record(&self, records: &[Record]) -> Option<Record> {
        let find = |case: &str, subject: &str| {
            records.iter().find(|record| {
                record.case == case
                    && record.metric == self.metric
                    && record.subject.starts_with(subject)
            })
        };
        let ours = find(self.case, "quipu")?;
        let ratio = ours.times_better_than(find(self.other_case, self.other)?)?;
        let label = Label::new(&format!("goal/{}", self.name), "quipu", "ratio", "times");
        Some(label.of(&[ratio]))
    }
}

/// Returns how many times better quipu is, for each goal with existing figures.
pub fn ratios(records: &[Record]) -> Vec<Record> {
    GOALS.iter().filter_map(|goal| goal.record(records)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_needs_both_figures() {
        let pushes = |case: &str, subject: &str, value: f64| {
            Label::new(case, subject, PUSHES, "1/s").of(&[value])
        };
        let records = [
            pushes("push/1", "quipu", 8000.0),
            pushes("push/1", "pushgateway 1.11.1", 100.0),
            pushes("push/1", UNCHECKED, 2000.0),
            pushes("push/10,000", "quipu", 6000.0),
        ];
        let ratios = ratios(&records);
        let found: Vec<(&str, f64)> =
            ratios.iter().map(|record| (record.case.as_str(), record.median)).collect();
        assert_eq!(found, [("goal/push, 1 group", 4.0), ("goal/push, flat", 0.75)]);
    }

    #[test]
    fn each_goal_has_a_name_of_its_own() {
        let mut names: Vec<&str> = GOALS.iter().map(|goal| goal.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), GOALS.len());
    }
}
