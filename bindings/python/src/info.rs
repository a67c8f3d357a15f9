//! `Info`: key-value pairs as labels of a series that is always 1.
//!
//! The keys are known only when a program first sets them. Each set of keys is a separate family.
//! Its labels are the labels of the metric followed by the keys. Each combination of the metric's
//! own label values is one series, in one of the families.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use quipu::label::Values;
use quipu::{Description, Family};
use quipu_segment::ForkSafeCell;

use crate::error::refused;
use crate::segment::{Segment, Source};

type Infos = Family<quipu::Info, Values<'static>>;

/// The key-value pairs of one metric. The metric and the children that its `labels` returns are
/// Python objects.
#[pyclass(frozen, module = "quipu_metrics._quipu")]
pub struct Info {
    name: String,
    help: String,
    labelnames: Vec<String>,
    families: ForkSafeCell<Vec<Texts>>,
}

/// The family of one set of keys.
#[derive(Clone)]
struct Texts {
    names: Vec<String>,
    family: Infos,
    source: quipu::snapshot::Source,
    /// Whether other processes can find the family in its segment by the name.
    is_named: bool,
}

#[pymethods]
impl Info {
    #[new]
    fn new(name: String, help: String, labelnames: Vec<String>) -> Self {
        Self { name, help, labelnames, families: ForkSafeCell::default() }
    }

    /// Replaces the key-value pairs of the series with these label values. The series is in `named`
    /// unless that segment contains the metric with other keys; then it is in `apart`.
    fn set(
        &self,
        named: Option<&Segment>,
        apart: &Segment,
        values: Vec<String>,
        texts: Vec<(String, String)>,
    ) -> PyResult<()> {
        if values.len() != self.labelnames.len() {
            return Err(PyValueError::new_err("Incorrect label count"));
        }
        let names: Vec<String> = texts.iter().map(|(name, _)| name.clone()).collect();
        let all = self.families.read(Clone::clone);
        let now = match all.iter().find(|known| known.names == names) {
            Some(known) => known.clone(),
            None => {
                let made = self.make(named.filter(|_| all.is_empty()), apart, names)?;
                self.families
                    .replace(|all| (Some(all.iter().cloned().chain([made.clone()]).collect()), ()));
                made
            }
        };
        let row: Vec<&str> =
            values.iter().chain(texts.iter().map(|(_, text)| text)).map(String::as_str).collect();
        now.family.bind(&Values(&row));
        // Remove the previous pairs of these label values.
        let is_ours = |series: &[(&str, &str)]| {
            self.labelnames
                .iter()
                .zip(&values)
                .all(|(n, v)| series.contains(&(n.as_str(), v.as_str())))
        };
        let is_new = |series: &[(&str, &str)]| {
            texts.iter().all(|(n, v)| series.contains(&(n.as_str(), v.as_str())))
        };
        now.family.retain(|series| !is_ours(series) || is_new(series)).map_err(refused)?;
        for other in all.iter().filter(|other| other.names != now.names) {
            other.family.retain(|series| !is_ours(series)).map_err(refused)?;
        }
        Ok(())
    }

    /// Removes the series with all of these pairs of label names and values.
    fn remove(&self, pairs: Vec<(String, String)>) -> PyResult<()> {
        let has = |series: &[(&str, &str)], (n, v): &(String, String)| {
            series.contains(&(n.as_str(), v.as_str()))
        };
        for texts in self.families.read(Clone::clone) {
            let keep = |series: &[(&str, &str)]| !pairs.iter().all(|pair| has(series, pair));
            texts.family.retain(keep).map_err(refused)?;
        }
        Ok(())
    }

    /// Returns whether all series are in the family that other processes can find by the name.
    #[getter]
    fn is_named(&self) -> bool {
        self.families.read(|all| match &all[..] {
            [] => true,
            [one] => one.is_named,
            _ => false,
        })
    }

    /// The sources that a scrape reads.
    #[getter]
    fn sources(&self) -> Vec<Source> {
        self.families.read(|all| all.iter().map(|texts| Source(texts.source.clone())).collect())
    }
}

impl Info {
    fn make(
        &self,
        named: Option<&Segment>,
        apart: &Segment,
        names: Vec<String>,
    ) -> PyResult<Texts> {
        let description = || {
            let labels = self.labelnames.iter().chain(&names).cloned();
            Description::new(self.name.clone(), self.help.clone()).labels(labels).verbatim()
        };
        let in_named = named.map(|segment| segment.registry().register::<Infos>(description()));
        let (family, is_named) = match in_named {
            Some(Ok(family)) => (family, true),
            Some(Err(error)) if !(error.is_of_segment() || error.is_duplicate()) => {
                return Err(refused(error));
            }
            _ => {
                let made = apart.registry().register::<Infos>(description().apart());
                (made.map_err(refused)?, false)
            }
        };
        let source = family.source().map_err(refused)?;
        Ok(Texts { names, family, source, is_named })
    }
}
