//! Errors of the library as exceptions.

use pyo3::PyErr;
use pyo3::exceptions::PyValueError;

pyo3::create_exception!(
    _quipu,
    MismatchError,
    PyValueError,
    "The segment has a metric of that name with other labels or settings."
);

/// What the library refuses is a `ValueError`, as it is in `prometheus_client`.
pub fn refused(error: quipu::Error) -> PyErr {
    if error.is_mismatch() {
        return MismatchError::new_err(error.to_string());
    }
    PyValueError::new_err(error.to_string())
}

/// A use of a metric that has labels, without them.
#[cold]
pub fn no_labels(kind: &str) -> PyErr {
    PyValueError::new_err(format!("{kind} metric is missing label values"))
}
