//! `Info`: texts as labels of a series that is always 1.
//!
//! The names of its texts are known when they are first given. From then on it is a family with
//! these labels behind its own, of which each set of its own labels has one series.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use quipu::label::Values;
use quipu::{Description, Family};

use crate::error::refused;
use crate::segment::Segment;

type Infos = Family<quipu::Info, Values<'static>>;

/// The texts of one metric. Parents and children are Python's.
#[pyclass(frozen, module = "quipu._quipu")]
pub struct Info {
    name: String,
    help: String,
    labelnames: Vec<String>,
    /// The names of the texts, and their family. No Python runs while it is locked, so that no
    /// thread holds it where a process is forked.
    family: Mutex<Option<(Vec<String>, Infos)>>,
}

#[pymethods]
impl Info {
    #[new]
    fn new(name: String, help: String, labelnames: Vec<String>) -> Self {
        Self { name, help, labelnames, family: Mutex::default() }
    }

    /// Makes `texts` those of the series of these label values. Answers false where the segment has
    /// the metric with other names of texts.
    fn set(
        &self,
        segment: &Segment,
        values: Vec<String>,
        texts: Vec<(String, String)>,
    ) -> PyResult<bool> {
        if values.len() != self.labelnames.len() {
            return Err(PyValueError::new_err("Incorrect label count"));
        }
        let names: Vec<String> = texts.iter().map(|(name, _)| name.clone()).collect();
        let mut family = self.family.lock().unwrap_or_else(PoisonError::into_inner);
        if family.as_ref().is_none_or(|(known, _)| *known != names) {
            if family.take().is_some() {
                segment.registry().unregister(&self.name);
            }
            let labels = self.labelnames.iter().chain(&names).cloned();
            let description =
                Description::new(self.name.clone(), self.help.clone()).labels(labels).verbatim();
            match segment.registry().register::<Infos>(description) {
                Ok(made) => *family = Some((names, made)),
                Err(error) if error.is_mismatch() => return Ok(false),
                Err(error) => return Err(refused(error)),
            }
        }
        let Some((_, family)) = &*family else { return Ok(false) };
        let all: Vec<&str> =
            values.iter().chain(texts.iter().map(|(_, text)| text)).map(String::as_str).collect();
        family.with(&Values(&all));
        // Whatever these labels had before is gone.
        let is_ours = |series: &[(&str, &str)]| {
            self.labelnames
                .iter()
                .zip(&values)
                .all(|(n, v)| series.contains(&(n.as_str(), v.as_str())))
        };
        let is_new = |series: &[(&str, &str)]| {
            texts.iter().all(|(n, v)| series.contains(&(n.as_str(), v.as_str())))
        };
        family.retain(|series| !is_ours(series) || is_new(series)).map_err(refused)?;
        Ok(true)
    }

    /// Removes the series that have all of these pairs.
    fn remove(&self, pairs: Vec<(String, String)>) -> PyResult<()> {
        let family = self.family.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, family)) = &*family else { return Ok(()) };
        let has = |series: &[(&str, &str)], (n, v): &(String, String)| {
            series.contains(&(n.as_str(), v.as_str()))
        };
        family.retain(|series| !pairs.iter().all(|pair| has(series, pair))).map_err(refused)?;
        Ok(())
    }
}
