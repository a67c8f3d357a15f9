//! Exemplars: pairs of texts that stand for what was counted last.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// As many characters as names and values have at most, together.
const MOST_CHARACTERS: usize = 128;

/// Hands the pairs of a dictionary to `keep`; an empty one to nobody.
pub fn read(exemplar: &Bound<'_, PyAny>, keep: impl FnOnce(&[(&str, &str)])) -> PyResult<()> {
    let dictionary = exemplar.cast::<PyDict>()?;
    let pairs: Vec<(String, String)> = dictionary
        .iter()
        .map(|(name, value)| Ok((name.extract()?, value.extract()?)))
        .collect::<PyResult<_>>()?;
    let characters: usize = pairs.iter().map(|(n, v)| n.chars().count() + v.chars().count()).sum();
    if characters > MOST_CHARACTERS {
        return Err(PyValueError::new_err(format!(
            "Exemplar labels have {characters} UTF-8 characters, exceeding the limit of \
             {MOST_CHARACTERS}"
        )));
    }
    if let Some((name, _)) = pairs.iter().find(|(name, _)| name.starts_with("__")) {
        return Err(PyValueError::new_err(format!("Reserved label metric name: {name}")));
    }
    if !pairs.is_empty() {
        let pairs: Vec<(&str, &str)> =
            pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        keep(&pairs);
    }
    Ok(())
}
