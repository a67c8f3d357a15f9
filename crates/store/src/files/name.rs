//! File names: the client that wrote a file, its content, and the process that wrote it.
//!
//! Python's client names files `counter_PID.db`, `histogram_PID.db`, `summary_PID.db` and
//! `gauge_MODE_PID.db`, Ruby's client `metric_NAME___PID.bin`.

use quipu::Aggregation;

/// A parsed file name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name<'a> {
    pub(super) content: Content<'a>,
    /// The name that the process uses for itself: usually its pid.
    pub(super) pid: &'a str,
}

/// The kind of content of a file. Files of equal content are read into one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Content<'a> {
    /// Counters of Python's client, from all its metrics.
    Counters,
    /// Histograms of Python's client.
    Histograms,
    /// Summaries of Python's client.
    Summaries,
    /// Gauges of Python's client with this aggregation.
    Gauges(Mode),
    /// The metric of this name, written by Ruby's client.
    Ruby(&'a str),
}

/// [`Aggregation`], with an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Mode(u8);

impl Mode {
    fn new(aggregation: Aggregation) -> Option<Self> {
        let at = Aggregation::ALL.iter().position(|&every| every == aggregation)?;
        u8::try_from(at).ok().map(Self)
    }

    pub(super) fn aggregation(self) -> Aggregation {
        Aggregation::ALL.get(usize::from(self.0)).copied().unwrap_or_default()
    }
}

impl<'a> Name<'a> {
    /// Parses a file name. Returns `None` if neither client uses such a name.
    pub(super) fn parse(file: &'a str) -> Option<Self> {
        let (content, pid) = match file.strip_suffix(".db") {
            Some(stem) => Self::python(stem)?,
            None => Self::ruby(file.strip_suffix(".bin")?)?,
        };
        (!pid.is_empty()).then_some(Self { content, pid })
    }

    fn python(stem: &'a str) -> Option<(Content<'a>, &'a str)> {
        let (kind, rest) = stem.split_once('_')?;
        Some(match kind {
            "counter" => (Content::Counters, rest),
            "histogram" => (Content::Histograms, rest),
            "summary" => (Content::Summaries, rest),
            "gauge" => {
                let (mode, pid) = rest.split_once('_')?;
                (Content::Gauges(Mode::new(mode.parse().ok()?)?), pid)
            }
            _ => return None,
        })
    }

    /// Splits at the last three underscores, because a metric `c` must not get the files of a
    /// metric `c___x`.
    fn ruby(stem: &'a str) -> Option<(Content<'a>, &'a str)> {
        let (metric, pid) = stem.strip_prefix("metric_")?.rsplit_once("___")?;
        (!metric.is_empty()).then_some((Content::Ruby(metric), pid))
    }
}

/// Returns whether the name ends like a metric file. Other files are ignored without a warning.
pub(super) fn is_candidate(file: &str) -> bool {
    file.ends_with(".db") || file.ends_with(".bin")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_of_files_state_their_contents() {
        let parse = |file| Name::parse(file).map(|name| (name.content, name.pid));
        let mode = |aggregation| Mode::new(aggregation).unwrap();
        assert_eq!(parse("counter_7.db"), Some((Content::Counters, "7")));
        assert_eq!(parse("histogram_web-1.db"), Some((Content::Histograms, "web-1")));
        assert_eq!(parse("summary_a_b.db"), Some((Content::Summaries, "a_b")));
        for &aggregation in Aggregation::ALL {
            let file = format!("gauge_{aggregation}_12.db");
            let content = Content::Gauges(mode(aggregation));
            assert_eq!(Name::parse(&file).unwrap(), Name { content, pid: "12" });
            assert_eq!(mode(aggregation).aggregation(), aggregation);
        }
        assert_eq!(parse("metric_c___12.bin"), Some((Content::Ruby("c"), "12")));
        assert_eq!(parse("metric_c___x___12.bin"), Some((Content::Ruby("c___x"), "12")));
        for foreign in [
            "",
            ".db",
            "counter.db",
            "counter_.db",
            "gauge_7.db",
            "gauge_new_7.db",
            "info_7.db",
            "metric_c.bin",
            "metric____7.bin",
            "metric_c___.bin",
            "x___7.bin",
            "counter_7.txt",
        ] {
            assert_eq!(parse(foreign), None, "{foreign}");
        }
        assert!(is_candidate("backup.db") && !is_candidate("README"));
    }
}
