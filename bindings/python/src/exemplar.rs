//! Exemplars: labels, such as a trace ID, that identify the latest observation.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The maximum number of characters in all names and values together.
const MAX_CHARACTERS: usize = 128;

/// Whether to refuse names that older versions of Prometheus cannot parse.
static IS_LEGACY: AtomicBool = AtomicBool::new(false);

/// Sets whether to refuse names that older versions of Prometheus cannot parse.
#[pyfunction]
pub fn set_legacy(is_legacy: bool) {
    IS_LEGACY.store(is_legacy, Ordering::Relaxed);
}

/// Checks the pairs of a mapping and passes them to `keep`. An empty mapping is ignored.
pub fn read(exemplar: &Bound<'_, PyAny>, keep: impl FnOnce(&[(&str, &str)])) -> PyResult<()> {
    if !exemplar.is_truthy()? {
        return Ok(());
    }
    let pairs: Vec<(String, String)> = match exemplar.cast::<PyDict>() {
        Ok(dictionary) => dictionary
            .iter()
            .map(|(name, value)| Ok((name.extract()?, value.extract()?)))
            .collect::<PyResult<_>>()?,
        Err(_) => exemplar
            .call_method0("items")?
            .try_iter()?
            .map(|pair| pair?.extract())
            .collect::<PyResult<_>>()?,
    };
    let characters: usize = pairs.iter().map(|(n, v)| n.chars().count() + v.chars().count()).sum();
    if characters > MAX_CHARACTERS {
        return Err(PyValueError::new_err(format!(
            "Exemplar labels have {characters} UTF-8 characters, exceeding the limit of \
             {MAX_CHARACTERS}"
        )));
    }
    if let Some((name, _)) = pairs.iter().find(|(name, _)| name.starts_with("__")) {
        return Err(PyValueError::new_err(format!("Reserved label metric name: {name}")));
    }
    if IS_LEGACY.load(Ordering::Relaxed)
        && let Some((name, _)) = pairs.iter().find(|(name, _)| !is_legacy_label(name))
    {
        return Err(PyValueError::new_err(format!("Invalid label metric name: {name}")));
    }
    if !pairs.is_empty() {
        let pairs: Vec<(&str, &str)> =
            pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        keep(&pairs);
    }
    Ok(())
}

fn is_legacy_label(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}
