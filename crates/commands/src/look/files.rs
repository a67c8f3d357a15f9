//! Looks at the files in which other clients' processes keep their metrics, as `quipu scrape` reads
//! them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use quipu::collector::Collector;
use quipu::snapshot::{self, Family, Kind, Series, Sink};
use quipu_store::files::Directories;

use super::{Look, Value};
use crate::inspect::value::Type;

/// The files of a directory.
pub(super) struct Files {
    directories: Directories,
    warnings: Arc<Mutex<Vec<String>>>,
}

/// The most warnings that are kept: each is given once.
const MAX_WARNINGS: usize = 20;

impl Files {
    /// Those of a directory. Symbolic links are followed up to `root` alone.
    pub(super) fn of(directory: &Path, root: &Path) -> Self {
        let warnings = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&warnings);
        let directories = Directories::new([directory]).below(root).on_warning(move |warning| {
            let mut warnings = kept.lock().unwrap_or_else(PoisonError::into_inner);
            if warnings.len() < MAX_WARNINGS {
                warnings.push(warning.to_string());
            }
        });
        Self { directories, warnings }
    }

    /// Adds what is in the files.
    pub(super) fn read(&self, look: &mut Look) {
        self.directories.collect(&mut Adding { look, family: 0, points: Vec::new() });
        for warning in self.warnings.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            look.problem(warning.as_str());
        }
    }
}

/// Adds what a collector passes on.
struct Adding<'l> {
    look: &'l mut Look,
    family: u32,
    points: Vec<(f64, f64)>,
}

impl Sink for Adding<'_> {
    fn family(&mut self, family: &Family<'_>) {
        let (of, suffix) = match family.kind {
            Kind::Counter if family.bare => (Type::Counter, ""),
            Kind::Counter => (Type::Counter, "_total"),
            Kind::Gauge => (Type::Gauge, ""),
            Kind::Histogram => (Type::Histogram, ""),
            Kind::Summary => (Type::Summary, ""),
            Kind::Info => (Type::Info, "_info"),
            Kind::StateSet => (Type::StateSet, ""),
            _ => (Type::Unknown, ""),
        };
        self.family = self.look.family(super::Family {
            name: format!("{}{suffix}", family.name),
            of,
            help: family.help.to_owned(),
            unit: family.unit.to_owned(),
        });
    }

    fn series(&mut self, family: &Family<'_>, series: &Series<'_>) {
        let start = series.start.map(|start| start.0);
        let labels = || {
            let overflow = [("quipu_overflow", series.overflow_value())];
            let texts = family.dynamic().zip(series.texts);
            let own = family.fixed(series.group).chain(texts);
            let is_own = !series.overflow;
            own.filter(move |_| is_own).chain(overflow.into_iter().filter(move |_| !is_own))
        };
        let one = snapshot::Number::Unsigned;
        let value = match series.value {
            snapshot::Value::Counter { total: n, .. }
            | snapshot::Value::Gauge(n)
            | snapshot::Value::Unknown(n) => Value::Number(n),
            snapshot::Value::Info => Value::Number(one(1)),
            snapshot::Value::Histogram(histogram) => {
                self.points.clear();
                let buckets = histogram.buckets.iter();
                self.points.extend(buckets.map(|bucket| (bucket.bound, bucket.count as f64)));
                let (count, sum) = (histogram.count as f64, histogram.sum);
                Value::Histogram { count, sum, buckets: &self.points, is_exponential: false }
            }
            snapshot::Value::Summary { quantiles, count, sum } => {
                Value::Summary { count: count as f64, sum, quantiles }
            }
            snapshot::Value::StateSet(states) => {
                for &(state, is_on) in states {
                    let labels = labels().chain([(family.name, state)]);
                    self.look.add(self.family, labels, start, Value::Number(one(is_on.into())));
                }
                return;
            }
            _ => return,
        };
        self.look.add(self.family, labels(), start, value);
    }
}
