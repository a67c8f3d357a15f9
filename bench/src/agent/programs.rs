//! The programs that count: each holds a segment with a counter in 1,000 series. All series grow
//! from one scrape to the next. Their values are also written as the `.prom` files of Prometheus'
//! node exporter.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use quipu::{CounterFamily, Description, Registry};

use super::failed;
use crate::{Error, Result};

/// The name of their metric in an exposition.
pub(super) const METRIC: &str = "requests_total";

/// Programs with open segments.
pub(super) struct Programs {
    families: Vec<CounterFamily<[&'static str; 2]>>,
    series: &'static [[String; 2]],
    /// The number of changes of each series.
    changes: AtomicU64,
}

/// Returns the folder of their segments, in a folder of a turn.
pub(super) fn segments(folder: &Path) -> PathBuf {
    folder.join("segments")
}

impl Programs {
    /// Makes their segments, and counts once.
    pub(super) fn create(folder: &Path, [programs, series]: [usize; 2]) -> Result<Programs> {
        let place = segments(folder);
        fs::create_dir_all(&place).map_err(Error::file("make the folder", &place))?;
        let labels =
            |number: usize| [format!("/api/v1/r{number:05}"), (200 + number % 5).to_string()];
        let series: Vec<[String; 2]> = (0..series).map(labels).collect();
        // A few kilobytes, once or twice in a process.
        let series: &'static [[String; 2]] = series.leak();
        let family = |number: usize| {
            let registry = Registry::open(place.join(format!("{}.quipu", name(number))));
            registry.map_err(failed)?.register(description(series.len())).map_err(failed)
        };
        let families = (0..programs).map(family).collect::<Result<_>>()?;
        let programs = Programs { families, series, changes: AtomicU64::new(0) };
        programs.change();
        Ok(programs)
    }

    /// Increments all series.
    pub(super) fn change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        for family in &self.families {
            for (number, [route, code]) in self.series.iter().enumerate() {
                family.inc_by(&[route.as_str(), code.as_str()], step(number));
            }
        }
    }

    /// Returns the number of series of all programs.
    pub(super) fn len(&self) -> usize {
        self.families.len() * self.series.len()
    }

    /// Returns the values of all programs, as one exposition.
    pub(super) fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        (0..self.families.len()).for_each(|program| self.append(program, &mut text));
        text
    }

    /// Writes the values as a `.prom` file for each program, like the node exporter's documentation
    /// recommends: a temporary file, and a rename.
    pub(super) fn write_texts(&self, folder: &Path) -> Result<()> {
        for program in 0..self.families.len() {
            let mut text = HEAD.to_owned();
            self.append(program, &mut text);
            let path = folder.join(format!("{}.prom", name(program)));
            let temporary = path.with_extension("tmp");
            fs::write(&temporary, text)
                .and_then(|()| fs::rename(&temporary, &path))
                .map_err(Error::file("write", &path))?;
        }
        Ok(())
    }

    fn append(&self, program: usize, text: &mut String) {
        let (name, changes) = (name(program), self.changes.load(Ordering::Relaxed));
        for (number, [route, code]) in self.series.iter().enumerate() {
            let value = changes * step(number);
            // Writing to memory never fails.
            let _ = writeln!(
                text,
                "{METRIC}{{segment=\"{name}\",route=\"{route}\",code=\"{code}\"}} {value}"
            );
        }
    }
}

const HEAD: &str = "# HELP requests_total Requests.\n# TYPE requests_total counter\n";

/// Returns the metric of each program.
pub(super) fn description(series: usize) -> Description {
    Description::new("requests", "Requests.").labels(["route", "code"]).max_series(series as u64)
}

fn name(program: usize) -> String {
    format!("app-{program:03}")
}

fn step(series: usize) -> u64 {
    1 + series as u64 % 7
}

/// Returns the number of the programs' series in an exposition.
pub(super) fn shown(text: &[u8]) -> usize {
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter(|line| line.starts_with(METRIC.as_bytes())).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_the_values_of_the_segments() {
        let folder = tempfile::tempdir().unwrap();
        let programs = Programs::create(folder.path(), [2, 3]).unwrap();
        programs.change();
        assert_eq!((programs.len(), shown(programs.text().as_bytes())), (6, 6));
        programs.write_texts(folder.path()).unwrap();
        let text = fs::read_to_string(folder.path().join("app-001.prom")).unwrap();
        let last = "requests_total{segment=\"app-001\",route=\"/api/v1/r00002\",code=\"202\"} 6\n";
        assert!(text.ends_with(last), "{text}");
        let registry = Registry::open(segments(folder.path()).join("app-001.quipu")).unwrap();
        let shown = registry.text();
        assert!(shown.contains("{route=\"/api/v1/r00002\",code=\"202\"} 6\n"), "{shown}");
    }
}
